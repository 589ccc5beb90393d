"""Rungs with promotion: trials wait where they were compared, and the best of those who wait climb on.

Four choices, each of which changes results, are made here and nowhere else:

* **Room above a rung is rounded down**: of `n` values the best ``floor(n / reduction_factor)`` may be promoted, as in the paper. So a short
  rung promotes nobody: it waits until it is longer.
* **Equal values rank in the order in which they were recorded**, so that a coarse metric promotes no more than there is room for.
* **A value that is not a number is worse than every number**, and is never promoted.
* **Room is a matter of rank alone**, as in the paper. Who is among the best ``floor(n / reduction_factor)`` may be promoted, once, however
  many were before; a trial that was promoted and then overtaken takes no room from those who overtook it. So a rung may promote more
  than its share, by those that were overtaken.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from schedulers.decisions import Number
from schedulers.metric_reader import strict

from .rungs import RungSummary


@dataclass(frozen=True, slots=True)
class Place:
    """How a trial stands on a rung now.

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
    cost: float


class _Rung:
    """The trials of one rung, best first."""

    __slots__ = ("entries", "num_skipped", "promoted", "ranking", "waiting")

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self.ranking: list[_Entry] = []
        self.waiting: list[_Entry] = []
        self.promoted: set[str] = set()
        self.num_skipped = 0

    def add(self, trial_id: str, value: float, cost: float, mode: str) -> None:
        key = math.inf if math.isnan(value) else value if mode == "min" else -value
        entry = self.entries[trial_id] = _Entry(key, len(self.entries), trial_id, value, cost)
        insort(self.ranking, entry)

    def rank(self, entry: _Entry) -> int:
        return bisect_left(self.ranking, entry) + 1

    def leave(self, trial_id: str) -> None:
        del self.waiting[bisect_left(self.waiting, self.entries[trial_id])]

    def num_affordable(self, reduction_factor: Number) -> int:
        """Return how many of the best have cost together at most their share of what all have cost."""
        budget, spent = math.fsum(entry.cost for entry in self.ranking) / reduction_factor, 0.0
        for number, entry in enumerate(self.ranking):
            spent += entry.cost
            if spent > budget:
                return number
        return len(self.ranking)

    def state_dict(self) -> dict[str, Any]:
        recorded = [
            [entry.trial_id, strict(entry.value), strict(entry.cost)]
            for entry in self.entries.values()
        ]
        return {
            "recorded": recorded,
            "promoted": sorted(self.promoted),
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any], mode: str) -> None:
        for trial_id, value, cost in state["recorded"]:
            self.add(trial_id, float(value), float(cost), mode)
        self.promoted = set(state["promoted"])
        self.num_skipped = int(state["num_skipped"])


