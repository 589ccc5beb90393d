"""Promotion rule of successive halving: pause trials at rungs, resume the best when slots are free.

Five choices that change results are made here:

* **The number of promotions is rounded down**: of `n` values the best
  ``floor(n / reduction_factor)`` may be promoted, as in the paper. So a short rung promotes no
  trial until it is longer.
* **Equal values rank in the order in which they were recorded**, so that a coarse metric does not
  promote more trials than allowed.
* **A value that is not a number is worse than every number**, and is never promoted.
* **A trial that misses a constraint when it is recorded ranks behind all that do not**, see
  `schedulers.feasible_first`. It may be promoted where too few others are there.
* **Only rank decides**, as in the paper. Each trial among the best ``floor(n / reduction_factor)``
  may be promoted once, however many were promoted before; a promoted trial that is overtaken later
  does not use up the promotion of the trial that overtook it. So a rung may promote more than its
  share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from schedulers.decisions import Decision, Number, Pause, Resume, Stop
from schedulers.metric import strict
from schedulers.scheduler import ExperimentView, TrialView

from .freeze_thaw import PausedTrial, Promise
from .halving_scheduler import RungPlan, RungReport, RungRule
from .promotion_rungs import PromotionRung, PromotionRungs, PromotionStanding

_UNDERWAY = ("PENDING", "RUNNING")


@final
class PromotionRule(RungRule):
    """Pauses trials at each rung and resumes the best of them, highest rung first.

    Args:
        plan: Levels and brackets.
        make_rung: Makes an empty rung, whose kind decides which trials are better; it is not called
            before the first trial.
        reconsider: Chooses among the trials that wait without being promotable the one to continue
            nevertheless, if any, when a new one would start otherwise; None for none. Then no trial
            is given up before the search is over.

    Attributes:
        ceiling: Number of the level in bracket 0 above which no trial is promoted;
            the last one, unless it is lowered.

    Example:
        >>> from schedulers.scheduler import NoExperiment
        >>> from .promotion_rungs import ValueRung
        >>> rule = PromotionRule(RungPlan("asha", (1, 3, 9), 3), lambda: ValueRung("min"))
        >>> rule.join("a", 0)
        >>> [
        ...     type(decision).__name__
        ...     for decision in rule.judge(RungReport("a", 0, time=1, value=0.1), NoExperiment())
        ... ]
        ['Pause']
    """

    def __init__(
        self,
        plan: RungPlan,
        make_rung: Callable[[], PromotionRung],
        reconsider: Callable[[Sequence[PausedTrial]], Promise | None] | None = None,
    ) -> None:
        super().__init__(plan)
        self.ceiling = len(plan.levels) - 1
        self._make_rung = make_rung
        self._reconsider = reconsider
        self._brackets: tuple[PromotionRungs, ...] = ()
        # The highest level that a trial had reached when it ended by itself.
        self._trained_to: Number = 0

    def join(self, trial_id: str, bracket: int) -> None:
        """Add the trial to its bracket."""
        self._rungs_of(bracket).join(trial_id)

    def leave(
        self, trial_id: str, bracket: int, experiment: ExperimentView, *, is_trained: bool
    ) -> Sequence[Decision]:
        """Remove the trial, and stop waiting trials that now can never be promoted."""
        rungs = self._rungs_of(bracket)
        if is_trained and rungs.has_place(trial_id):
            self._trained_to = max(self._trained_to, rungs.place(trial_id).level)
        rungs.leave(trial_id)
        return self._release(bracket, experiment)

    def judge(self, report: RungReport, experiment: ExperimentView) -> Sequence[Decision]:
        """Pause the trial at a rung, or stop it; stop waiting trials without a chance."""
        rungs = self._rungs_of(report.bracket)
        is_recorded = self._record(report, rungs)
        own = self._judge_own(report, rungs)
        released = self._release(report.bracket, experiment) if is_recorded else []
        is_released = any(stop.trial_id == report.trial_id for stop in released)
        # The trial's own pause comes first: when those released have ended, it may be released too.
        return (*(() if is_released else own), *released)

    def _record(self, report: RungReport, rungs: PromotionRungs) -> bool:
        level = rungs.reached(report.time)
        if level is None or (reached := report.reached) is None:
            return False
        return rungs.record(
            report.trial_id, level, reached, lowest=report.lowest, violation=report.violation
        )

    def _judge_own(self, report: RungReport, rungs: PromotionRungs) -> Sequence[Decision]:
        max_t = self._plan.levels[-1]
        place = rungs.place(report.trial_id) if rungs.has_place(report.trial_id) else None
        numbers = {
            **self._numbers(report.bracket, place),
            "time": strict(report.time),
            **report.notes,
        }
        if report.time >= max_t:
            self._trained_to = max_t
            if self._plan.stops_last_trials:
                rungs.leave(report.trial_id)
            return self._complete(report, numbers)
        # A trial that repeats results, after it lost more than one level, climbs back to where it
        # waits.
        if place is None or report.time < place.level or not rungs.is_waiting(report.trial_id):
            return ()
        return (Pause(report.trial_id, self._reason("rung", numbers)),)

    def on_idle(
        self, trials: Sequence[TrialView], num_free_slots: int, experiment: ExperimentView
    ) -> Sequence[Decision]:
        """Promote the best waiting trials; if there are none and no more come, end all."""
        paused = [trial.trial_id for trial in trials]
        # A set, since there may be thousands, and this runs for every free slot. The others were
        # promoted before, or paused by the user, and need no promotion.
        others = set(paused).difference(*(rungs.names_waiting for rungs in self._brackets))
        underway = [trial_id for trial_id in paused if trial_id in others] if others else []
        resumed = [
            Resume(trial_id, self._reason("goes_on")) for trial_id in underway[:num_free_slots]
        ]
        resumed += self._promotions(set(paused), num_free_slots - len(resumed))
        if not resumed and self._reconsider and not experiment.no_more_trials:
            resumed = self._thaw(set(paused), self._reconsider)
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

    def _thaw(
        self, paused: set[str], reconsider: Callable[[Sequence[PausedTrial]], Promise | None]
    ) -> list[Resume]:
        """Continue a trial that is not among the best of its level, if it promises enough."""
        places = {
            trial_id: (bracket, place)
            for bracket, rungs in enumerate(self._brackets)
            for _, trial_id in rungs.waiting()
            if trial_id in paused
            and (place := rungs.place(trial_id)).is_number
            and place.is_feasible
        }
        levels = self._plan.levels
        promise = reconsider(
            [
                PausedTrial(trial_id, levels[levels.index(place.level) + 1] - place.level)
                for trial_id, (_, place) in places.items()
            ]
        )
        if promise is None:
            return []
        return [self._promote(*places[promise.trial_id], "thaw", promises=round(promise.ratio, 2))]

    def _promote(
        self, bracket: int, place: PromotionStanding, rule: str, **numbers: Number | str
    ) -> Resume:
        self._brackets[bracket].promote(place.trial_id)
        reason = self._reason(rule, {**self._numbers(bracket, place), **numbers})
        return Resume(place.trial_id, reason)

    def _numbers(self, bracket: int, place: PromotionStanding | None) -> dict[str, Number | str]:
        numbers: dict[str, Number | str] = {"bracket": bracket}
        if self.ceiling < len(self._plan.levels) - 1:
            numbers["ceiling"] = self._plan.levels[self.ceiling]
        return numbers if place is None else {**place.numbers, **numbers}

    def _promotable(self) -> list[tuple[int, PromotionStanding]]:
        """Return the promotable trials: highest level first, then by bracket, the best first."""
        found: list[tuple[int, PromotionStanding]] = []
        for bracket, rungs in enumerate(self._brackets):
            top = max(0, self.ceiling - bracket)
            found += [(bracket, place) for place in rungs.promotable(top)]
        # The sort is stable: of one level, the first bracket and its best trial come first.
        return sorted(found, key=lambda found: -found[1].level)

    def _wind_up(self, paused: set[str], experiment: ExperimentView) -> Sequence[Decision]:
        """Decide about paused trials when all of them wait and none may be promoted."""
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
        best = next((found for found in places if found[1].is_number), None)
        is_over = (
            experiment.max_trials is not None and len(experiment.trials) >= experiment.max_trials
        )
        if best and (is_over or len(left) == 1) and self._is_last_resort(best[1]):
            return (self._promote(*best, "last_resort"),)
        # Perhaps the search is not over but waits for a trial to end, and then continues: the one
        # with the worst rank on the lowest rung is stopped to make room.
        ending = left if is_over else left[-1:]
        return [
            self._give_up(bracket, self._brackets[bracket].place(trial_id), "not_promoted")
            for _, bracket, trial_id in ending
        ]

    def _is_last_resort(self, place: PromotionStanding) -> bool:
        is_ceiling_reached = any(
            rungs.is_reached(max(0, self.ceiling - bracket))
            for bracket, rungs in enumerate(self._brackets)
        )
        return not is_ceiling_reached and self._trained_to < place.level

    def _give_up(
        self, bracket: int, place: PromotionStanding, rule: str, **numbers: Number | str
    ) -> Stop:
        self._brackets[bracket].leave(place.trial_id)
        reason = self._reason(rule, {**self._numbers(bracket, place), **numbers})
        return Stop(place.trial_id, reason)

    def _release(self, bracket: int, experiment: ExperimentView) -> list[Stop]:
        """Stop waiting trials that can never be promoted, so that checkpoints can be deleted."""
        may_continue = self._reconsider and not experiment.no_more_trials
        if experiment.max_trials is None or may_continue:
            return []
        num_future = max(0, experiment.max_trials - len(experiment.trials))
        return [
            self._give_up(bracket, place, "cannot_be_promoted", num_possible=num_possible)
            for place, num_possible in list(self._rungs_of(bracket).hopeless(num_future))
        ]

    def rung_at(self, index: int) -> PromotionRung:
        """Return the rung of a level of bracket 0."""
        return self._rungs_of(0).rung_at(index)

    def _rungs_of(self, bracket: int) -> PromotionRungs:
        # Made at the first trial: the experiment's metrics are not known at construction.
        if not self._brackets:
            plan = self._plan
            self._brackets = tuple(
                PromotionRungs(plan.levels[start:], plan.reduction_factor, self._make_rung)
                for start in range(plan.num_brackets)
            )
        return self._brackets[bracket]

    def summaries(self) -> Sequence[PromotionRungs]:
        """Return the rungs of each bracket, none before the first trial."""
        return self._brackets

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values, as JSON values."""
        return {
            "brackets": [rungs.state_dict() for rungs in self._brackets],
            "ceiling": self.ceiling,
            "trained_to": self._trained_to,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for bracket, saved in enumerate(state["brackets"]):
            self._rungs_of(bracket).load_state_dict(saved)
        self.ceiling = state["ceiling"]
        self._trained_to = state["trained_to"]
