"""Fronts: an order of trials in several metrics, those that keep all constraints first.

A trial *beats* another one if it misses the constraints by less, or by as much and dominates it.
The first front are the trials that no other beats, the second those that only the first beat, and
so on. Within a front, trials are in the order of an epsilon net.

Reference:
    Deb, Pratap, Agarwal, Meyarivan. A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II.
    IEEE Transactions on Evolutionary Computation 6(2), 2002, section VI: constrained domination.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from schedulers.metric import strict
from searchers.objectives import Point, dominates

MAX_SPREAD: Final = 100
"""So many points of a front are chosen by their distances; then a front is spread out enough."""


def epsilon_net(points: Sequence[Point]) -> Iterator[int]:
    """Yield the indices of the points, each next one farthest from all before it.

    It begins with the point that is best in the first metric. Each metric is scaled to its range
    first. Among equals the earlier comes first. After `MAX_SPREAD` points the others follow by
    their distance from these.

    Args:
        points: At least one.

    Example:
        >>> list(epsilon_net([(0, 9), (1, 8), (5, 5), (9, 0)]))
        [0, 3, 2, 1]

    Reference:
        Clarkson. Nearest-Neighbor Searching and Metric Space Dimensions. 2006, section 3; as the
        tie-breaking of MOASHA.
    """
    # A metric in which all points are equal has no range; it adds nothing to any distance.
    ranges = [
        (min(column), (max(column) - min(column)) or 1.0) for column in zip(*points, strict=True)
    ]
    scaled = [
        tuple((x - low) / width for x, (low, width) in zip(point, ranges, strict=True))
        for point in points
    ]
    chosen = min(range(len(points)), key=lambda number: points[number][0])
    # Of each point that is left, the distance to the nearest chosen one; updated, not computed
    # anew, so that the net takes O(n) distances for each point.
    distances = dict.fromkeys(range(len(points)), math.inf)
    for _ in range(MAX_SPREAD):
        yield chosen
        del distances[chosen]
        if not distances:
            return
        for number, distance in distances.items():
            distances[number] = min(distance, math.dist(scaled[number], scaled[chosen]))
        chosen = max(distances, key=distances.__getitem__)
    yield from sorted(distances, key=lambda number: -distances[number])


@final
class Fronts:
    """Points sorted into fronts as they come.

    Adding one costs O(n) comparisons with those there, and more only for those that change their
    front.

    Attributes:
        points: What was added, in that order; less is better.
        violations: By how much each misses the constraints.
        fronts: Numbers of the points of each front, the best front first.

    Example:
        >>> fronts = Fronts()
        >>> for point, violation in [((1.0, 2.0), 0.0), ((0.0, 0.0), 0.5), ((2.0, 1.0), 0.0)]:
        ...     _ = fronts.add(point, violation)
        >>> fronts.fronts, fronts.beats(0, 1)
        ([[0, 2], [1]], True)
    """

    __slots__ = ("_front_of", "_nets", "fronts", "points", "violations")

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.violations: list[float] = []
        self.fronts: list[list[int]] = []
        self._front_of: list[int] = []
        # By number of the front, for as long as the front stays as it is.
        self._nets: dict[int, list[int]] = {}

    def add(self, point: Point, violation: float = 0.0) -> int:
        """Insert a point, move those that it beats down, and return the index of its front."""
        new = len(self.points)
        self.points.append(point)
        self.violations.append(violation)
        self._front_of.append(0)
        place = number = self._front_for(new)
        moving = [new]
        # Points that are pushed down move to the next front; of its points, only those that an
        # arrival beats have to move on.
        while moving:
            if number == len(self.fronts):
                self.fronts.append([])
            staying, pushed = self._split(self.fronts[number], moving)
            self.fronts[number] = sorted(staying + moving)
            self._nets.pop(number, None)
            for each in moving:
                self._front_of[each] = number
            moving, number = pushed, number + 1
        return place

    def beats(self, one: int, other: int) -> bool:
        """Return whether a point is better than another one, whatever others there are."""
        mine, theirs = self.violations[one], self.violations[other]
        if mine != theirs:
            return mine < theirs
        return dominates(self.points[one], self.points[other])

    def _front_for(self, new: int) -> int:
        # A point beaten by one of a front is beaten by one of each better front, too; so it belongs
        # to the first front of which none beats it.
        low, high = 0, len(self.fronts)
        while low < high:
            middle = (low + high) // 2
            if any(self.beats(number, new) for number in self.fronts[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def _split(self, front: Sequence[int], arrivals: Sequence[int]) -> tuple[list[int], list[int]]:
        staying: list[int] = []
        pushed: list[int] = []
        for number in front:
            is_beaten = any(self.beats(arrival, number) for arrival in arrivals)
            (pushed if is_beaten else staying).append(number)
        return staying, pushed

    def front_of(self, number: int) -> int:
        """Return the index of the front of a point."""
        return self._front_of[number]

    def num_better(self, front: int) -> int:
        """Return how many points are in better fronts."""
        return sum(map(len, self.fronts[:front]))

    def net(self, front: int) -> Sequence[int]:
        """Return the points of a front in the order of their epsilon net."""
        if front not in self._nets:
            members = self.fronts[front]
            order = epsilon_net([self.points[number] for number in members])
            self._nets[front] = [members[place] for place in order]
        return self._nets[front]

    def ranked(self) -> Iterator[int]:
        """Yield all points, the best first."""
        for front in range(len(self.fronts)):
            yield from self.net(front)

    def state_dict(self) -> dict[str, Any]:
        """Return the points, as JSON values."""
        return {
            "points": [list(point) for point in self.points],
            **({"violations": list(map(strict, self.violations))} if any(self.violations) else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the points that `state_dict` returned."""
        # Fronts do not depend on the order of arrival, so they are sorted anew.
        points = state["points"]
        violations = state.get("violations", [0.0] * len(points))
        for point, violation in zip(points, violations, strict=True):
            self.add(tuple(point), float(violation))
