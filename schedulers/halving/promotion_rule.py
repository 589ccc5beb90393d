"""The promotion rule of successive halving: trials pause at the rungs, and the best of those who wait go on when a slot is free."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number, Pause, Reason, Resume, Stop
from schedulers.metric_reader import strict
from schedulers.scheduler import ExperimentView, TrialView

from .halving import Plan, Report, RungRule, full_training
from .promotion_rungs import Place, PromotionRungs
from .rush_threshold import KnownGood

_UNDERWAY = ("PENDING", "RUNNING")


@final
class Promoter(RungRule):
    """Pauses trials at each rung and resumes the best of them, highest rung first.

    Args:
        plan: Levels and brackets.
        direction: Returns ``"min"`` or ``"max"``, not before the first trial.
        known_good: Trials that set a bar for the others.

    Attributes:
        ceiling: Number of the level in bracket 0 above which nobody is promoted; the last one, unless somebody lowers it.

    Example:
        >>> from schedulers.scheduler import NoExperiment
        >>> rule = Promoter(Plan("asha", (1, 3, 9), 3), lambda: "min", KnownGood(0))
        >>> rule.join("a", 0)
        >>> [type(decision).__name__ for decision in rule.judge(Report("a", 0, time=1, value=0.1), NoExperiment())]
        ['Pause']
    """

    def __init__(self, plan: Plan, direction: Callable[[], str], known_good: KnownGood) -> None:
        self.ceiling = len(plan.levels) - 1
        self._plan = plan
        self._direction = direction
        self._known_good = known_good
        self._brackets: tuple[PromotionRungs, ...] = ()
        # The highest level at which, or past which, a trial has come to its own end.
        self._trained_to: Number = 0

    def join(self, trial_id: str, bracket: int) -> None:
        """Let the trial climb the rungs of its bracket."""
        self._known_good.join(trial_id)
        self._rungs_of(bracket).join(trial_id)

    def leave(
        self, trial_id: str, bracket: int, experiment: ExperimentView, *, is_trained: bool
    ) -> Sequence[Decision]:
        """Let go of the trial, and stop those who wait where it might have made room."""
        rungs = self._rungs_of(bracket)
        if is_trained and rungs.has_place(trial_id):
            self._trained_to = max(self._trained_to, rungs.place(trial_id).level)
        rungs.leave(trial_id)
        return self._release(bracket, experiment)

    def judge(self, report: Report, experiment: ExperimentView) -> Sequence[Decision]:
        """Pause the trial at a rung, stop it at the last level, and stop those who can be promoted no more."""
        rungs = self._rungs_of(report.bracket)
        is_recorded = self._record(report, rungs)
        own = self._judge_own(report, rungs)
        released = self._release(report.bracket, experiment) if is_recorded else []
        is_released = any(stop.trial_id == report.trial_id for stop in released)
        return (*released, *(() if is_released else own))

    def _record(self, report: Report, rungs: PromotionRungs) -> bool:
        level = rungs.reached(report.time)
        if (
            level is None
            or report.value is None
            or not rungs.record(
                report.trial_id, level, report.value, report.cost, lowest=report.lowest
            )
        ):
            return False
        self._known_good.record(report.trial_id, level, report.value, self._direction())
        return True

    def _judge_own(self, report: Report, rungs: PromotionRungs) -> Sequence[Decision]:
        max_t = self._plan.levels[-1]
        place = rungs.place(report.trial_id) if rungs.has_place(report.trial_id) else None
        numbers = {**self._numbers(report.bracket, place), "time": strict(report.time)}
        if report.time >= max_t:
            self._trained_to = max_t
            if not self._plan.stops_last_trials:
                return ()
            rungs.leave(report.trial_id)
            return (
                Stop(
                    report.trial_id,
                    Reason(full_training(self._plan.prefix), {**numbers, "max_t": max_t}),
                    is_complete=True,
                ),
            )
        # A trial that repeats results, after it lost more than one level, climbs back to where it waits.
        if place is None or report.time < place.level or not rungs.is_waiting(report.trial_id):
            return ()
        return (Pause(report.trial_id, Reason(f"{self._plan.prefix}.rung", numbers)),)

    def on_idle(
        self, trials: Sequence[TrialView], num_free_slots: int, experiment: ExperimentView
    ) -> Sequence[Decision]:
        """Promote the best that wait; where nobody can be promoted and no trial comes any more, bring the experiment to its end."""
        paused = [trial.trial_id for trial in trials]
        # There may be thousands, and this is asked again for every slot that becomes free.
        others = set(paused).difference(*(rungs.names_waiting for rungs in self._brackets))
        underway = [trial_id for trial_id in paused if trial_id in others] if others else []
        resumed = [
            Resume(trial_id, Reason(f"{self._plan.prefix}.goes_on"))
            for trial_id in underway[:num_free_slots]
        ]
        resumed += self._promotions(set(paused), num_free_slots - len(resumed))
        if (
            resumed
            or not experiment.no_more_trials
            or any(trial.status in _UNDERWAY for trial in experiment.trials.values())
        ):
            return resumed
        return self._wind_up(set(paused), experiment)

    def _promotions(self, paused: set[str], num_free_slots: int) -> list[Resume]:
        chosen: list[Resume] = []
        for bracket, place in self._promotable():
            if len(chosen) >= num_free_slots:
                break
            if place.trial_id in paused:
                chosen.append(self._promote(bracket, place, "promotion"))
        return chosen

    def _promote(self, bracket: int, place: Place, rule: str) -> Resume:
        self._brackets[bracket].promote(place.trial_id)
        return Resume(
            place.trial_id, Reason(f"{self._plan.prefix}.{rule}", self._numbers(bracket, place))
        )

    def _numbers(self, bracket: int, place: Place | None) -> dict[str, Number | str]:
        numbers: dict[str, Number | str] = {"bracket": bracket}
        if self.ceiling < len(self._plan.levels) - 1:
            numbers["ceiling"] = self._plan.levels[self.ceiling]
        return numbers if place is None else {**place.numbers, **numbers}

    def _promotable(self) -> list[tuple[int, Place]]:
        """Return who may be promoted: highest level first, in it bracket by bracket, in each the best first."""
        found: list[tuple[int, Place]] = []
        for bracket, rungs in enumerate(self._brackets):
            places = rungs.promotable(max(0, self.ceiling - bracket))
            found += [(bracket, place) for place in places if self._is_admitted(place)]
        return sorted(found, key=lambda found: -found[1].level)

    def _is_admitted(self, place: Place) -> bool:
        return self._known_good.admits(place.trial_id, place.level, place.value, self._direction())

    def _wind_up(self, paused: set[str], experiment: ExperimentView) -> Sequence[Decision]:
        """Decide about the paused trials when nothing else can happen: all of them wait, and nobody may be promoted."""
        left = [
            (level, bracket, trial_id)
            for bracket, rungs in enumerate(self._brackets)
            for level, trial_id in rungs.waiting()
            if trial_id in paused
        ]
        left.sort(key=lambda found: -found[0])
        places = (
            (bracket, self._brackets[bracket].place(trial_id)) for _, bracket, trial_id in left
        )
        best = next((found for found in places if not math.isnan(found[1].value)), None)
        is_over = (
            experiment.max_trials is not None and len(experiment.trials) >= experiment.max_trials
        )
        if best and (is_over or len(left) == 1) and self._is_last_resort(best[1]):
            return (self._promote(*best, "last_resort"),)
        # Perhaps the search is not over but waits for a trial to end, and then goes on: the one with the least prospects makes room.
        ending = left if is_over else left[-1:]
        return [
            self._give_up(bracket, self._brackets[bracket].place(trial_id), "not_promoted")
            for _, bracket, trial_id in ending
        ]

    def _is_last_resort(self, place: Place) -> bool:
        is_ceiling_reached = any(
            rungs.is_reached(max(0, self.ceiling - bracket))
            for bracket, rungs in enumerate(self._brackets)
        )
        return not is_ceiling_reached and self._trained_to < place.level

    def _give_up(self, bracket: int, place: Place, rule: str, **numbers: Number | str) -> Stop:
        self._brackets[bracket].leave(place.trial_id)
        return Stop(
            place.trial_id,
            Reason(f"{self._plan.prefix}.{rule}", {**self._numbers(bracket, place), **numbers}),
        )

    def _release(self, bracket: int, experiment: ExperimentView) -> list[Stop]:
        """Stop those who wait in a bracket and can never be promoted, so that their checkpoints can be deleted."""
        rungs, released = self._rungs_of(bracket), []
        if experiment.max_trials is not None:
            num_future = max(0, experiment.max_trials - len(experiment.trials))
            for place, num_possible in list(rungs.hopeless(num_future)):
                released.append(
                    self._give_up(bracket, place, "cannot_be_promoted", num_possible=num_possible)
                )
        for place in self._below_the_bar(rungs):
            threshold = strict(self._known_good.threshold(place.level))
            released.append(self._give_up(bracket, place, "known_good", threshold=threshold))
        return released

    def _below_the_bar(self, rungs: PromotionRungs) -> list[Place]:
        if not self._known_good.sets_bars:
            return []
        places = [rungs.place(trial_id) for _, trial_id in rungs.waiting()]
        return [place for place in places if not self._is_admitted(place)]

    def recorded_at(self, index: int) -> dict[str, float]:
        """Return all values at the level with this number in bracket 0, by trial, the best first."""
        return self._rungs_of(0).recorded_at(index)

    def _rungs_of(self, bracket: int) -> PromotionRungs:
        if not self._brackets:
            plan, mode = self._plan, self._direction()
            self._brackets = tuple(
                PromotionRungs(
                    plan.levels[start:], plan.reduction_factor, mode, is_by_cost=plan.is_by_cost
                )
                for start in range(plan.num_brackets)
            )
        return self._brackets[bracket]

    def summaries(self) -> Sequence[PromotionRungs]:
        """Return the rungs of each bracket, none before the first trial."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded, as JSON values."""
        return {
            "brackets": [rungs.state_dict() for rungs in self._brackets],
            "known_good": self._known_good.state_dict(),
            "ceiling": self.ceiling,
            "trained_to": self._trained_to,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        for bracket, saved in enumerate(state["brackets"]):
            self._rungs_of(bracket).load_state_dict(saved)
        self._known_good.load_state_dict(state["known_good"])
        self.ceiling = state["ceiling"]
        self._trained_to = state["trained_to"]
