"""Stand-ins for the host of a node, each a program of a few lines."""

import json
import os
import signal
import socket
import sys


def obey(number, order):
    """Return the line that answers an order, or exit as it says."""
    if order.startswith("exit"):
        sys.exit(int(order.split()[1]))
    return [number, order]


def main(descriptor):
    behaviour = os.environ["STAND_IN"]
    if behaviour == "die":
        sys.exit(5)
    end = socket.socket(fileno=int(descriptor))
    lines = end.makefile("r", encoding="utf-8")

    def say(line):
        end.sendall(json.dumps(line).encode() + b"\n")

    greeting = json.loads(lines.readline())
    number = greeting["host"]
    say([number, {**greeting, "pid": os.getpid()}])
    if behaviour == "lonely":
        sys.exit(3)
    while behaviour in ("deaf", "stay"):
        signal.pause()
    for line in lines:
        say(obey(*json.loads(line)))
