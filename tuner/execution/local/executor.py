"""Executor for one machine: a process for each attempt of a trial.

The zygote starts and reaps the processes (see `zygote`). The driver communicates with each worker
over its own socket pair, and with the zygote over another. It selects on all of them together
and never waits for one.

A worker's exit has two parts: its own exit message, which says how the training code ended, and the
zygote's report that the process group is gone. The event follows both, or the report alone, because
a process may die at any moment.

Several workers may train one trial together, see `group`: a `RemoteWorker` is one process of the
attempt then, and the core sees one exit when all of them are gone.
"""

from __future__ import annotations

import errno
import functools
import heapq
import itertools
import logging
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, assert_never, final

from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    CheckpointsRequested,
    Event,
    LeaseRequested,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.trial import Failure
from tuner.errors import TunerError
from tuner.execution.assignment import Assignment, Rank
from tuner.execution.group_protocol import PartStored, RankReported
from tuner.execution.pickling import pickle_trainable
from tuner.execution.resources import machine_capacity
from tuner.execution.validation import (
    ValidationAssignment,
    no_validation,
    own_validator,
)
from tuner.execution.validation_arguments import Validator
from tuner.execution.validation_payloads import Payloads
from tuner.execution.worker_protocol import checkpoints_answer, lease_answer
from tuner.storage import strict_json
from tuner.storage.layout import STDERR

from .commit_pool import CommitPool
from .exit_diagnosis import ExitInfo
from .group import IF_SILENT, Patience, RemoteGroup
from .group_checkpoint import DirectoryStorage
from .group_start import GroupStart
from .launcher import Launcher
from .process_setup import WakeupPipe
from .rank_relay import RankNews, RankRelay
from .remote_process import Message, RemoteProcess
from .remote_validator import RemoteValidator
from .remote_worker import RemoteWorker, ReusableWorkers
from .start_retry import StartRetryQueue, is_shortage
from .trainable_blob import PickledCode, TrainableBlob
from .worker_connection import Bootstrap, DriverEnd, bootstrap_for
from .zygote_protocol import blocking_pair
from .zygote_supervisor import ZygoteSupervisor

StartMethod = Literal["zygote", "spawn"]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_NO_DESCRIPTOR: Final = OSError(
    errno.EMFILE,
    "the process that starts the trials has too many files open; raise the limit (ulimit -n), or "
    "close files that modules open when they are imported",
)
_COMMITS_S: Final = 10.0
"""How long checkpoints of groups that are being committed may take at the end."""
_log = logging.getLogger(__name__)


