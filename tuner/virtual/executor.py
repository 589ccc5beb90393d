"""Executors in virtual time: trials follow given curves, and the clock jumps from event to event.

`SimulatedExecutor` computes curves with a function; `ReplayExecutor` replays the results of an
earlier experiment. Both are deterministic and use no processes, threads or files.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import heapq
import itertools
import math
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never, final

from tuner.core import result as key
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
    CheckpointSaved,
    Event,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply, ValidationRequest
from tuner.execution.failures import describe
from tuner.execution.metric_conversion import Converter, as_metrics
from tuner.execution.result_fields import AutoFill, Place, counters_of, next_iteration


class VirtualWorker(ABC):
    """One attempt of a trial that is computed instead of trained.

    Attributes:
        command: The command that started it.
        failure: The failure with which the latest computed iteration ends; None for a report.
        is_waiting: Whether it has reported and waits for the answer.
        is_over: Whether the attempt has ended.
    """

    def __init__(self, command: StartWorker) -> None:
        self.command = command
        self.failure: Failure | None = None
        self.is_waiting = False
        self.is_over = False

    @property
    def start_s(self) -> float:
        """Seconds from the start until training begins."""
        return 0.0

    @property
    def exit_s(self) -> float:
        """Seconds from the last report until the worker exits by itself."""
        return 0.0

    def leave_s(self, *, has_saved: bool) -> float:
        """Return the seconds that the worker takes to save, if asked to, and to exit."""
        return 0.0

    @abstractmethod
    def begin(self) -> None:
        """Prepare training; an exception is the trial's failure."""

    @abstractmethod
    def duration_s(self) -> float:
        """Return the seconds that the next iteration takes; an exception is the trial's failure."""

    @abstractmethod
    def advance(self, elapsed_s: float) -> bool:
        """Compute the next iteration and return whether there is one.

        An exception is the trial's failure.

        Args:
            elapsed_s: Seconds that the iteration takes.
        """

    @abstractmethod
    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the latest result, and the checkpoint reported with it, if any."""

    @property
    def validation(self) -> ValidationRequest | None:
        """How the checkpoint of the latest result is to be validated; None for not at all."""
        return None

    @abstractmethod
    def save(self) -> CheckpointRecord:
        """Return the record of a checkpoint at the latest result."""

    def end(self) -> None:
        """Release all resources."""
        self.is_over = True


@dataclass(frozen=True, slots=True)
class VirtualValidation:
    """The validation of a checkpoint that is computed instead of run.

    Attributes:
        took_s: How many seconds it takes.
        metrics: What the function returns; None if it fails.
        failure: How it fails.
    """

    took_s: float
    metrics: Mapping[str, Any] | None = None
    failure: Failure | None = None


@final
class _Validator:
    """The process of a validation.

    Attributes:
        is_over: Whether it has ended.
    """

    def __init__(self) -> None:
        self.is_over = False


class VirtualExecutor(ABC):
    """Runs trials in virtual time, which passes only in `wait`: it jumps to the next event.

    Args:
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._capacity = dict(capacity)
        self._now_s = 0.0
        self._is_awake = False
        self._workers: dict[tuple[str, int], VirtualWorker] = {}
        self._validators: dict[tuple[str, int, int], _Validator] = {}
        self._due: list[tuple[float, int, VirtualWorker | _Validator, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._events: list[Event] = []

    @abstractmethod
    def _new_worker(self, command: StartWorker) -> VirtualWorker:
        """Return the worker for a started attempt."""

    def _validation_of(self, command: StartValidation) -> VirtualValidation:
        """Return how a started validation goes."""
        return VirtualValidation(0.0, failure=Failure("LookupError", "no validation is simulated"))

    def capacity(self) -> Mapping[str, float]:
        return self._capacity

    def clock(self) -> float:
        """Return the virtual time in seconds since the start."""
        return self._now_s

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        for command in commands:
            match command:
                case AnswerReport():
                    self._answer(command)
                case StartWorker():
                    self._start(command)
                case KillWorker():
                    self._kill(command)
                case StartValidation():
                    self._validate(command)
                case KillValidation():
                    self._kill_validation(command)
                case GrantLease() | RefuseLease() | ListCheckpoints():
                    raise NotImplementedError(command)  # no simulated worker has asked for it
                case _:
                    assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the next events, which all have the same time.

        Raises:
            RuntimeError: If no event can come and there is no `timeout_s`.
        """
        if not self._events and not self._is_awake:
            self._advance(math.inf if timeout_s is None else self._now_s + timeout_s)
        self._is_awake = False
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        self._is_awake = True

    def shutdown(self, deadline_s: float) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()
        self._validators.clear()
        self._due.clear()
        self._events.clear()

    def _advance(self, until_s: float) -> None:
        while self._due and self._due[0][0] <= until_s:
            self._now_s, _, process, action = heapq.heappop(self._due)
            if process.is_over:
                continue  # killed since; removing it from the heap would take longer
            action()
            # Events of the same time belong to the same step of the driver.
            until_s = self._now_s
        if self._events:
            return
        if until_s == math.inf:
            raise RuntimeError(
                "no simulated trial is running, so waiting would never end; "
                "start or answer one, or pass a timeout"
            )
        self._now_s = until_s

    def _after(
        self, delay_s: float, worker: VirtualWorker, action: Callable[[VirtualWorker], None]
    ) -> None:
        self._call_after(delay_s, worker, functools.partial(action, worker))

    def _call_after(
        self, delay_s: float, process: VirtualWorker | _Validator, action: Callable[[], None]
    ) -> None:
        # The sequence number keeps the order of equal times, and keeps processes from being
        # compared.
        heapq.heappush(self._due, (self._now_s + delay_s, next(self._sequence), process, action))

    def _validate(self, command: StartValidation) -> None:
        key_of_try = command.trial_id, command.checkpoint.index, command.num_try
        validator = self._validators[key_of_try] = _Validator()
        try:
            course = self._validation_of(command)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (curves are the user's code)
            course = VirtualValidation(0.0, failure=describe(error))
        outcome = Outcome.FAILED if course.metrics is None else Outcome.COMPLETED
        ended = ValidationEnded(*key_of_try, outcome, course.metrics, course.failure)
        self._call_after(course.took_s, validator, functools.partial(self._end_validation, ended))

    def _kill_validation(self, command: KillValidation) -> None:
        if (command.trial_id, command.index, command.num_try) in self._validators:
            self._end_validation(
                ValidationEnded(
                    command.trial_id,
                    command.index,
                    command.num_try,
                    Outcome.KILLED,
                    failure=Failure("killed", command.reason),
                )
            )

    def _end_validation(self, ended: ValidationEnded) -> None:
        self._validators.pop((ended.trial_id, ended.index, ended.num_try)).is_over = True
        self._events.append(ended)

    def _start(self, command: StartWorker) -> None:
        worker = self._new_worker(command)
        self._workers[command.trial_id, command.attempt] = worker
        if worker.start_s:
            self._after(worker.start_s, worker, self._begin)
        else:
            self._begin(worker)

    def _begin(self, worker: VirtualWorker) -> None:
        self._events.append(WorkerStarted(worker.command.trial_id, worker.command.attempt, 0))
        self._train(worker, is_first=True)

    def _train(self, worker: VirtualWorker, *, is_first: bool = False) -> None:
        """Compute the next iteration; it is reported when its duration has passed."""
        took_s = 0.0
        try:
            if is_first:
                worker.begin()
            took_s = worker.duration_s()
            has_more = worker.advance(took_s)
        # Not BaseException: Ctrl-C is for the driver, which runs in the same thread.
        except (Exception, SystemExit) as error:  # noqa: BLE001  (curves are the user's code)
            worker.failure, has_more = describe(error), True
        if has_more:
            self._after(took_s, worker, self._report)
        elif worker.exit_s:
            self._after(worker.exit_s, worker, self._complete)
        else:
            self._complete(worker)

    def _report(self, worker: VirtualWorker) -> None:
        if worker.failure:
            self._exit(worker, Outcome.FAILED, worker.failure)
            return
        worker.is_waiting = True
        metrics, checkpoint = worker.report()
        self._events.append(
            ResultReported(
                worker.command.trial_id,
                worker.command.attempt,
                metrics,
                checkpoint,
                validation=worker.validation,
            )
        )

    def _answer(self, command: AnswerReport) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker is None or not worker.is_waiting:
            return
        worker.is_waiting = False
        # At once: the time to save is part of the recorded times, or of `leave_s` before an exit.
        if command.save:
            self._events.append(CheckpointSaved(command.trial_id, command.attempt, worker.save()))
        if command.reply is ReportReply.CONTINUE:
            self._train(worker)
        elif leave_s := worker.leave_s(has_saved=command.save):
            self._after(leave_s, worker, self._leave)
        else:
            self._leave(worker)

    def _kill(self, command: KillWorker) -> None:
        worker = self._workers.get((command.trial_id, command.attempt))
        if worker:
            self._exit(worker, Outcome.KILLED, Failure("killed", command.reason))

    def _complete(self, worker: VirtualWorker) -> None:
        self._exit(worker, Outcome.COMPLETED)

    def _leave(self, worker: VirtualWorker) -> None:
        self._exit(worker, Outcome.STOPPED)

    def _exit(
        self, worker: VirtualWorker, outcome: Outcome, failure: Failure | None = None
    ) -> None:
        trial_id, attempt = worker.command.trial_id, worker.command.attempt
        del self._workers[trial_id, attempt]
        worker.end()
        self._events.append(WorkerExited(trial_id, attempt, outcome, failure))


Curves = Callable[[dict[str, Any]], Iterable[Any]]
"""Returns, for a configuration, the metrics of each iteration: dictionaries or numbers."""
Validate = Callable[[dict[str, Any], int], Mapping[str, Any]]
"""Returns, for a configuration and ``training_iteration``, what the validation of the checkpoint
returns."""
Duration = float | Callable[[dict[str, Any], int], float]
"""Seconds per iteration, or a function of configuration and ``training_iteration``."""

_NOWHERE = Place(pid=0, hostname="simulated", node_ip="127.0.0.1")


@final
class SimulatedExecutor(VirtualExecutor):
    """Runs trials whose learning curves a function computes.

    Trials save when they are asked to, in no time and without files. They continue from a
    checkpoint by running their curve up to its iteration. A curve that raises fails its trial.

    Args:
        curves: See `Curves`; called once per attempt.
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
        duration_s: See `Duration`; at least 0.
        validate: See `Validate`. With it, every result comes with a checkpoint that is validated;
            what it raises is the failure of that validation. None for no validations.
        validation_s: How long a validation takes, see `Duration`; at least 0.

    Example:
        >>> def halving(config):
        ...     loss = config["start"]
        ...     while loss > 1:
        ...         loss /= 2
        ...         yield {"loss": loss}
        >>> executor = SimulatedExecutor(halving, capacity={"cpu": 1.0}, duration_s=60.0)
        >>> start = StartWorker("t00000", 1, {"start": 8.0}, {"cpu": 1.0}, (), None, 0)
        >>> executor.carry_out([start])
        >>> [type(event).__name__ for event in executor.wait(None)]
        ['WorkerStarted']
        >>> [event.metrics["loss"] for event in executor.wait(None)], executor.clock()
        ([4.0], 60.0)
    """

    def __init__(
        self,
        curves: Curves,
        *,
        capacity: Mapping[str, float],
        duration_s: Duration = 1.0,
        validate: Validate | None = None,
        validation_s: Duration = 0.0,
    ) -> None:
        super().__init__(capacity)
        self._curves = curves
        self._duration_s = duration_s
        self._validate_with = validate
        self._validation_s = validation_s

    def _new_worker(self, command: StartWorker) -> VirtualWorker:
        autofill = AutoFill(
            command.trial_id, _NOWHERE, clock=self.clock, wall_clock=self.clock, date=_utc_date
        )
        return _SimulatedWorker(
            command,
            autofill,
            self._curves,
            self._duration_s,
            is_validated=self._validate_with is not None,
        )

    def _validation_of(self, command: StartValidation) -> VirtualValidation:
        if self._validate_with is None:
            return super()._validation_of(command)
        config, iteration = copy.deepcopy(dict(command.config)), command.checkpoint.iteration
        took_s = _seconds("validation_s", self._validation_s, config, iteration)
        try:
            return VirtualValidation(took_s, self._validate_with(config, iteration))
        except (Exception, SystemExit) as error:  # noqa: BLE001  (it is the user's code)
            return VirtualValidation(took_s, failure=describe(error))


def _seconds(name: str, duration_s: Duration, config: Mapping[str, Any], iteration: int) -> float:
    """Return a duration, computed if it is a function.

    Raises:
        ValueError: If it is negative or not finite.
    """
    found_s = duration_s(dict(config), iteration) if callable(duration_s) else duration_s
    if not 0 <= found_s < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {found_s!r}")
    return found_s


@final
class _SimulatedWorker(VirtualWorker):
    """One attempt: its curve and the position on it."""

    def __init__(
        self,
        command: StartWorker,
        autofill: AutoFill,
        curves: Curves,
        duration_s: Duration,
        *,
        is_validated: bool,
    ) -> None:
        super().__init__(command)
        self._is_validated = is_validated
        self._autofill = autofill
        self._curves = curves
        self._duration_s = duration_s
        self._converter = Converter()
        self._next_checkpoint = command.next_checkpoint
        self._curve: Iterator[Any] = iter(())
        self._metrics: dict[str, Any] = {}
        self._elapsed_s = 0.0
        self._result: dict[str, Any] = {}
        if checkpoint := command.checkpoint:
            autofill.restore(checkpoint.iteration, checkpoint.time_total_s, checkpoint.counters)

    def begin(self) -> None:
        """Run the curve up to the iteration of the checkpoint."""
        self._curve = iter(self._curves(copy.deepcopy(dict(self.command.config))))
        iteration = 0
        while iteration < self._autofill.iteration:
            value = as_metrics(next(self._curve, {}))
            iteration = next_iteration(value if isinstance(value, Mapping) else {}, iteration)

    def duration_s(self) -> float:
        """Return the given duration."""
        iteration = self._autofill.iteration + 1
        return _seconds("duration_s", self._duration_s, self.command.config, iteration)

    def advance(self, elapsed_s: float) -> bool:
        for value in self._curve:
            self._metrics = self._converter.convert(as_metrics(value))
            self._elapsed_s = elapsed_s
            return True
        return False

    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        self._result = self._autofill.fill(self._metrics, self._elapsed_s)
        self._autofill.count(self._result)
        return self._result, self.save() if self._is_validated else None

    @property
    def validation(self) -> ValidationRequest | None:
        return ValidationRequest() if self._is_validated else None

    def save(self) -> CheckpointRecord:
        """Return the record of a checkpoint at the latest result."""
        index = self._next_checkpoint
        self._next_checkpoint += 1
        return CheckpointRecord(
            index, self._autofill.iteration, self._autofill.time_total_s, counters_of(self._result)
        )

    def end(self) -> None:
        """Close the curve."""
        super().end()
        close = getattr(self._curve, "close", None)
        if close:
            # The generator's clean-up is the user's code, and its trial has ended already.
            with contextlib.suppress(Exception):
                close()
        self._curve = iter(())


@functools.lru_cache(maxsize=4096)
def _utc_date(timestamp: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.gmtime(timestamp))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One result of a trial, as it was reported.

    Attributes:
        metrics: The result, nested as reported, with the keys that the engine adds.
        took_s: Training time in seconds since the answer to the previous result, or since the start
            of the training code.
        has_checkpoint: Whether the training code reported a checkpoint with it.
        validation: How the validation of that checkpoint went; None without one.
    """

    metrics: Mapping[str, Any]
    took_s: float
    has_checkpoint: bool = False
    validation: VirtualValidation | None = None

    @property
    def result(self) -> Mapping[str, Any]:
        """The result with the metrics of its checkpoint's validation."""
        if self.validation is None or self.validation.metrics is None:
            return self.metrics
        return key.merged(self.metrics, self.validation.metrics)


@dataclass(frozen=True, slots=True)
class Curve:
    """The recorded course of a trial.

    Attributes:
        points: Its results, with ascending ``training_iteration``.
        start_s: Seconds from the start of its first worker until the training code ran.
        exit_s: Seconds from its last result, or from the start of the training code if it has none,
            until it ended by itself.
        failure: Its failure, None if it did not fail.
    """

    points: Sequence[CurvePoint]
    start_s: float = 0.0
    exit_s: float = 0.0
    failure: Failure | None = None


@final
class ReplayExecutor(VirtualExecutor):
    """Replays recorded trials.

    A trial that is stopped or paused takes `leave_s` to exit, and `save_s` more if it has to save
    for that. A resumed trial takes `restart_s` to start, and continues after its checkpoint.

    Args:
        curves: What each trial reports, by its id.
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
        restart_s: Seconds from the start of a trial's second or later worker until the training
            code runs.
        leave_s: Seconds from the answer that tells a trial to stop until its worker has exited.
        save_s: Seconds to save before that.

    Example:
        >>> from tuner.core.commands import StartWorker
        >>> points = [CurvePoint({"loss": 0.5, "training_iteration": 1}, took_s=60.0)]
        >>> executor = ReplayExecutor({"t00000": Curve(points, start_s=2.0)}, capacity={"cpu": 1.0})
        >>> executor.carry_out([StartWorker("t00000", 1, {}, {"cpu": 1.0}, (), None, 0)])
        >>> [type(event).__name__ for event in executor.wait(None)]
        ['WorkerStarted']
        >>> [event.metrics["loss"] for event in executor.wait(None)]
        [0.5]
        >>> executor.clock()
        62.0
    """

    def __init__(
        self,
        curves: Mapping[str, Curve],
        *,
        capacity: Mapping[str, float],
        restart_s: float = 0.0,
        leave_s: float = 0.0,
        save_s: float = 0.0,
    ) -> None:
        super().__init__(capacity)
        self._curves = curves
        self._restart_s = restart_s
        self._leave_s = leave_s
        self._save_s = save_s

    def _new_worker(self, command: StartWorker) -> VirtualWorker:
        curve = self._curves[command.trial_id]
        return _ReplayWorker(
            command,
            curve,
            curve.start_s if command.attempt == 1 else self._restart_s,
            self._leave_s,
            self._save_s,
        )

    def _validation_of(self, command: StartValidation) -> VirtualValidation:
        points = self._curves[command.trial_id].points
        position = bisect_right(points, command.checkpoint.iteration, key=_iteration_of) - 1
        return points[position].validation or super()._validation_of(command)


@final
class _ReplayWorker(VirtualWorker):
    """One attempt: a recorded curve and the position on it."""

    def __init__(
        self, command: StartWorker, curve: Curve, start_s: float, leave_s: float, save_s: float
    ) -> None:
        super().__init__(command)
        self._curve = curve
        self._start_s = start_s
        self._leave_s = leave_s
        self._save_s = save_s
        self._next_checkpoint = command.next_checkpoint
        self._position = self._resumed_iteration = 0
        self._time_before_s = 0.0

    @property
    def start_s(self) -> float:
        return self._start_s

    @property
    def exit_s(self) -> float:
        return self._curve.exit_s

    def leave_s(self, *, has_saved: bool) -> float:
        return self._leave_s + (self._save_s if has_saved else 0.0)

    def begin(self) -> None:
        """Go to the result of the checkpoint."""
        if checkpoint := self.command.checkpoint:
            done = bisect_right(self._curve.points, checkpoint.iteration, key=_iteration_of)
            self._position, self._resumed_iteration = done, checkpoint.iteration
            self._time_before_s = checkpoint.time_total_s

    def duration_s(self) -> float:
        return (
            self._curve.points[self._position].took_s
            if self._position < len(self._curve.points)
            else self._curve.exit_s
        )

    def advance(self, elapsed_s: float) -> bool:
        """Go to the next result, or to the failure after the last one."""
        self._position += 1
        if self._position <= len(self._curve.points):
            return True
        self.failure = self._curve.failure
        return self.failure is not None

    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the recorded result, with what counts since the last start counted anew."""
        point = self._curve.points[self._position - 1]
        result = dict(point.metrics)
        if key.TIME_TOTAL_S in result:
            result[key.TIME_SINCE_RESTORE] = result[key.TIME_TOTAL_S] - self._time_before_s
        result[key.ITERATIONS_SINCE_RESTORE] = (
            _iteration_of_metrics(result) - self._resumed_iteration
        )
        return result, self.save() if point.has_checkpoint or point.validation else None

    @property
    def validation(self) -> ValidationRequest | None:
        is_validated = self._curve.points[self._position - 1].validation is not None
        return ValidationRequest() if is_validated else None

    def save(self) -> CheckpointRecord:
        """Return the record of a checkpoint at the latest result."""
        index = self._next_checkpoint
        self._next_checkpoint += 1
        metrics = self._curve.points[self._position - 1].metrics
        return CheckpointRecord(
            index,
            _iteration_of_metrics(metrics),
            float(metrics.get(key.TIME_TOTAL_S, 0.0)),
            counters_of(metrics),
        )


def _iteration_of(point: CurvePoint) -> int:
    return _iteration_of_metrics(point.metrics)


def _iteration_of_metrics(metrics: Mapping[str, Any]) -> int:
    return int(metrics[key.TRAINING_ITERATION])
