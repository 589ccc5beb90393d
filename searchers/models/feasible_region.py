"""Vectors of a space that satisfy its relation: tests, draws, and repair of those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

import numpy as np

from searchers.seeding import generator
from searchers.space import SearchSpace
from searchers.space.relations import MAX_DRAWS, Relation

from .relation_on_vectors import RelationOnVectors

if TYPE_CHECKING:
    from .active_parameters import ActiveParameters
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
        active: Finds the inactive parameters of vectors.
        draw: Returns valid vectors for points of the unit cube.
        snap: Returns vectors with entries rounded to valid values, NaN if inactive.

    Raises:
        ValueError: If no draw satisfies the relation.
    """

    def __init__(
        self,
        space: SearchSpace,
        columns: Sequence[Column],
        active: ActiveParameters,
        *,
        draw: Callable[[Array], Array],
        snap: Callable[[Array], Array],
    ) -> None:
        relation = cast("Relation", space.where)
        self._is_category = np.array([bool(each.num_categories) for each in columns])
        self.are_allowed = RelationOnVectors(space, columns, active)
        self._snap = snap
        self._anchors = self._sampled(relation, len(columns), draw)

    def restricted_to(self, place: int, entry: float) -> Array:
        """Return the feasible vectors of the sample with an entry at a place."""
        anchors: Array = self._anchors[self._anchors[:, place] == entry]
        return anchors

    def allows(self, vector: Sequence[float]) -> bool:
        """Return whether a vector has all active parameters, and satisfies the relation."""
        return bool(self.are_allowed(np.array([vector]))[0])

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
            goals = anchors[rng.integers(len(anchors), size=int(is_bad.sum()))]
            found[is_bad] = self._moved(found[is_bad], goals)
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
        if len(anchors):
            goals |= {
                place: self._nearest(found[place], anchors)
                for place in places
                if place not in goals
            }
        moved = [place for place in places if place in goals]
        if moved:
            found[moved] = self._moved(found[moved], np.array([goals[place] for place in moved]))
        return found

    def settled(self, vector: Sequence[float]) -> list[float]:
        """Return the vector itself if it is feasible, else the nearest feasible one."""
        if self.allows(vector):
            return list(vector)
        nearest: list[float] = self._nearest(np.array(vector), self._anchors).tolist()
        return nearest

    def _feasible_goals(self, towards: Array, places: Sequence[int]) -> dict[int, Array]:
        # Many share a parent.
        parents, numbers = np.unique(towards[places], axis=0, return_inverse=True)
        is_goal = self.are_allowed(parents)[numbers.ravel()]
        return {place: towards[place] for place in np.array(places)[is_goal].tolist()}

    def _moved(self, vectors: Array, goals: Array) -> Array:
        """Return for each vector the first feasible one on the way to its goal, which is one."""
        found = np.array(goals)
        places = np.arange(len(vectors))
        are_alike = (np.isnan(vectors) == np.isnan(goals)).all(axis=1)
        for share in SHARES:
            start, goal = vectors[places], goals[places]
            takes_goal = ~are_alike[places] if share < 0.5 else np.ones(len(places), dtype=bool)  # noqa: PLR2004
            between = start + share * (goal - start)
            between = np.where(
                takes_goal[:, None],
                np.where(np.isnan(between) | self._is_category, goal, between),
                np.where(self._is_category, start, between),
            )
            snapped = self._snap(between)
            is_allowed = self.are_allowed(snapped)
            found[places[is_allowed]] = snapped[is_allowed]
            places = places[~is_allowed]
            if not len(places):
                break
        return found

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
            snapped = self._snap(draw(rng.random((_AT_ONCE, num_columns))))
            found += snapped[self.are_allowed(snapped)].tolist()
            is_enough = len(found) >= MIN_ANCHORS and num_drawn >= ENOUGH_DRAWS
            if is_enough or len(found) >= NUM_ANCHORS:
                break
        if not found:
            raise relation.unsatisfied(MAX_DRAWS)
        return np.array(found[:NUM_ANCHORS])
