"""Median stopping rule: stop trials whose best result is worse than the others' median average."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar, final

from .arguments import check_names, checked_time, whole_number
from .decisions import Decision, Number, Pause, Reason, Resume, Stop
from .metric import MetricReader, MetricScheduler, require_mode, strict, violation_number
from .scheduler import TrialView

_PAUSED, _STOPPED = "median.pause", "median.stop"
_OVER = ("TERMINATED", "ERROR")


@dataclass(slots=True)
class RunningAverages:
    """Results of a trial as costs: smaller is better; what is not a number is infinite.

    Attributes:
        times: When it reported from the grace period on, ascending.
        averages: Mean cost of all its results from the grace period to that time.
        violations: By how much it missed the constraints then.
        best: Its smallest cost, before the grace period included.
        last: When it reported last.
        violation: By how much it misses the constraints now.
    """

    times: array[float] = field(default_factory=lambda: array("d"))
    averages: array[float] = field(default_factory=lambda: array("d"))
    violations: array[float] = field(default_factory=lambda: array("d"))
    best: float = math.inf
    last: float = -math.inf
    violation: float = 0.0

    def add(self, time: float, cost: float, violation: float, *, counts: bool) -> None:
        """Record a result; include it in the average if it counts."""
        self.best = min(self.best, cost)
        self.last, self.violation = time, violation
        if counts:
            self.averages.append(self._average_with(cost))
            self.violations.append(violation)
            self.times.append(time)

    def _average_with(self, cost: float) -> float:
        if not self.averages:
            return cost
        average, num_results = self.averages[-1], len(self.averages) + 1
        if math.isinf(average) or math.isinf(cost):
            return math.inf
        # As two quotients: the difference of two costs near the largest float would overflow.
        return average + (cost / num_results - average / num_results)

    def standing_at(self, time: float) -> tuple[float, float] | None:
        """Return violation and running average at a time; None before the first that counts."""
        index = bisect_right(self.times, time)
        return (self.violations[index - 1], self.averages[index - 1]) if index else None

    def state_dict(self) -> dict[str, Any]:
        """Return the averages as JSON values."""
        averages = [strict(average) for average in self.averages]
        violations = [strict(violation) for violation in (*self.violations, self.violation)]
        return {
            "times": list(self.times),
            "averages": averages,
            **({"violations": violations} if any(violations) else {}),
            "best": strict(self.best),
            "last": strict(self.last),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RunningAverages:
        """Return the averages that `state_dict` was returned from."""
        averages = array("d", map(float, state["averages"]))
        *violations, violation = map(float, state.get("violations", [0.0] * (len(averages) + 1)))
        return cls(
            array("d", state["times"]),
            averages,
            array("d", violations),
            float(state["best"]),
            float(state["last"]),
            violation,
        )


@final
class MedianStoppingRule(MetricScheduler):
    """Stops a trial whose best result is worse than the median of running averages.

    The running averages are those of the other trials up to the same time.

    Every result is judged from `grace_period` on. A trial's running average at a time is the mean
    of its results from `grace_period` to that time; a trial that has ended or has not come as far
    counts with the average it had last. There are no levels, so trials may report as they like, and
    no trial waits for another.

    **Pausing instead** (``hard_stop=False``). A trial that would have been stopped is paused. When
    no further trial comes (``experiment.no_more_trials``) and a slot is free, paused trials are
    resumed, first in, first out, those that keep all constraints first, and not judged again: no
    other trial needs their slots any more.
    Trials must save checkpoints for that, or be able to when they are asked to.

    **When something is missing.** A result without ``time_attr`` or without the metric decides
    nothing and counts nowhere; `debug_string` shows which was missing. A metric that is there but
    None, NaN or infinite is worse than every number: it makes an average worst from then on, and a
    trial that has reported no number yet is worse than any median.

    **With constraints**, a trial that misses one is worse than every trial that keeps all, see
    `schedulers.feasible_first`; the median is that of this order.

    **Repeated results**, after a crash or a restore, are not judged again; earlier decisions to
    stop or pause are returned again.

    Each result costs 24 bytes of memory and, to be judged, a binary search in the curve of every
    other trial and their median.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow. The
            three times below are in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        grace_period: No trial is judged before, and results before count in no average; at least 0.
        min_samples_required: How many other trials must have an average by then for a trial to be
            judged; at least 1.
        min_time_slice: With ``hard_stop=False``, no trial is paused before it has trained so long;
            at least 0.
        hard_stop: Whether to stop trials; False pauses them.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.

    Example:
        >>> scheduler = MedianStoppingRule(
        ...     "training_iteration",
        ...     metric="loss",
        ...     mode="min",
        ...     grace_period=10,
        ...     min_samples_required=3,
        ... )
        >>> scheduler.debug_string()
        'MedianStoppingRule: 0 stopped, 0 paused, 0 curves'

    Reference:
        Golovin, Solnik, Moitra, Kochanski, Karro, Sculley. Google Vizier: A Service for Black-Box
        Optimization. KDD 2017, section 3.2.2.

    Departures:
        From the paper, as Ray Tune: trials that still run are compared with, too, and averages
        begin at `grace_period`. From Ray Tune: other trials may have trained for less time than the
        one that is judged, without which the first trials of an experiment, which run side by side,
        would hardly ever be judged; a trial is not compared with itself; with ``hard_stop=False`` a
        trial is paused once at most; NaN is worst; a missing metric does not raise; all of it
        survives a restore.
    """

    first_comparison: ClassVar[str | None] = "grace_period"

    def __init__(  # noqa: PLR0917  (positions are given, too)
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: Number = 60.0,
        min_samples_required: int = 3,
        min_time_slice: Number = 0,
        hard_stop: bool = True,
    ) -> None:
        check_names(time_attr, metric, mode)
        if whole_number("min_samples_required", min_samples_required) < 1:
            raise ValueError(
                f"min_samples_required must be at least 1, got {min_samples_required}; there is no "
                "median of no trials"
            )
        self.metric = metric
        self.mode = mode
        self._time_attr = time_attr
        self._grace_period = checked_time("grace_period", grace_period)
        slice_end = checked_time("min_time_slice", min_time_slice)
        self._earliest = self._grace_period if hard_stop else max(self._grace_period, slice_end)
        self._min_samples_required = min_samples_required
        self._hard_stop = hard_stop
        self._curves: dict[str, RunningAverages] = {}
        self._reasons: dict[str, Reason] = {}
        self._resumed: set[str] = set()
        self._num_stopped = 0
        self._num_paused = 0
        self._metrics = MetricReader()

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Stop or pause the trial if its best is worse than the median of the others."""
        trial_id = trial.trial_id
        reason = self._reasons.get(trial_id)
        if reason is not None and self._hard_stop:
            return (Stop(trial_id, reason),)
        # A trial that pauses reports until it has a checkpoint, and those results count.
        is_new = self._record(trial_id, result)
        if reason is None and is_new:
            reason = self._judge(trial_id)
        if reason is None:
            return ()
        decision = Stop(trial_id, reason) if self._hard_stop else Pause(trial_id, reason)
        self._note_comparison([decision])
        return (decision,)

    def on_trial_complete(
        self, trial: TrialView, result: Mapping[str, Any] | None
    ) -> Sequence[Decision]:
        """Forget the reason; the trial's averages stay for the others to be compared with."""
        return self._handle_end(trial.trial_id)

    def on_trial_error(self, trial: TrialView) -> Sequence[Decision]:
        """Forget the reason; the trial's averages stay for the others to be compared with."""
        return self._handle_end(trial.trial_id)

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume the trials paused first, feasible before others, once none needs the slots."""
        if not self.experiment.no_more_trials:
            return ()
        waiting = [trial.trial_id for trial in trials if trial.status not in _OVER]
        # The sort is stable: those that keep all constraints first, in the order of their pauses.
        waiting.sort(key=lambda trial_id: self._feasible.violation(trial_id) > 0)
        return [self._resume(trial_id) for trial_id in waiting[:num_free_slots]]

    def _resume(self, trial_id: str) -> Decision:
        paused = self._reasons.pop(trial_id, None)
        # Not judged again: the median would pause it at once, and no other trial needs its slot.
        self._resumed.add(trial_id)
        return Resume(trial_id, Reason("median.resume", paused.numbers if paused else {}))

    def _record(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Record a complete result, and return whether it was a new one."""
        time, cost = self._metrics.amount(result, self._time_attr), self._cost(result)
        violation = self._feasible.note(trial_id, result)
        if time is None or cost is None or math.isinf(time):
            return False
        curve = self._curves.setdefault(trial_id, RunningAverages())
        # A trial that has crashed repeats results from its checkpoint on.
        if time <= curve.last:
            return False
        curve.add(time, cost, violation, counts=time >= self._grace_period)
        return True

    def _cost(self, result: Mapping[str, Any]) -> float | None:
        """Return the metric, negated for "max"; infinity if not finite, None if missing."""
        value = self._metrics.finite(result, str(self.metric))
        if value is None:
            return None
        if math.isnan(value):
            return math.inf
        return value if require_mode(self) == "min" else -value

    def _judge(self, trial_id: str) -> Reason | None:
        curve = self._curves[trial_id]
        if trial_id in self._resumed or curve.last < self._earliest:
            return None
        # Others that have not come this far count with their last average: trials that run side by
        # side would otherwise hardly ever be judged.
        standings = [
            other.standing_at(curve.last)
            for name, other in self._curves.items()
            if name != trial_id
        ]
        known = sorted(standing for standing in standings if standing is not None)
        if len(known) < self._min_samples_required:
            return None
        violation, middle = _median(known)
        # Google Vizier, section 3.2.2: stop if the best result so far is worse than the median of
        # the running averages. A trial without any number is worse than an infinite median, too.
        if math.isfinite(curve.best) and (curve.violation, curve.best) <= (violation, middle):
            return None
        numbers = {
            "best": self._as_metric(curve.best),
            "median": self._as_metric(middle),
            **violation_number(violation, "median_violation"),
            "num_compared": len(known),
            "time": curve.last,
            **violation_number(curve.violation),
        }
        return self._record_decision(trial_id, numbers)

    def _record_decision(self, trial_id: str, numbers: Mapping[str, Number | str]) -> Reason:
        self._reasons[trial_id] = Reason(_STOPPED if self._hard_stop else _PAUSED, numbers)
        self._num_stopped += self._hard_stop
        self._num_paused += not self._hard_stop
        return self._reasons[trial_id]

    def _as_metric(self, cost: float) -> Number | str:
        """Return the value of the metric for a cost."""
        return strict((cost if self.mode == "min" else -cost) if math.isfinite(cost) else math.nan)

    def _handle_end(self, trial_id: str) -> Sequence[Decision]:
        self._reasons.pop(trial_id, None)
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **self._base_state(),
            "curves": {trial_id: curve.state_dict() for trial_id, curve in self._curves.items()},
            "verdicts": {name: why.state_dict() for name, why in self._reasons.items()},
            "resumed": sorted(self._resumed),
            "num_stopped": self._num_stopped,
            "num_paused": self._num_paused,
            "without_number": sorted(self._metrics.missing),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with another metric, mode or beginning of
                averages: recorded values would not compare.
        """
        self._load_base_state(state)
        self._curves = {
            trial_id: RunningAverages.from_state(saved)
            for trial_id, saved in state["curves"].items()
        }
        self._reasons = {name: Reason.from_state(why) for name, why in state["verdicts"].items()}
        self._resumed = set(state["resumed"])
        self._num_stopped = state["num_stopped"]
        self._num_paused = state["num_paused"]
        self._metrics = MetricReader(state["without_number"])

    def _settings(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "mode": self.mode,
            "time_attr": self._time_attr,
            "grace_period": self._grace_period,
            "hard_stop": self._hard_stop,
        }

    def debug_string(self) -> str:
        """Return the numbers of stopped and paused trials and of curves, and missing entries."""
        counts = (
            f"{self._num_stopped} stopped, {self._num_paused} paused, {len(self._curves)} curves"
        )
        parts = [f"{type(self).__name__}: {counts}"]
        parts += [str(self._metrics)] if self._metrics.missing else []
        return "; ".join(parts)


def _median(standings: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return violation and average in the middle of ascending ones."""
    below, above = standings[(len(standings) - 1) // 2], standings[len(standings) // 2]
    # Of two that miss the constraints differently there is no mean: the worse one stops less.
    return above if below[0] != above[0] else (above[0], median({below[1], above[1]}))
