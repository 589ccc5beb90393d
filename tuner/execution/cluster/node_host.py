"""Host of a node: the process that runs the node's trials, as its driver says.

The driver is on another machine. Between the two there are the agent, whose child this process is,
the cluster's engine, and the driver's gateway; a `Link` makes one connection of all that. First the
host says what its node has; the driver says what all trials have in common, and sends the code.
From then on the host does what the driver would do on its own machine, with the same executor.

It unpickles nothing but an fsspec file system that the user may have given, and it ends in one of
these ways, each time with all trials: its driver closes it; its driver has not been heard of for
as long as its lease lasts, so that a trial which is started elsewhere does not run here as well; or
its agent dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

from tuner.core.commands import StartValidation, StartWorker, WorkerCommand
from tuner.core.events import Event, ValidationEnded
from tuner.errors import StorageUnreachable, TunerError
from tuner.execution.assignments import AssignmentBuilder
from tuner.execution.executor import Executor
from tuner.execution.local import orphans
from tuner.execution.local.process_setup import TERMINATION_SIGNALS, WakeupPipe
from tuner.execution.local.processes import LocalProcesses
from tuner.execution.local.trainable_blob import PickledCode
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.uploading import UploadingExecutor
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.execution.validation_payloads import Payloads
from tuner.storage import strict_json
from tuner.storage.object_checkpoints import ObjectCheckpoints
from tuner.storage.object_store import ObjectStore
from tuner.storage.store_calls import in_thread

from .agent import CLOSED, NO_DRIVER, LineSocket
from .link import Link, beat_within
from .node_files import NodeFiles
from .node_ranks import NodeRanks
from .protocol import (
    BlobReader,
    Hello,
    Setup,
    SharedStorage,
    StoredElsewhere,
    event_message,
    read_command,
    read_setup,
    read_start_worker,
)
from .rank_relay import NodeStarter
from .scratch import Scratch
from .shared_directory import answer_proof
from .storage_probe import answer_probe, answer_store_proof
from .stored_ranks import StoredRanks

_FIRST_S: Final = 60.0
"""For how long a new host waits for its driver."""
_FLUSH_S: Final = 0.01
"""How often it is tried to send what the agent has not read yet."""
_STORE_S: Final = 5.0
"""How long it is tried to reach an object store before the node is refused."""
_SHUTDOWN_S: Final = 5.0
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
        self._node: _Node | None = None
        self._journal_stored = threading.Event()
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

    # What the node needs.

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send the driver a message."""
        self._link.send(message)

    @property
    def has_told_all(self) -> bool:
        """Whether the driver has acknowledged all that was sent."""
        return self._link.is_drained

    def await_journal(self) -> None:
        """Return once the driver says that the store has a journal."""
        self._journal_stored.wait()

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
            for event in self._node.wait(self._timeout_s()):
                self._link.send(event_message(event))
            self._check_lease()
            self._take_messages()
        return self._exit_code or 0

    def close(self) -> None:
        """Kill all that is left."""
        if self._node:
            self._node.close()

    def fail(self, why: str) -> None:
        """Tell the driver why the host ends, if that is still possible."""
        self.remark(f"it cannot go on: {why}")
        self._send_due()

    def _send_due(self) -> None:
        while self._remarks:
            self._link.send({"kind": "remark", "text": self._remarks.popleft()})
        if self._is_draining and not self._has_told_draining:
            self._has_told_draining = True
            self._link.send({"kind": "draining", "deadline_s": None})
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
        commands: list[WorkerCommand] = []
        for message in messages:
            if self._exit_code is not None:
                return
            kind = message["kind"]
            if kind in _BEFORE_COMMANDS:
                self._prepare(kind, message)
            elif self._node is None:
                continue  # it was refused, which the driver does not know yet
            elif kind.startswith("rank_"):
                self._node.ranks.on_message(message)
            else:
                commands.append(self._node.read(message))
        if commands and self._node:
            self._node.carry_out(commands)

    def _prepare(self, kind: str, message: Mapping[str, Any]) -> None:
        match kind:
            case "probe":
                why = answer_probe(message, self._id)
                self._link.send({"kind": "probed", "why": why})
            case "setup":
                self._setup = read_setup(message)
                self._lease_s = self._setup.lease_s
                self._link.beat_s = beat_within(self._lease_s)
            case "blob":
                self._code.add(message)
            case "blob_end":
                self._begin()
            case "journal_stored":
                self._journal_stored.set()
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
            storage = setup.storage
            store = _open_store(storage) if isinstance(storage, StoredElsewhere) else None
            if why := self._obstacle(storage, store):
                self._link.send({"kind": "refused", "why": why})
                return
            self._node = _Node(setup, code, self._resources, self._address, self, store=store)
        except Exception as error:  # noqa: BLE001  (a file system of the user's may raise anything)
            why = f"it cannot be set up ({type(error).__name__}: {error})"
            self._link.send({"kind": "refused", "why": why})
            return
        self._node.watch(self._lines, self._read)
        self._node.watch(self._wakeup_pipe, self._wakeup_pipe.clear)
        self._link.send({"kind": "ready"})

    @property
    def _id(self) -> str:
        return f"{self._name}.{self._number}"

    def _obstacle(self, storage: SharedStorage | StoredElsewhere, store: ObjectStore | None) -> str:
        if isinstance(storage, SharedStorage):
            return answer_proof(storage.directory, storage.proof, self._id)
        return _answer_in_time(store, storage.proof, self._id) if store else ""


