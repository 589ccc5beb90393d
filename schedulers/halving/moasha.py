"""MOASHA: asynchronous successive halving for several metrics at once.

Trials on a rung are sorted into Pareto fronts, and within a front by how well they spread over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from schedulers.arguments import check_entry
from schedulers.decisions import Decision, Number, Stop
from schedulers.metric import as_float, strict, violation_number
from schedulers.scheduler import MODES, ExperimentView, TrialView

from .halving_scheduler import RungPlan, RungReport, RungRule
from .pareto_rungs import (
    FrontRung,
    FrontStanding,
    Objectives,
    ParetoRungs,
    metrics_of,
    minimised_sign,
)
from .promotion_rule import PromotionRule
from .stop_or_promote import StopOrPromoteScheduler


@final
class MOASHAScheduler(StopOrPromoteScheduler):
    """Continues only the trials that are among the best at a level in several metrics at once.

    **Type "stopping".** Of `n` trials at a level, the best ``ceil(n / reduction_factor)`` survive;
    the others are stopped. Each trial is judged once at each level, and never waits.

    **Type "promotion".** Trials pause at each level. When a slot is free, the best paused trial
    among the best ``floor(n / reduction_factor)`` of a level continues to the next one, highest
    level first; if there is none, a new trial starts. The order is that of all trials that have
    come to the level by then. A paused trial is stopped early only if too many trials beat it: its
    place within a front may still change. How it ends is as with
    ``ASHAScheduler(type="promotion")``.

    **Type "auto"** is "promotion" if trials can be saved when asked, or the first trial that
    reaches a level has a checkpoint by then, and "stopping" otherwise; `remarks` say so.

    **Order.** Trials at a level are sorted into fronts: the first are those that no other one
    dominates, i.e. equals or beats in every metric; the second those that only the first dominate,
    and so on. Better fronts come first. Within a front, trials are in the order of an epsilon net:
    first the trial that is best in the first metric, then repeatedly the one that is farthest from
    those before, so that the survivors spread over the trade-offs.

    **With constraints**, trials that keep all of them come before those that do not, whatever their
    metrics; of two that do not, the one comes first that misses them by less. Only trials that miss
    them equally are compared by their metrics; see `schedulers.feasible_first`.

    **Later trials** may train longer before their first comparison, see `ASHAScheduler`. With
    ``later_grace_period="auto"`` the results in each metric choose a level as there, and the
    highest of these levels counts: where early ranks mislead in one metric, trials are compared
    later in all. No trial is spared because the search stagnates, and none continues for a
    forecast.

    A trial with a metric that is None, NaN or infinite ranks behind all others, even if its other
    metrics are good, and continues only if it is alone at its first level. A result without one of
    the metrics decides nothing before `max_t`; `debug_string` shows which was missing. Such a
    trial is never promoted. Rare and repeated reports are handled as by `ASHAScheduler`.

    Args:
        metrics: What to compare, at least two flattened names; or these with the mode of each, e.g.
            ``{"accuracy": "max", "latency": "min"}``. They are the scheduler's own: those of
            ``TuneConfig`` are ignored. None to take ``TuneConfig(metric=[...])``.
        modes: ``"min"`` or ``"max"`` for each metric, or one of them for all; None where `metrics`
            or ``TuneConfig`` has them.
        time_attr: Entry of a result that tells how long the trial has trained; must grow. `max_t`
            and `grace_period` are in its units.
        max_t: The highest level. No trial is compared there; it has simply trained enough.
        grace_period: The lowest level, between 1 and `max_t`; no trial is stopped before it.
        reduction_factor: One trial in this many survives a level, and levels are this factor apart;
            more than 1.
        brackets: How many brackets to spread the trials over; see `ASHAScheduler`.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train
            on.
        type: ``"auto"``, ``"promotion"`` or ``"stopping"``.
        later_grace_period: Trials that are no scouts are compared from the first level on that is
            no lower than this, between `grace_period` and `max_t`; ``"auto"`` to choose it from
            results; None to compare all of them from `grace_period` on.
        num_scouts: How many trials have to have got to `grace_period` before those that begin are
            no scouts any more.
        num_full_scouts: How many of the scouts, the first ones, are not compared before `max_t`; at
            most `num_scouts`.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is
            `max_t`, where they end.

    Raises:
        TypeError: If a number is not a number, or `metrics` are no names.
        ValueError: If an argument is out of range, or metrics and modes do not fit.

    Example:
        >>> scheduler = MOASHAScheduler({"accuracy": "max", "latency": "min"}, max_t=27)
        >>> scheduler.levels
        (1, 3, 9, 27)

    Reference:
        Schmucker, Donini, Zafar, Salinas, Archambeau. Multi-Objective Asynchronous Successive
        Halving. 2021, arXiv 2106.12639; non-dominated rank with epsilon nets (EpsNet).

        Constraints: Deb, Pratap, Agarwal, Meyarivan. A Fast and Elitist Multiobjective Genetic
        Algorithm: NSGA-II. IEEE Transactions on Evolutionary Computation 6(2), 2002, section VI.

    Departures:
        From the paper, which only stops trials: promotion, as with `ASHAScheduler`. From Syne Tune:
        metrics are scaled to their range in the front before distances are taken, so that their
        units do not matter; after 100 members of a front the rest follow by their distance from
        these; room is rounded up and a missing or diverged metric dealt with as by `ASHAScheduler`;
        fronts are kept from report to report.
    """

    prefix = "moasha"

    def __init__(  # noqa: PLR0917  (positions are as with its peers)
        self,
        metrics: Sequence[str] | Mapping[str, str] | None = None,
        modes: str | Sequence[str] | None = None,
        time_attr: str = "training_iteration",
        max_t: Number = 100,
        grace_period: Number = 1,
        reduction_factor: Number = 3,
        brackets: int = 1,
        stop_last_trials: bool = True,
        type: str = "auto",  # noqa: A002  (the name under which its peers know it)
        later_grace_period: Number | str | None = None,
        num_scouts: int = 0,
        num_full_scouts: int = 0,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=None,
            mode=None,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
            stop_last_trials=stop_last_trials,
            kind=type,
            later_grace_period=later_grace_period,
            num_scouts=num_scouts,
            num_full_scouts=num_full_scouts,
        )
        self._own = _paired(metrics, modes)
        self._objectives: Objectives = tuple(self._own.items())

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective; empty while unknown."""
        return tuple(self._objectives)

    def _stopping_rule(self) -> RungRule:
        return _ParetoStopping(self._plan, self._get_objectives)

    def _promotion_rule(self) -> RungRule:
        return PromotionRule(self._plan, self._front_rung)

    # Methods, since a copy of the scheduler has its own.

    def _get_objectives(self) -> Objectives:
        return self._objectives

    def _front_rung(self) -> FrontRung:
        return FrontRung(self._objectives)

    def _take_objectives(self, objectives: Sequence[tuple[str, str]]) -> None:
        if not self._own:
            self._objectives = tuple(objectives)

    def check_ready(self) -> None:
        """Check that at least two metrics are known; one of the experiment is ignored.

        Raises:
            ValueError: If neither the scheduler nor the experiment names several.
        """
        if len(self._objectives) < 2:  # noqa: PLR2004  (several)
            found = ", ".join(metric for metric, _ in self._objectives) or self.metric
            raise ValueError(
                f"MOASHAScheduler must compare at least two metrics, got {found!r}; name them in "
                "TuneConfig(metric=[...], mode=[...]) or MOASHAScheduler(metrics={...}), or take "
                "ASHAScheduler for one"
            )

    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> RungReport:
        bracket = self._bracket_of(trial.trial_id)
        own = self._first_index(trial.trial_id)
        first = max(bracket, own)
        lowest = self.levels[first]
        violation = self._feasible.note(trial.trial_id, result)
        if self._is_from_evidence:
            self._note_values(trial.trial_id, time, result, violation, first)
        self._note_arrival(trial, time, lowest)
        # Below `lowest` the report has no values, and the rule records nothing.
        values = self._values(result) if time >= lowest else None
        return RungReport(
            trial.trial_id,
            bracket,
            time,
            None,
            values=values,
            violation=violation,
            lowest=lowest,
            notes=self._notes(trial.trial_id, own, first),
        )

    def _note_values(
        self,
        trial_id: str,
        time: float,
        result: Mapping[str, Any],
        violation: float,
        first: int,
    ) -> None:
        found = {
            metric: (as_float(result.get(metric, "")), minimised_sign(mode))
            for metric, mode in self._objectives
        }
        values = {
            metric: sign * value if math.isfinite(value) else math.nan
            for metric, (value, sign) in found.items()
            if value is not None
        }
        self._first.note(trial_id, time, values, violation, first)

    def _values(self, result: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Return the metrics, negated where more is better; None if one is missing."""
        # All are read, so that each one that is missing is known.
        values = [self._metrics.finite(result, metric) for metric, _ in self._objectives]
        signs = [minimised_sign(mode) for _, mode in self._objectives]
        point = [
            sign * value for sign, value in zip(signs, values, strict=True) if value is not None
        ]
        return tuple(point) if len(point) == len(values) else None

    def _settings(self) -> dict[str, Any]:
        # A single metric of the experiment is not used, and may change.
        objectives = [[metric, mode] for metric, mode in self._objectives]
        return {**super()._settings(), "metric": None, "mode": None, "objectives": objectives}


@final
class _ParetoStopping(RungRule):
    """Stops a trial at a rung unless it is among the best there in all metrics together."""

    def __init__(self, plan: RungPlan, get_objectives: Callable[[], Objectives]) -> None:
        super().__init__(plan)
        self._get_objectives = get_objectives
        self._brackets = tuple(
            ParetoRungs(plan.levels[start:], plan.reduction_factor)
            for start in range(plan.num_brackets)
        )

    def judge(self, report: RungReport, experiment: ExperimentView) -> Sequence[Decision]:
        """Stop the trial if too many trials of its level are better, or at the last level."""
        rungs = self._brackets[report.bracket]
        level = rungs.reached(report.time)
        standing = (
            None
            if level is None or report.values is None
            else rungs.record(
                report.trial_id,
                level,
                report.values,
                lowest=report.lowest,
                violation=report.violation,
            )
        )
        numbers = self._numbers_of(report, standing)
        if report.time >= self._plan.levels[-1]:
            return self._complete(report, numbers)
        if standing is None or standing.survives:
            return ()
        return (Stop(report.trial_id, self._reason("rung", numbers)),)

    def _numbers_of(
        self, report: RungReport, standing: FrontStanding | None
    ) -> dict[str, Number | str]:
        of_report: dict[str, Number | str] = {
            "time": strict(report.time),
            "bracket": report.bracket,
            **report.notes,
        }
        if standing is None:
            return of_report
        return {
            "rung": standing.level,
            **metrics_of(standing.values, self._get_objectives()),
            **violation_number(standing.violation),
            "front": standing.front,
            "num_better": standing.num_better,
            "position": standing.position,
            "num_recorded": standing.num_recorded,
            "num_kept": standing.num_kept,
            **of_report,
        }

    def summaries(self) -> Sequence[ParetoRungs]:
        """Return the rungs of each bracket."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values, as JSON values."""
        return {"brackets": [rungs.state_dict() for rungs in self._brackets]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for rungs, saved in zip(self._brackets, state["brackets"], strict=True):
            rungs.load_state_dict(saved)


def _paired(metrics: Any, modes: Any) -> dict[str, str]:
    """Return the mode of each metric, none for None, or refuse what does not make one."""
    if metrics is None:
        if modes is not None:
            raise ValueError(
                f"modes must be None without metrics, got {modes!r}; give metrics as well, or both "
                "to TuneConfig"
            )
        return {}
    if isinstance(metrics, Mapping):
        if modes is not None:
            raise ValueError(
                f"modes must be None where metrics has them, got {modes!r}; give them once"
            )
        names, chosen = list(metrics), list(metrics.values())
    elif isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise TypeError(
            f"metrics must be names, or names with modes, got {metrics!r}; e.g. {{'accuracy': "
            "'max', 'latency': 'min'}"
        )
    else:
        names = list(metrics)
        chosen = [modes] * len(names) if modes is None or isinstance(modes, str) else list(modes)
    _check_pairs(names, chosen, modes)
    return dict(zip(names, chosen, strict=True))


def _check_pairs(names: Sequence[Any], chosen: Sequence[Any], modes: Any) -> None:
    for name in names:
        check_entry("each of metrics", name, "e.g. 'accuracy'")
    if len(names) != len(set(names)) or len(names) < 2:  # noqa: PLR2004
        raise ValueError(
            f"metrics must be at least two different names, got {list(names)}; for one metric "
            "there is ASHAScheduler"
        )
    if len(chosen) != len(names) or any(mode not in MODES for mode in chosen):
        raise ValueError(
            f"modes must be 'min' or 'max' for each of {list(names)}, got "
            f"{modes if modes is not None else list(chosen)!r}"
        )