@final
class ProcessExecutor:
    """Runs each attempt of a trial in its own process.

    The trainable is loaded once, in the zygote, which forks the workers. If loading it starts
    threads or initializes a device, or the system is not Linux, a process cannot be forked safely:
    workers are then spawned in advance and load the trainable themselves, after a warning.
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
        assign_validation: Callable[[StartValidation], ValidationAssignment] = no_validation,
        validator: Validator | None = None,
        payloads: Payloads | None = None,
        on_unloadable: Callable[[str], None] | None = None,
        keeps_zygote: bool = False,
    ) -> None:
        """Start the zygote, without waiting for it.

        Args:
            trainable: A function or class, see `session`; or `PickledCode`, with the validation
                function in it.
            assign: Returns the assignment for a `StartWorker`.
            capacity: Resources to offer instead of those found on the machine, e.g. ``{"gpu": 2}``.
            kill_grace_s: Seconds that a worker may take to exit after its exit message, before it
                is killed, and a killed one to vanish, before its resources count as free.
            start_method: ``"zygote"`` forks workers from a process that has loaded the trainable,
                ``"spawn"`` starts a fresh interpreter for each; None is ``"zygote"`` on Linux and
                ``"spawn"`` elsewhere.
            environ: Environment variables to add, for all processes of trials.
            on_packages: Called with the versions of packages that a worker has imported.
            assign_validation: Returns the assignment for a `StartValidation`.
            validator: The declared validation function; None for none, or for that of a trainable
                that brings its own.
            payloads: Takes notice of the payloads of validations; None for those of this executor.
            on_unloadable: Called with the reason when a process could not load the trainable.
            keeps_zygote: Whether the zygote may serve several experiments of this process, one
                after the other.

        Raises:
            NotImplementedError: On Windows.
            TrainableNotPicklable: If the trainable cannot be pickled.
            ValueError: If an argument is out of range.
        """
        if sys.platform == "win32":
            raise NotImplementedError(
                "trials in processes of their own need Linux or macOS; "
                "use InlineExecutor, or run under WSL"
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
        self._assign = assign
        self._assign_validation = assign_validation
        self._payloads = payloads or Payloads()
        self._directory = str(Path.cwd())
        self._capacity = capacity
        self._has_gpus = bool(machine_capacity(capacity).get("gpu"))
        self._grace_s = kill_grace_s
        # Never reused: a late report of the zygote must not be taken for one about a newer worker.
        self._numbers = itertools.count(1)
        self._workers: dict[int, RemoteProcess] = {}
        self._by_attempt: dict[tuple[str, int], RemoteWorker] = {}
        self._validators: dict[tuple[str, int, int], RemoteValidator] = {}
        self._groups: dict[tuple[str, int], RemoteGroup[RemoteWorker]] = {}
        self._relays: dict[tuple[str, int], RankRelay] = {}
        self._commits: CommitPool | None = None
        self._askers: dict[str, int] = {}  # the number of the process by the token of its request
        self._reusable = ReusableWorkers()
        self._events: list[Event] = []
        self._environ = dict(environ or {})
        self._on_packages = on_packages
        self._on_unloadable = on_unloadable
        self._exit_deadlines: list[tuple[float, int]] = []
        self._start_retries = StartRetryQueue()
        self._is_woken = self._is_closed = False
        self._selector = selectors.DefaultSelector()
        self._wakeup_pipe = WakeupPipe()
        self._selector.register(self._wakeup_pipe, selectors.EVENT_READ, self._on_wake)
        # On macOS, system libraries may start threads, with which a process cannot be forked.
        method = "spawn" if start_method == "spawn" or sys.platform != "linux" else "fork"
        self._zygotes = ZygoteSupervisor(self._blob, method, self._environ, is_kept=keeps_zygote)
        self._selector.register(self._launcher.control, _READ, self._on_launcher)

    @property
    def _launcher(self) -> Launcher:
        return self._zygotes.launcher

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        """See `Executor`; what the caller has not given is found on the machine."""
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
                case StartValidation():
                    self._start_validation(command)
                case KillValidation():
                    self._kill_validation(command)
                case GrantLease() | RefuseLease() | ListCheckpoints():
                    self._answer_request(command)
                case _:
                    assert_never(command)
        # The resources of a kept worker that was not started again belong to other trials now.
        for worker in self._reusable.take_unclaimed():
            self._dismiss(worker)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            TunerError: If the process that starts workers dies repeatedly.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._events or self._is_woken or self._is_closed):
            for command in self._start_retries.take_due():
                if isinstance(command, StartWorker):
                    self._start(command)
                else:
                    self._start_validation(command)
            # A start that failed for good has become an event, which must not wait for another.
            timeout_s = 0.0 if self._events else self._select_timeout_s(deadline)
            for key, mask in self._selector.select(timeout_s):
                key.data(mask)
            # Only after reading: a worker whose end has just arrived is not late.
            self._enforce_exit_deadlines()
            for group in list(self._groups.values()):
                group.tick(time.monotonic())
            if deadline is not None and time.monotonic() >= deadline:
                break
        self._is_woken = False
        events, self._events = self._events, []
        self._reusable.mark_delivered()
        return events

    def wake(self) -> None:
        """See `Executor`."""
        self._wakeup_pipe.wake()

    def clock(self) -> float:
        """See `Executor`."""
        return time.monotonic()

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        self._is_closed = True
        # The zygote first: it kills the workers. A worker whose connection closes while it is alive
        # would write the error of its next report into the trial's stderr.
        self._zygotes.close(deadline_s)
        for worker in self._workers.values():
            worker.end.close()
        self._workers.clear()
        self._by_attempt.clear()
        self._validators.clear()
        self._groups.clear()
        self._relays.clear()
        self._reusable.clear()
        self._payloads.delete_all()
        if self._commits:
            self._selector.unregister(self._commits)
            if unfinished := self._commits.close(_COMMITS_S):
                _log.warning(
                    "not stored within %g s, and given up at the end of the experiment: %s; check "
                    "whether the disk still answers",
                    _COMMITS_S,
                    ", ".join(unfinished),
                )
        for resource in (self._selector, self._blob, self._wakeup_pipe):
            resource.close()

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        """Call a function during `wait` while something is readable, and end the wait after it."""

        def notice(_mask: int) -> None:
            self._is_woken = True
            on_readable()

        self._selector.register(readable, _READ, notice)

    # Commands.

    def _bootstrap(self, assignment: Assignment | ValidationAssignment) -> Bootstrap:
        return bootstrap_for(assignment, self._directory, has_gpus=self._has_gpus)

    def _start(self, command: StartWorker) -> None:
        if command.group:
            self._start_group(command, command.group.num_workers)
            return
        try:
            bootstrap = self._bootstrap(self._assign(command))
            worker = self._reusable.take(command, bootstrap) or self._start_process(
                command, bootstrap
            )
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            self._on_start_error(command, error)
        else:
            self._start_retries.note_start()
            self._by_attempt[worker.trial_id, worker.attempt] = worker
            self._watch(worker)

    def _start_process(self, command: StartWorker, bootstrap: Bootstrap) -> RemoteWorker:
        ours, theirs = blocking_pair()
        worker = RemoteWorker(
            next(self._numbers), command, DriverEnd(ours), Path(bootstrap.trial_dir, STDERR)
        )
        self._launch_process(worker, theirs, bootstrap)
        return worker

    def _launch_process(
        self, worker: RemoteProcess, theirs: socket.socket, bootstrap: Bootstrap
    ) -> None:
        # It waits in the socket's buffer, so that the worker starts without a round trip.
        worker.end.send_bootstrap(bootstrap)
        self._workers[worker.number] = worker
        self._launcher.start(worker.number, theirs)
        self._watch_launcher()

    def _start_validation(self, command: StartValidation) -> None:
        try:
            assignment = self._assign_validation(command)
            if self._payloads.has(assignment):
                assignment = replace(assignment, has_payload=True)
            bootstrap = self._bootstrap(assignment)
            ours, theirs = blocking_pair()
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            if is_shortage(error):
                self._start_retries.add(command, error)
                return
            failure = Failure(type(error).__name__, f"the validation could not be started: {error}")
            self._events.append(
                ValidationEnded(
                    command.trial_id,
                    command.checkpoint.index,
                    command.num_try,
                    Outcome.FAILED,
                    failure=failure,
                )
            )
            return
        validator = RemoteValidator(next(self._numbers), command, assignment, DriverEnd(ours))
        self._launch_process(validator, theirs, bootstrap)
        self._start_retries.note_start()
        self._validators[validator.key] = validator
        self._watch(validator)

    def _start_group(self, command: StartWorker, num_workers: int) -> None:
        """Start all workers of a group, or none."""
        try:
            _check_nodes(command.nodes)
            assignment = self._assign(command)
            start = GroupStart.on_this_machine(command, num_workers, assignment, self._bootstrap)
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            self._on_start_error(command, error)
            return
        self._start_retries.note_start()
        members = [
            self._member(command, ours, bootstrap, rank if num_workers > 1 else None)
            for rank, ((ours, _), bootstrap) in enumerate(
                zip(start.ends, start.bootstraps, strict=True)
            )
        ]
        if num_workers > 1:
            self._groups[command.trial_id, command.attempt] = RemoteGroup(
                command,
                members,
                DirectoryStorage(
                    Path(assignment.trial_dir), self._submit, sync=assignment.sync_checkpoints
                ),
                self,
                patience=Patience.of(os.environ | self._environ),
            )
        else:
            self._by_attempt[command.trial_id, command.attempt] = members[0]
        self._launch_members(members, start)

    def start_ranks(
        self,
        command: StartWorker,
        ranks: Sequence[Rank],
        listener: socket.socket | None,
        report: Callable[[RankNews], None],
    ) -> RankRelay:
        """Start the ranks of a group that run on this node; the group is on another machine.

        Args:
            command: The command that starts the attempt, with the devices of this node.
            ranks: The ranks.
            listener: The socket at which rank 0 is to listen, which is taken over; None where that
                runs on another node.
            report: Called with what the group has to know.

        Raises:
            OSError: If they cannot be started now.
            Exception: Raised by the configuration when it is pickled.
        """
        assignment = self._assign(command)
        start = GroupStart.of(ranks, listener, assignment, self._bootstrap)
        self._start_retries.note_start()
        members = [
            self._member(command, ours, bootstrap, rank.world_rank, is_relayed=True)
            for rank, (ours, _), bootstrap in zip(ranks, start.ends, start.bootstraps, strict=True)
        ]

        def report_at_once(news: RankNews) -> None:
            self._is_woken = True  # it becomes no event, for which `wait` would return
            report(news)

        relay = RankRelay(members, self, report_at_once)
        self._relays[command.trial_id, command.attempt] = relay
        self._launch_members(members, start)
        return relay

    def _member(
        self,
        command: StartWorker,
        end: socket.socket,
        bootstrap: Bootstrap,
        rank: int | None,
        *,
        is_relayed: bool = False,
    ) -> RemoteWorker:
        stderr = Path(bootstrap.trial_dir, bootstrap.streams[1])
        number = next(self._numbers)
        return RemoteWorker(number, command, DriverEnd(end), stderr, rank, is_relayed=is_relayed)

    def _launch_members(self, members: Sequence[RemoteWorker], start: GroupStart) -> None:
        for worker, (_, theirs), bootstrap in zip(
            members, start.ends, start.bootstraps, strict=True
        ):
            self._launch_process(worker, theirs, bootstrap)
            if bootstrap.has_master_socket and start.listener:
                worker.end.attach(start.listener)
            self._watch(worker)

    def _group_of(self, worker: RemoteWorker) -> RemoteGroup[RemoteWorker] | RankRelay | None:
        key = worker.trial_id, worker.attempt
        return self._groups.get(key) or self._relays.get(key)

    # What groups need, see `GroupHost`.

    def emit(self, event: Event) -> None:
        """See `GroupHost`."""
        if isinstance(event, ResultReported):
            group = self._groups[event.trial_id, event.attempt]
            self._payloads.note(group.members[0].trial_dir, event)
        elif isinstance(event, WorkerExited):
            del self._groups[event.trial_id, event.attempt]
        self._events.append(event)

    def send(self, worker: RemoteProcess, data: bytes) -> None:
        """See `GroupHost`."""
        worker.end.send(data)
        if worker.end.has_backlog and worker.mask:
            self._watch(worker)

    def kill(self, worker: RemoteWorker) -> None:
        """See `GroupHost`."""
        if not worker.is_orphaned:
            self._send_kill(worker)

    def dump_stack(self, worker: RemoteWorker) -> None:
        """See `GroupHost`."""
        self._launcher.dump_stack(worker.number)
        self._watch_launcher()

    def start_again(self, command: StartWorker) -> None:
        """See `GroupHost`."""
        del self._groups[command.trial_id, command.attempt]
        self._start_retries.add(command, _NO_DESCRIPTOR)

    def expect_exit(self, worker: RemoteWorker) -> None:
        """See `GroupHost`."""
        self._set_exit_deadline(worker, self._grace_s)

    # What ranks need whose group is on another machine, see `RelayHost`.

    def end(self, worker: RemoteWorker, grace_s: float) -> None:
        """See `RelayHost`."""
        if worker.number in self._workers:
            self._kill_process(worker, grace_s)

    def forget_ranks(self, trial_id: str, attempt: int) -> None:
        """See `RelayHost`."""
        del self._relays[trial_id, attempt]

    def _submit(self, job: Callable[[], Any], then: Callable[[Any], None], what: str) -> None:
        if self._commits is None:
            self._commits = CommitPool()
            self._selector.register(self._commits, _READ, self._on_commits)
        self._commits.submit(job, then, what)

    def _on_commits(self, _mask: int) -> None:
        if self._commits:
            self._commits.run_done()

    def _dismiss(self, worker: RemoteWorker) -> None:
        """End the process of a worker whose attempt has ended for the driver."""
        worker.is_exit_delivered = True
        self._send_kill(worker)

    def _on_start_error(self, command: StartWorker, error: Exception) -> None:
        if is_shortage(error):
            self._start_retries.add(command, error)
            return
        failure = Failure(type(error).__name__, f"the worker could not be started: {error}")
        self._events.append(
            WorkerExited(command.trial_id, command.attempt, Outcome.FAILED, failure)
        )

    def _answer(self, command: AnswerReport) -> None:
        if group := self._groups.get((command.trial_id, command.attempt)):
            group.answer(command)
        elif worker := self._by_attempt.get((command.trial_id, command.attempt)):
            worker.answer(command)
            if worker.end.has_backlog:
                self._watch(worker)

    def _kill(self, command: KillWorker) -> None:
        if command.is_silent:
            command = replace(command, reason=f"{command.reason}; {IF_SILENT}")
        if group := self._groups.get((command.trial_id, command.attempt)):
            group.kill(command.reason, is_silent=command.is_silent)
            for member in group.members:
                if member.number in self._workers:
                    self._kill_process(member, command.term_grace_s)
        elif worker := self._by_attempt.get((command.trial_id, command.attempt)):
            worker.mark_killed(command.reason)
            self._kill_process(worker, command.term_grace_s)
        elif self._start_retries.withdraw(command):
            failure = Failure("killed", command.reason)
            self._events.append(
                WorkerExited(command.trial_id, command.attempt, Outcome.KILLED, failure)
            )

    def _kill_process(self, worker: RemoteProcess, term_grace_s: float = 0.0) -> None:
        if not self._launcher.is_ready and not worker.is_orphaned:
            # The zygote is still loading the trainable, which may take minutes; it will read
            # start and kill together, so the attempt counts as ended now.
            self._send_kill(worker)
            self._finish(worker, None)
        elif term_grace_s > 0:
            self._send_kill(worker, is_graceful=True)
            self._set_exit_deadline(worker, term_grace_s)
        else:
            self._send_kill(worker)

    def _kill_validation(self, command: KillValidation) -> None:
        key = (command.trial_id, command.index, command.num_try)
        if validator := self._validators.get(key):
            validator.mark_killed(command.reason)
            self._kill_process(validator)
        elif self._start_retries.withdraw(command):
            failure = Failure("killed", command.reason)
            self._events.append(ValidationEnded(*key, Outcome.KILLED, failure=failure))

    def _answer_request(self, command: GrantLease | RefuseLease | ListCheckpoints) -> None:
        worker = self._workers.get(self._askers.pop(command.token, 0))
        if worker is None:
            return  # it has ended since
        message = (
            checkpoints_answer(command)
            if isinstance(command, ListCheckpoints)
            else lease_answer(command)
        )
        self._send(worker, message)

    def _send(self, worker: RemoteProcess, message: Mapping[str, Any]) -> None:
        self.send(worker, strict_json.to_bytes(message, strict_json.opaque) + b"\n")

    def _send_kill(self, worker: RemoteProcess, *, is_graceful: bool = False) -> None:
        self._launcher.kill(worker.number, is_graceful=is_graceful)
        self._watch_launcher()

    def _set_exit_deadline(self, worker: RemoteProcess, within_s: float) -> None:
        heapq.heappush(self._exit_deadlines, (time.monotonic() + within_s, worker.number))

    def _select_timeout_s(self, deadline: float | None) -> float | None:
        """Return how long to wait, None for ever."""
        moments = [] if deadline is None else [deadline]
        if self._exit_deadlines:
            moments.append(self._exit_deadlines[0][0])
        if self._start_retries.retry_at is not None:
            moments.append(self._start_retries.retry_at)
        moments += [
            group.deadline_s for group in self._groups.values() if group.deadline_s is not None
        ]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _watch(self, worker: RemoteProcess) -> None:
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

    def _unwatch(self, worker: RemoteProcess) -> None:
        if worker.mask:
            self._selector.unregister(worker.end.socket)
            worker.mask = 0

    def _watch_launcher(self) -> None:
        mask = _READ | _WRITE if self._launcher.has_backlog else _READ
        if self._selector.get_key(self._launcher.control).events != mask:
            self._selector.modify(self._launcher.control, mask, self._on_launcher)

    def _on_wake(self, _mask: int) -> None:
        self._wakeup_pipe.clear()
        self._is_woken = True

    def _on_worker(self, worker: RemoteProcess, mask: int) -> None:
        if worker.mask == 0:
            return  # gone since the selector returned
        if mask & _WRITE:
            worker.end.flush()
            self._watch(worker)
        if mask & _READ:
            self._read_worker(worker)

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

    # Workers.

    def _read_worker(self, worker: RemoteProcess) -> None:
        try:
            events = worker.receive()
        except ValueError:
            # Nothing that comes after a malformed message can be trusted or even delimited.
            self._unwatch(worker)
            self._send_kill(worker)
            if isinstance(worker, RemoteWorker) and (group := self._group_of(worker)):
                group.on_violation(worker)
            return
        if events is None:
            # Not yet the end of the attempt: the process may live on, and its group may. The zygote
            # reports that, unless it is dead itself.
            self._unwatch(worker)
            if isinstance(worker, RemoteWorker) and (group := self._group_of(worker)):
                group.on_hangup(worker)
            if worker.is_orphaned:
                self._finish(worker, None)
            return
        self._take(worker, events)
        if isinstance(worker, RemoteWorker):
            self._heed_worker(worker)
        elif isinstance(worker, RemoteValidator) and worker.exit_message:
            self._set_exit_deadline(worker, self._grace_s)

    def _heed_worker(self, worker: RemoteWorker) -> None:
        """Act on what a worker has said about itself."""
        if self._group_of(worker):
            pass  # it says when its workers end
        elif worker.is_unfit:
            self._replace_unfit(worker)
        elif worker.exit_message and worker.is_reusable:
            self._keep_for_reuse(worker, worker.exit_message)
        elif worker.exit_message:
            self._set_exit_deadline(worker, self._grace_s)
        if worker.late_imports:
            self._launcher.preload(worker.late_imports)
            self._watch_launcher()
        if worker.packages and self._on_packages:
            self._on_packages(worker.packages)
            worker.packages = {}
        self._heed_unloadable(worker)

    def _heed_unloadable(self, worker: RemoteWorker) -> None:
        if worker.unloadable and self._on_unloadable:
            self._on_unloadable(worker.unloadable)
            worker.unloadable = ""

    def _keep_for_reuse(self, worker: RemoteWorker, exit_message: WorkerExited) -> None:
        """Report the end of an attempt whose process waits for the next one."""
        del self._by_attempt[worker.trial_id, worker.attempt]
        self._reusable.add(worker)
        self._events.append(exit_message)

    def _replace_unfit(self, worker: RemoteWorker) -> None:
        """Start a new process for an attempt for which the old one could not be reset."""
        del self._by_attempt[worker.trial_id, worker.attempt]
        self._dismiss(worker)
        self._start(worker.command)

    def _take(self, worker: RemoteProcess, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, (LeaseRequested, CheckpointsRequested)):
                self._askers[message.token] = worker.number
        if isinstance(worker, RemoteWorker) and (group := self._group_of(worker)):
            group.on_messages(worker, messages)
            return
        for message in messages:
            if isinstance(worker, RemoteWorker) and isinstance(message, ResultReported):
                self._payloads.note(worker.trial_dir, message)
            # Only the workers of groups send other messages than events.
            if not isinstance(message, (RankReported, PartStored)):
                self._events.append(message)

    def _finish(self, worker: RemoteProcess, exit_info: ExitInfo | None) -> None:
        """Report the end of a process whose group is gone; None if the zygote died."""
        if isinstance(worker, RemoteValidator):
            self._finish_validator(worker, exit_info)
        elif isinstance(worker, RemoteWorker):
            self._finish_worker(worker, exit_info)

    def _finish_validator(self, validator: RemoteValidator, exit_info: ExitInfo | None) -> None:
        self._unwatch(validator)
        self._take(validator, validator.drain())
        ended = validator.exit_event(exit_info)
        self._events.append(ended)
        is_failed_for_good = ended.outcome is Outcome.FAILED and validator.command.is_last_try
        if is_failed_for_good or ended.outcome in (Outcome.COMPLETED, Outcome.KILLED):
            self._payloads.delete(validator.assignment)  # else it is tried again
        validator.end.close()
        del self._validators[validator.key]
        del self._workers[validator.number]

    def _finish_worker(self, worker: RemoteWorker, exit_info: ExitInfo | None) -> None:
        """Report how a worker ended whose process group is gone; None if the zygote died."""
        self._unwatch(worker)
        if group := self._group_of(worker):
            self._take(worker, worker.drain())
            self._heed_unloadable(worker)
            group.on_gone(worker, exit_info)
        elif not (self._reusable.discard(worker) or worker.is_exit_delivered):
            # The zygote's report comes over another socket, and may overtake the last messages.
            self._take(worker, worker.drain())
            self._heed_unloadable(worker)
            del self._by_attempt[worker.trial_id, worker.attempt]
            if worker.is_unfit and exit_info:  # its ``unfit`` was read only now
                self._start(worker.command)
            else:
                self._events.append(worker.exit_event(exit_info))
        worker.end.close()
        del self._workers[worker.number]

    def _enforce_exit_deadlines(self) -> None:
        """Kill workers that have not exited in time; stop waiting for orphaned ones."""
        while self._exit_deadlines and self._exit_deadlines[0][0] <= time.monotonic():
            worker = self._workers.get(heapq.heappop(self._exit_deadlines)[1])
            if worker is None:
                continue  # its deadline was not removed from the heap when it ended in time
            if worker.is_orphaned:
                self._finish(worker, None)
            else:
                self._send_kill(worker)

    # The zygote.

    def _on_report(self, report: dict[str, Any]) -> None:
        match report["kind"]:
            case "gone":
                self._zygotes.note_progress()
                if worker := self._workers.get(report["worker"]):
                    self._finish(
                        worker, ExitInfo(report["code"], report["peak_bytes"], report["is_oom"])
                    )
            case "unstarted":
                if worker := self._workers.get(report["worker"]):
                    self._on_unstarted(worker)
            case "ready":
                self._launcher.note_ready()
                self._watch_launcher()
            case "spawning":
                self._zygotes.spawn_from_now_on(report["reason"])
            case "warning":
                _log.warning("%s", report["text"])

    def _on_unstarted(self, worker: RemoteProcess) -> None:
        """Have a process that the zygote could not receive started again."""
        if worker.is_killed:
            self._finish(worker, None)
            return
        self._unwatch(worker)
        worker.end.close()
        del self._workers[worker.number]
        if isinstance(worker, RemoteValidator):
            del self._validators[worker.key]
            self._start_retries.add(worker.command, _NO_DESCRIPTOR)
        elif isinstance(worker, RemoteWorker) and (group := self._group_of(worker)):
            group.on_unstarted(worker)
        elif isinstance(worker, RemoteWorker):
            del self._by_attempt[worker.trial_id, worker.attempt]
            self._start_retries.add(worker.command, _NO_DESCRIPTOR)

    def _replace_launcher(self) -> None:
        self._selector.unregister(self._launcher.control)
        if self._launcher.is_loading_again:  # it has started no worker yet
            self._zygotes.start_over()
            self._selector.register(self._launcher.control, _READ, self._on_launcher)
            self._watch_launcher()
            return
        self._zygotes.close_dead()
        orphans = list(self._workers.values())
        for worker in orphans:
            worker.is_orphaned = True
        for worker in orphans:
            self._orphan(worker)
        try:
            self._zygotes.replace()
        except TunerError:
            self.shutdown(0.0)
            raise
        self._selector.register(self._launcher.control, _READ, self._on_launcher)

    def _orphan(self, worker: RemoteProcess) -> None:
        """Wait until the kernel has killed a worker of a dead zygote, which ends its connection."""
        if worker.mask:
            self._set_exit_deadline(worker, self._grace_s)
        else:  # its connection has ended already, so no other event would finish it
            self._finish(worker, None)


class HasFileno(Protocol):
    """What a selector can watch."""

    def fileno(self) -> int:
        """Return the descriptor."""


def _packed(trainable: Any, validator: Validator | None, kill_grace_s: float) -> TrainableBlob:
    if isinstance(trainable, PickledCode):
        return TrainableBlob.pack_code(trainable, kill_grace_s=kill_grace_s)
    return TrainableBlob.pack(
        pickle_trainable(trainable),
        # That of a trainer is pickled with it, and shares its objects.
        b"" if validator is None or own_validator(trainable) else pickle_trainable(validator),
        kill_grace_s=kill_grace_s,
    )


def _check_nodes(nodes: Sequence[str]) -> None:
    """Refuse a group over several nodes, of which all workers would be on one.

    Raises:
        NotImplementedError: If there are several.
    """
    if len(nodes) > 1:
        raise NotImplementedError(
            f"its workers are to run on the nodes {', '.join(dict.fromkeys(nodes))}, and this "
            "executor runs all of them on one; give "
            'ScalingConfig(placement_strategy="STRICT_PACK")'
        )
