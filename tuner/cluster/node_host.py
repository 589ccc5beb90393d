"""Host of a node: the process that runs the node's trials, as its driver says.

The driver is on another machine. Between the two there are the agent, whose child this process is,
the cluster's engine, and the driver's gateway; a `Link` makes one connection of all that. First the
host says what its node has; the driver says what all trials have in common, and sends the code.
From then on it runs what the driver asks for, see `node_service`.

It unpickles nothing but an fsspec file system that the user may have given, and it ends in one of
these ways, each time with all trials: its driver closes it; its driver has not been heard of for
as long as its lease lasts, so that a trial which is started elsewhere does not run here as well; or
its agent dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

from tuner.errors import TunerError
from tuner.execution.local.process_setup import TERMINATION_SIGNALS, WakeupPipe
from tuner.execution.local.trainable_blob import PickledCode
from tuner.storage import strict_json

from .agent import CLOSED, NO_DRIVER, LineSocket
from .link import Link, beat_within
from .node_files import NodeFiles
from .node_messages import (
    NODE_MESSAGES,
    BlobReader,
    Draining,
    Hello,
    Probed,
    Ready,
    Remark,
    Setup,
    SetupRefused,
    SharedStorage,
    read_setup,
)
from .node_service import NodeService
from .scratch import Scratch
from .shared_directory import answer_proof
from .storage_probe import answer_in_time, answer_probe, open_store

_FIRST_S: Final = 60.0
"""For how long a new host waits for its driver."""
_FLUSH_S: Final = 0.01
"""How often it is tried to send what the agent has not read yet."""
_MAX_REMARKS: Final = 100
_FAILED: Final = 1
"""Exit code of a host that cannot go on."""

_log = logging.getLogger("tuner")


def _now_s() -> float:
    """Return the time in seconds, of a clock that goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@final
class NodeHost:
    """The host of a node.

    Args:
        lines: The connection to the agent.
        greeting: What the agent has said first.
    """

    def __init__(self, lines: LineSocket, greeting: Mapping[str, Any]) -> None:
        self._lines = lines
        self._name: str = greeting["name"]
        self._number: int = greeting["host"]
        self._path: Sequence[str] = greeting["path"]
        facts = greeting["facts"]
        self._address: str = facts["address"]
        self._resources: Mapping[str, float] = facts["resources"]
        self._link = Link(greeting["token"], _now_s())
        self._link.send(
            Hello.of_this_process(self._address, self._resources, facts["labels"]).message
        )
        self._lease_s = _FIRST_S
        self._code = BlobReader()
        self._setup: Setup | None = None
        self._node: NodeService | None = None
        self._scratch: Scratch | None = None
        self._inbox: list[dict[str, Any]] = []
        self._remarks: deque[str] = deque(maxlen=_MAX_REMARKS)
        self._is_draining = self._has_told_draining = False
        self._exit_code: int | None = None
        self._wakeup_pipe = WakeupPipe()

    # From signal handlers and other threads.

    def drain(self) -> None:
        """Tell the driver that the node is going to leave."""
        self._is_draining = True
        self._wakeup_pipe.wake()

    def remark(self, text: str) -> None:
        """Have the driver log something."""
        self._remarks.append(text)
        self._wakeup_pipe.wake()

    # The loop.

    def run(self) -> int:
        """Serve the driver until the end; return the exit code."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._lines, selectors.EVENT_READ)
            selector.register(self._wakeup_pipe, selectors.EVENT_READ)
            while self._exit_code is None and self._node is None:
                self._send_due()
                for key, _ in selector.select(self._timeout_s()):
                    self._read() if key.fileobj is self._lines else self._wakeup_pipe.clear()
                self._check_lease()
                self._take_messages()
        while self._exit_code is None and self._node:
            self._send_due()
            self._node.wait(self._timeout_s())
            self._check_lease()
            self._take_messages()
        return self._exit_code or 0

    def close(self) -> None:
        """Kill all that is left."""
        if self._node:
            self._node.close()
        if self._scratch:
            self._scratch.close()

    def fail(self, why: str) -> None:
        """Tell the driver why the host ends, if that is still possible."""
        self.remark(f"it cannot go on: {why}")
        self._send_due()

    def _send_due(self) -> None:
        while self._remarks:
            self._link.send(NODE_MESSAGES.encode(Remark(self._remarks.popleft())))
        if self._is_draining and not self._has_told_draining:
            self._has_told_draining = True
            self._link.send(NODE_MESSAGES.encode(Draining(None)))
        for frame in self._link.take_frames(_now_s()):
            self._lines.send(f"[{self._number},{frame}]".encode())
        self._lines.flush()

    def _timeout_s(self) -> float:
        if self._lines.has_backlog:
            return _FLUSH_S
        return max(0.0, min(self._link.next_s, self._link.confirmed_s + self._lease_s) - _now_s())

    def _check_lease(self) -> None:
        if self._exit_code is None and _now_s() - self._link.confirmed_s > self._lease_s:
            _log.warning("nothing was heard of the driver for %g s", self._lease_s)
            self._exit_code = NO_DRIVER

    def _read(self) -> None:
        # What has waited while this process was stopped says nothing about the driver's present.
        self._check_lease()
        lines = self._lines.receive()
        if lines is None:
            self._exit_code = CLOSED  # the agent is dead
        elif self._exit_code is None:
            self.take_lines(lines)

    def take_lines(self, lines: Sequence[bytes]) -> None:
        """Take lines of the agent; what they say is done in `run`."""
        for line in lines:
            number, frame = strict_json.loads(line)
            if number == self._number:
                self._inbox += self._link.receive(frame, _now_s())

    # What the driver says.

    def _take_messages(self) -> None:
        messages, self._inbox = self._inbox, []
        work: list[dict[str, Any]] = []
        for message in messages:
            if self._exit_code is not None:
                return
            kind = message["kind"]
            if kind in _BEFORE_COMMANDS:
                self._prepare(kind, message)
            elif self._node:  # else it was refused, which the driver does not know yet
                work.append(message)
        if self._node:
            self._node.take(work)

    def _prepare(self, kind: str, message: Mapping[str, Any]) -> None:
        match kind:
            case "probe":
                why = answer_probe(message, self._id)
                self._link.send(NODE_MESSAGES.encode(Probed(why)))
            case "setup":
                self._setup = read_setup(message)
                self._lease_s = self._setup.lease_s
                self._link.beat_s = beat_within(self._lease_s)
            case "blob":
                self._code.add(message)
            case "blob_end":
                self._begin()
            case "close":
                self._exit_code = CLOSED

    def _begin(self) -> None:
        """Start what runs the trials, or tell the driver why not."""
        setup = self._setup
        if setup is None:
            raise ValueError("the driver must send a setup before code")
        trainable, validator = self._code.take()
        path = _module_path(self._path, setup.sys_path)
        code = PickledCode(trainable, validator, path, setup.argv)
        try:
            node = self._serve(setup, code)
        except Exception as error:  # noqa: BLE001  (a file system of the user's may raise anything)
            why = f"it cannot be set up ({type(error).__name__}: {error})"
            self._link.send(NODE_MESSAGES.encode(SetupRefused(why)))
            return
        if isinstance(node, str):
            self._link.send(NODE_MESSAGES.encode(SetupRefused(node)))
            return
        self._node = node
        node.watch(self._lines, self._read)
        node.watch(self._wakeup_pipe, self._wakeup_pipe.clear)
        directory = os.fspath(self._scratch.path) if self._scratch else ""
        self._link.send(NODE_MESSAGES.encode(Ready(directory)))

    def _serve(self, setup: Setup, code: PickledCode) -> NodeService | str:
        """Return what does the driver's work here, or why it does not reach the storage."""
        storage, facts = setup.storage, (code, self._resources, self._address)
        if isinstance(storage, SharedStorage):
            why = answer_proof(storage.directory, storage.proof, self._id)
            return why or NodeService(setup, storage.directory, *facts, self._link.send)
        store = open_store(storage)
        if why := answer_in_time(store, storage.proof, self._id):
            return why
        self._scratch = Scratch(Path(setup.scratch_dir) if setup.scratch_dir else None)
        files_for = partial(
            NodeFiles,
            store,
            storage.epoch,
            self._scratch.path,
            self._link.send,
            may_tell=lambda: self._link.is_drained,
            cache_bytes=storage.cache_bytes,
        )
        return NodeService(
            setup, storage.url, *facts, self._link.send, lambda wake: files_for(wake=wake)
        )

    @property
    def _id(self) -> str:
        return f"{self._name}.{self._number}"


