"""Vectors of a space that satisfy its relation: tests, draws, and repair of those that do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

import numpy as np

from searchers.seeding import generator
from searchers.space import Path, SearchSpace
from searchers.space.relations import MAX_DRAWS, UNKNOWN, Relation, at

if TYPE_CHECKING:
    from .columns import Column

Array = np.ndarray[Any, Any]

NUM_ANCHORS: Final = 128
"""How many feasible vectors are kept, towards which others are moved."""
MIN_ANCHORS: Final = 16
"""With this many, `ENOUGH_DRAWS` are enough."""
ENOUGH_DRAWS: Final = 5_000
NUM_REDRAWN: Final = 10
"""How often infeasible random vectors are drawn anew, before they are moved."""
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""How far an infeasible vector is moved towards a feasible one, until it is feasible itself."""
_AT_ONCE: Final = 100
_FAR: Final = 2.0
"""Distance of an active entry from an inactive one; numbers are at most 1 apart."""


@final
class FeasibleRegion:
    """The part of a space's vectors in which its relation holds.

    Random vectors that violate it are drawn anew, as long as that helps, and are uniform then. Of
    what is left, and of all others, each is moved towards a feasible vector until it is feasible:
    a random one towards any of a sample, another one towards the nearest, or that from which it was
    changed. Such a vector lies near the boundary, where the best feasible configurations often are.

    Args:
        space: The space, which has a relation.
        columns: The columns of vectors.
        decide: Returns whether a vector has an entry for each active parameter, and satisfies the
            relation.
        draw: Returns valid vectors for points of the unit cube.
        settle: Returns the vector of the nearest configuration.

    Raises:
        ValueError: If no draw satisfies the relation.
    """

    def __init__(
        self,
        space: SearchSpace,
        columns: Sequence[Column],
        *,
        decide: Callable[[Sequence[float]], bool],
        draw: Callable[[Array], Array],
        settle: Callable[[Sequence[float]], list[float]],
    ) -> None:
        relation = cast("Relation", space.where)
        self._is_category = np.array([bool(each.num_categories) for each in columns])
        is_simple = not space.is_conditional and relation.names is not None
        self.allows = decided_by_columns(relation, columns, space.space) if is_simple else decide
        self._settle = settle
        self._anchors = self._sampled(relation, len(columns), draw)

    def restricted_to(self, place: int, entry: float) -> Array:
        """Return the feasible vectors of the sample with an entry at a place."""
        anchors: Array = self._anchors[self._anchors[:, place] == entry]
        return anchors

    def are_allowed(self, vectors: Array) -> Array:
        """Return for each vector whether it is feasible."""
        return np.array([self.allows(row) for row in vectors.tolist()], dtype=bool)

    def redrawn(
        self,
        vectors: Array,
        cube: Array,
        draw: Callable[[Array], Array],
        branch: tuple[int, float] | None,
    ) -> Array:
        """Return random vectors with the infeasible ones drawn anew.

        Args:
            vectors: The vectors of `cube`.
            cube: Uniform points of the unit cube.
            draw: Returns valid vectors for such points.
            branch: The column and the entry that all have; None for any.
        """
        is_bad = ~self.are_allowed(vectors)
        if not is_bad.any():
            return vectors
        found = np.array(vectors)
        # What replaces a point depends on it alone, so that it is the same in a restored search.
        rng = generator(int.from_bytes(np.ascontiguousarray(cube).tobytes()[:64], "little"), 0)
        for _ in range(NUM_REDRAWN):
            places = np.flatnonzero(is_bad)
            found[places] = draw(rng.random((len(places), cube.shape[1])))
            is_bad[places] = ~self.are_allowed(found[places])
            if not is_bad.any():
                return found
        anchors = self._anchors if branch is None else self.restricted_to(*branch)
        if len(anchors):
            for place in np.flatnonzero(is_bad):
                found[place] = self._moved(found[place], anchors[rng.integers(len(anchors))])
        return found

    def repaired(
        self, vectors: Array, towards: Array | None, branch: tuple[int, float] | None
    ) -> Array:
        """Return the vectors with the infeasible ones moved to the boundary.

        Args:
            vectors: The vectors.
            towards: For each of them the one to move it towards, if that is feasible; None for the
                nearest ones that are.
            branch: The column and the entry that all have; None for any.
        """
        places: list[int] = np.flatnonzero(~self.are_allowed(vectors)).tolist()
        if not places:
            return vectors
        found = np.array(vectors)
        anchors = self._anchors if branch is None else self.restricted_to(*branch)
        goals = {} if towards is None else self._feasible_goals(towards, places)
        for place in places:
            if place in goals:
                found[place] = self._moved(found[place], goals[place])
            elif len(anchors):
                found[place] = self._moved(found[place], self._nearest(found[place], anchors))
        return found

    def settled(self, vector: Sequence[float]) -> list[float]:
        """Return the vector itself if it is feasible, else the nearest feasible one."""
        if self.allows(vector):
            return list(vector)
        nearest: list[float] = self._nearest(np.array(vector), self._anchors).tolist()
        return nearest

    def _feasible_goals(self, towards: Array, places: Sequence[int]) -> dict[int, Array]:
        known: dict[bytes, bool] = {}  # many share a parent
        for row in towards[places]:
            if row.tobytes() not in known:
                known[row.tobytes()] = self.allows(row.tolist())
        return {place: towards[place] for place in places if known[towards[place].tobytes()]}

    def _moved(self, vector: Array, goal: Array) -> Array:
        """Return the first feasible vector on the way to a feasible one."""
        is_alike = bool((np.isnan(vector) == np.isnan(goal)).all())
        for share in SHARES:
            takes_goal = share >= 0.5 or not is_alike  # noqa: PLR2004
            between = vector + share * (goal - vector)
            if takes_goal:
                between = np.where(np.isnan(between) | self._is_category, goal, between)
            else:
                between = np.where(self._is_category, vector, between)
            settled = self._settle(between.tolist())
            if self.allows(settled):
                return np.array(settled)
        return goal

    def _nearest(self, vector: Array, anchors: Array) -> Array:
        gaps = np.where(self._is_category, anchors != vector, np.abs(anchors - vector))
        is_absent, are_absent = np.isnan(vector), np.isnan(anchors)
        gaps = np.where(is_absent & are_absent, 0.0, np.where(is_absent | are_absent, _FAR, gaps))
        nearest: Array = anchors[gaps.sum(axis=1).argmin()]
        return nearest

    def _sampled(
        self, relation: Relation, num_columns: int, draw: Callable[[Array], Array]
    ) -> Array:
        """Return feasible vectors out of many random ones."""
        # The same in each session: a generator of its own, whatever the experiment's seed.
        rng, found = generator(0, 0), list[list[float]]()
        for num_drawn in range(_AT_ONCE, MAX_DRAWS + 1, _AT_ONCE):
            for row in draw(rng.random((_AT_ONCE, num_columns))).tolist():
                settled = self._settle(row)
                if self.allows(settled):
                    found.append(settled)
            is_enough = len(found) >= MIN_ANCHORS and num_drawn >= ENOUGH_DRAWS
            if is_enough or len(found) >= NUM_ANCHORS:
                break
        if not found:
            raise relation.unsatisfied(MAX_DRAWS)
        return np.array(found[:NUM_ANCHORS])


def decided_by_columns(
    relation: Relation, columns: Sequence[Column], space: Mapping[str, Any]
) -> Callable[[Sequence[float]], bool]:
    """Return a function that decides about a vector without making a configuration of it."""
    places = {column.steps: (place, column) for place, column in enumerate(columns)}
    constants = {path: at(space, path) for path in relation.names or () if path not in places}

    def decide(vector: Sequence[float]) -> bool:
        def read(path: Path) -> Any:
            if path not in places:
                return constants[path]
            place, column = places[path]
            return UNKNOWN if math.isnan(vector[place]) else column.decode(vector[place])

        return relation.decide(read)

    return decide
