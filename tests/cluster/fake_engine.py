"""Cluster engine of subprocesses of this machine, whose network fails as a test asks it to.

Each node is an agent of this process with a host process of its own. Lines between gateway and
agents may be delayed, lost, doubled and cut off. A test asks for that over a Unix socket, one JSON
array a connection: ``[what, node, ...]``, answered by ``null`` or an error as text; see
`FakeCluster`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from tuner.cluster.agent import Agent
from tuner.cluster.engine import Relay, Unmet
from tuner.errors import ClusterError

_TAKE_S: Final = 1.0
_EXIT_CODE: Final = 1

CONTROL: Final = "control"
"""Name of the socket in the cluster's directory."""
DOWN: Final = "down"
"""Name of a file with which the cluster cannot be reached."""


@dataclass(slots=True)
class _Network:
    """How lines travel between the gateway and a node.

    Attributes:
        delay_s: For how long at least.
        jitter_s: For how much longer at most, so that lines overtake each other.
        loss: Which share is lost.
        doubling: Which share arrives twice.
        is_cut: Whether nothing arrives.
        is_mute: Whether nothing arrives of what the node says.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    doubling: float = 0.0
    is_cut: bool = False
    is_mute: bool = False

    @property
    def is_perfect(self) -> bool:
        return self == _PERFECT


_PERFECT: Final = _Network()


@dataclass(slots=True)
class _Node:
    agent: Agent
    network: _Network = field(default_factory=_Network)
    rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311


@final
class FakeEngine:
    """See `Engine`."""

    def __init__(self, settings: Mapping[str, Any], token: str, relay: Relay) -> None:
        self._settings = settings
        self._token = token
        self._relay = relay
        self._directory = Path(settings["directory"])
        self._nodes: dict[str, _Node] = {}
        self._used: set[str] = set()
        self._lock = threading.Lock()
        self._carrier = _Carrier()

    def open(self, known: Sequence[str]) -> Mapping[str, Any]:
        """See `Engine`.

        Raises:
            ClusterError: While the cluster is down.
        """
        if (self._directory / DOWN).exists():
            raise ClusterError("the fake cluster is down; bring it up")
        self._used.update(known)
        self._listen()
        for name, facts in self._settings["nodes"].items():
            self._add(name, facts)
        return {"address": "127.0.0.1", "version": "0", "ends_agents": True}

    def tell(self, agent: str, lines: Sequence[str]) -> None:
        """See `Engine`."""
        if node := self._nodes.get(agent):
            self._carry(node, lines, node.agent.tell)

    def demand(self, unmet: Sequence[Unmet]) -> None:
        """See `Engine`; one more of the spare nodes starts while something waits."""
        spare = self._settings["spare"]
        with self._lock:
            wanted = next((name for name in spare if name not in self._used), None)
        if unmet and wanted:
            self._add(wanted, spare[wanted])

    def evict(self, agent: str, why: str) -> None:
        """See `Engine`."""
        if node := self._take_away(agent):
            threading.Thread(target=node.agent.close, args=(1.0,), daemon=True).start()

    def close(self, deadline_s: float) -> None:
        """See `Engine`."""
        closing = [
            threading.Thread(target=node.agent.close, args=(deadline_s,), daemon=True)
            for node in self._nodes.values()
        ]
        self._nodes.clear()
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(deadline_s)

    # Nodes.

    def _add(self, name: str, facts: Mapping[str, Any]) -> None:
        with self._lock:
            numbered = (f"{name}-{number}" for number in itertools.count(2))
            candidates = itertools.chain([name], numbered)
            name = next(candidate for candidate in candidates if candidate not in self._used)
            self._used.add(name)
        facts = {"resources": {}, "labels": {}, "environ": {}, "address": "127.0.0.1", **facts}
        environ = facts.pop("environ")
        silent_s = self._settings["silent_s"]
        agent = Agent(name, self._token, facts, environ=environ, silent_s=silent_s)
        node = self._nodes[name] = _Node(agent)
        self._relay.agent_up(name, facts)
        threading.Thread(target=self._listen_to, args=(name, node), daemon=True).start()

    def _listen_to(self, name: str, node: _Node) -> None:
        while self._nodes.get(name) is node:
            lines = node.agent.take(_TAKE_S)
            # A machine without power does not tell how its host ended.
            is_there = self._nodes.get(name) is node
            if lines and is_there and not node.network.is_mute:
                self._carry(node, lines, lambda carried: self._relay.received(name, carried))

    def _take_away(self, name: str) -> _Node | None:
        return self._nodes.pop(name, None)

    def _carry(
        self, node: _Node, lines: Sequence[str], deliver: Callable[[Sequence[str]], None]
    ) -> None:
        network, rng = node.network, node.rng
        if network.is_perfect:
            deliver(lines)
            return
        for line in lines:
            num_copies = 0 if network.is_cut or rng.random() < network.loss else 1
            num_copies += bool(num_copies) and rng.random() < network.doubling
            for _ in range(num_copies):
                delay_s = network.delay_s + network.jitter_s * rng.random()
                self._carrier.deliver_after(delay_s, deliver, [line])

    # What tests ask for.

    def _listen(self) -> None:
        path = self._directory / CONTROL
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.fspath(path))
        server.listen()
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError), connection.makefile("rw") as file:
                what, *arguments = json.loads(file.readline())
                try:
                    getattr(self, f"_do_{what}")(*arguments)
                    answer = None
                except Exception as error:  # noqa: BLE001  (the test is told)
                    answer = repr(error)
                file.write(json.dumps(answer) + "\n")

    def _do_add(self, name: str, facts: Mapping[str, Any]) -> None:
        self._add(name, facts)

    def _do_kill(self, name: str) -> None:
        """Kill all processes of a node, as a power cut does."""
        if node := self._take_away(name):
            for pid in _with_descendants(node.agent.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            node.agent.close(0.0)
            self._relay.agent_gone(name, "the machine has lost its power")

    def _do_drain(self, name: str, deadline_s: float | None) -> None:
        self._relay.draining(name, deadline_s)

    def _do_network(self, name: str, fields: Mapping[str, Any]) -> None:
        self._nodes[name].network = _Network(**fields)

    def _do_signal(self, name: str, number: int) -> None:
        """Send a signal to the host of a node."""
        pid = self._nodes[name].agent.pid
        if not pid:  # which would mean this process and its group
            raise ProcessLookupError(f"node {name} has no host at present")
        os.kill(pid, signal.Signals(number))

    def _do_die(self) -> None:
        """End as a gateway does whose cluster is gone."""
        threading.Timer(0.01, os._exit, (_EXIT_CODE,)).start()


def _with_descendants(pid: int) -> list[int]:
    """Return a process and all below it, where the system tells; nothing for process 0."""
    found = [pid] if pid else []
    for each in found:
        with contextlib.suppress(OSError):
            # Each thread has children of its own.
            for path in Path(f"/proc/{each}/task").glob("*/children"):
                found += [int(child) for child in path.read_text(encoding="ascii").split()]
    return found


@final
class _Carrier:
    """Delivers lines after a delay, in a thread of its own."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[Sequence[str]], None], Sequence[str]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def deliver_after(
        self, delay_s: float, deliver: Callable[[Sequence[str]], None], lines: Sequence[str]
    ) -> None:
        with self._changed:
            due_s = time.monotonic() + delay_s
            heapq.heappush(self._due, (due_s, next(self._numbers), deliver, lines))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or (wait_s := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(wait_s if self._due else None)
                _, _, deliver, lines = heapq.heappop(self._due)
            deliver(lines)
