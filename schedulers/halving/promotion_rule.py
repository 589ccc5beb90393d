"""Promotion rule of successive halving: pause trials at rungs, resume the best when slots are free.

Four choices that change results are made here:

* **The number of promotions is rounded down**: of `n` values the best
  ``floor(n / reduction_factor)`` may be promoted, as in the paper. So a short rung promotes no
  trial until it is longer.
* **Equal values rank in the order in which they were recorded**, so that a coarse metric does not
  promote more trials than allowed.
* **A value that is not a number is worse than every number**, and is never promoted.
* **Only rank decides**, as in the paper. Each trial among the best ``floor(n / reduction_factor)``
  may be promoted once, however many were promoted before; a promoted trial that is overtaken later
  does not use up the promotion of the trial that overtook it. So a rung may promote more than its
  share.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from schedulers.decisions import Decision, Number, Pause, Resume, Stop
from schedulers.metric import strict
from schedulers.scheduler import ExperimentView, TrialView

from .freeze_thaw import PausedTrial, Promise
from .halving_scheduler import RungPlan, RungReport, RungRule
from .rungs import RungSummary, RungSystem

_UNDERWAY = ("PENDING", "RUNNING")


@final
class PromotionRule(RungRule):
    """Pauses trials at each rung and resumes the best of them, highest rung first.

    Args:
        plan: Levels and brackets.
        get_mode: Returns ``"min"`` or ``"max"``, not before the first trial.
        reconsider: Chooses among the trials that wait without being promotable the one to continue
            nevertheless, if any, when a new one would start otherwise; None for none. Then no trial
            is given up before the search is over.

    Attributes:
        ceiling: Number of the level in bracket 0 above which no trial is promoted;
            the last one, unless it is lowered.

    Example:
        >>> from schedulers.scheduler import NoExperiment
        >>> rule = PromotionRule(RungPlan("asha", (1, 3, 9), 3), lambda: "min")
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
        get_mode: Callable[[], str],
        reconsider: Callable[[Sequence[PausedTrial]], Promise | None] | None = None,
    ) -> None:
        super().__init__(plan)
        self.ceiling = len(plan.levels) - 1
        self._get_mode = get_mode
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
        return (*released, *(() if is_released else own))

    def _record(self, report: RungReport, rungs: PromotionRungs) -> bool:
        level = rungs.reached(report.time)
        if level is None or report.value is None:
            return False
        return rungs.record(report.trial_id, level, report.value, lowest=report.lowest)

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
            if trial_id in paused and not math.isnan((place := rungs.place(trial_id)).value)
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
        best = next((found for found in places if not math.isnan(found[1].value)), None)
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

    def recorded_at(self, index: int) -> dict[str, float]:
        """Return all values at a level of bracket 0 by trial, the best first."""
        return self._rungs_of(0).recorded_at(index)

    def _rungs_of(self, bracket: int) -> PromotionRungs:
        # Made at the first trial: the experiment's mode is not known at construction.
        if not self._brackets:
            plan, mode = self._plan, self._get_mode()
            self._brackets = tuple(
                PromotionRungs(plan.levels[start:], plan.reduction_factor, mode)
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


@dataclass(frozen=True, slots=True)
class PromotionStanding:
    """Current rank of a trial on a rung.

    Attributes:
        trial_id: The trial.
        level: The rung's level.
        value: The value recorded, NaN for one that is not a number.
        rank: 1 for the best; no two trials share a rank.
        num_recorded: How many values the rung holds, this one included.
        num_promotable: How many of the best may be promoted.
        cutoff: The worst value that may be promoted, NaN where there is none.
    """

    trial_id: str
    level: Number
    value: float
    rank: int
    num_recorded: int
    num_promotable: int
    cutoff: float

    @property
    def is_promotable(self) -> bool:
        """Whether the trial is good enough to be promoted."""
        return self.rank <= self.num_promotable and not math.isnan(self.value)

    @property
    def numbers(self) -> dict[str, Number | str]:
        """The same as numbers of a reason."""
        return {
            "rung": self.level,
            "value": strict(self.value),
            "cutoff": strict(self.cutoff),
            "rank": self.rank,
            "num_recorded": self.num_recorded,
            "num_promotable": self.num_promotable,
        }


class _Entry(NamedTuple):
    """What a trial left on a rung; sorts from best to worst."""

    key: float
    order: int
    trial_id: str
    value: float


class _Rung:
    """The trials of one rung, best first."""

    __slots__ = ("_mode", "entries", "num_skipped", "promoted", "ranking", "waiting")

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.entries: dict[str, _Entry] = {}
        # Both sorted: a rank is found by bisection, and the best that wait come first.
        self.ranking: list[_Entry] = []
        self.waiting: list[_Entry] = []
        self.promoted: set[str] = set()
        self.num_skipped = 0

    @property
    def num_recorded(self) -> int:
        return len(self.entries)

    def add(self, trial_id: str, value: float) -> None:
        key = math.inf if math.isnan(value) else value if self._mode == "min" else -value
        entry = self.entries[trial_id] = _Entry(key, len(self.entries), trial_id, value)
        insort(self.ranking, entry)

    def rank(self, entry: _Entry) -> int:
        return bisect_left(self.ranking, entry) + 1

    def leave(self, trial_id: str) -> None:
        del self.waiting[bisect_left(self.waiting, self.entries[trial_id])]

    def state_dict(self) -> dict[str, Any]:
        recorded = [[entry.trial_id, strict(entry.value)] for entry in self.entries.values()]
        return {
            "recorded": recorded,
            "promoted": sorted(self.promoted),
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for trial_id, value in state["recorded"]:
            self.add(trial_id, float(value))
        self.promoted = set(state["promoted"])
        self.num_skipped = int(state["num_skipped"])


@final
class PromotionRungs(RungSystem[_Rung]):
    """Rungs at which trials wait until they are promoted.

    A trial joins the bracket, waits at each level that it reaches until it is promoted, and leaves
    when it is over. What it has recorded stays. Finding a rank costs O(log n) comparisons.

    Args:
        levels: Ascending amounts of training, at least one; see `rungs.rung_levels`.
        reduction_factor: One trial in this many is promoted from a rung.
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.

    Example:
        >>> rungs = PromotionRungs((1, 3, 9), reduction_factor=3, mode="min")
        >>> for trial_id, value in (("a", 0.5), ("b", 0.7), ("c", 0.4)):
        ...     rungs.join(trial_id)
        ...     _ = rungs.record(trial_id, level=1, value=value)
        >>> [place.trial_id for place in rungs.promotable()]
        ['c']
        >>> rungs.promote("c")
        >>> rungs.is_waiting("c"), rungs.is_waiting("a")
        (False, True)
    """

    def __init__(self, levels: Sequence[Number], reduction_factor: Number, mode: str) -> None:
        self._mode = mode
        super().__init__(levels, reduction_factor)
        self._live: set[str] = set()
        self._waiting: set[str] = set()
        # Number of live trials by highest level reached; first, those that have reached none.
        self._num_live_at = [0] * (len(self.levels) + 1)

    def _empty_rung(self) -> _Rung:
        return _Rung(self._mode)

    def join(self, trial_id: str) -> None:
        """Add a running trial: a new one, or one that had ended and is run again."""
        if trial_id in self._live:
            return
        self._live.add(trial_id)
        index = self._highest.get(trial_id, -1)
        self._num_live_at[index + 1] += 1
        if index >= 0 and trial_id not in self._rungs[index].promoted:
            self._wait(trial_id, index)

    def leave(self, trial_id: str) -> None:
        """Remove a trial that has ended or will not be promoted; its recorded values stay."""
        if trial_id not in self._live:
            return
        self._live.remove(trial_id)
        index = self._highest.get(trial_id, -1)
        self._num_live_at[index + 1] -= 1
        self._no_longer_wait(trial_id, index)

    def record(self, trial_id: str, level: Number, value: float, lowest: Number = 0) -> bool:
        """Record a trial's value at a level, where it then waits unless it is the last.

        Levels that it jumped over are counted as skipped.

        Args:
            trial_id: The trial; it has joined.
            level: One of `levels`.
            value: What it has reached; NaN where that is not a number.
            lowest: The level at which it was to be compared first; it has skipped none below.

        Returns:
            False where it has been at this level or a higher one before, and nothing is recorded.

        Raises:
            ValueError: If there is no such level.
        """
        climbed = self._climb(trial_id, level, lowest)
        if climbed is None:
            return False
        before, index = climbed
        # It waits below if it was to pause there, but has trained on until it could be saved.
        self._no_longer_wait(trial_id, before)
        self._num_live_at[before + 1] -= 1
        self._num_live_at[index + 1] += 1
        self._rungs[index].add(trial_id, value)
        self._wait(trial_id, index)
        return True

    def _wait(self, trial_id: str, index: int) -> None:
        # Above the last level there is nothing to wait for.
        if index < len(self.levels) - 1:
            self._waiting.add(trial_id)
            insort(self._rungs[index].waiting, self._rungs[index].entries[trial_id])

    def _no_longer_wait(self, trial_id: str, index: int) -> None:
        if trial_id in self._waiting:
            self._waiting.remove(trial_id)
            self._rungs[index].leave(trial_id)

    def has_place(self, trial_id: str) -> bool:
        """Return whether the trial has been at any level."""
        return trial_id in self._highest

    def place(self, trial_id: str) -> PromotionStanding:
        """Return the trial's current rank on the highest rung it has reached."""
        index = self._highest[trial_id]
        return self._place(index, self._rungs[index].entries[trial_id])

    def is_waiting(self, trial_id: str) -> bool:
        """Return whether the trial waits for a promotion."""
        return trial_id in self._waiting

    @property
    def names_waiting(self) -> AbstractSet[str]:
        """All trials that wait for a promotion; not to be modified."""
        return self._waiting

    def is_reached(self, index: int) -> bool:
        """Return whether any trial has been recorded at the level with this number."""
        return bool(self._rungs[index].entries)

    def promotable(self, top: int | None = None) -> Iterator[PromotionStanding]:
        """Yield the waiting trials that may be promoted, highest rung and best first.

        Args:
            top: Index of the level above which no trial is promoted; None for the last one.
        """
        for index in reversed(range(len(self.levels) - 1 if top is None else top)):
            num_promotable = self._num_promotable(index)
            for entry in self._rungs[index].waiting[:num_promotable]:
                place = self._place(index, entry, num_promotable)
                if not place.is_promotable:
                    break
                yield place

    def waiting(self) -> Iterator[tuple[Number, str]]:
        """Yield level and id of all waiting trials, highest rung and best first."""
        for level, rung in zip(reversed(self.levels), reversed(self._rungs), strict=True):
            yield from ((level, entry.trial_id) for entry in rung.waiting)

    def hopeless(self, num_future: int) -> Iterator[tuple[PromotionStanding, int]]:
        """Yield the waiting trials that can never be promoted, however bad later results are.

        The best of a rung is never among them.

        Args:
            num_future: How many trials may still join.

        Yields:
            The trial's place, and how many values its rung can come to hold at most.
        """
        for index, rung in enumerate(self._rungs):
            # All that are there, all live ones below, and all that are yet to be suggested.
            num_possible = len(rung.entries) + sum(self._num_live_at[: index + 1]) + num_future
            room = max(1, math.floor(num_possible / self._reduction_factor))
            # A rank never gets better, so that a trial without a chance never gets one; and if one
            # has a chance, so have all that are better.
            for entry in reversed(rung.waiting):
                if rung.rank(entry) <= room:
                    break
                yield self._place(index, entry), num_possible

    def promote(self, trial_id: str) -> None:
        """Send a trial that waits on its way to the next level."""
        index = self._highest[trial_id]
        self._no_longer_wait(trial_id, index)
        self._rungs[index].promoted.add(trial_id)

    def recorded_at(self, index: int) -> dict[str, float]:
        """Return all values at the level with this number, by trial, the best first."""
        return {entry.trial_id: entry.value for entry in self._rungs[index].ranking}

    def _num_promotable(self, index: int) -> int:
        return math.floor(len(self._rungs[index].entries) / self._reduction_factor)

    def _place(
        self, index: int, entry: _Entry, num_promotable: int | None = None
    ) -> PromotionStanding:
        rung = self._rungs[index]
        room = self._num_promotable(index) if num_promotable is None else num_promotable
        cutoff = rung.ranking[room - 1].value if room else math.nan
        return PromotionStanding(
            entry.trial_id,
            self.levels[index],
            entry.value,
            rung.rank(entry),
            len(rung.entries),
            room,
            cutoff,
        )

    def __iter__(self) -> Iterator[RungSummary]:
        """Yield a summary of each rung, lowest first."""
        for index, (level, rung) in enumerate(zip(self.levels, self._rungs, strict=True)):
            room = self._num_promotable(index)
            yield RungSummary(
                level,
                len(rung.entries),
                rung.num_skipped,
                rung.ranking[room - 1].value if room else math.nan,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return everything recorded, as JSON values."""
        # The highest level of each trial follows from the rungs.
        return {
            "live": sorted(self._live),
            "waiting": sorted(self._waiting),
            "rungs": [rung.state_dict() for rung in self._rungs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned from rungs with the same levels."""
        for index, (rung, saved) in enumerate(zip(self._rungs, state["rungs"], strict=True)):
            rung.load_state_dict(saved)
            self._highest.update(dict.fromkeys(rung.entries, index))
        self._live = set(state["live"])
        for trial_id in self._live:
            self._num_live_at[self._highest.get(trial_id, -1) + 1] += 1
        for trial_id in state["waiting"]:
            self._wait(trial_id, self._highest[trial_id])
