"""What became of each trial in a replay, beside what was recorded of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from schedulers.decisions import Reason
from tuner.analysis.frames import value_at
from tuner.analysis.ranking import Mode, is_number, rank
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Status, TerminationReason, Trial

from .recording import RecordedTrial
from .replaying import Stint, results_until
from .run_totals import last_of


class Fate(enum.StrEnum):
    """How a trial of a replay ended."""

    COMPLETED = "completed"
    """It trained to its end, or as long as the scheduler lets any trial train."""
    STOPPED = "stopped early"
    """The scheduler ended it before that."""
    FAILED = "failed"
    """It failed, where it failed when it was recorded, or since it could not be paused."""
    RAN_OUT = "ran out"
    """It would have trained on, but no more was recorded of it."""

    @property
    def word(self) -> str:
        """The fate as one word, for columns and files: ``"stopped_early"``."""
        return self.value.replace(" ", "_")


@final
@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """One trial: as it was recorded, and as it was replayed.

    Attributes:
        trial_id: The trial.
        fate: How it ended in the replay.
        reason: The scheduler's decision that ended it there, with its numbers; None where none did.
        recorded_iterations: ``training_iteration`` of its last recorded result, 0 without one.
        iterations: The largest that it came to in the replay.
        recorded_last: The metric's last recorded value, by which trials are compared; None for none, or where it is not finite.
        last: The last that it reported in the replay, likewise.
        recorded_best: The best finite value that was recorded of it, at any iteration; None for none.
        best: The best that it reported in the replay, at any iteration; None for none.
        recorded_worker_s: How long it has a worker, in seconds, where it runs through all that was recorded of it at once.
        worker_s: How long it had one in the replay.
        num_pauses: How often it was paused.
        num_resumes: How often it went on after a pause; fewer times where it was stopped while it was paused.
        is_cut: Whether the recorded curve ends before the trial's own end: a scheduler stopped it, or the experiment was interrupted.
    """

    trial_id: str
    fate: Fate
    reason: Reason | None
    recorded_iterations: int
    iterations: int
    recorded_last: float | None
    last: float | None
    recorded_best: float | None
    best: float | None
    recorded_worker_s: float
    worker_s: float
    num_pauses: int
    num_resumes: int
    is_cut: bool

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values; the reason as ``rule`` and ``numbers``."""
        fields = {
            name: getattr(self, name) for name in self.__slots__ if name not in ("fate", "reason")
        }
        rule, numbers = (
            (None, {}) if self.reason is None else (self.reason.rule, dict(self.reason.numbers))
        )
        return {**fields, "fate": self.fate.word, "rule": rule, "numbers": numbers}


def outcome_of(
    recorded: RecordedTrial, replayed: Trial, stint: Stint, metric: str, mode: Mode
) -> TrialOutcome:
    """Return what became of a trial.

    Args:
        recorded: The trial as it was recorded.
        replayed: The trial as the replay left it.
        stint: What the replay has counted of it.
        metric: What counts as quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
    """
    results = [point.metrics for point in recorded.curve.points]
    replayed_results = [*results_until(recorded, stint.farthest)]
    return TrialOutcome(
        trial_id=recorded.trial_id,
        fate=_fate_of(recorded, replayed),
        reason=replayed.reason,
        recorded_iterations=results[-1][TRAINING_ITERATION] if results else 0,
        iterations=stint.farthest,
        recorded_last=last_of(results, metric),
        last=last_of(replayed_results, metric),
        recorded_best=best_of(results, metric, mode),
        best=best_of(replayed_results, metric, mode),
        recorded_worker_s=length_s(recorded),
        worker_s=stint.worker_s,
        num_pauses=stint.num_pauses,
        num_resumes=stint.num_resumes,
        is_cut=recorded.is_cut,
    )


def best_of(results: Iterable[Mapping[str, Any]], metric: str, mode: Mode) -> float | None:
    """Return the best finite value of a metric, None where there is none."""
    values = (
        value
        for result in results
        if is_number(value := value_at(result, metric)) and math.isfinite(value)
    )
    return max(values, key=lambda value: rank(value, mode), default=None)


def length_s(recorded: RecordedTrial) -> float:
    """Return how long a trial has a worker, in seconds, that runs through all that was recorded of it at once."""
    curve = recorded.curve
    return (
        0.0
        if recorded.refusal
        else curve.start_s + math.fsum(point.took_s for point in curve.points) + curve.exit_s
    )


def _fate_of(recorded: RecordedTrial, replayed: Trial) -> Fate:
    if replayed.status is Status.ERROR:
        return Fate.FAILED
    if replayed.ending is TerminationReason.STOPPED_EARLY:
        return Fate.STOPPED
    return Fate.RAN_OUT if recorded.is_cut and replayed.reason is None else Fate.COMPLETED
