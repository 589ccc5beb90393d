"""An executor whose trials have run before: they report again what they reported then, and take as long as they took."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from tuner.core import result as key
from tuner.core.commands import StartWorker
from tuner.core.trial import CheckpointRecord, Failure

from .result_fields import counters_of
from .virtual import VirtualExecutor, VirtualWorker


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One result of a trial, as it was reported.

    Attributes:
        metrics: The result, nested as reported, with the keys that the engine adds.
        took_s: Seconds from the answer to the one before it, or from the start of the training code, to this one.
        has_checkpoint: Whether the training code reported a checkpoint with it.
    """

    metrics: Mapping[str, Any]
    took_s: float
    has_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """All that a trial went through, as far as it counts.

    Attributes:
        points: Its results, with ascending ``training_iteration``.
        start_s: Seconds from the start of its first worker until the training code ran.
        exit_s: Seconds from its last result, or from the start of the training code where it has none, to its own end.
        failure: With what it ended; None where it did not fail.
    """

    points: Sequence[CurvePoint]
    start_s: float = 0.0
    exit_s: float = 0.0
    failure: Failure | None = None


@final
class RecordedExecutor(VirtualExecutor):
    """Lets recorded trials run once more in virtual time, without processes, files or chance.

    A trial that is stopped or paused takes `leave_s` to be gone, and `save_s` more where it has to save for that; one that is resumed
    takes `restart_s` to start, and goes on behind its checkpoint.

    Args:
        curves: What each trial reports, by its id.
        capacity: Total resources, e.g. ``{"cpu": 4.0}``.
        restart_s: Seconds from the start of a trial's second or later worker until the training code runs.
        leave_s: Seconds from the word that tells a trial to leave until it is gone.
        save_s: Seconds that it needs to save before that, where it is asked to.

    Example:
        >>> from tuner.core.commands import StartWorker
        >>> points = [CurvePoint({"loss": 0.5, "training_iteration": 1}, took_s=60.0)]
        >>> executor = RecordedExecutor({"t00000": Curve(points, start_s=2.0)}, capacity={"cpu": 1.0})
        >>> executor.carry_out([StartWorker("t00000", 1, {}, {"cpu": 1.0}, (), None, 0)])
        >>> [[type(event).__name__ for event in executor.wait(None)], [event.metrics["loss"] for event in executor.wait(None)]]
        [['WorkerStarted'], [0.5]]
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

    def _employ(self, command: StartWorker) -> VirtualWorker:
        curve = self._curves[command.trial_id]
        return _Worker(
            command,
            curve,
            curve.start_s if command.attempt == 1 else self._restart_s,
            self._leave_s,
            self._save_s,
        )


@final
class _Worker(VirtualWorker):
    """One attempt: a curve, and how far along it the attempt has come."""

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
        """Return what was given."""
        return self._start_s

    @property
    def exit_s(self) -> float:
        """Return what the end took."""
        return self._curve.exit_s

    def leave_s(self, *, has_saved: bool) -> float:
        """Return what was given."""
        return self._leave_s + (self._save_s if has_saved else 0.0)

    def begin(self) -> None:
        """Go to where the checkpoint was saved."""
        if checkpoint := self.command.checkpoint:
            done = bisect_right(self._curve.points, checkpoint.iteration, key=_iteration_of)
            self._position, self._resumed_iteration = done, checkpoint.iteration
            self._time_before_s = checkpoint.time_total_s

    def duration_s(self) -> float:
        """Return what was recorded."""
        return (
            self._curve.points[self._position].took_s
            if self._position < len(self._curve.points)
            else self._curve.exit_s
        )

    def advance(self, elapsed_s: float) -> bool:
        """Go to the next result, or to the failure behind the last one."""
        self._position += 1
        if self._position <= len(self._curve.points):
            return True
        self.failure = self._curve.failure
        return self.failure is not None

    def report(self) -> tuple[dict[str, Any], CheckpointRecord | None]:
        """Return the result as it was, with what is counted from the last start counted anew."""
        point = self._curve.points[self._position - 1]
        result = dict(point.metrics)
        if key.TIME_TOTAL_S in result:
            result[key.TIME_SINCE_RESTORE] = result[key.TIME_TOTAL_S] - self._time_before_s
        result[key.ITERATIONS_SINCE_RESTORE] = (
            _iteration_of_metrics(result) - self._resumed_iteration
        )
        return result, self.save() if point.has_checkpoint else None

    def save(self) -> CheckpointRecord:
        """Return a record of a checkpoint at the latest result."""
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
