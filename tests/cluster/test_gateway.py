"""The gateway's process and the driver's end of it."""

import os
import select
import signal
import threading
import time

import pytest

from tests.execution.local.conftest import DEADLINE_S
from tuner.cluster.gateway import GatewayProcess, _split
from tuner.errors import ClusterError

pytestmark = pytest.mark.process

ECHO = "tests.cluster.echo_engine:EchoEngine"


@pytest.fixture
def start():
    made = []

    def make(known=(), **settings):
        made.append(GatewayProcess(ECHO, settings, "token", known))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close(DEADLINE_S)


def receive(gateway, number):
    """Return so many messages; None ends them, where the process is gone."""
    messages, deadline_s = [], time.monotonic() + DEADLINE_S
    while len(messages) < number:
        assert time.monotonic() < deadline_s, messages
        writable = [gateway.socket] if gateway.has_backlog else []
        readable, _, _ = select.select([gateway.socket], writable, [], 1.0)
        gateway.flush()
        if readable:
            arrived = gateway.receive()
            messages += [None] if arrived is None else arrived
    return messages


def test_lines_go_both_ways(start):
    gateway = start(known=["old"])
    assert receive(gateway, 2) == [
        ["agent", "a", {"token": "token", "known": ["old"]}],
        ["opened", {"address": "here", "version": "1"}],
    ]
    gateway.tell("a", ["one", "two"])
    gateway.demand([({"cpu": 1.0}, {"zone": "x"}, 3)])
    gateway.evict("a", "enough")
    assert receive(gateway, 3) == [
        ["from", "a", ["one", "two"]],
        ["remark", "[[{'cpu': 1.0}, {'zone': 'x'}, 3]]", False],
        ["gone", "a", "enough", False],
    ]


def test_more_than_the_socket_holds_arrives_in_order(start):
    gateway = start()
    receive(gateway, 2)
    lines = [f"{number}" + "x" * 10_000 for number in range(200)]
    for line in lines:
        gateway.tell("a", [line])
    assert [message[2][0] for message in receive(gateway, len(lines))] == lines


def test_a_cluster_that_cannot_be_reached_is_an_answer(start):
    assert receive(start(fails="nobody answers; start the cluster"), 1) == [
        ["failed", "nobody answers; start the cluster"]
    ]


def test_settings_that_cannot_be_sent_are_named(start):
    with pytest.raises(ClusterError, match="cannot be sent to the process that connects"):
        start(lock=threading.Lock())


def test_a_process_that_dies_is_noticed_with_its_last_words(start):
    gateway = start()
    receive(gateway, 2)
    gateway.tell("a", ["die"])
    assert receive(gateway, 1) == [None]
    assert gateway.why_gone() == "it ended with exit code 3: a library's last words"
    gateway.tell("a", ["nothing"])


def test_a_process_that_hangs_does_not_hold_up_its_end(start):
    gateway = start()
    receive(gateway, 2)
    os.kill(gateway._process.pid, signal.SIGSTOP)
    gateway.tell("a", ["x" * (4 << 20)])
    closing = threading.Thread(target=gateway.close, args=(0.0,), daemon=True)
    closing.start()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()


def test_messages_are_put_together_from_pieces_of_any_size():
    whole = b'["a",1]\n["b",2]\n["c",3]\n'
    for size in range(1, len(whole) + 1):
        partial = bytearray()
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        found = [message for piece in pieces for message in _split(partial, piece)]
        assert found == [["a", 1], ["b", 2], ["c", 3]]
        assert not partial
