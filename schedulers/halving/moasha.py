"""MOASHA: successive halving for several metrics, which stops who is dominated by too many others of the same age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number, Reason, Resume, Stop
from schedulers.metric_reader import strict
from schedulers.scheduler import MODES, ExperimentView, TrialView

from .arguments import check_entry
from .halving import HalvingScheduler, Plan, Report, RungRule, full_training
from .pareto_rungs import FrontStanding, ParetoRungs


@final
class MOASHAScheduler(HalvingScheduler):
    """Stops a trial at a level unless it is among the best ``ceil(n / reduction_factor)`` there in several metrics at once.

    Trials at a level are sorted into fronts: the first are those that no other one dominates, i.e. equals or beats in every metric; the
    second those that only the first dominate, and so on. Better fronts survive first. A front that does not fit in whole survives in the
    order of an epsilon net: first the trial that is best in the first metric, then again and again the one that is farthest from those
    before, so that what survives spreads over the trade-offs. Each trial is judged once at each level, and never waits.

    A trial with a metric that is None, NaN or infinite stands behind all others, whatever its other metrics are, and goes on only where
    it is alone at its first level. A result without one of the metrics decides nothing before `max_t`; `debug_string` tells which was
    missing. Rare and repeated reports are dealt with as by ``ASHAScheduler(type="stopping")``.

    Args:
        metrics: What to compare, at least two flattened names; or these with the mode of each, e.g.
            ``{"accuracy": "max", "latency": "min"}``. They are the scheduler's own: the metric of ``TuneConfig`` is not looked at.
        modes: ``"min"`` or ``"max"`` for each metric, or one of them for all; None where `metrics` has them.
        time_attr: Which entry of a result tells how long the trial has trained; must grow. `max_t` and `grace_period` are in its units.
        max_t: The highest level. No trial is compared there; it has simply trained enough.
        grace_period: The lowest level, between 1 and `max_t`; no trial is stopped before it.
        reduction_factor: One trial in this many survives a level, and levels are this factor apart; more than 1.
        brackets: How many brackets to spread the trials over; see `ASHAScheduler`.
        stop_last_trials: Whether to stop trials at `max_t`; False lets those that got there train on.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending; the last one is `max_t`, where they end.

    Raises:
        TypeError: If a number is not a number, or `metrics` are no names.
        ValueError: If an argument is out of range, or metrics and modes do not fit.

    Example:
        >>> scheduler = MOASHAScheduler({"accuracy": "max", "latency": "min"}, max_t=27)
        >>> scheduler.levels
        (1, 3, 9, 27)

    Reference:
        Schmucker, Donini, Zafar, Salinas, Archambeau. Multi-Objective Asynchronous Successive Halving. 2021, arXiv 2106.12639;
        non-dominated rank with epsilon nets (EpsNet).

    Departures:
        From Syne Tune: metrics are scaled to their range in the front before distances are taken, so that their units do not matter; room
        is rounded up and a missing or diverged metric dealt with as by `ASHAScheduler`; fronts are kept from report to report.
    """

    prefix = "moasha"

    def __init__(  # noqa: PLR0917  (positions are as with its peers)
        self,
        metrics: Sequence[str] | Mapping[str, str],
        modes: str | Sequence[str] | None = None,
        time_attr: str = "training_iteration",
        max_t: Number = 100,
        grace_period: Number = 1,
        reduction_factor: Number = 3,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=None,
            mode=None,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
        )
        self._objectives = _paired(metrics, modes)
        plan = Plan(
            self.prefix, self.levels, self._reduction_factor, self._num_brackets, stop_last_trials
        )
        self._fronts = _ParetoStopping(plan, self._objectives)

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective."""
        return tuple(self._objectives.items())

    @property
    def _rule(self) -> RungRule:
        return self._fronts

    def check_ready(self) -> None:
        """Accept any metric and mode of the experiment: the metrics compared are the scheduler's own."""

    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> Report:
        bracket = self._bracket_of(trial.trial_id)
        if time < self.levels[bracket]:
            return Report(trial.trial_id, bracket, time, None)
        values = [self._readings.finite(result, metric) for metric in self._objectives]
        signs = [1.0 if mode == "min" else -1.0 for mode in self._objectives.values()]
        point = tuple(
            sign * value for sign, value in zip(signs, values, strict=True) if value is not None
        )
        return Report(
            trial.trial_id, bracket, time, None, values=point if len(point) == len(values) else None
        )

    def _settings(self) -> dict[str, Any]:
        # The experiment's metric and mode are not compared, and may change.
        objectives = [[metric, mode] for metric, mode in self._objectives.items()]
        return {**super()._settings(), "metric": None, "mode": None, "objectives": objectives}


