"""Rungs: levels of training at which trials are compared.

A *level* is an amount of training, counted in the scheduler's ``time_attr``. Each level has a
*rung*: the values that trials had when they reached the level. A trial survives a rung while it is
among the best ``1 / reduction_factor`` of the values recorded there.

Four choices that change results are made here:

* **Levels are built by multiplication**, never by a logarithm: ``int(log(1000) / log(10))`` is 2,
  which would lose a rung.
* **The number of survivors is rounded up**: of `n` values, the new one included, the best
  ``ceil(n / reduction_factor)`` survive. So at least one always does, and a short rung is lenient:
  the second best of five survives a factor of 4, as in synchronous halving.
* **Equal values share the better rank.** All values that tie at the cutoff survive, so that a
  coarse metric is not judged by order of arrival.
* **A value that is not a number is worse than every number, and ties with nothing**: it ranks last,
  behind earlier ones of its kind. A trial survives with it only if it is alone on the first rung
  it reaches, where results may not be defined yet; on any later rung it has diverged.
* **A trial that misses a constraint when it is recorded ranks behind all that do not**, but before
  those without a number; see `schedulers.feasible_first` for the order among them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

from schedulers.decisions import Number
from schedulers.metric import strict


def rung_levels(
    grace_period: Number, max_t: Number, reduction_factor: Number
) -> tuple[Number, ...]:
    """Return the levels ``grace_period * reduction_factor**k`` below `max_t`, and `max_t` itself.

    Args:
        grace_period: The lowest level, more than 0 and at most `max_t`.
        max_t: The highest level; always the last one, and exactly so.
        reduction_factor: Ratio of one level to the next, more than 1; only the last step may be
            shorter.

    Example:
        >>> rung_levels(1, 1000, 10)
        (1, 10, 100, 1000)
        >>> rung_levels(1, 100, 4)
        (1, 4, 16, 64, 100)
    """
    levels: list[Number] = []
    level = grace_period
    # A product of floats may miss max_t by a rounding error; this must not add a second rung just
    # below the last one.
    while level < max_t and not math.isclose(level, max_t):
        levels.append(level)
        level *= reduction_factor
    return (*levels, max_t)


def bracket_sizes(levels: Sequence[Number], num_brackets: int) -> tuple[int, ...]:
    """Return how many trials HyperBand starts in each bracket.

    Bracket `b` has its lowest rung at ``levels[b]``.

    A bracket's budget is its size times its number of rungs times its lowest level, so these sizes
    give all about the same budget.

    Args:
        levels: Ascending, the last one being a full training.
        num_brackets: At most the number of levels.

    Example:
        >>> bracket_sizes((1, 3, 9, 27, 81), 5)
        (81, 34, 15, 8, 5)
    """
    num_levels, max_t = len(levels), levels[-1]
    # Algorithm 1 of the HyperBand paper, line 3: n = ceil((s_max + 1) / (s + 1) * eta**s), where
    # s + 1 is the number of rungs and eta**s is max_t over the lowest level.
    return tuple(
        math.ceil(num_levels / (num_levels - b) * (max_t / levels[b])) for b in range(num_brackets)
    )


@dataclass(frozen=True, slots=True)
class RungStanding:
    """How a trial stood on a rung at the moment it was recorded there.

    Attributes:
        level: The rung's level.
        value: The value recorded, NaN for one that is not a number.
        rank: 1 for the best; equal values share the better rank.
        num_recorded: How many values the rung held, this one included.
        num_kept: How many of them survive, not counting ties at the cutoff.
        cutoff: The worst value that survives, NaN where that is not a number.
        is_first: Whether it is the first rung that the trial has come to.
        violation: By how much the trial misses the constraints.
        cutoff_violation: By how much the trial does whose value is `cutoff`.
    """

    level: Number
    value: float
    rank: int
    num_recorded: int
    num_kept: int
    cutoff: float
    is_first: bool = True
    violation: float = 0.0
    cutoff_violation: float = 0.0

    @property
    def survives(self) -> bool:
        """Whether the trial is good enough to continue."""
        return self.rank <= self.num_kept and (self.is_first or not math.isnan(self.value))


class RungLike(Protocol):
    """What `RungSystem` needs of a rung."""

    num_skipped: int

    @property
    def num_recorded(self) -> int:
        """How many trials were recorded on it."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded, as JSON values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