_BEFORE_COMMANDS: Final = frozenset(
    {"probe", "setup", "blob", "blob_end", "journal_stored", "close"}
)


@final
class _Node:
    """What runs the trials of a node.

    Args:
        setup: What all trials have in common.
        code: What the user has declared.
        resources: What the node has.
        address: Under which other nodes reach it.
        host: The host.
        store: The experiment's directory in an object store; None where it is in none.
    """

    def __init__(
        self,
        setup: Setup,
        code: PickledCode,
        resources: Mapping[str, float],
        address: str,
        host: NodeHost,
        *,
        store: ObjectStore | None,
    ) -> None:
        storage = setup.storage
        self._host = host
        self._has_told_unloadable = False
        self._seeds: dict[str, int] = {}
        self._with_payload: set[tuple[str, int, int]] = set()
        self._scratch: Scratch | None = None
        if isinstance(storage, SharedStorage):
            place, directory = storage.directory, Path(storage.directory)
        else:
            self._scratch = Scratch(Path(setup.scratch_dir) if setup.scratch_dir else None)
            place, directory = storage.url, self._scratch.path
        identity = orphans.DriverIdentity.of_host(place)
        _kill_orphans(identity)
        self._assign = AssignmentBuilder(
            directory,
            setup.experiment_name,
            self._seeds.__getitem__,
            # What is not in the store yet is lost with the host in any case.
            sync_checkpoints=setup.sync_checkpoints and store is None,
            works_in_trial_dir=setup.works_in_trial_dir,
            stored_in=place if store else "",
        )
        self._processes = ProcessExecutor(
            service := LocalProcesses(
                code,
                has_gpus=bool(resources.get("gpu")),
                kill_grace_s=setup.kill_grace_s,
                environ={**setup.environ, orphans.VARIABLE: str(identity)},
            ),
            self._assign,
            capacity=resources,
            environ=setup.environ,
            on_packages=self._on_packages,
            assign_validation=self._assign_validation,
            # They are deleted elsewhere: the validation may be on another node.
            payloads=Payloads(are_kept=True),
            on_unloadable=self._on_unloadable,
        )
        self._executor: Executor = self._processes
        stored: StoredRanks | None = None
        if store and isinstance(storage, StoredElsewhere):
            stored = self._store_in(store, storage, directory)
        starter = NodeStarter(self._processes, service.lend, self._assign)
        self.ranks = NodeRanks(starter, host.tell, self._read_start, address, stored)

    def _store_in(
        self, store: ObjectStore, storage: StoredElsewhere, directory: Path
    ) -> StoredRanks:
        """Have what trials make put into the store; return what does so for ranks."""
        checkpoints = ObjectCheckpoints(
            store,
            directory,
            storage.epoch,
            sync=False,
            cache_bytes=storage.cache_bytes,
            await_journal=self._host.await_journal,
        )
        uploading = UploadingExecutor(self._processes, checkpoints, is_async=storage.is_async)
        self._executor = files = NodeFiles(
            uploading,
            store,
            directory,
            self._host.tell,
            may_tell=lambda: self._host.has_told_all,
            needs_payload=lambda command: _validation_key(command) in self._with_payload,
        )
        stored = StoredRanks(directory, checkpoints, uploading, files, self._host.tell)
        self._processes.watch(stored.jobs, stored.jobs.run_done)
        return stored

    def watch(self, readable: LineSocket | WakeupPipe, on_readable: Callable[[], None]) -> None:
        """Call a function during `wait` while something is readable."""
        self._processes.watch(readable, on_readable)

    def read(self, message: Mapping[str, Any]) -> WorkerCommand:
        """Return the command of a message."""
        command = read_command(message)
        if isinstance(command, StartWorker | StartValidation):
            self._seeds[command.trial_id] = message["seed"]
        if isinstance(command, StartValidation) and message["has_payload"]:
            self._with_payload.add(_validation_key(command))
        return command

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`."""
        self._executor.carry_out(commands)

    def wait(self, timeout_s: float) -> list[Event]:
        """See `Executor`."""
        events = self._executor.wait(timeout_s)
        for event in events:
            if isinstance(event, ValidationEnded):
                self._with_payload.discard((event.trial_id, event.index, event.num_try))
        return events

    def close(self) -> None:
        """Kill all that is left."""
        self.ranks.close()
        self._executor.shutdown(_SHUTDOWN_S)
        if self._scratch:
            self._scratch.close()

    def _read_start(self, message: Mapping[str, Any]) -> StartWorker:
        self._seeds[message["trial_id"]] = message["seed"]
        return read_start_worker(message)

    def _assign_validation(self, command: StartValidation) -> ValidationAssignment:
        has_payload = _validation_key(command) in self._with_payload
        return replace(self._assign.validation(command), has_payload=has_payload)

    def _on_unloadable(self, _node: str, why: str) -> bool:
        if not self._has_told_unloadable:
            self._has_told_unloadable = True
            self._host.tell({"kind": "unloadable", "why": why})
        return False  # the driver decides that

    def _on_packages(self, versions: Mapping[str, str]) -> None:
        self._host.tell({"kind": "packages", "versions": dict(versions)})


def _validation_key(command: StartValidation) -> tuple[str, int, int]:
    return command.trial_id, command.checkpoint.index, command.num_try


def _open_store(storage: StoredElsewhere) -> ObjectStore:
    """Return the experiment's directory in the store.

    Raises:
        Exception: Raised by the store's library, or when the user's file system is unpickled.
    """
    # From the driver, as is all code that runs here.
    filesystem = pickle.loads(storage.filesystem) if storage.filesystem else None  # noqa: S301
    return ObjectStore(storage.url, filesystem, retry_s=storage.retry_s)


def _answer_in_time(store: ObjectStore, proof: tuple[str, str], node: str) -> str:
    """Answer the driver's proof, see `answer_store_proof`.

    Raises:
        StorageError: If the store did not answer, or refused.
    """
    patient = store.with_retry_s(_STORE_S)
    # In a thread: where a store accepts a connection and does not answer, this takes long.
    answering = in_thread(lambda: answer_store_proof(patient, proof, node))
    try:
        return answering.result(2 * _STORE_S)
    except TimeoutError:
        raise StorageUnreachable(f"{store.url} does not answer") from None


def _kill_orphans(identity: orphans.DriverIdentity) -> None:
    for orphan in orphans.kill_orphans_of(identity):
        _log.warning(
            "%s was still running, left behind by a trial of a host that is dead; it has been "
            "killed",
            orphan,
        )


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
