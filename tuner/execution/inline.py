"""Executor that runs trials in the driver's process, for debuggers, notebooks and tests."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never, final

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
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.trial import Failure, ReportReply

from .assignment import Assignment
from .failures import as_message, describe
from .session import run_attempt
from .validation import (
    DeclaredValidator,
    ValidationAssignment,
    no_validation,
    own_validator,
    run_validation,
)
from .validation_arguments import Validator
from .validation_payloads import Payloads
from .worker_protocol import checkpoints_answer, report_answer, to_event, to_validation_end

_STOP = {"verdict": ReportReply.STOP, "save": False}


@final
class InlineExecutor:
    """Runs trials in this process, one at a time, each in its own thread.

    A trial runs until it reports or ends; then the next one takes its turn, in the order of their
    reports. Several trials may be under way at once, as schedulers need. But trials advance only
    while the driver is in `wait`: the order of events is the same in every run, and a breakpoint
    stops all of them.

    There is no process to kill: a killed trial is stopped at its next report, and one that never
    reports runs until it ends. Trials share the modules, the environment, standard output and the
    global random generators of the process.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        assign: Returns the assignment for a `StartWorker`.
        capacity: Total resources, e.g. ``{"cpu": 4.0}``: how many trials may be under way at once.
        assign_validation: Returns the assignment for a `StartValidation`.
        validator: The declared validation function, None for none or that of the trainable.
    """

    def __init__(
        self,
        trainable: Any,
        assign: Callable[[StartWorker], Assignment],
        *,
        capacity: Mapping[str, float],
        assign_validation: Callable[[StartValidation], ValidationAssignment] = no_validation,
        validator: Validator | None = None,
    ) -> None:
        self._trainable = trainable
        self._assign = assign
        self._assign_validation = assign_validation
        self._declared = DeclaredValidator(own_validator(trainable) or validator)
        self._payloads = Payloads()
        self._capacity = dict(capacity)
        self._changed = threading.Condition()
        self._workers: dict[tuple[str, int], _InlineWorker] = {}
        self._queue: deque[_InlineWorker | _InlineValidation] = deque()
        self._running: _InlineWorker | _InlineValidation | None = None
        self._validations: dict[tuple[str, int, int], _InlineValidation] = {}
        self._events: list[Event] = []
        self._is_awake = False
        self._is_shut = False

    def capacity(self) -> Mapping[str, float]:
        """See `Executor.capacity`."""
        return self._capacity

    def clock(self) -> float:
        """See `Executor.clock`."""
        return time.monotonic()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor.carry_out`; a worker acts at its next turn."""
        with self._changed:
            for command in commands:
                match command:
                    case StartWorker():
                        self._enqueue(command)
                    case AnswerReport():
                        self._answer(command)
                    case KillWorker():
                        self._kill(command)
                    case StartValidation():
                        self._enqueue_validation(command)
                    case KillValidation():
                        self._kill_validation(command)
                    case ListCheckpoints():
                        self._list_checkpoints(command)
                    case GrantLease() | RefuseLease():
                        pass  # an experiment inside a trial of this process owns no resources
                    case _:
                        assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor.wait`. A trial whose turn is not over at the timeout keeps it."""
        with self._changed:
            if not self._events:
                self._begin_turn()
                self._changed.wait_for(
                    lambda: self._is_awake or bool(self._events and self._running is None),
                    timeout_s,
                )
            self._is_awake = False
            events, self._events = self._events, []
            return events

    def wake(self) -> None:
        """See `Executor.wake`."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor.shutdown`; a trial that does not report in time is left in its thread."""
        end_s = time.monotonic() + deadline_s
        with self._changed:
            for worker in list(self._workers.values()):
                self._kill(KillWorker(worker.command.trial_id, worker.command.attempt, "shutdown"))
            for validation in list(self._validations.values()):
                self._kill_validation(KillValidation(*validation.key, "shutdown"))
            while (self._workers or self._validations) and time.monotonic() < end_s:
                self._events.clear()
                self._begin_turn()
                self._changed.wait_for(
                    lambda: (
                        self._running is None
                        and bool(self._queue or not (self._workers or self._validations))
                    ),
                    end_s - time.monotonic(),
                )
            self._is_shut = True
            self._payloads.delete_all()
            self._validations.clear()
            self._workers.clear()
            self._queue.clear()
            self._events.clear()
            self._changed.notify_all()

    # Turns. All of these hold the condition.

    def _enqueue(self, command: StartWorker) -> None:
        worker = _InlineWorker(command)
        self._workers[command.trial_id, command.attempt] = worker
        self._queue.append(worker)

    def _answer(self, command: AnswerReport) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker and worker.is_waiting and worker.answer is None:
            worker.answer = report_answer(command)
            self._queue.append(worker)

    def _list_checkpoints(self, command: ListCheckpoints) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker and worker.is_waiting and worker.answer is None:
            worker.answer = checkpoints_answer(command)
            self._queue.append(worker)

    def _kill(self, command: KillWorker) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker is None or worker.kill_reason is not None:
            return
        worker.kill_reason = command.reason
        if not worker.has_started:
            self._queue.remove(worker)
            self._finish(worker)
        elif worker.is_waiting and worker.answer is None:
            self._queue.append(worker)  # its next turn raises StopTraining in `report`

    def _begin_turn(self) -> None:
        while self._running is None and self._queue and not self._events:
            worker = self._running = self._queue.popleft()
            if isinstance(worker, _InlineValidation):
                self._start_validation(worker)
                continue
            worker.is_waiting = False
            if worker.has_started:
                self._changed.notify_all()
            else:
                self._start(worker)

    def _start(self, worker: _InlineWorker) -> None:
        worker.has_started = True
        try:
            assignment = self._assign(worker.command)
        except Exception as error:  # noqa: BLE001  (one trial must not end the driver)
            self._on_message(
                worker,
                {"kind": "exited", "outcome": "failed", "failure": as_message(describe(error))},
            )
            return
        worker.trial_dir = assignment.trial_dir
        name = f"{worker.command.trial_id}-{worker.command.attempt}"
        threading.Thread(
            target=self._run, args=(worker, _with_own_config(assignment)), name=name, daemon=True
        ).start()

    def _on_message(self, worker: _InlineWorker, message: Mapping[str, Any]) -> None:
        command = worker.command
        if (command.trial_id, command.attempt) not in self._workers:
            return
        event = to_event(command.trial_id, command.attempt, message)
        if isinstance(event, ResultReported):
            self._payloads.note(worker.trial_dir, event)
        if worker.kill_reason is None:
            self._events.append(event)
            if isinstance(event, ResultReported):
                worker.last_answer = _STOP
                self._on_report(worker)
            elif isinstance(event, CheckpointsRequested):
                worker.last_answer = {"checkpoints": event.token, "list": []}
                self._on_report(worker)
        if isinstance(event, WorkerExited):
            self._finish(worker)

    def _on_report(self, worker: _InlineWorker) -> None:
        # Under the same lock as the report: a driver woken in between would answer a trial that
        # does not wait yet.
        worker.is_waiting = True
        if self._running is worker:
            self._running = None
        self._changed.notify_all()

    def _finish(self, worker: _InlineWorker) -> None:
        trial_id, attempt = worker.command.trial_id, worker.command.attempt
        if worker.kill_reason is not None:
            self._events.append(
                WorkerExited(
                    trial_id, attempt, Outcome.KILLED, Failure("killed", worker.kill_reason)
                )
            )
        del self._workers[trial_id, attempt]
        if self._running is worker:
            self._running = None
        self._changed.notify_all()

    def _enqueue_validation(self, command: StartValidation) -> None:
        validation = _InlineValidation(command)
        self._validations[validation.key] = validation
        self._queue.append(validation)

    def _kill_validation(self, command: KillValidation) -> None:
        validation = self._validations.get((command.trial_id, command.index, command.num_try))
        if validation is None or validation.kill_reason is not None:
            return
        validation.kill_reason = command.reason
        if not validation.has_started:
            self._queue.remove(validation)
            self._end_validation(validation, None)

    def _start_validation(self, validation: _InlineValidation) -> None:
        validation.has_started = True
        try:
            assignment = self._assign_validation(validation.command)
        except Exception as error:  # noqa: BLE001  (one validation must not end the driver)
            self._end_validation(
                validation, {"kind": "failed", "failure": as_message(describe(error))}
            )
            return
        if self._payloads.has(assignment):
            assignment = dataclasses.replace(assignment, has_payload=True)
        name = f"{assignment.trial_id}-validation-{assignment.index}"
        threading.Thread(
            target=self._validate, args=(validation, assignment), name=name, daemon=True
        ).start()

    def _end_validation(
        self, validation: _InlineValidation, message: Mapping[str, Any] | None
    ) -> None:
        if validation.key not in self._validations:
            return
        if validation.kill_reason is not None or message is None:
            failure = Failure("killed", validation.kill_reason or "")
            event = ValidationEnded(*validation.key, Outcome.KILLED, failure=failure)
        else:
            event = to_validation_end(*validation.key, message)
        self._events.append(event)
        del self._validations[validation.key]
        if self._running is validation:
            self._running = None
        self._changed.notify_all()

    # In the threads of the trials and validations.

    def _validate(self, validation: _InlineValidation, assignment: ValidationAssignment) -> None:
        message = run_validation(self._trainable, self._declared, assignment)
        with self._changed:
            if message["kind"] == "validated" or validation.kill_reason is not None:
                self._payloads.delete(assignment)  # else it may be tried again
            self._end_validation(validation, message)

    def _run(self, worker: _InlineWorker, assignment: Assignment) -> None:
        run_attempt(
            self._trainable,
            assignment,
            _Channel(
                functools.partial(self._send, worker), functools.partial(self._await_turn, worker)
            ),
            self._declared,
        )

    def _send(self, worker: _InlineWorker, message: Mapping[str, Any]) -> None:
        with self._changed:
            self._on_message(worker, message)

    def _await_turn(
        self, worker: _InlineWorker, timeout_s: float | None = None
    ) -> Mapping[str, Any]:
        """Wait until the request is answered and it is the trial's turn, or until it is killed."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: not worker.is_waiting or self._is_shut, timeout_s
            ):
                raise TimeoutError
            answer, worker.answer = worker.answer, None
            return answer if answer and worker.kill_reason is None else worker.last_answer


@dataclasses.dataclass(slots=True, eq=False)
class _InlineWorker:
    """One attempt of a trial."""

    command: StartWorker
    has_started: bool = False
    is_waiting: bool = False
    """Whether it has reported and waits for its answer, and then for its turn."""
    answer: dict[str, Any] | None = None
    kill_reason: str | None = None
    last_answer: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _STOP)
    """What it is told instead of the answer if it is killed."""
    trial_dir: str | os.PathLike[str] = ""


@dataclasses.dataclass(slots=True, eq=False)
class _InlineValidation:
    """One try to validate a checkpoint, which runs to its end in one turn."""

    command: StartValidation
    has_started: bool = False
    kill_reason: str | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        return self.command.trial_id, self.command.checkpoint.index, self.command.num_try


@dataclasses.dataclass(frozen=True, slots=True)
class _Channel:
    """A trial's connection to the executor."""

    send: Callable[[dict[str, Any]], None]
    receive: Callable[..., Any]


def _with_own_config(assignment: Assignment) -> Assignment:
    # Training code must not change the driver's copy. Objects that cannot be copied are shared.
    with contextlib.suppress(Exception):
        return dataclasses.replace(assignment, config=copy.deepcopy(dict(assignment.config)))
    return assignment