RungT = TypeVar("RungT", bound=RungLike)


class RungSystem(ABC, Generic[RungT]):
    """The rungs of one bracket, and the highest one that each trial has reached.

    A trial climbs: it is recorded at most once per level and never below a level at which it has
    been. So results that are repeated or arrive out of order after a crash change nothing, and a
    trial that reports rarely cannot put a late value on a low rung, where it would be compared with
    younger trials; the rungs that it jumped over count it as skipped for good.

    Args:
        levels: Ascending amounts of training, at least one; see `rung_levels`.
        reduction_factor: One trial in this many survives a rung.

    Attributes:
        levels: As given.
    """

    def __init__(self, levels: Sequence[Number], reduction_factor: Number) -> None:
        self.levels = tuple(levels)
        self._reduction_factor = reduction_factor
        self._rungs = tuple(self._empty_rung() for _ in self.levels)
        self._highest: dict[str, int] = {}

    @abstractmethod
    def _empty_rung(self) -> RungT:
        """Return a new rung."""

    def reached(self, time: Number) -> Number | None:
        """Return the highest level at or below `time`, None below the lowest."""
        index = bisect_right(self.levels, time) - 1
        return self.levels[index] if index >= 0 else None

    def _climb(self, trial_id: str, level: Number, lowest: Number = 0) -> tuple[int, int] | None:
        """Move a trial up to a level, and count it as skipped on the rungs that it jumped over.

        Returns:
            Index of the highest level that it had reached before, -1 for none, and of the new one;
            None if it has been at this level or a higher one.

        Raises:
            ValueError: If there is no such level.
        """
        index = bisect_left(self.levels, level)
        if index == len(self.levels) or self.levels[index] != level:
            raise ValueError(
                f"level must be one of {self.levels}, got {level!r}; reached(time) returns the one "
                "to record at"
            )
        before = self._highest.get(trial_id, -1)
        if index <= before:
            return None
        self._highest[trial_id] = index
        for skipped in self._rungs[max(before + 1, bisect_left(self.levels, lowest)) : index]:
            skipped.num_skipped += 1
        return before, index

    def _num_kept(self, rung: RungT) -> int:
        # Rounded up: at least one survives, and a short rung is lenient.
        return math.ceil(rung.num_recorded / self._reduction_factor)

    def state_dict(self) -> dict[str, Any]:
        """Return everything recorded, as JSON values."""
        return {
            "highest": dict(self._highest),
            "rungs": [rung.state_dict() for rung in self._rungs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned from rungs with the same levels."""
        self._highest = dict(state["highest"])
        for rung, saved in zip(self._rungs, state["rungs"], strict=True):
            rung.load_state_dict(saved)


class _Rung:
    """The values of one rung, best last where they are maximised.

    Those of trials that miss a constraint are apart, behind them.
    """

    __slots__ = ("_sign", "infeasible", "num_invalid", "num_skipped", "values")

    def __init__(self, mode: str) -> None:
        self._sign = 1.0 if mode == "min" else -1.0
        self.values = array("d")
        # Violations and costs, smaller ones being better.
        self.infeasible: list[tuple[float, float]] = []
        self.num_invalid = 0
        self.num_skipped = 0

    @property
    def num_recorded(self) -> int:
        return len(self.values) + len(self.infeasible) + self.num_invalid

    def add(self, value: float, violation: float = 0.0) -> None:
        # NaN compares False with everything and would break the order: such values are counted.
        if math.isnan(value):
            self.num_invalid += 1
        elif violation:
            insort(self.infeasible, (violation, self._sign * value))
        else:
            insort(self.values, value)

    def rank(self, value: float, violation: float = 0.0) -> int:
        if math.isnan(value):
            return self.num_recorded
        if violation:
            place = bisect_left(self.infeasible, (violation, self._sign * value))
            return len(self.values) + place + 1
        if self._sign > 0:
            return bisect_left(self.values, value) + 1
        return len(self.values) - bisect_right(self.values, value) + 1

    def at_rank(self, rank: int) -> tuple[float, float]:
        """Return the value with this rank, NaN where that is not a number, and its violation."""
        place = rank - len(self.values)
        if 1 <= place <= len(self.infeasible):
            violation, cost = self.infeasible[place - 1]
            return self._sign * cost, violation
        if not 1 <= rank <= len(self.values):
            return math.nan, 0.0
        return self.values[rank - 1] if self._sign > 0 else self.values[-rank], 0.0

    def state_dict(self) -> dict[str, Any]:
        values = [strict(value) for value in self.values]
        apart = [[strict(violation), strict(cost)] for violation, cost in self.infeasible]
        return {
            "values": values,
            **({"infeasible": apart} if apart else {}),
            "num_invalid": self.num_invalid,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # float() also reads the infinities, which `strict` has written by name.
        self.values = array("d", map(float, state["values"]))
        self.infeasible = [
            (float(violation), float(cost)) for violation, cost in state.get("infeasible", ())
        ]
        self.num_invalid = int(state["num_invalid"])
        self.num_skipped = int(state["num_skipped"])


@dataclass(frozen=True, slots=True)
class RungSummary:
    """A rung as people want to see it.

    Attributes:
        level: The rung's level.
        num_recorded: How many trials were compared on it.
        num_skipped: How many trials jumped over it by reporting too rarely, and were never compared
            on it.
        cutoff: The worst value that survives now; NaN for an empty rung.
    """

    level: Number
    num_recorded: int
    num_skipped: int
    cutoff: float

    def __str__(self) -> str:
        """Return a summary, e.g. ``level 4: 7 recorded, 0 skipped, cutoff 0.25``."""
        return (
            f"level {self.level:g}: {self.num_recorded} recorded, {self.num_skipped} skipped, "
            f"cutoff {self.cutoff:.6g}"
        )


@final
class Rungs(RungSystem[_Rung]):
    """Rungs on which trials are compared by one metric.

    Recording a trial costs O(log n) comparisons and eight bytes.

    Args:
        levels: Ascending amounts of training, at least one; see `rung_levels`.
        reduction_factor: One trial in this many survives a rung.
        mode: ``"min"`` or ``"max"``: whether smaller or larger values are better.

    Example:
        >>> rungs = Rungs(rung_levels(1, 9, 3), reduction_factor=3, mode="min")
        >>> rungs.record("a", level=1, value=0.5).survives
        True
        >>> standing = rungs.record("b", level=1, value=0.7)
        >>> standing.rank, standing.num_kept, standing.cutoff, standing.survives
        (2, 1, 0.5, False)
    """

    def __init__(self, levels: Sequence[Number], reduction_factor: Number, mode: str) -> None:
        self._mode = mode
        super().__init__(levels, reduction_factor)

    def _empty_rung(self) -> _Rung:
        return _Rung(self._mode)

    def record(
        self,
        trial_id: str,
        level: Number,
        value: float,
        lowest: Number = 0,
        violation: float = 0.0,
    ) -> RungStanding | None:
        """Record a trial's value at a level; count levels that it jumped over as skipped.

        Args:
            trial_id: The trial.
            level: One of `levels`.
            value: What it has reached; NaN where that is not a number.
            lowest: The level at which it was to be compared first; it has skipped none below.
            violation: By how much it misses the constraints.

        Returns:
            How it stands among all that were recorded there so far; None where it has been at this
            level or a higher one before, and nothing is recorded.

        Raises:
            ValueError: If there is no such level.
        """
        climbed = self._climb(trial_id, level, lowest)
        if climbed is None:
            return None
        before, index = climbed
        rung = self._rungs[index]
        # Recorded before it is ranked: a trial is compared with its own value, too.
        rung.add(value, violation)
        num_kept = self._num_kept(rung)
        cutoff, cutoff_violation = rung.at_rank(num_kept)
        return RungStanding(
            level=self.levels[index],
            value=value,
            rank=rung.rank(value, violation),
            num_recorded=rung.num_recorded,
            num_kept=num_kept,
            cutoff=cutoff,
            is_first=before < 0,
            violation=violation,
            cutoff_violation=cutoff_violation,
        )

    def __iter__(self) -> Iterator[RungSummary]:
        """Yield a summary of each rung, lowest first."""
        for level, rung in zip(self.levels, self._rungs, strict=True):
            cutoff, _ = rung.at_rank(self._num_kept(rung))
            yield RungSummary(level, rung.num_recorded, rung.num_skipped, cutoff)