@final
class PromotionRungs:
    """The rungs of one bracket, and the trials that climb them.

    A trial joins the bracket, is recorded at most once per level and never below a level at which it has been, waits there until it is
    promoted, and leaves when it is over. What it has recorded stays. Finding a rank costs O(log n) comparisons.

    Args:
        levels: Ascending amounts of training, at least one; see `rungs.rung_levels`.
        reduction_factor: One trial in this many is promoted from a rung.
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.
        is_by_cost: Whether as many of the best may be promoted as have cost together at most ``1 / reduction_factor`` of what all of the
            rung have cost, instead of ``1 / reduction_factor`` of their number.

    Attributes:
        levels: As given.

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

    def __init__(
        self,
        levels: Sequence[Number],
        reduction_factor: Number,
        mode: str,
        *,
        is_by_cost: bool = False,
    ) -> None:
        self.levels = tuple(levels)
        self._reduction_factor = reduction_factor
        self._mode = mode
        self._is_by_cost = is_by_cost
        self._rungs = tuple(_Rung() for _ in self.levels)
        self._highest: dict[str, int] = {}
        self._live: set[str] = set()
        self._waiting: set[str] = set()
        # How many live trials have got no higher than each level; first, those that have been at none.
        self._num_live_at = [0] * (len(self.levels) + 1)

    def reached(self, time: Number) -> Number | None:
        """Return the highest level at or below `time`, None below the lowest."""
        index = bisect_right(self.levels, time) - 1
        return self.levels[index] if index >= 0 else None

    def join(self, trial_id: str) -> None:
        """Take in a trial that runs: a new one, or one that was over and has come back."""
        if trial_id in self._live:
            return
        self._live.add(trial_id)
        index = self._highest.get(trial_id, -1)
        self._num_live_at[index + 1] += 1
        if index >= 0 and trial_id not in self._rungs[index].promoted:
            self._wait(trial_id, index)

    def leave(self, trial_id: str) -> None:
        """Let go of a trial that is over or will not be promoted; what it has recorded stays."""
        if trial_id not in self._live:
            return
        self._live.remove(trial_id)
        index = self._highest.get(trial_id, -1)
        self._num_live_at[index + 1] -= 1
        self._no_longer_wait(trial_id, index)

    def record(
        self, trial_id: str, level: Number, value: float, cost: float = 0.0, lowest: Number = 0
    ) -> bool:
        """Record a trial's value at a level, where it then waits unless it is the last, and every level that it jumped over as skipped.

        Args:
            trial_id: The trial; it has joined.
            level: One of `levels`.
            value: What it has reached; NaN where that is not a number.
            cost: What it has cost so far.
            lowest: The level at which it was to be compared first; it has skipped none below.

        Returns:
            False where it has been at this level or a higher one before, and nothing is recorded.
        """
        index, before = self.levels.index(level), self._highest.get(trial_id, -1)
        if index <= before:
            return False
        self._no_longer_wait(trial_id, before)
        for skipped in self._rungs[max(before + 1, bisect_left(self.levels, lowest)) : index]:
            skipped.num_skipped += 1
        self._num_live_at[before + 1] -= 1
        self._num_live_at[index + 1] += 1
        self._highest[trial_id] = index
        self._rungs[index].add(trial_id, value, cost, self._mode)
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

    def place(self, trial_id: str) -> Place:
        """Return how the trial stands on the highest rung it has been at."""
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

    def promotable(self, top: int | None = None) -> Iterator[Place]:
        """Yield the trials that wait and may be promoted now, from the highest rung down, the best of each first.

        Args:
            top: Number of the level above which nobody is promoted; None for the last one.
        """
        for index in reversed(range(len(self.levels) - 1 if top is None else top)):
            num_promotable = self._num_promotable(index)
            for entry in self._rungs[index].waiting[:num_promotable]:
                place = self._place(index, entry, num_promotable)
                if not place.is_promotable:
                    break
                yield place

    def waiting(self) -> Iterator[tuple[Number, str]]:
        """Yield level and name of all trials that wait, from the highest rung down, the best of each first."""
        for level, rung in zip(reversed(self.levels), reversed(self._rungs), strict=True):
            yield from ((level, entry.trial_id) for entry in rung.waiting)

    def hopeless(self, num_future: int) -> Iterator[tuple[Place, int]]:
        """Yield the trials that wait and can never be among the best of their rung, whatever the others will report.

        The best of a rung is never among them, and where cost decides nobody is.

        Args:
            num_future: How many trials may still join.

        Yields:
            The trial's place, and how many values its rung can come to hold at most.
        """
        if self._is_by_cost:
            return
        for index, rung in enumerate(self._rungs):
            num_possible = len(rung.entries) + sum(self._num_live_at[: index + 1]) + num_future
            room = max(1, math.floor(num_possible / self._reduction_factor))
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
        rung = self._rungs[index]
        if self._is_by_cost:
            return rung.num_affordable(self._reduction_factor)
        return math.floor(len(rung.entries) / self._reduction_factor)

    def _place(self, index: int, entry: _Entry, num_promotable: int | None = None) -> Place:
        rung = self._rungs[index]
        room = self._num_promotable(index) if num_promotable is None else num_promotable
        cutoff = rung.ranking[room - 1].value if room else math.nan
        return Place(
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
        return {
            "live": sorted(self._live),
            "waiting": sorted(self._waiting),
            "rungs": [rung.state_dict() for rung in self._rungs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned from rungs with the same levels."""
        for index, (rung, saved) in enumerate(zip(self._rungs, state["rungs"], strict=True)):
            rung.load_state_dict(saved, self._mode)
            self._highest.update(dict.fromkeys(rung.entries, index))
        self._live = set(state["live"])
        for trial_id in self._live:
            self._num_live_at[self._highest.get(trial_id, -1) + 1] += 1
        for trial_id in state["waiting"]:
            self._wait(trial_id, self._highest[trial_id])
