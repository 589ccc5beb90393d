"""The executor: carries commands out by processes, and turns what they say into events.

It owns attempts, ranks, validators, and the askers of leases. Where processes are, and how they are
started and spoken to, is the matter of a `ProcessService`.

An exit of a worker has two parts: its own exit message, which says how the training code ended, and
that its process group is gone. The event follows both, or the second alone, because a process may
die at any moment.

Several workers may train one trial together, see `group`: the core sees one exit then, when all of
them are gone.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, assert_never, final

from tuner import capabilities
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
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.worker_records import Failure
from tuner.errors import TunerError
from tuner.storage import strict_json

from .assignment import Assignment
from .process_service import (
    Gone,
    HungUp,
    Listening,
    NodeChanged,
    ProcessEvent,
    ProcessService,
    Said,
    ServiceEvent,
    StackDumped,
    Unstarted,
    Violated,
    Woken,
)
from .remote_process import (
    IF_SILENT,
    AttemptOwner,
    ExitNotes,
    ProcessOwner,
    RemoteProcess,
    RemoteWorker,
    ReusableWorkers,
    SingleAttempt,
)
from .validation_assignment import ValidationAssignment, no_validation
from .worker_protocol import checkpoints_answer, lease_answer

if TYPE_CHECKING:
    from tuner.groups.groups import Groups
    from tuner.validation.remote_validator import ValidationTry

    from .start_retry import StartRetryQueue
    from .validation_payloads import Payloads

_DEADLINE_S: Final = attrgetter("deadline_s")
_log = logging.getLogger(__name__)


@final
class ProcessExecutor:
    """Runs each attempt of a trial in a process, or in several.

    Args:
        service: Starts the processes; it is closed by `shutdown`.
        assign: Returns the assignment for a `StartWorker`.
        capacity: The total resources, e.g. ``{"cpu": 8.0, "gpu": 1.0}``.
        environ: Environment variables that are added for all processes of trials.
        on_packages: Called with the versions of packages that a worker has imported.
        on_unloadable: Called with the node and the reason when a process could not load the
            trainable; returns whether the node is given up, so that the attempt is not at fault.
        assign_validation: Returns the assignment for a `StartValidation`.
        payloads: Takes notice of the payloads of validations; None for those of this executor.
        groups: Returns what makes groups of workers, given the service and the environment of their
            processes; called for the first group.
    """

    def __init__(
        self,
        service: ProcessService,
        assign: Callable[[StartWorker], Assignment],
        *,
        capacity: Mapping[str, float],
        environ: Mapping[str, str] | None = None,
        on_packages: Callable[[Mapping[str, str]], None] | None = None,
        on_unloadable: Callable[[str, str], bool] | None = None,
        assign_validation: Callable[[StartValidation], ValidationAssignment] = no_validation,
        payloads: Payloads | None = None,
        groups: Callable[[ProcessService, Mapping[str, str]], Groups] | None = None,
    ) -> None:
        self._service = service
        self._assign = assign
        self._assign_validation = assign_validation
        self._capacity = dict(capacity)
        self._environ = os.environ | dict(environ or {})
        self._on_packages = on_packages
        self._on_unloadable = on_unloadable
        self._payloads = payloads  # else made for the first validation
        # Never reused: a late word about a process must not be taken for one about a newer one.
        self._keys = itertools.count(1)
        self._processes: dict[int, tuple[RemoteProcess, ProcessOwner]] = {}
        self._attempts: dict[tuple[str, int], AttemptOwner] = {}
        self._groups: dict[tuple[str, int], AttemptOwner] = {}
        """Attempts of several workers."""
        self._listening: dict[int, StartWorker] = {}
        """Groups that are started once rank 0, of this key, can listen."""
        self._validations: dict[tuple[str, int, int], ValidationTry] = {}
        self._askers: dict[str, int] = {}  # the key of the process by the token of its request
        self._given_up: set[str] = set()
        """Nodes that are about to leave since they cannot load the trainable."""
        self._reusable = ReusableWorkers()
        self._start_retries: StartRetryQueue | None = None  # until a start has failed
        self._new_groups = groups
        self._group_maker: Groups | None = None
        self._events: list[Event] = []
        self._is_woken = self._is_closed = False

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        return self._capacity

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
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
            self._service.kill(worker.key)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            TunerError: If no process can be started any more.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._events or self._is_woken or self._is_closed):
            self._retry_starts()
            # A start that failed for good has become an event, which must not wait for another.
            timeout_s = 0.0 if self._events else self._timeout_s(deadline)
            try:
                said = self._service.wait(timeout_s)
            except TunerError:
                self.shutdown(0.0)
                raise
            for event in said:
                self._take(event)
            for group in list(self._groups.values()):
                group.tick(time.monotonic())
            if deadline is not None and time.monotonic() >= deadline:
                break
        self._is_woken = False
        events, self._events = self._events, []
        self._reusable.mark_delivered()
        return events

    def wake(self) -> None:
        self._service.wake()

    clock = staticmethod(time.monotonic)

    def shutdown(self, deadline_s: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._service.close(deadline_s)
        self._processes.clear()
        self._listening.clear()
        self._attempts.clear()
        self._groups.clear()
        self._validations.clear()
        self._events.clear()
        if self._payloads:
            self._payloads.delete_all()
        if self._group_maker:
            self._group_maker.close()

    # Commands.

    def _start(self, command: StartWorker) -> None:
        try:
            if command.group and self._service.isolates:
                key = next(self._keys)
                self._service.listen(key, command.node, is_local=not _is_spread(command))
                self._listening[key] = command
            else:
                self._start_single(command, self._assign(command))
                self._note_start()
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            self._on_unstartable(command, _unstarted_by(0, error, "worker"))

    def _on_unstartable(self, command: StartWorker, unstarted: Unstarted) -> None:
        """Start an attempt later of which nothing was started, or fail it."""
        if unstarted.is_shortage:
            self._retry(command, unstarted.failure.message)
        else:
            self._end(command, Outcome.FAILED, unstarted.failure)

    def _end(self, command: StartWorker, outcome: Outcome, failure: Failure) -> None:
        """Tell the end of an attempt of which nothing was started."""
        self._events.append(WorkerExited(command.trial_id, command.attempt, outcome, failure))

    def _start_single(self, command: StartWorker, assignment: Assignment) -> None:
        if worker := self._reusable.find(command):
            self._service.reassign(worker.key, assignment)
            self._reusable.discard(worker.key)
            worker.begin_attempt(command)
        else:
            worker = RemoteWorker(next(self._keys), command)
            self._service.start(worker.key, assignment)
        self._add(SingleAttempt(worker, assignment.trial_dir, self), command)

    def _on_listening(self, event: ProcessEvent) -> None:
        """Start a group, or find that its rank 0 cannot listen."""
        command = self._listening.pop(event.key)
        if isinstance(event, Unstarted):
            self._on_unstartable(command, event)
        elif isinstance(event, Listening) and command.group:
            nodes = command.nodes or ("",) * command.group.num_workers
            try:
                assignments = {
                    node: self._assign(replace(command, nodes=(node,))) for node in {*nodes}
                }
                groups = self._group_maker or self._make_groups()
                placed = groups.place(assignments, nodes, event.address, event.port)
                self._start_group(groups, event.key, command, placed)
            except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
                self._service.kill(event.key)
                self._on_unstartable(command, _unstarted_by(0, error, "worker"))
            else:
                self._note_start()

    def _make_groups(self) -> Groups:
        make: Callable[..., Groups] = self._new_groups or capabilities.Groups
        self._group_maker = make(self._service, self._environ)
        return self._group_maker

    def _start_group(
        self,
        groups: Groups,
        key: int,
        command: StartWorker,
        assignments: Sequence[Assignment],
    ) -> None:
        """Start all workers of a group, or none."""
        assignment, *others = assignments
        self._service.start(key, assignment)
        if not others:
            worker = RemoteWorker(key, command)
            self._add(SingleAttempt(worker, assignment.trial_dir, self), command)
            return
        members = [RemoteWorker(key, command, 0)]
        members += [
            RemoteWorker(next(self._keys), command, rank) for rank in range(1, len(assignments))
        ]
        group = groups.make(command, members, assignment, self)
        self._groups[command.trial_id, command.attempt] = group
        self._add(group, command)
        error: Exception | None = None
        for worker, own in zip(members[1:], others, strict=True):
            try:
                if error is None:
                    self._service.start(worker.key, own)
            except Exception as raised:  # noqa: BLE001  (pickling may run the user's code)
                error = raised
            if error:
                self._on_event(_unstarted_by(worker.key, error, "worker"))

    def _add(self, attempt: AttemptOwner, command: StartWorker) -> None:
        self._attempts[command.trial_id, command.attempt] = attempt
        for worker in attempt.members:
            self._processes[worker.key] = (worker, attempt)

    def _start_validation(self, command: StartValidation) -> None:
        try:
            assignment = self._assign_validation(command)
            if self._known_payloads().has(assignment):
                assignment = replace(assignment, has_payload=True)
            validation = capabilities.ValidationTry(next(self._keys), command, assignment, self)
            self._service.start(validation.process.key, assignment)
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            unstarted = _unstarted_by(0, error, "validation")
            if unstarted.is_shortage:
                self._retry(command, unstarted.failure.message)
                return
            names = command.trial_id, command.checkpoint.index, command.num_try
            failure = unstarted.failure
            self._events.append(ValidationEnded(*names, Outcome.FAILED, failure=failure))
        else:
            self._note_start()
            self._processes[validation.process.key] = (validation.process, validation)
            self._validations[validation.process.names] = validation

    def _retry(self, command: StartWorker | StartValidation, why: str) -> None:
        """Carry out a start again later that has failed since the system is short of something."""
        if self._start_retries is None:
            from .start_retry import StartRetryQueue  # noqa: PLC0415  (it seldom is)

            self._start_retries = StartRetryQueue()
        self._start_retries.add(command, why)

    def _note_start(self) -> None:
        if self._start_retries:
            self._start_retries.note_start()

    def _known_payloads(self) -> Payloads:
        if self._payloads is None:
            from .validation_payloads import Payloads  # noqa: PLC0415  (for validations only)

            self._payloads = Payloads()
        return self._payloads

    def _retry_starts(self) -> None:
        for command in self._start_retries.take_due() if self._start_retries else ():
            if isinstance(command, StartWorker):
                self._start(command)
            else:
                self._start_validation(command)

    def _answer(self, command: AnswerReport) -> None:
        if attempt := self._attempts.get((command.trial_id, command.attempt)):
            if command.stay and not self._service.isolates:
                command = replace(command, stay=False)
            attempt.answer(command)

    def _kill(self, command: KillWorker) -> None:
        reason = f"{command.reason}; {IF_SILENT}" if command.is_silent else command.reason
        if attempt := self._attempts.get((command.trial_id, command.attempt)):
            is_urgent = not command.term_grace_s
            attempt.kill(reason, is_silent=command.is_silent, is_urgent=is_urgent)
            for worker in attempt.members:
                self._service.kill(worker.key, command.term_grace_s)
        elif start := self._withdrawn(command):
            self._end(start, Outcome.KILLED, Failure("killed", reason))

    def _withdrawn(self, command: KillWorker) -> StartWorker | None:
        """Give up an attempt of which nothing was started yet; return the command to start it."""
        for key, start in self._listening.items():
            if (start.trial_id, start.attempt) == (command.trial_id, command.attempt):
                del self._listening[key]
                self._service.kill(key)
                return start
        found = self._start_retries and self._start_retries.withdraw(command)
        return found if isinstance(found, StartWorker) else None

    def _kill_validation(self, command: KillValidation) -> None:
        names = (command.trial_id, command.index, command.num_try)
        if validation := self._validations.get(names):
            validation.process.mark_killed(command.reason)
            self._service.kill(validation.process.key)
        elif self._start_retries and self._start_retries.withdraw(command):
            failure = Failure("killed", command.reason)
            self._events.append(ValidationEnded(*names, Outcome.KILLED, failure=failure))

    def _answer_request(self, command: GrantLease | RefuseLease | ListCheckpoints) -> None:
        key = self._askers.pop(command.token, None)
        if key is None:
            return
        message = (
            checkpoints_answer(command)
            if isinstance(command, ListCheckpoints)
            else lease_answer(command)
        )
        self._service.send(key, strict_json.to_bytes(message, strict_json.opaque) + b"\n")

    # What the service says.

    def _timeout_s(self, deadline: float | None) -> float | None:
        """Return how long to wait, None for ever."""
        soonest = deadline
        retry_at = self._start_retries.retry_at if self._start_retries else None
        for moment in (retry_at, *map(_DEADLINE_S, self._groups.values())):
            if moment is not None and (soonest is None or moment < soonest):
                soonest = moment
        return None if soonest is None else max(0.0, soonest - time.monotonic())

    def _take(self, event: ServiceEvent) -> None:
        if isinstance(event, Woken):
            self._is_woken = True
        elif isinstance(event, NodeChanged):
            self._on_node(event)
        elif event.key in self._listening:
            self._on_listening(event)
        elif event.key in self._processes:
            self._on_event(event)
        elif isinstance(event, Gone):
            self._reusable.discard(event.key)

    def _on_event(self, event: ProcessEvent) -> None:
        process, owner = self._processes[event.key]
        if process.node in self._given_up:
            return  # the core is about to learn that it has left
        match event:
            case Said():
                self._on_said(process, owner, event.messages)
            case Violated():
                process.note_violation(event.why)
                owner.on_violation(process)
            case HungUp():
                owner.on_hangup(process)
            case StackDumped():
                owner.on_stack(process, event.stack)
            case Listening():
                pass  # it was given up
            case Gone():
                del self._processes[event.key]
                process.stderr = event.stderr
                owner.on_gone(process, event.exit_info)
            case Unstarted():
                del self._processes[event.key]
                owner.on_unstarted(process, event)
            case _:
                assert_never(event)

    def _on_said(
        self, process: RemoteProcess, owner: ProcessOwner, messages: Sequence[Any]
    ) -> None:
        if process.has_violated:
            return  # nothing that comes after a violation can be trusted
        try:
            events = process.read(messages)
        except ValueError:
            self._service.kill(process.key)
            owner.on_violation(process)
            return
        for event in events:
            if isinstance(event, (LeaseRequested, CheckpointsRequested)):
                self._askers[event.token] = process.key
        if self._heed_exit(messages[-1], process.node):
            self._given_up.add(process.node)
        else:
            owner.on_messages(process, events)

    def _heed_exit(self, message: Any, node: str) -> bool:
        """Note what the last message says beside the end; return whether the node is given up."""
        notes = ExitNotes.of(message)
        if notes is None:
            return False
        if notes.late_imports:
            self._service.preload(notes.late_imports)
        if notes.packages and self._on_packages:
            self._on_packages(notes.packages)
        if notes.unloadable and self._on_unloadable:
            return self._on_unloadable(node, notes.unloadable)
        return False

    # Nodes.

    def _on_node(self, changed: NodeChanged) -> None:
        self._events.append(changed.event)
        if isinstance(changed.event, NodeLeft):
            self._given_up.discard(changed.event.node)
            self._on_node_left(changed.event.node, changed.alive_s)

    def _on_node_left(self, node: str, alive_s: float) -> None:
        """Forget what has run on a node; of attempts with others elsewhere one end follows."""
        waiting = self._start_retries.take_on(node) if self._start_retries else []
        for key, command in list(self._listening.items()):
            if node in command.nodes:
                del self._listening[key]
                self._service.kill(key)
                waiting.append(command)
        for start in waiting:
            if isinstance(start, StartWorker) and _is_spread(start):
                self._end(start, Outcome.LOST, Failure("lost", f"node {node} is gone"))
        lost: dict[ProcessOwner, list[RemoteProcess]] = {}
        for key, (process, owner) in list(self._processes.items()):
            if process.node == node:
                del self._processes[key]
                lost.setdefault(owner, []).append(process)
        for owner, processes in lost.items():
            self._on_lost(owner, node, processes, alive_s)

    def _on_lost(
        self, owner: ProcessOwner, node: str, processes: Sequence[RemoteProcess], alive_s: float
    ) -> None:
        first = processes[0]
        if not isinstance(first, RemoteWorker):
            self._validations = {
                names: each
                for names, each in self._validations.items()
                if each.process is not first
            }
        elif _is_spread(first.command):
            owner.on_node_left(node, processes, alive_s)
        else:
            self._forget_attempt(first.trial_id, first.attempt)

    # What attempts and validations need, see `OwnerHost` and `SingleHost`.

    def emit(self, event: Event) -> None:
        match event:
            case ResultReported():
                if event.validation:
                    attempt = self._attempts[event.trial_id, event.attempt]
                    self._known_payloads().note(attempt.trial_dir, event)
            case WorkerExited():
                self._forget_attempt(event.trial_id, event.attempt)
            case ValidationEnded():
                self._end_validation(event)
        self._events.append(event)

    def _forget_attempt(self, trial_id: str, attempt: int) -> None:
        del self._attempts[trial_id, attempt]
        self._groups.pop((trial_id, attempt), None)

    def _end_validation(self, ended: ValidationEnded) -> None:
        process = self._validations.pop((ended.trial_id, ended.index, ended.num_try)).process
        self._known_payloads().note_end(process.assignment, process.command, ended)

    def send(self, process: RemoteProcess, line: bytes) -> None:
        self._service.send(process.key, line)

    def kill(self, process: RemoteProcess) -> None:
        self._service.kill(process.key)

    def dump_stack(self, process: RemoteProcess) -> None:
        self._service.dump_stack(process.key)

    def expect_exit(self, process: RemoteProcess) -> None:
        self._service.expect_exit(process.key)

    def start_again(self, command: StartWorker | StartValidation, why: str) -> None:
        if isinstance(command, StartWorker):
            self._forget_attempt(command.trial_id, command.attempt)
        else:
            del self._validations[command.trial_id, command.checkpoint.index, command.num_try]
        self._retry(command, why)

    def keep(self, worker: RemoteWorker) -> None:
        if worker.exit_message:
            self.emit(worker.exit_message)
            del self._processes[worker.key]
            self._reusable.add(worker)

    def replace(self, worker: RemoteWorker) -> None:
        self._forget_attempt(worker.trial_id, worker.attempt)
        del self._processes[worker.key]
        self._service.kill(worker.key)
        self._start(worker.command)


def _is_spread(command: StartWorker) -> bool:
    """Return whether the workers of an attempt are on several nodes."""
    return len(set(command.nodes)) > 1


def _unstarted_by(key: int, error: Exception, what: str) -> Unstarted:
    from .start_retry import unstarted_by  # noqa: PLC0415  (starts seldom fail)

    return unstarted_by(key, error, what)
