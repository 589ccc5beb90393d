"""Stopping rule of successive halving: stop a trial at a rung unless it is among the best there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number, Stop
from schedulers.metric import strict, violation_number
from schedulers.scheduler import ExperimentView

from .halving_scheduler import RungPlan, RungReport, RungRule
from .rungs import Rungs, RungStanding


@final
class StoppingRule(RungRule):
    """Stops trials that are not among the best ``ceil(n / reduction_factor)`` of a rung.

    Args:
        plan: Levels and brackets.
        get_mode: Returns ``"min"`` or ``"max"``, not before the first report.

    Example:
        >>> from schedulers.scheduler import NoExperiment
        >>> rule = StoppingRule(RungPlan("asha", (1, 3, 9), 3), lambda: "min")
        >>> rule.judge(RungReport("a", 0, time=1, value=0.1), NoExperiment())
        ()
        >>> [
        ...     stop.reason.rule
        ...     for stop in rule.judge(RungReport("b", 0, time=1, value=0.2), NoExperiment())
        ... ]
        ['asha.rung']
    """

    def __init__(self, plan: RungPlan, get_mode: Callable[[], str]) -> None:
        super().__init__(plan)
        self._get_mode = get_mode
        self._brackets: tuple[Rungs, ...] = ()

    def judge(self, report: RungReport, experiment: ExperimentView) -> Sequence[Decision]:
        """Stop the trial if it is not good enough, or has reached the last level."""
        # At the last level, too, where no trial is judged: reason and `debug_string` show its rank.
        standing = self._record(report)
        numbers = _numbers_of(report, standing)
        if report.time >= self._plan.levels[-1]:
            return self._complete(report, numbers)
        if standing is None:
            return ()
        if not standing.survives:
            return (Stop(report.trial_id, self._reason("rung", numbers)),)
        return ()

    def _record(self, report: RungReport) -> RungStanding | None:
        rungs = self._rungs_of(report.bracket)
        level = rungs.reached(report.time)
        if level is None or report.value is None:
            return None
        return rungs.record(
            report.trial_id,
            level,
            report.value,
            lowest=report.lowest,
            violation=report.violation,
        )

    def _rungs_of(self, bracket: int) -> Rungs:
        # Made at the first report: the experiment's mode is not known at construction.
        if not self._brackets:
            mode = self._get_mode()
            plan = self._plan
            self._brackets = tuple(
                Rungs(plan.levels[start:], plan.reduction_factor, mode)
                for start in range(plan.num_brackets)
            )
        return self._brackets[bracket]

    def summaries(self) -> Sequence[Rungs]:
        """Return the rungs of each bracket, none before the first report."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values, as JSON values."""
        return {"brackets": [rungs.state_dict() for rungs in self._brackets]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for bracket, saved in enumerate(state["brackets"]):
            self._rungs_of(bracket).load_state_dict(saved)


def _numbers_of(report: RungReport, standing: RungStanding | None) -> dict[str, Number | str]:
    of_report: dict[str, Number | str] = {
        "time": strict(report.time),
        "bracket": report.bracket,
        **report.notes,
    }
    if standing is None:
        return of_report
    return {
        "rung": standing.level,
        "value": strict(standing.value),
        **violation_number(standing.violation),
        "cutoff": strict(standing.cutoff),
        **violation_number(standing.cutoff_violation, "cutoff_violation"),
        "rank": standing.rank,
        "num_recorded": standing.num_recorded,
        "num_kept": standing.num_kept,
        **of_report,
    }
