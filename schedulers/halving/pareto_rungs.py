"""Rungs on which trials are compared by several metrics, in the order that `fronts` describes.

A trial with a metric that is no finite number ranks behind all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from schedulers.decisions import Number
from schedulers.metric import strict, violation_number
from searchers.objectives import Point

from .fronts import Fronts
from .promotion_rungs import PromotionRung, PromotionStanding
from .rungs import RungSystem

Objectives = Sequence[tuple[str, str]]
"""Metric and mode of each objective."""


def minimised_sign(mode: str) -> float:
    """Return the factor that makes smaller values of a metric better."""
    return 1.0 if mode == "min" else -1.0


def metrics_of(values: Point, objectives: Objectives) -> dict[str, Number | str]:
    """Return the metrics of a trial as numbers of a reason.

    Args:
        values: What it has reached, less being better; empty where a metric is no finite number.
        objectives: Metric and mode of each.

    Example:
        >>> metrics_of((-0.9, 5.0), [("accuracy", "max"), ("latency", "min")])
        {'accuracy': 0.9, 'latency': 5.0}
    """
    signed = values or (math.nan,) * len(objectives)
    return {
        metric: strict(minimised_sign(mode) * value)
        for (metric, mode), value in zip(objectives, signed, strict=True)
    }


@dataclass(frozen=True, slots=True)
class FrontStanding:
    """How a trial stood on a rung at the moment it was recorded there.

    Attributes:
        level: The rung's level.
        values: What it has reached; empty where a metric was not a finite number.
        front: Number of its front; 1 for the trials that no other beats. The last one for what was
            not a finite number.
        num_better: Number of trials in better fronts.
        num_recorded: How many trials the rung held, this one included.
        num_kept: How many of them survive.
        position: Place in its front's epsilon net, from 1; at most one more than there was room
            for, and 1 where room decided alone.
        is_first: Whether it is the first rung that the trial has come to.
        violation: By how much it misses the constraints.
    """

    level: Number
    values: Point
    front: int
    num_better: int
    num_recorded: int
    num_kept: int
    position: int
    is_first: bool = True
    violation: float = 0.0

    @property
    def survives(self) -> bool:
        """Whether the trial is good enough to continue."""
        return self.num_better + self.position <= self.num_kept and (
            self.is_first or bool(self.values)
        )


@dataclass(frozen=True, slots=True)
class FrontSummary:
    """A rung as people want to see it.

    Attributes:
        level: The rung's level.
        num_recorded: How many trials were compared on it.
        num_skipped: How many trials jumped over it by reporting too rarely.
        num_best: How many trials no other beats.
    """

    level: Number
    num_recorded: int
    num_skipped: int
    num_best: int

    def __str__(self) -> str:
        """Return a summary, e.g. ``level 4: 7 recorded, 0 skipped, 2 not dominated``."""
        return (
            f"level {self.level:g}: {self.num_recorded} recorded, {self.num_skipped} skipped, "
            f"{self.num_best} not dominated"
        )


class _Rung:
    """The points of one rung, sorted into fronts as they come."""

    __slots__ = ("fronts", "num_invalid", "num_skipped")

    def __init__(self) -> None:
        self.fronts = Fronts()
        self.num_invalid = 0
        self.num_skipped = 0

    @property
    def num_recorded(self) -> int:
        return len(self.fronts.points) + self.num_invalid

    def position(self, front: int, room: int) -> int:
        """Return the last point's position in its front's epsilon net; 1 if all or none fit."""
        # Where the whole front survives, or nothing of it, the order within it does not matter.
        if room <= 0 or room >= len(self.fronts.fronts[front]):
            return 1
        own = len(self.fronts.points) - 1
        return min(self.fronts.net(front).index(own), room) + 1

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.fronts.state_dict(),
            "num_invalid": self.num_invalid,
            "num_skipped": self.num_skipped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.fronts.load_state_dict(state)
        self.num_invalid = int(state["num_invalid"])
        self.num_skipped = int(state["num_skipped"])


@final
class ParetoRungs(RungSystem[_Rung]):
    """Rungs on which trials that are not among the best are stopped.

    Args:
        levels: Ascending amounts of training, at least one.
        reduction_factor: One trial in this many survives a rung.

    Example:
        >>> rungs = ParetoRungs((1, 3), reduction_factor=2)
        >>> rungs.record("a", level=1, values=(1.0, 2.0)).survives
        True
        >>> standing = rungs.record("b", level=1, values=(2.0, 3.0))
        >>> standing.front, standing.num_better, standing.num_kept, standing.survives
        (2, 1, 1, False)
    """

    def _empty_rung(self) -> _Rung:
        return _Rung()

    def record(
        self,
        trial_id: str,
        level: Number,
        values: Point,
        lowest: Number = 0,
        violation: float = 0.0,
    ) -> FrontStanding | None:
        """Record a trial at a level, and every level below that it has not been at as skipped.

        Args:
            trial_id: The trial.
            level: One of `levels`.
            values: What it has reached, less being better; one that is not a finite number makes
                the trial worse than all others.
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
        rung, is_first = self._rungs[index], before < 0
        if not all(map(math.isfinite, values)):
            rung.num_invalid += 1
            return FrontStanding(
                level=self.levels[index],
                values=(),
                front=len(rung.fronts.fronts) + 1,
                num_better=rung.num_recorded - 1,
                num_recorded=rung.num_recorded,
                num_kept=self._num_kept(rung),
                position=1,
                is_first=is_first,
                violation=violation,
            )
        front = rung.fronts.add(values, violation)
        num_better, num_kept = rung.fronts.num_better(front), self._num_kept(rung)
        return FrontStanding(
            level=self.levels[index],
            values=values,
            front=front + 1,
            num_better=num_better,
            num_recorded=rung.num_recorded,
            num_kept=num_kept,
            position=rung.position(front, num_kept - num_better),
            is_first=is_first,
            violation=violation,
        )

    def __iter__(self) -> Iterator[FrontSummary]:
        """Yield a summary of each rung, lowest first."""
        for level, rung in zip(self.levels, self._rungs, strict=True):
            num_best = len(rung.fronts.fronts[0]) if rung.fronts.fronts else 0
            yield FrontSummary(level, rung.num_recorded, rung.num_skipped, num_best)