_BEFORE_COMMANDS: Final = frozenset({"probe", "setup", "blob", "blob_end", "close"})


def _module_path(own: Sequence[str], drivers: Sequence[str]) -> list[str]:
    """Return the module path of trials: that of the node, then what there is of the driver's."""
    return [
        *own,
        *(
            entry
            for entry in drivers
            if entry not in own and Path(entry).is_absolute() and Path(entry).exists()
        ),
    ]


@final
class _RemarkHandler(logging.Handler):
    """Has the driver log what is logged here."""

    def __init__(self, host: NodeHost) -> None:
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        with contextlib.suppress(Exception):  # as every handler
            self._host.remark(record.getMessage())


def main(descriptor: str) -> None:
    """Run the host of a node, and end the process.

    Args:
        descriptor: Descriptor of the socket to the agent.
    """
    os.set_inheritable(int(descriptor), False)
    end = socket.socket(fileno=int(descriptor))
    lines = LineSocket(end)
    code = _FAILED
    host: NodeHost | None = None
    try:
        greeting, *rest = _first_lines(lines)
        host = NodeHost(lines, strict_json.loads(greeting))
        host.take_lines(rest)
        _take_signals(host)
        _log.addHandler(_RemarkHandler(host))
        code = host.run()
    except BaseException as error:  # noqa: BLE001  (the driver has to know)
        if not isinstance(error, TunerError):
            traceback.print_exc()
        if host:
            host.fail(str(error) or type(error).__name__)
    finally:
        try:
            if host:
                host.close()
            sys.stdout.flush()
        finally:
            # Without waiting for threads that upload or download.
            os._exit(code)


def _first_lines(lines: LineSocket) -> list[bytes]:
    """Return the first lines of the agent, the greeting and what has come with it."""
    with selectors.DefaultSelector() as selector:
        selector.register(lines, selectors.EVENT_READ)
        while not (received := lines.receive()):
            if received is None:
                os._exit(CLOSED)
            selector.select()
        return received


def _take_signals(host: NodeHost) -> None:
    """Take a signal that asks to end for a notice that the node leaves; Ctrl-C has no effect."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        host.drain()

    for number in TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else on_signal)
