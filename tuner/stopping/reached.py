"""What the trials of a search have reached: the best value of one metric, or a front of several."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final, Protocol, final

import numpy as np

from searchers.objectives import Point, hypervolume, pareto_front

from .expected_gain import Array

# Chosen by measurement, on the development problems of benchmarks/quality.
_SHARE_OF_DISTANCE: Final = 0.005
"""Part of what the search has gained so far in a metric that a further gain has to reach."""
_SHARE_OF_EARLY_DISTANCE: Final = 0.002
"""The same part of the distance from the newest values of the first trials, which are worse than
their last ones where a scheduler has stopped most of these trials early."""
_SHARE_OF_VOLUME: Final = 0.03
"""Part of the hypervolume that it has to reach, which still grows when a front is merely filled."""
NUM_TYPICAL: Final = 20
"""The search has gained the distance of the best trial from the median of so many first ones: later
ones come closer to the best, if a model proposes them."""
_NUM_DIRECTIONS: Final = 64
_MARGIN: Final = 0.1
"""Share of the range by which the reference point lies beyond the worst values, so that the ends of
a front count."""
_MOST: Final = 0.9
"""Share of the trials by which the ends of a front are judged: one that has diverged, and is the
smallest, must not stretch the scale for all others."""


class Reached(Protocol):
    """What trials have reached."""

    @property
    def worth(self) -> float:
        """The least gain that is worth further trials."""

    @property
    def costs(self) -> Array:
        """A row for each trial and columns for `expected_gain`."""

    def gain_of_last(self, num_last: int) -> float:
        """Return what the last trials have gained, at least 0."""


def reached_by(points: Sequence[Point | None], first: Sequence[Point] = ()) -> Reached:
    """Return what trials have reached, at least one of which counts.

    Args:
        points: The values of each trial, in the order in which they ended; smaller is better. None
            for one that does not count.
        first: The newest values of the first trials, however long these were trained.
    """
    known = next(point for point in points if point is not None)
    return _BestValue(points, first) if len(known) == 1 else ReachedFront(points)


@final
class _BestValue:
    """The best value of one metric, in its own unit; trials without one count like the worst."""

    def __init__(self, points: Sequence[Point | None], first: Sequence[Point]) -> None:
        known = [point[0] for point in points if point is not None]
        self._values = [math.inf if point is None else point[0] for point in points]
        self._worst, self._best = max(known), min(known)
        # Beside a scheduler that stops trials early, those with a value are good ones: they alone
        # would say that the search has gained little, and every gain would be worth further trials.
        typical = statistics.median(known[:NUM_TYPICAL])
        early = statistics.median(value for (value,) in first) if first else typical
        self.worth = max(
            _SHARE_OF_DISTANCE * (typical - self._best),
            _SHARE_OF_EARLY_DISTANCE * (early - self._best),
        )

    @property
    def costs(self) -> Array:
        return np.array([[min(value, self._worst)] for value in self._values])

    def gain_of_last(self, num_last: int) -> float:
        return min(self._values[:-num_last]) - self._best


@final
class ReachedFront:
    """The hypervolume of a front, in parts of what it is by now.

    It is measured from a point that is somewhat worse than the worst values of the front, or than
    nine tenths of all trials where the front's are worse than that, and at least as bad as the
    median of the first 20. A metric in which these are no worse than the best value does not count.

    Args:
        points: See `reached_by`.

    Example:
        >>> front = ReachedFront([(4.0, 4.0), (1.0, 3.0), None, (3.0, 1.0), (2.0, 2.0)])
        >>> round(front.gain_of_last(1), 3), front.gain_of_last(3) > front.gain_of_last(1)
        (0.543, True)

    Reference:
        Zhang, Golovin. Random Hypervolume Scalarizations for Provable Multi-Objective Black Box
        Optimization. ICML 2020, arXiv 2006.04655 (equation 1: a hypervolume is the mean, over
        directions, of the best of a number that each point has in a direction).

    Departures:
        The directions are a fixed sequence that fills all of them evenly, instead of random ones.
    """

    def __init__(self, points: Sequence[Point | None]) -> None:
        known = np.array([point for point in points if point is not None], dtype=float)
        best, reference = known.min(axis=0), _reference(known)
        counts = reference > best
        # As parts of the distance between reference and best values: from -1, and 0 adds nothing.
        scaled = (known - reference)[:, counts] / (reference - best)[counts]
        rows = iter(map(tuple, scaled.tolist()))
        self._scaled: list[Point | None] = [point and next(rows) for point in points]
        self._volume = self._volume_of(self._scaled)
        self.worth = _SHARE_OF_VOLUME

    @property
    def costs(self) -> Array:
        size = len(next(point for point in self._scaled if point is not None))
        if not size:
            return np.zeros((len(self._scaled), 1))
        origin = (0.0,) * size
        depths = -np.array([point or origin for point in self._scaled])
        lengths = (depths[:, None, :] / _directions(size)).min(axis=2).clip(min=0.0)
        volumes = lengths**size
        return np.asarray(-volumes / (volumes.max(axis=0).mean() or 1.0))

    def gain_of_last(self, num_last: int) -> float:
        if not any(self._scaled):  # no metric differs
            return 0.0
        if not self._volume:
            return math.inf  # no trial is better than the reference in all metrics
        num_before = len(self._scaled) - num_last
        return 1.0 - self.part_of([number < num_before for number in range(len(self._scaled))])

    def part_of(self, is_chosen: Sequence[bool]) -> float:
        """Return the hypervolume of some of the trials; 1 where nothing can be gained."""
        if not self._volume:
            return 1.0
        chosen = zip(self._scaled, is_chosen, strict=True)
        return self._volume_of([point for point, is_one in chosen if is_one]) / self._volume

    def _volume_of(self, scaled: Sequence[Point | None]) -> float:
        known = [point for point in scaled if point]
        return hypervolume(known, (0.0,) * len(known[0])) if known else 0.0


def _reference(known: Array) -> Array:
    front = known[pareto_front(known.tolist(), ["min"] * known.shape[1])]
    worst = np.minimum(front.max(axis=0), np.quantile(known, _MOST, axis=0))
    worst = np.maximum(worst, np.median(known[:NUM_TYPICAL], axis=0))
    return np.asarray(worst + _MARGIN * (worst - known.min(axis=0)))


def _directions(size: int) -> Array:
    """Return directions that fill those in which no coordinate is negative, of length 1.

    Reference:
        Roberts. The Unreasonable Effectiveness of Quasirandom Sequences. 2018 (the sequence).
    """
    root = 2.0
    for _ in range(50):
        root = (1 + root) ** (1 / (size + 1))
    places = np.outer(np.arange(1, _NUM_DIRECTIONS + 1), root ** -np.arange(1.0, size + 1)) + 0.5
    # Normally distributed coordinates prefer no direction.
    quantile = statistics.NormalDist().inv_cdf
    found = np.array([[quantile(0.5 + place / 2) for place in row] for row in places % 1.0])
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))