@final
class _ParetoStopping(RungRule):
    """Stops a trial at a rung unless it is among the best there in all metrics together."""

    def __init__(self, plan: Plan, objectives: Mapping[str, str]) -> None:
        self._plan = plan
        self._objectives = objectives
        self._brackets = tuple(
            ParetoRungs(plan.levels[start:], plan.reduction_factor)
            for start in range(plan.num_brackets)
        )

    def join(self, trial_id: str, bracket: int) -> None:
        """Do nothing: a trial counts from its first level on."""

    def leave(
        self, trial_id: str, bracket: int, experiment: ExperimentView, *, is_trained: bool
    ) -> Sequence[Decision]:
        """Do nothing: who is over is compared with all the same."""
        return ()

    def judge(self, report: Report, experiment: ExperimentView) -> Sequence[Decision]:
        """Stop the trial where too many of its age are better, or at the last level."""
        rungs = self._brackets[report.bracket]
        level = rungs.reached(report.time)
        standing = (
            None
            if level is None or report.values is None
            else rungs.record(report.trial_id, level, report.values)
        )
        max_t = self._plan.levels[-1]
        if report.time >= max_t:
            reason = Reason(
                full_training(self._plan.prefix),
                {**self._numbers_of(report, standing), "max_t": max_t},
            )
            return (
                (Stop(report.trial_id, reason, is_complete=True),)
                if self._plan.stops_last_trials
                else ()
            )
        if standing is None or standing.survives:
            return ()
        return (
            Stop(
                report.trial_id,
                Reason(f"{self._plan.prefix}.rung", self._numbers_of(report, standing)),
            ),
        )

    def _numbers_of(
        self, report: Report, standing: FrontStanding | None
    ) -> dict[str, Number | str]:
        of_report: dict[str, Number | str] = {
            "time": strict(report.time),
            "bracket": report.bracket,
        }
        if standing is None:
            return of_report
        signs = [1.0 if mode == "min" else -1.0 for mode in self._objectives.values()]
        values = standing.values or (float("nan"),) * len(signs)
        return {
            "rung": standing.level,
            **{
                metric: strict(sign * value)
                for metric, sign, value in zip(self._objectives, signs, values, strict=True)
            },
            "front": standing.front,
            "num_better": standing.num_better,
            "position": standing.position,
            "num_recorded": standing.num_recorded,
            "num_kept": standing.num_kept,
            **of_report,
        }

    def on_idle(
        self, trials: Sequence[TrialView], num_free_slots: int, experiment: ExperimentView
    ) -> Sequence[Decision]:
        """Let paused trials go on: whoever paused them, nothing here waits for anything."""
        return [
            Resume(trial.trial_id, Reason(f"{self._plan.prefix}.goes_on"))
            for trial in trials[:num_free_slots]
        ]

    def summaries(self) -> Sequence[ParetoRungs]:
        """Return the rungs of each bracket."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded, as JSON values."""
        return {"brackets": [rungs.state_dict() for rungs in self._brackets]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        for rungs, saved in zip(self._brackets, state["brackets"], strict=True):
            rungs.load_state_dict(saved)


def _paired(metrics: Any, modes: Any) -> dict[str, str]:
    """Return the mode of each metric, or refuse what does not make one."""
    if isinstance(metrics, Mapping):
        if modes is not None:
            raise ValueError(
                f"modes must be None where metrics has them, got {modes!r}; give them once"
            )
        names, chosen = list(metrics), list(metrics.values())
    elif isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise TypeError(
            f"metrics must be names, or names with modes, got {metrics!r}; e.g. {{'accuracy': 'max', 'latency': 'min'}}"
        )
    else:
        names = list(metrics)
        chosen = [modes] * len(names) if modes is None or isinstance(modes, str) else list(modes)
    _check_pairs(names, chosen, modes)
    return dict(zip(names, chosen, strict=True))


def _check_pairs(names: Sequence[Any], chosen: Sequence[Any], modes: Any) -> None:
    for name in names:
        check_entry("each of metrics", name, "e.g. 'accuracy'")
    if len(names) != len(set(names)) or len(names) < 2:  # noqa: PLR2004  (one metric is what ASHA is for)
        raise ValueError(
            f"metrics must be at least two different names, got {list(names)}; for one metric there is ASHAScheduler"
        )
    if len(chosen) != len(names) or any(mode not in MODES for mode in chosen):
        raise ValueError(
            f"modes must be 'min' or 'max' for each of {list(names)}, got {modes if modes is not None else list(chosen)!r}"
        )