@final
class FrontRung(PromotionRung):
    """A rung on which trials wait, ranked by several metrics.

    The order within a front changes as trials come; who may be promoted follows from the latest
    one.

    Args:
        objectives: Metric and mode of each; what is recorded is minimised.

    Example:
        >>> rung = FrontRung([("accuracy", "max"), ("latency", "min")])
        >>> for trial_id, reached in [("a", (-0.9, 9.0)), ("b", (-0.8, 9.5)), ("c", (-0.7, 1.0))]:
        ...     rung.add(trial_id, reached, 0.0)
        >>> [rung.rank(trial_id) for trial_id in ("a", "b", "c")]
        [1, 3, 2]
    """

    def __init__(self, objectives: Objectives) -> None:
        super().__init__()
        self._objectives = objectives
        self._fronts = Fronts()
        # By trial, in the order in which they were recorded: the number of its point. Those without
        # one, whose order is that of their arrival.
        self._numbers: dict[str, int] = {}
        self._invalid: dict[str, float] = {}
        self._order: list[str] = []
        # By how many others each of them is beaten.
        self._num_beaten_by: list[int] = []
        self._waiting: set[str] = set()

    @property
    def trial_ids(self) -> Sequence[str]:
        """The trials, those whose metrics are numbers first."""
        return [*self._numbers, *self._invalid]

    @property
    def num_recorded(self) -> int:
        """How many trials were recorded."""
        return len(self._numbers) + len(self._invalid)

    def add(self, trial_id: str, reached: Point, violation: float) -> None:
        """Record a trial with its metrics, which are minimised."""
        if all(map(math.isfinite, reached)):
            self._numbers[trial_id] = len(self._order)
            self._order.append(trial_id)
            self._fronts.add(reached, violation)
            self._count_beaten(self._numbers[trial_id])
        else:
            self._invalid[trial_id] = violation

    def _count_beaten(self, new: int) -> None:
        num_better = 0
        for other in range(new):
            if self._fronts.beats(other, new):
                num_better += 1
            elif self._fronts.beats(new, other):
                self._num_beaten_by[other] += 1
        self._num_beaten_by.append(num_better)

    def rank(self, trial_id: str) -> int:
        """Return the trial's current rank, 1 for the best."""
        front, position = self._position(trial_id)
        return self._fronts.num_better(front) + position

    def _position(self, trial_id: str) -> tuple[int, int]:
        """Return the index of its front and its position there, from 1."""
        if trial_id in self._invalid:
            return len(self._fronts.fronts), list(self._invalid).index(trial_id) + 1
        number = self._numbers[trial_id]
        front = self._fronts.front_of(number)
        return front, self._fronts.net(front).index(number) + 1

    def place(self, trial_id: str, level: Number, num_promotable: int) -> PromotionStanding:
        """Return how a trial stands now."""
        front, position = self._position(trial_id)
        is_number = trial_id in self._numbers
        number = self._numbers.get(trial_id, 0)
        values = self._fronts.points[number] if is_number else ()
        violation = self._fronts.violations[number] if is_number else self._invalid[trial_id]
        num_better = self._fronts.num_better(front)
        return PromotionStanding(
            trial_id,
            level,
            num_better + position,
            self.num_recorded,
            num_promotable,
            is_number=is_number,
            is_feasible=not violation,
            reached={
                **metrics_of(values, self._objectives),
                **violation_number(violation),
                "front": front + 1,
                "num_better": num_better,
                "position": position,
            },
        )

    def wait(self, trial_id: str) -> None:
        """Mark a trial as one that waits."""
        self._waiting.add(trial_id)

    def leave(self, trial_id: str) -> None:
        """Remove this mark."""
        self._waiting.remove(trial_id)

    def waiting(self) -> Iterable[str]:
        """Return the trials that wait, the best first."""
        ranked = (self._order[number] for number in self._fronts.ranked())
        return [trial_id for trial_id in (*ranked, *self._invalid) if trial_id in self._waiting]

    def hopeless(self, room: int) -> Iterable[str]:
        """Return trials that wait and will never be among the best, whatever others report."""
        # Unlike a rank, the number of trials that beat one never falls, and all of them come first.
        nums_before = (
            *self._num_beaten_by,
            *range(len(self._numbers), self.num_recorded),
        )
        for trial_id, num_before in zip(self.trial_ids, nums_before, strict=True):
            if trial_id in self._waiting and num_before >= room:
                yield trial_id

    def summary(self, level: Number, num_promotable: int) -> FrontSummary:
        """Return a summary with the number of trials that no other beats."""
        num_best = len(self._fronts.fronts[0]) if self._fronts.fronts else 0
        return FrontSummary(level, self.num_recorded, self.num_skipped, num_best)

    def _recorded_state(self) -> dict[str, Any]:
        return {
            **self._fronts.state_dict(),
            "trials": list(self._order),
            "invalid": [
                [trial_id, strict(violation)] for trial_id, violation in self._invalid.items()
            ],
        }

    def _load_recorded(self, state: Mapping[str, Any]) -> None:
        points = state["points"]
        violations = state.get("violations", [0.0] * len(points))
        for trial_id, point, violation in zip(state["trials"], points, violations, strict=True):
            self.add(trial_id, tuple(point), float(violation))
        self._invalid = {trial_id: float(violation) for trial_id, violation in state["invalid"]}
