"""Rungs at which trials wait until they are promoted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from schedulers.decisions import Number
from schedulers.metric import strict, violation_number
from searchers.objectives import Point

from .rungs import RungSummary, RungSystem


@dataclass(frozen=True, slots=True)
class PromotionStanding:
    """Current rank of a trial on a rung.

    Attributes:
        trial_id: The trial.
        level: The rung's level.
        rank: 1 for the best; no two trials share a rank.
        num_recorded: How many trials the rung holds, this one included.
        num_promotable: How many of the best may be promoted.
        is_number: Whether what it has reached is a number; else it is never promoted.
        is_feasible: Whether it keeps all constraints.
        reached: What it has reached and is compared with, as numbers of a reason.
    """

    trial_id: str
    level: Number
    rank: int
    num_recorded: int
    num_promotable: int
    is_number: bool = True
    is_feasible: bool = True
    reached: Mapping[str, Number | str] = field(default_factory=dict)

    @property
    def is_promotable(self) -> bool:
        """Whether the trial is good enough to be promoted."""
        return self.rank <= self.num_promotable and self.is_number

    @property
    def numbers(self) -> dict[str, Number | str]:
        """The same as numbers of a reason."""
        return {
            "rung": self.level,
            **self.reached,
            "rank": self.rank,
            "num_recorded": self.num_recorded,
            "num_promotable": self.num_promotable,
        }


class PromotionRung(ABC):
    """The trials of one rung, ranked by what they had reached when they came there.

    No two trials have one rank. Those that wait for a promotion are marked.

    Attributes:
        promoted: The trials that have been promoted.
        num_skipped: How many trials jumped over the rung.
    """

    def __init__(self) -> None:
        self.promoted: set[str] = set()
        self.num_skipped = 0

    @property
    @abstractmethod
    def trial_ids(self) -> Sequence[str]:
        """The trials in the order in which they were recorded."""

    @property
    @abstractmethod
    def num_recorded(self) -> int:
        """How many trials were recorded."""

    @abstractmethod
    def add(self, trial_id: str, reached: Point, violation: float) -> None:
        """Record a trial.

        Args:
            trial_id: The trial.
            reached: Its metrics, NaN where one is not a finite number.
            violation: By how much it misses the constraints.
        """

    @abstractmethod
    def rank(self, trial_id: str) -> int:
        """Return the trial's current rank, 1 for the best."""

    @abstractmethod
    def place(self, trial_id: str, level: Number, num_promotable: int) -> PromotionStanding:
        """Return how a trial stands now."""

    @abstractmethod
    def wait(self, trial_id: str) -> None:
        """Mark a trial as one that waits."""

    @abstractmethod
    def leave(self, trial_id: str) -> None:
        """Remove this mark."""

    @abstractmethod
    def waiting(self) -> Iterable[str]:
        """Return the trials that wait, the best first."""

    @abstractmethod
    def hopeless(self, room: int) -> Iterable[str]:
        """Return trials that wait and will never be among the best, whatever others report.

        Args:
            room: How many trials are among the best, at least 1.
        """

    @abstractmethod
    def summary(self, level: Number, num_promotable: int) -> object:
        """Return what `debug_string` shows of it."""

    @abstractmethod
    def _recorded_state(self) -> dict[str, Any]:
        """Return what was recorded, as JSON values."""

    @abstractmethod
    def _load_recorded(self, state: Mapping[str, Any]) -> None:
        """Restore what `_recorded_state` returned."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded, as JSON values."""
        return {
            **self._recorded_state(),
            "promoted": sorted(self.promoted),
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned; no trial waits."""
        self._load_recorded(state)
        self.promoted = set(state["promoted"])
        self.num_skipped = int(state["num_skipped"])


class _Entry(NamedTuple):
    """What a trial left on a rung; sorts from best to worst."""

    is_invalid: bool
    violation: float
    cost: float
    order: int
    trial_id: str
    value: float


@final
class ValueRung(PromotionRung):
    """A rung on which trials are ranked by one metric.

    Finding a rank costs O(log n) comparisons.

    Args:
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.

    Example:
        >>> rung = ValueRung("max")
        >>> for trial_id, accuracy, violation in [("a", 0.9, 0.5), ("b", 0.7, 0), ("c", 0.8, 0)]:
        ...     rung.add(trial_id, (accuracy,), violation)
        >>> [rung.rank(trial_id) for trial_id in ("a", "b", "c")]
        [3, 2, 1]
    """

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._mode = mode
        self._entries: dict[str, _Entry] = {}
        # Both sorted: a rank is found by bisection, and the best that wait come first.
        self._ranking: list[_Entry] = []
        self._waiting: list[_Entry] = []

    @property
    def trial_ids(self) -> Sequence[str]:
        """The trials in the order in which they were recorded."""
        return list(self._entries)

    @property
    def num_recorded(self) -> int:
        """How many trials were recorded."""
        return len(self._entries)

    def add(self, trial_id: str, reached: Point, violation: float) -> None:
        """Record a trial with its value."""
        (value,) = reached
        is_invalid = math.isnan(value)
        cost = 0.0 if is_invalid else value if self._mode == "min" else -value
        order = len(self._entries)
        entry = _Entry(is_invalid, 0.0 if is_invalid else violation, cost, order, trial_id, value)
        self._entries[trial_id] = entry
        insort(self._ranking, entry)

    def rank(self, trial_id: str) -> int:
        """Return the trial's current rank, 1 for the best."""
        return bisect_left(self._ranking, self._entries[trial_id]) + 1

    def place(self, trial_id: str, level: Number, num_promotable: int) -> PromotionStanding:
        """Return how a trial stands now."""
        entry = self._entries[trial_id]
        worst = self._ranking[num_promotable - 1] if num_promotable else None
        return PromotionStanding(
            trial_id,
            level,
            self.rank(trial_id),
            self.num_recorded,
            num_promotable,
            is_number=not entry.is_invalid,
            is_feasible=not entry.violation,
            reached={
                "value": strict(entry.value),
                **violation_number(entry.violation),
                "cutoff": strict(worst.value if worst else math.nan),
                **violation_number(worst.violation if worst else 0.0, "cutoff_violation"),
            },
        )

    def wait(self, trial_id: str) -> None:
        """Mark a trial as one that waits."""
        insort(self._waiting, self._entries[trial_id])

    def leave(self, trial_id: str) -> None:
        """Remove this mark."""
        del self._waiting[bisect_left(self._waiting, self._entries[trial_id])]

    def waiting(self) -> Iterable[str]:
        """Return the trials that wait, the best first."""
        return (entry.trial_id for entry in self._waiting)

    def hopeless(self, room: int) -> Iterable[str]:
        """Return trials that wait and will never be among the best, whatever others report."""
        # A rank never gets better, so that a trial without a chance never gets one; and if one has
        # a chance, so have all that are better.
        for entry in reversed(self._waiting):
            if self.rank(entry.trial_id) <= room:
                break
            yield entry.trial_id

    def values(self) -> dict[str, float]:
        """Return all values by trial, the best first; NaN for a trial that misses a constraint."""
        return {
            entry.trial_id: math.nan if entry.violation else entry.value for entry in self._ranking
        }

    def summary(self, level: Number, num_promotable: int) -> RungSummary:
        """Return a summary with the worst value that may be promoted."""
        cutoff = self._ranking[num_promotable - 1].value if num_promotable else math.nan
        return RungSummary(level, self.num_recorded, self.num_skipped, cutoff)

    def _recorded_state(self) -> dict[str, Any]:
        recorded = [
            [entry.trial_id, strict(entry.value)]
            + ([strict(entry.violation)] if entry.violation else [])
            for entry in self._entries.values()
        ]
        return {"recorded": recorded}

    def _load_recorded(self, state: Mapping[str, Any]) -> None:
        for trial_id, value, *violation in state["recorded"]:
            self.add(trial_id, (float(value),), float(violation[0]) if violation else 0.0)


@final
class PromotionRungs(RungSystem[PromotionRung]):
    """Rungs at which trials wait until they are promoted.

    A trial joins the bracket, waits at each level that it reaches until it is promoted, and leaves
    when it is over. What it has recorded stays.

    Args:
        levels: Ascending amounts of training, at least one; see `rungs.rung_levels`.
        reduction_factor: One trial in this many is promoted from a rung.
        make_rung: Makes an empty rung, whose kind decides which trials are better.

    Example:
        >>> rungs = PromotionRungs((1, 3, 9), 3, lambda: ValueRung("min"))
        >>> for trial_id, value in (("a", 0.5), ("b", 0.7), ("c", 0.4)):
        ...     rungs.join(trial_id)
        ...     _ = rungs.record(trial_id, level=1, reached=(value,))
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
        make_rung: Callable[[], PromotionRung],
    ) -> None:
        self._make_rung = make_rung
        super().__init__(levels, reduction_factor)
        self._live: set[str] = set()
        self._waiting: set[str] = set()
        # Number of live trials by highest level reached; first, those that have reached none.
        self._num_live_at = [0] * (len(self.levels) + 1)

    def _empty_rung(self) -> PromotionRung:
        return self._make_rung()

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

    def record(
        self,
        trial_id: str,
        level: Number,
        reached: Point,
        lowest: Number = 0,
        violation: float = 0.0,
    ) -> bool:
        """Record what a trial has reached at a level, where it then waits unless it is the last.

        Levels that it jumped over are counted as skipped.

        Args:
            trial_id: The trial; it has joined.
            level: One of `levels`.
            reached: Its metrics, NaN where one is not a finite number.
            lowest: The level at which it was to be compared first; it has skipped none below.
            violation: By how much it misses the constraints.

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
        self._rungs[index].add(trial_id, reached, violation)
        self._wait(trial_id, index)
        return True

    def _wait(self, trial_id: str, index: int) -> None:
        # Above the last level there is nothing to wait for.
        if index < len(self.levels) - 1:
            self._waiting.add(trial_id)
            self._rungs[index].wait(trial_id)

    def _no_longer_wait(self, trial_id: str, index: int) -> None:
        if trial_id in self._waiting:
            self._waiting.remove(trial_id)
            self._rungs[index].leave(trial_id)

    def has_place(self, trial_id: str) -> bool:
        """Return whether the trial has been at any level."""
        return trial_id in self._highest

    def place(self, trial_id: str) -> PromotionStanding:
        """Return the trial's current rank on the highest rung it has reached."""
        return self._place(self._highest[trial_id], trial_id)

    def is_waiting(self, trial_id: str) -> bool:
        """Return whether the trial waits for a promotion."""
        return trial_id in self._waiting

    @property
    def names_waiting(self) -> AbstractSet[str]:
        """All trials that wait for a promotion; not to be modified."""
        return self._waiting

    def is_reached(self, index: int) -> bool:
        """Return whether any trial has been recorded at the level with this number."""
        return bool(self._rungs[index].num_recorded)

    def promotable(self, top: int | None = None) -> Iterator[PromotionStanding]:
        """Yield the waiting trials that may be promoted, highest rung and best first.

        Args:
            top: Index of the level above which no trial is promoted; None for the last one.
        """
        for index in reversed(range(len(self.levels) - 1 if top is None else top)):
            if not self._num_promotable(index):
                continue
            for trial_id in self._rungs[index].waiting():
                place = self._place(index, trial_id)
                if not place.is_promotable:
                    break
                yield place

    def waiting(self) -> Iterator[tuple[Number, str]]:
        """Yield level and id of all waiting trials, highest rung and best first."""
        for level, rung in zip(reversed(self.levels), reversed(self._rungs), strict=True):
            yield from ((level, trial_id) for trial_id in rung.waiting())

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
            num_possible = rung.num_recorded + sum(self._num_live_at[: index + 1]) + num_future
            room = max(1, math.floor(num_possible / self._reduction_factor))
            for trial_id in rung.hopeless(room):
                yield self._place(index, trial_id), num_possible

    def promote(self, trial_id: str) -> None:
        """Send a trial that waits on its way to the next level."""
        index = self._highest[trial_id]
        self._no_longer_wait(trial_id, index)
        self._rungs[index].promoted.add(trial_id)

    def rung_at(self, index: int) -> PromotionRung:
        """Return the rung of the level with this number."""
        return self._rungs[index]

    def _num_promotable(self, index: int) -> int:
        return math.floor(self._rungs[index].num_recorded / self._reduction_factor)

    def _place(self, index: int, trial_id: str) -> PromotionStanding:
        return self._rungs[index].place(trial_id, self.levels[index], self._num_promotable(index))

    def __iter__(self) -> Iterator[object]:
        """Yield a summary of each rung, lowest first."""
        for index, (level, rung) in enumerate(zip(self.levels, self._rungs, strict=True)):
            yield rung.summary(level, self._num_promotable(index))

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
            self._highest.update(dict.fromkeys(rung.trial_ids, index))
        self._live = set(state["live"])
        for trial_id in self._live:
            self._num_live_at[self._highest.get(trial_id, -1) + 1] += 1
        for trial_id in state["waiting"]:
            self._wait(trial_id, self._highest[trial_id])
