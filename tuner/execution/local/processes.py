"""Processes of this machine, as the executor's process service.

The zygote starts and reaps them (see `zygote`). The driver communicates with each over its own
socket pair, and with the zygote over another. It selects on all of them together and never waits
for one.

That a connection has ended is not yet the end of the process, which may live on, and so may its
group. The zygote reports when all are gone, unless it is dead itself.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, final

from tuner.core.worker_records import Failure
from tuner.execution.assignment import Assignment
from tuner.execution.failures import ExitInfo
from tuner.execution.pickling import pickle_trainable
from tuner.execution.process_service import (
    Gone,
    HasFileno,
    HungUp,
    Listening,
    Said,
    ServiceEvent,
    StackDumped,
    Unstarted,
    Violated,
    Woken,
)
from tuner.execution.validation_assignment import ValidationAssignment, Validator, own_validator
from tuner.storage.disk import open_file

from .launcher import Launcher
from .process_setup import WakeupPipe
from .trainable_blob import PickledCode, TrainableBlob
from .worker_connection import Bootstrap, DriverEnd, bootstrap_for
from .zygote_protocol import blocking_pair
from .zygote_supervisor import ZygoteSupervisor

StartMethod = Literal["zygote", "spawn"]

LOOPBACK: Final = "127.0.0.1"
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_NO_DESCRIPTOR: Final = Failure(
    "OSError",
    "the process that starts the trials has too many files open; raise the limit (ulimit -n), or "
    "close files that modules open when they are imported",
)
_TAIL_BYTES: Final = 1 << 13
_STACK_S: Final = 0.5
"""How long a process may take to write its stack."""
_NUM_LAST_LINES: Final = 60
"""Length of the quoted output of a process, which ends with its stack if it was killed."""
_NUM_STACK_LINES: Final = 200
"""Length of the stacks of all threads that are read at most."""

_log = logging.getLogger(__name__)


class _Process:
    """A process and its connection, from its start until its process group is gone.

    Attributes:
        key: Identifies it.
        end: The driver's end of the connection.
        stderr: File that its standard error is appended to.
        stderr_start: Where what it writes begins; earlier processes wrote to the same file.
        stack_start: Where the stack begins that it was asked for last.
        mask: What the selector watches its connection for, 0 for nothing.
        is_orphaned: Whether the zygote that started it is dead.
        has_violated: Whether it has sent what is no message.
    """

    __slots__ = (
        "end", "has_violated", "is_orphaned", "key", "mask", "stack_start", "stderr",
        "stderr_start",
    )  # fmt: skip

    def __init__(self, key: int, end: DriverEnd, stderr: Path) -> None:
        self.key = key
        self.end = end
        self.stderr = stderr
        self.stderr_start = self.stack_start = _size(stderr)
        self.mask = 0
        self.is_orphaned = self.has_violated = False


@final
class LocalProcesses:
    """Starts processes on this machine.

    The trainable is loaded once, in the zygote, which forks the processes. If loading it starts
    threads or initializes a device, or the system is not Linux, a process cannot be forked safely:
    workers are then spawned in advance and load the trainable themselves, after a warning.
    """

    isolates: Final = True

    def __init__(
        self,
        trainable: Any,
        validator: Validator | None = None,
        *,
        has_gpus: bool = False,
        kill_grace_s: float = 5.0,
        start_method: StartMethod | None = None,
        environ: Mapping[str, str] | None = None,
        keeps_zygote: bool = False,
        address: str = LOOPBACK,
    ) -> None:
        """Start the zygote, without waiting for it.

        Args:
            trainable: A function or class, see `session`; or `PickledCode`, with the validation
                function in it.
            validator: The declared validation function; None for none, or for that of a trainable
                that brings its own.
            has_gpus: Whether the experiment has GPUs, which a process without any must not see.
            kill_grace_s: Seconds that a process may take to exit by itself, before it is killed,
                and a killed one to vanish, before its resources count as free.
            start_method: ``"zygote"`` forks processes from one that has loaded the trainable,
                ``"spawn"`` starts a fresh interpreter for each; None is ``"zygote"`` on Linux and
                ``"spawn"`` elsewhere.
            environ: Environment variables to add, for all processes.
            keeps_zygote: Whether the zygote may serve several experiments of this process, one
                after the other.
            address: Under which other machines reach this one.

        Raises:
            NotImplementedError: On Windows.
            TrainableNotPicklable: If the trainable cannot be pickled.
            ValueError: If an argument is out of range.
        """
        if sys.platform == "win32":
            raise NotImplementedError(
                "trials in processes of their own need Linux or macOS; "
                'use RunConfig(executor="inline"), or run under WSL'
            )
        if start_method not in ("zygote", "spawn", None):
            raise ValueError(
                f"start_method must be 'zygote', 'spawn' or None, got {start_method!r}; "
                "None picks what the system allows"
            )
        if kill_grace_s <= 0:
            raise ValueError(
                f"kill_grace_s must be above 0, got {kill_grace_s}; it is a number of seconds"
            )
        self._blob = _packed(trainable, validator, kill_grace_s)
        self._directory = str(Path.cwd())
        self._has_gpus = has_gpus
        self._grace_s = kill_grace_s
        self._processes: dict[int, _Process] = {}
        self._said: list[ServiceEvent] = []
        self._listeners: dict[int, socket.socket] = {}
        """Of ranks that are not started yet."""
        self._address = address
        self._deadlines: list[tuple[float, int, int, Callable[[_Process], None]]] = []
        self._numbers = itertools.count()  # of deadlines, which are in order at the same moment
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._wakeup_pipe = WakeupPipe()
        self._selector.register(self._wakeup_pipe, _READ, self._on_wake)
        # On macOS, system libraries may start threads, with which a process cannot be forked.
        method = "spawn" if start_method == "spawn" or sys.platform != "linux" else "fork"
        self._zygotes = ZygoteSupervisor(
            self._blob, method, dict(environ or {}), is_kept=keeps_zygote
        )
        self._selector.register(self._launcher.control, _READ, self._on_launcher)

    @property
    def _launcher(self) -> Launcher:
        return self._zygotes.launcher

    # The ProcessService protocol.

    def listen(self, key: int, node: str = "", *, is_local: bool = True) -> None:
        """See `ProcessService`; there is only this machine."""
        del node
        address = LOOPBACK if is_local else self._address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family)
        self._listeners[key] = listener
        self._said.append(Listening(key, address, listener.getsockname()[1]))

    def start(self, key: int, assignment: Assignment | ValidationAssignment) -> None:
        bootstrap = self._bootstrap(assignment)
        ours, theirs = blocking_pair()
        process = _Process(key, DriverEnd(ours), Path(bootstrap.trial_dir, bootstrap.streams[1]))
        # It waits in the socket's buffer, so that the worker starts without a round trip.
        process.end.send_bootstrap(bootstrap)
        self._processes[key] = process
        self._launcher.start(key, theirs)
        self._watch_launcher()
        if listener := self._listeners.pop(key, None):
            process.end.attach(listener)
        self._watch_process(process)

    def reassign(self, key: int, assignment: Assignment) -> None:
        if process := self._processes.get(key):
            process.end.send_bootstrap(self._bootstrap(assignment))
            process.stderr_start = _size(process.stderr)
            self._watch_backlog(process)

    def send(self, key: int, line: bytes) -> None:
        if process := self._processes.get(key):
            process.end.send(line)
            self._watch_backlog(process)

    def kill(self, key: int, grace_s: float = 0.0) -> None:
        if listener := self._listeners.pop(key, None):
            listener.close()
        process = self._processes.get(key)
        if process is None or process.is_orphaned:
            return  # the kernel kills what is orphaned
        is_ready = self._launcher.is_ready
        self._launcher.kill(key, is_graceful=is_ready and grace_s > 0)
        self._watch_launcher()
        if not is_ready:
            # The zygote is still loading the trainable, which may take minutes; it will read start
            # and kill together, so the process counts as gone now.
            self._finish(process, None)
        elif grace_s > 0:
            self._set_deadline(key, grace_s, self._enforce_exit)

    def expect_exit(self, key: int) -> None:
        self._set_deadline(key, self._grace_s, self._enforce_exit)

    def dump_stack(self, key: int) -> None:
        if process := self._processes.get(key):
            process.stack_start = _size(process.stderr)
            self._launcher.dump_stack(key)
            self._watch_launcher()
            self._set_deadline(key, _STACK_S, self._read_stack)

    def preload(self, modules: Iterable[str]) -> None:
        self._launcher.preload(modules)
        self._watch_launcher()

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        def notice(_mask: int) -> None:
            self._said.append(Woken())
            on_readable()

        self._selector.register(readable, _READ, notice)

    def wait(self, timeout_s: float | None) -> list[ServiceEvent]:
        if not self._said:
            for key, mask in self._selector.select(self._select_timeout_s(timeout_s)):
                key.data(mask)
            # Only after reading: a process whose end has just arrived is not late.
            self._act_on_deadlines()
        said, self._said = self._said, []
        return said

    def wake(self) -> None:
        self._wakeup_pipe.wake()

    def close(self, deadline_s: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # The zygote first: it kills the workers. A worker whose connection closes while it is alive
        # would write the error of its next report into the trial's stderr.
        self._zygotes.close(deadline_s)
        for process in self._processes.values():
            process.end.close()
        self._processes.clear()
        for resource in (self._selector, self._blob, self._wakeup_pipe):
            resource.close()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    # Processes.

    def _bootstrap(self, assignment: Assignment | ValidationAssignment) -> Bootstrap:
        return bootstrap_for(assignment, self._directory, has_gpus=self._has_gpus)

    def _select_timeout_s(self, timeout_s: float | None) -> float | None:
        """Return how long to wait, None for ever."""
        if not self._deadlines:
            return timeout_s
        left_s = max(0.0, self._deadlines[0][0] - time.monotonic())
        return left_s if timeout_s is None else min(left_s, timeout_s)

    def _set_deadline(self, key: int, within_s: float, then: Callable[[_Process], None]) -> None:
        """Have a function called with a process that is not gone within a time."""
        moment = (time.monotonic() + within_s, next(self._numbers), key, then)
        heapq.heappush(self._deadlines, moment)

    def _act_on_deadlines(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            *_, key, then = heapq.heappop(self._deadlines)
            if process := self._processes.get(key):
                then(process)

    def _watch_process(self, process: _Process) -> None:
        mask = _READ | _WRITE if process.end.has_backlog else _READ
        if process.mask == mask:
            return
        change = self._selector.modify if process.mask else self._selector.register
        change(process.end.socket, mask, functools.partial(self._on_process, process))
        process.mask = mask

    def _watch_backlog(self, process: _Process) -> None:
        if process.mask and process.end.has_backlog:
            self._watch_process(process)

    def _unwatch(self, process: _Process) -> None:
        if process.mask:
            self._selector.unregister(process.end.socket)
            process.mask = 0

    def _on_process(self, process: _Process, mask: int) -> None:
        if process.mask == 0:
            return  # gone since the selector returned
        if mask & _WRITE:
            process.end.flush()
            self._watch_process(process)
        if mask & _READ:
            self._read(process)

    def _read(self, process: _Process) -> None:
        try:
            messages = process.end.receive()
        except ValueError as error:
            # Nothing that comes after a malformed message can be trusted or even delimited.
            self._unwatch(process)
            self._note_violation(process, error)
            self.kill(process.key)
            return
        if messages:
            self._said.append(Said(process.key, messages))
        elif messages is None:
            self._unwatch(process)
            self._said.append(HungUp(process.key))
            if process.is_orphaned:
                self._finish(process, None)

    def _note_violation(self, process: _Process, error: ValueError) -> None:
        process.has_violated = True
        self._said.append(Violated(process.key, str(error)))

    def _finish(self, process: _Process, exit_info: ExitInfo | None) -> None:
        """Say that a process is gone with its group, behind all that it has said."""
        self._unwatch(process)
        if not process.has_violated:
            try:
                # The zygote's report comes over another socket, and may overtake the last messages.
                if messages := process.end.drain():
                    self._said.append(Said(process.key, messages))
            except ValueError as error:
                self._note_violation(process, error)
        stderr = _last_lines(process.stderr, process.stderr_start, _NUM_LAST_LINES)
        self._said.append(Gone(process.key, exit_info, stderr))
        self._forget(process)

    def _forget(self, process: _Process) -> None:
        self._unwatch(process)
        process.end.close()
        del self._processes[process.key]

    def _enforce_exit(self, process: _Process) -> None:
        """Kill a process that has not exited in time; stop waiting for an orphaned one."""
        if process.is_orphaned:
            self._finish(process, None)
        else:
            self.kill(process.key)

    def _read_stack(self, process: _Process) -> None:
        stack = _last_lines(process.stderr, process.stack_start, _NUM_STACK_LINES)
        self._said.append(StackDumped(process.key, stack))

    # The zygote.

    def _on_wake(self, _mask: int) -> None:
        self._wakeup_pipe.clear()
        self._said.append(Woken())

    def _watch_launcher(self) -> None:
        mask = _READ | _WRITE if self._launcher.has_backlog else _READ
        if self._selector.get_key(self._launcher.control).events != mask:
            self._selector.modify(self._launcher.control, mask, self._on_launcher)

    def _on_launcher(self, mask: int) -> None:
        if mask & _WRITE:
            self._launcher.flush()
            self._watch_launcher()
        if mask & _READ:
            reports = self._launcher.receive()
            if reports is None:
                self._replace_launcher()
            for report in reports or ():
                self._on_report(report)

    def _on_report(self, report: Mapping[str, Any]) -> None:
        match report["kind"]:
            case "gone":
                self._zygotes.note_progress()
                if process := self._processes.get(report["worker"]):
                    self._finish(
                        process, ExitInfo(report["code"], report["peak_bytes"], report["is_oom"])
                    )
            case "unstarted":
                if process := self._processes.get(report["worker"]):
                    self._forget(process)
                    self._said.append(Unstarted(process.key, _NO_DESCRIPTOR))
            case "ready":
                self._launcher.note_ready()
                self._watch_launcher()
            case "spawning":
                self._zygotes.spawn_from_now_on(report["reason"])
            case "warning":
                _log.warning("%s", report["text"])

    def _replace_launcher(self) -> None:
        self._selector.unregister(self._launcher.control)
        if self._launcher.is_loading_again:  # it has started no process yet
            self._zygotes.start_over()
            self._selector.register(self._launcher.control, _READ, self._on_launcher)
            self._watch_launcher()
            return
        self._zygotes.close_dead()
        for process in list(self._processes.values()):
            process.is_orphaned = True
            self._orphan(process)
        self._zygotes.replace()
        self._selector.register(self._launcher.control, _READ, self._on_launcher)

    def _orphan(self, process: _Process) -> None:
        """Wait until the kernel has killed what a dead zygote started: that ends its connection."""
        if process.mask:
            self._set_deadline(process.key, self._grace_s, self._enforce_exit)
        else:  # its connection has ended already, so no other event would finish it
            self._finish(process, None)


def _packed(trainable: Any, validator: Validator | None, kill_grace_s: float) -> TrainableBlob:
    if isinstance(trainable, PickledCode):
        return TrainableBlob.pack_code(trainable, kill_grace_s=kill_grace_s)
    return TrainableBlob.pack(
        pickle_trainable(trainable),
        # That of a trainer is pickled with it, and shares its objects.
        b"" if validator is None or own_validator(trainable) else pickle_trainable(validator),
        kill_grace_s=kill_grace_s,
    )


def _last_lines(path: Path, start: int, num_lines: int) -> str:
    """Return the last lines of a text file, from `start` on and at most 8 KiB.

    Empty if the file cannot be read.
    """
    if _size(path) <= start:
        return ""
    try:
        with open_file(path) as file:
            # From near the end: a trial may have written gigabytes.
            file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-num_lines:])


def _size(path: Path) -> int:
    """Return a file's size in bytes, 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
