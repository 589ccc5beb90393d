"""The executor for one machine: a fresh process for each attempt of a trial.

The processes are born by the zygote (see `zygote`), which also buries them; the driver speaks with each over a socket pair of its own,
and with the zygote over another. All are selected on together, so the driver never waits for one of them.

A worker's exit has two halves: its own last message, which says how the training code ended, and the zygote's report that the
process is gone with all its descendants. The event comes after both, or after the second alone, since a process may die at any moment.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, assert_never, final

from tuner.core.commands import AnswerReport, KillWorker, StartWorker, WorkerCommand
from tuner.core.events import Event, Outcome, WorkerExited
from tuner.core.trial import Failure
from tuner.errors import TunerError
from tuner.execution.devices import machine_capacity
from tuner.execution.messages import Assignment
from tuner.execution.pickling import ship
from tuner.storage.layout import STDERR

from .exit_diagnosis import Remains
from .launcher import Launcher
from .remote_worker import RemoteWorker
from .reusable_workers import StayingWorkers
from .start_retry import PostponedStarts, is_scarcity
from .trainable_blob import Parcel
from .wakeup_pipe import Bell
from .wire import Birth, DriverEnd
from .worker_bootstrap import birth_of

StartMethod = Literal["zygote", "spawn"]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_MAX_ZYGOTE_DEATHS: Final = 3
"""Deaths of a zygote in a row, with no trial ending in between, after which the executor gives up."""

_log = logging.getLogger(__name__)


@final
class ProcessExecutor:
    """Runs each attempt of a trial in a process of its own.

    The trainable is loaded once, in the zygote, and shared with the workers by forking. Where that is unsafe, because loading it starts
    threads or initializes a device, or the system is not Linux, workers are spawned ahead of their time and load it themselves; a
    warning says so.
    """

    def __init__(
        self,
        trainable: Any,
        assign: Callable[[StartWorker], Assignment],
        *,
        capacity: Mapping[str, float] | None = None,
        kill_grace_s: float = 5.0,
        start_method: StartMethod | None = None,
        environ: Mapping[str, str] | None = None,
        on_packages: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Start the zygote, without waiting for it.

        Args:
            trainable: A function or class, see `session`.
            assign: Adds to a `StartWorker` what the worker has to know besides.
            capacity: Resources to offer in place of those found on the machine, e.g. ``{"gpu": 2}``.
            kill_grace_s: How many seconds a worker that has said its last word may take to end before it is killed, and a killed one to
                vanish before its resources count as free.
            start_method: ``"zygote"`` forks workers from a process that has loaded the trainable, ``"spawn"`` starts each
                afresh; None takes the former on Linux.
            environ: Variables that all processes of trials are to have.
            on_packages: Called with the versions of packages that a worker has imported.

        Raises:
            NotImplementedError: On Windows.
            TrainableNotPicklable: If the trainable cannot be carried to another process.
        """
        if sys.platform == "win32":
            raise NotImplementedError(
                "trials in processes of their own need Linux or macOS; use InlineExecutor, or run under WSL"
            )
        if start_method not in ("zygote", "spawn", None):
            raise ValueError(
                f"start_method must be 'zygote', 'spawn' or None, got {start_method!r}; None picks what the system allows"
            )
        if kill_grace_s <= 0:
            raise ValueError(
                f"kill_grace_s must be above 0, got {kill_grace_s}; it is a number of seconds"
            )
        self._parcel = Parcel.pack(ship(trainable), kill_grace_s=kill_grace_s)
        self._assign = assign
        self._directory = str(Path.cwd())
        self._capacity = capacity
        self._grace_s = kill_grace_s
        self._method = "spawn" if start_method == "spawn" or sys.platform != "linux" else "fork"
        self._numbers = itertools.count(1)
        self._workers: dict[int, RemoteWorker] = {}
        self._by_attempt: dict[tuple[str, int], RemoteWorker] = {}
        self._staying = StayingWorkers()
        self._events: list[Event] = []
        self._environ = dict(environ or {})
        self._on_packages = on_packages
        self._overdue: list[tuple[float, int]] = []
        self._postponed = PostponedStarts()
        self._zygote_deaths = 0
        self._is_woken = self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._bell = Bell()
        self._selector.register(self._bell, selectors.EVENT_READ, self._on_wake)
        self._launcher = self._launch()

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        """See `Executor`; the machine is asked unless the caller has said it all."""
        return machine_capacity(self._capacity)

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        for command in commands:
            match command:
                case AnswerReport():
                    self._answer(command)
                case StartWorker():
                    self._start(command)
                case KillWorker():
                    self._kill(command)
                case _:
                    assert_never(command)
        # Who was to stay for a start that has not come holds what now belongs to others.
        for worker in self._staying.take_overdue():
            self._dismiss(worker)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            TunerError: If the process that starts workers dies again and again.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._events or self._is_woken or self._is_closed):
            for command in self._postponed.take_due():
                self._start(command)
            patience = 0.0 if self._events else self._patience(deadline)
            for key, mask in self._selector.select(patience):
                key.data(mask)
            self._end_overdue()
            if deadline is not None and time.monotonic() >= deadline:
                break
        self._is_woken = False
        events, self._events = self._events, []
        self._staying.tell()
        return events

    def wake(self) -> None:
        """See `Executor`."""
        self._bell.ring()

    def clock(self) -> float:
        """See `Executor`."""
        return time.monotonic()

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._launcher.close(deadline_s)
        for worker in self._workers.values():
            worker.end.close()
        self._workers.clear()
        self._by_attempt.clear()
        self._staying.clear()
        for resource in (self._selector, self._parcel, self._bell):
            resource.close()

    # Commands.

    def _start(self, command: StartWorker) -> None:
        try:
            birth = birth_of(self._assign(command), self._directory)
            worker = self._staying.take(command, birth) or self._conceive(command, birth)
        except Exception as error:  # noqa: BLE001  (the configuration's reduction methods may raise anything)
            self._refuse(command, error)
        else:
            self._postponed.note_start()
            self._by_attempt[worker.trial_id, worker.attempt] = worker
            self._watch(worker)

    def _conceive(self, command: StartWorker, birth: Birth) -> RemoteWorker:
        ours, theirs = socket.socketpair()
        worker = RemoteWorker(
            next(self._numbers), command, DriverEnd(ours), Path(birth.trial_dir, STDERR)
        )
        worker.end.send_birth(birth)
        self._workers[worker.number] = worker
        self._launcher.start(worker.number, theirs)
        self._watch_launcher()
        return worker

    def _dismiss(self, worker: RemoteWorker) -> None:
        """End the process of a worker whose attempt is over and told."""
        worker.is_told = True
        self._send_kill(worker)

    def _refuse(self, command: StartWorker, error: Exception) -> None:
        if is_scarcity(error):
            self._postponed.add(command, error)
            return
        failure = Failure(type(error).__name__, f"the worker could not be started: {error}")
        self._events.append(
            WorkerExited(command.trial_id, command.attempt, Outcome.FAILED, failure)
        )

    def _answer(self, command: AnswerReport) -> None:
        if worker := self._by_attempt.get((command.trial_id, command.attempt)):
            worker.answer(command)
            if worker.end.has_backlog:
                self._watch(worker)

    def _kill(self, command: KillWorker) -> None:
        if worker := self._by_attempt.get((command.trial_id, command.attempt)):
            worker.condemn(command.reason)
            if not self._launcher.is_ready and not worker.is_orphaned:
                # The zygote that was to start it is still loading, and will read start and kill together.
                self._send_kill(worker)
                self._conclude(worker, None)
            elif command.term_grace_s > 0:
                self._send_kill(worker, is_gentle=True)
                self._expect_end(worker, command.term_grace_s)
            else:
                self._send_kill(worker)
        elif self._postponed.withdraw(command):
            self._events.append(
                WorkerExited(
                    command.trial_id,
                    command.attempt,
                    Outcome.KILLED,
                    Failure("killed", command.reason),
                )
            )

    def _send_kill(self, worker: RemoteWorker, *, is_gentle: bool = False) -> None:
        self._launcher.kill(worker.number, is_gentle=is_gentle)
        self._watch_launcher()

    def _expect_end(self, worker: RemoteWorker, within_s: float) -> None:
        heapq.heappush(self._overdue, (time.monotonic() + within_s, worker.number))

    def _patience(self, deadline: float | None) -> float | None:
        """Return how long to wait, None for ever."""
        moments = [] if deadline is None else [deadline]
        if self._overdue:
            moments.append(self._overdue[0][0])
        if self._postponed.retry_at is not None:
            moments.append(self._postponed.retry_at)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _watch(self, worker: RemoteWorker) -> None:
        mask = _READ | _WRITE if worker.end.has_backlog else _READ
        if worker.mask == 0:
            self._selector.register(
                worker.end.socket, mask, functools.partial(self._on_worker, worker)
            )
        elif worker.mask != mask:
            self._selector.modify(
                worker.end.socket, mask, functools.partial(self._on_worker, worker)
            )
        worker.mask = mask

    def _unwatch(self, worker: RemoteWorker) -> None:
        if worker.mask:
            self._selector.unregister(worker.end.socket)
            worker.mask = 0

    def _watch_launcher(self) -> None:
        mask = _READ | _WRITE if self._launcher.has_backlog else _READ
        if self._selector.get_key(self._launcher.control).events != mask:
            self._selector.modify(self._launcher.control, mask, self._on_launcher)

    def _on_wake(self, _mask: int) -> None:
        self._bell.silence()
        self._is_woken = True

    def _on_worker(self, worker: RemoteWorker, mask: int) -> None:
        if worker.mask == 0:
            return  # gone since the selector returned
        if mask & _WRITE:
            worker.end.flush()
            self._watch(worker)
        if mask & _READ:
            self._hear(worker)

    def _on_launcher(self, mask: int) -> None:
        if mask & _WRITE:
            self._launcher.flush()
            self._watch_launcher()
        if mask & _READ:
            reports = self._launcher.receive()
            if reports is None:
                self._replace_launcher()
            for report in reports or ():
                self._note(report)

    # Workers.

    def _hear(self, worker: RemoteWorker) -> None:
        try:
            events = worker.receive()
        except ValueError:
            self._unwatch(worker)
            self._send_kill(worker)
            return
        if events is None:
            self._unwatch(worker)
            if worker.is_orphaned:
                self._conclude(worker, None)
            return
        self._events += events
        if worker.is_unfit:
            self._replace_unfit(worker)
        elif worker.farewell and worker.stays:
            self._keep(worker, worker.farewell)
        elif worker.farewell:
            self._expect_end(worker, self._grace_s)
        if worker.late_imports:
            self._launcher.learn(worker.late_imports)
            self._watch_launcher()
        if worker.packages and self._on_packages:
            self._on_packages(worker.packages)
            worker.packages = {}

    def _keep(self, worker: RemoteWorker, farewell: WorkerExited) -> None:
        """Tell the end of an attempt whose process waits for the next one."""
        del self._by_attempt[worker.trial_id, worker.attempt]
        self._staying.add(worker)
        self._events.append(farewell)

    def _replace_unfit(self, worker: RemoteWorker) -> None:
        """Start a new process for an attempt for which the old one could not be reset."""
        del self._by_attempt[worker.trial_id, worker.attempt]
        self._dismiss(worker)
        self._start(worker.command)

    def _conclude(self, worker: RemoteWorker, remains: Remains | None) -> None:
        """Tell how a worker ended that is gone with its group; whatever it has said lies in the connection."""
        self._unwatch(worker)
        if not (self._staying.discard(worker) or worker.is_told):
            self._events += worker.drain()
            del self._by_attempt[worker.trial_id, worker.attempt]
            if worker.is_unfit and remains:  # it was gone before its refusal was read
                self._start(worker.command)
            else:
                self._events.append(worker.exit_event(remains))
        worker.end.close()
        del self._workers[worker.number]

    def _end_overdue(self) -> None:
        """Kill workers that have had time to leave and have not; give up on orphans that cannot be seen to die."""
        while self._overdue and self._overdue[0][0] <= time.monotonic():
            worker = self._workers.get(heapq.heappop(self._overdue)[1])
            if worker is None:
                continue
            if worker.is_orphaned:
                self._conclude(worker, None)
            else:
                self._send_kill(worker)

    # The zygote.

    def _launch(self) -> Launcher:
        launcher = Launcher(self._parcel, self._method, self._environ)
        self._selector.register(launcher.control, _READ, self._on_launcher)
        return launcher

    def _note(self, report: dict[str, Any]) -> None:
        match report["kind"]:
            case "gone":
                self._zygote_deaths = 0
                if worker := self._workers.get(report["worker"]):
                    self._conclude(
                        worker, Remains(report["code"], report["peak_bytes"], report["is_oom"])
                    )
            case "ready":
                self._launcher.is_ready = True
            case "spawning":
                self._fall_back(report["reason"])
            case "warning":
                _log.warning("%s", report["text"])

    def _fall_back(self, reason: str) -> None:
        if self._method == "fork":
            self._method = "spawn"
            _log.warning(
                "each trial loads the trainable anew, which takes longer, because a process cannot be forked with it: %s",
                reason,
            )

    def _replace_launcher(self) -> None:
        self._selector.unregister(self._launcher.control)
        was_ready = self._launcher.is_ready
        code = self._launcher.close()
        self._zygote_deaths += 1
        _log.warning(
            "the process that starts the trials died (exit code %d); running trials are lost, another is started",
            code,
        )
        if not was_ready:
            self._fall_back("loading it ends the process")
        for worker in list(self._workers.values()):
            self._orphan(worker)
        if self._zygote_deaths >= _MAX_ZYGOTE_DEATHS:
            self.shutdown(0.0)
            raise TunerError(
                f"the process that starts the trials died {self._zygote_deaths} times in a row, at last with exit code {code}"
            )
        self._launcher = self._launch()

    def _orphan(self, worker: RemoteWorker) -> None:
        """Wait for the end of a worker whose zygote is gone: the kernel is killing it, and then its connection ends."""
        worker.is_orphaned = True
        if worker.mask:
            self._expect_end(worker, self._grace_s)
        else:
            self._conclude(worker, None)
