"""Processes on the nodes of a cluster, as the executor's process service.

What the executor asks for is sent to the node of the process, and what the node says about its
processes is passed on, see `service_messages`; on the node it is done by `node_service`. When a
node leaves, the executor is told so in the place of what its processes might have said.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from tuner.core.events import NodeDraining, NodeJoined, NodeLeft
from tuner.execution.assignment import Assignment
from tuner.execution.process_service import (
    Gone,
    HasFileno,
    Listening,
    NodeChanged,
    Said,
    ServiceEvent,
    Unstarted,
    Woken,
)
from tuner.execution.validation_assignment import ValidationAssignment

from .cluster import Cluster
from .file_messages import FILE_KINDS, read_file_record
from .files_on_nodes import FilesOnNodes
from .nodes import READ, ClusterNodes, Node
from .service_messages import (
    REQUESTS,
    DumpStack,
    ExpectExit,
    Kill,
    Listen,
    Preload,
    Reassign,
    Request,
    Send,
    Start,
    Validate,
    read_record,
)

_STARTED: Final = "started"
"""Kind of the message of a worker that has loaded the user's code."""


@final
class NodeProcesses(ClusterNodes):
    """Starts processes on the nodes of a cluster.

    Attributes:
        given_up: Names of the nodes that have left since this driver had no use for them.
        files: What moves the files there; None where they are in a directory that all share.
    """

    isolates: Final = True

    def __init__(self, cluster: Cluster, *, trainable: bytes, validator: bytes = b"") -> None:
        super().__init__(cluster, trainable=trainable, validator=validator)
        self._node_of: dict[int, Node] = {}
        """The node of each process."""
        self._trials: dict[int, str] = {}
        """The trial of each process that was started."""
        self._listening: set[int] = set()
        """Processes that are not started yet."""
        self._readable: list[Callable[[], None]] = []
        """What is to be called since something is readable that is watched."""
        self._calls: deque[Callable[[], None]] = deque()
        """What is to be called in the driver's thread."""
        self._said: list[ServiceEvent] = []
        self.given_up: set[str] = set()
        self.files: FilesOnNodes | None = None

    # The ProcessService protocol.

    def listen(self, key: int, node: str = "", *, is_local: bool = True) -> None:
        with self.lock:
            self._begin(key, node, Listen(key, is_local))
            self._listening.add(key)

    def start(self, key: int, assignment: Assignment | ValidationAssignment) -> None:
        request = (
            Validate(key, assignment)
            if isinstance(assignment, ValidationAssignment)
            else Start(key, assignment)
        )
        with self.lock:
            self._begin(key, assignment.node, request)
            if key in self._node_of:
                self._trials[key] = assignment.trial_id
            self._listening.discard(key)  # not before: what cannot be pickled listens until killed

    def reassign(self, key: int, assignment: Assignment) -> None:
        self._ask(Reassign(key, assignment))
        self._trials[key] = assignment.trial_id

    def send(self, key: int, line: bytes) -> None:
        self._ask(Send(key, line.decode()))

    def kill(self, key: int, grace_s: float = 0.0) -> None:
        with self.lock:
            self._ask(Kill(key, grace_s))
            if key in self._listening:
                self._listening.discard(key)
                self._node_of.pop(key, None)  # nothing more is said about it

    def expect_exit(self, key: int) -> None:
        self._ask(ExpectExit(key))

    def dump_stack(self, key: int) -> None:
        self._ask(DumpStack(key))

    def preload(self, modules: Iterable[str]) -> None:
        """See `ProcessService`; what one node needs, the others will need, too."""
        message = REQUESTS.encode(Preload(list(modules)))
        with self.lock:
            for node in self._nodes.values():
                node.link.send(message)

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        def notice(_mask: int) -> None:
            # Called by `wait`, in the driver's thread, not by the deputy.
            if on_readable not in self._readable:
                self._readable.append(on_readable)

        with self.lock:
            self._selector.register(readable, READ, notice)

    def wait(self, timeout_s: float | None) -> list[ServiceEvent]:
        """See `ProcessService`.

        Raises:
            ClusterError: If the cluster cannot be reached any more.
        """
        for _ in range(len(self._calls)):
            # Before what nodes say next, and after all that they have said before.
            self._calls.popleft()()
            self._is_woken = True
        with self.lock:
            self._raise_error()
            self._look_at_demand(time.monotonic())
            if not (self._said or self._readable or self._is_woken):
                self._step(None if timeout_s is None else time.monotonic() + timeout_s)
            said, self._said = self._said, []
            readable, self._readable = self._readable, []
            if self._is_woken or readable:
                self._is_woken = False
                said.append(Woken())
        for each in said:
            if self.files and isinstance(each, NodeChanged) and isinstance(each.event, NodeLeft):
                self._calls.append(partial(self.files.on_node_left, each.event.node))
        for on_readable in readable:
            on_readable()
        return said

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have a function called by `wait`; may be called from any thread."""
        self._calls.append(call)
        self.wake()

    def directory_of(self, name: str) -> Path:
        """Return a node's own directory; of one that has left, any: nothing is started there."""
        node = self._nodes.get(name)
        return Path(node.directory if node else "")

    def runs(self, name: str, trial_id: str) -> bool:
        """Return whether a node has a process of a trial."""
        return any(
            node.name == name and self._trials.get(key) == trial_id
            for key, node in self._node_of.items()
        )

    def _begin(self, key: int, name: str, request: Request) -> None:
        """Ask for the first thing about a process; of a node that has left nothing is asked.

        The executor is about to learn of that.
        """
        message = REQUESTS.encode(request)
        if node := self._nodes.get(name):
            self._node_of[key] = node
            node.link.send(message)

    def _ask(self, request: Reassign | Send | Kill | ExpectExit | DumpStack) -> None:
        with self.lock:
            if node := self._node_of.get(request.key):
                node.link.send(REQUESTS.encode(request))

    # What the nodes say, see `ClusterNodes`.

    @property
    def _has_news(self) -> bool:
        return bool(self._said)

    def _announce(self, event: NodeJoined | NodeDraining) -> None:
        self._said.append(NodeChanged(event))

    def _is_idle(self, node: Node) -> bool:
        is_moving = self.files is not None and self.files.is_moving(node.name)
        return not is_moving and node not in self._node_of.values()

    def _lose(self, node: Node, why: str, *, is_intended: bool) -> None:
        if is_intended:
            self.given_up.add(node.name)
        self._node_of = {key: other for key, other in self._node_of.items() if other is not node}
        self._trials = {key: trial for key, trial in self._trials.items() if key in self._node_of}
        self._listening &= self._node_of.keys()
        self._said.append(NodeChanged(NodeLeft(node.name, why), node.link.confirmed_s))

    def _on_told(self, node: Node, message: Mapping[str, Any]) -> None:
        if self.files and message.get("kind") in FILE_KINDS:
            self.files.on_told(node.name, read_file_record(message))
            return
        record = read_record(message)
        if self._node_of.get(record.key) is not node:
            return  # late: the executor has given it up
        match record:
            case Said(_, messages):
                node.has_loaded = node.has_loaded or any(map(_is_start, messages))
            case Listening(key) if key not in self._listening:
                raise ValueError(f"process {key} was not asked to listen")
            case Gone() | Unstarted():
                self._listening.discard(record.key)
                self._trials.pop(record.key, None)
                del self._node_of[record.key]
        self._said.append(record)


def _is_start(message: Any) -> bool:
    return isinstance(message, dict) and message.get("kind") == _STARTED
