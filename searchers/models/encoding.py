"""Encoding of configurations as vectors, for searchers that fit models.

A vector has one entry per searched parameter: for a number its position in the unit interval, for a
category its index, and NaN for a parameter that is inactive in this configuration. Ordered
categories count as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.space import Path, SearchSpace

from .active_parameters import ActiveParameters
from .columns import column_of

if TYPE_CHECKING:
    from numpy.random import Generator

    from .feasible_region import FeasibleRegion

Array = np.ndarray[Any, Any]

MAX_ENUMERATED = 1_000_000
"""Most configurations that are looked at where few of a space satisfy its relation."""
MIN_OWN = 2
"""Least number of parameters with which an option of a choice is a space of its own."""


@final
class Encoding:
    """Converts configurations of a space to vectors and back.

    In a conditional space each parameter has its own column, those of all options of a choice side
    by side; in a vector the entries of inactive parameters are NaN. In a space with a relation, all
    vectors that are drawn, snapped or settled satisfy it (see `FeasibleRegion`).

    Args:
        space: The space.
        searcher: Name of the searcher, for messages.

    Attributes:
        columns: The parameters of a vector's entries.
        num_categories: For each column the number of its categories, 0 for numbers.
        is_category: For each column whether it is a category.
        least_steps: For each column the step below which a change would be rounded away.
        has_prior: Whether any of them has a prior.
        is_finite: Whether there are finitely many configurations.
        size: How many there are; None if infinite, or if the conditions are too complex to count.
        branches: The column and the entry of each option that is a space of its own: of a choice in
            every configuration, with at least two parameters that depend on it.
        branch: The branch that random and changed vectors are in; None for the whole space.

    Raises:
        ValueError: If the space has a grid, or no draw satisfies its relation.

    Example:
        >>> from searchers.space import choice, loguniform
        >>> encoding = Encoding(
        ...     {"lr": loguniform(1e-4, 1.0), "act": choice(["relu", "tanh"])}, "TreeSearch"
        ... )
        >>> encoding.encoded(encoding.assignments({"lr": 0.01, "act": "tanh"}))
        [0.5, 1.0]
        >>> encoding.config([1.0, 1.0], rng=None)
        {'lr': 1.0, 'act': 'tanh'}
    """

    def __init__(self, space: Mapping[str, Any], searcher: str) -> None:
        self._space = SearchSpace(space)
        for axis in (parameter for parameter in self._space.parameters if parameter.is_grid):
            raise ValueError(
                f"{axis.name!r} must be a range of numbers or a choice for {searcher}, got "
                "grid_search; use choice, or leave the searcher out for a grid"
            )
        self.columns = tuple(map(column_of, self._space.parameters))
        self.num_categories = tuple(column.num_categories for column in self.columns)
        self.is_category = np.array(self.num_categories, dtype=bool)
        self.least_steps = np.array(
            [0.5 / column.num_values if column.num_values else 0.0 for column in self.columns]
        )
        self.has_prior = any(column.prior is not None for column in self.columns)
        # A computed value may differ each time, so that equal vectors may be different
        # configurations.
        self.is_finite = (
            all(column.num_values is not None for column in self.columns)
            and not self._space.dependents
        )
        self.size = self._space.num_configurations()
        self._active = ActiveParameters(self._space.parameters, self.columns)
        self.branch: tuple[int, float] | None = None
        self._region = None if self._space.where is None else self._feasible_region()
        self.branches = tuple(
            branch
            for branch in self._find_branches()
            if self._region is None or len(self._region.restricted_to(*branch))
        )

    def within(self, branch: tuple[int, float]) -> Encoding:
        """Return an encoding of the same vectors of which random and changed ones are in a branch.

        Args:
            branch: One of `branches`.
        """
        narrowed = copy(self)
        narrowed.branch = branch
        return narrowed

    def _feasible_region(self) -> FeasibleRegion:
        # Few spaces have a relation.
        from .feasible_region import FeasibleRegion  # noqa: PLC0415

        return FeasibleRegion(
            self._space, self.columns, self._active, draw=self._from_cube, snap=self._snapped
        )

    def allows(self, vector: Sequence[float]) -> bool:
        """Return whether the configuration of a vector satisfies the relation of the space."""
        return self._region is None or self._region.allows(vector)

    def check_points(self, points: Sequence[Mapping[Path, Any]]) -> None:
        """Check that points to evaluate can be completed to what satisfies the relation.

        Raises:
            ValueError: If one cannot.
        """
        self._space.check_points(points)

    def _find_branches(self) -> Iterator[tuple[int, float]]:
        for place, parameter in enumerate(self._space.parameters):
            dependent = [
                condition
                for other in self._space.parameters
                for condition in other.conditions
                if condition.name == parameter.name
            ]
            if parameter.conditions or len(dependent) < MIN_OWN:
                continue
            for entry in range(self.num_categories[place]):
                value = self.columns[place].decode(entry)
                if sum(condition.holds(value) for condition in dependent) >= MIN_OWN:
                    yield place, float(entry)

    def assignments(self, point: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the values of a configuration, which may be partial, by the steps to them.

        Raises:
            ValueError: If it does not fit the space.
        """
        return self._space.assignments(point)

    def values_in(self, config: Mapping[str, Any]) -> Mapping[Path, Any]:
        """Return the values of a configuration, perhaps of another space, by the steps to them."""
        return self._space.values_in(config)

    def vector_of(self, config: Mapping[str, Any]) -> list[float] | None:
        """Return the vector of a configuration; None if it is not one of this space."""
        return self.encoded(self.assignments(config)) if self._space.holds(config) else None

    def missing(self, assignments: Mapping[Path, Any]) -> list[str]:
        """Return the names of active parameters that have no value."""
        values = {
            column.name: assignments[column.steps]
            for column in self.columns
            if column.steps in assignments
        }
        return [
            parameter.name
            for parameter in self._space.active(values)
            if parameter.name not in values
        ]

    def encoded(self, assignments: Mapping[Path, Any]) -> list[float]:
        """Return the vector of values by steps; NaN for missing and inactive parameters."""
        active = self._active_values(assignments)
        return [
            column.encode(active[column.steps]) if column.steps in active else float("nan")
            for column in self.columns
        ]

    def completed(self, assignments: Mapping[Path, Any], rng: Generator) -> list[float]:
        """Return the vector of values by steps, with other active parameters drawn."""
        while True:
            drawn = self.entries_from_cube(rng.random((1, len(self.columns))))[0].tolist()
            values = self._active_values({**self._values(drawn), **assignments})
            # Points are checked in advance, so that some draw satisfies the relation.
            if self._space.allows(values):
                return self.encoded(values)

    def config(
        self,
        vector: Sequence[float],
        rng: Generator | None,
        fixed: Mapping[Path, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the configuration of a vector.

        Args:
            vector: An entry for each column.
            rng: Random number generator for computed parameters; None if there are none.
            fixed: Values by steps that replace those of the vector, unrounded.
        """
        return self._space.resolve({**self.decoded(vector), **(fixed or {})}, rng)

    def decoded(self, vector: Sequence[float]) -> Mapping[Path, Any]:
        """Return the nearest valid values by steps, of active parameters."""
        return self._active_values(self._values(vector))

    def settled(self, vector: Sequence[float]) -> list[float]:
        """Return the vector of the nearest configuration; equal configurations have equal ones."""
        settled = self._settled(vector)
        return settled if self._region is None else self._region.settled(settled)

    def _settled(self, vector: Sequence[float]) -> list[float]:
        return self.encoded(self.decoded(vector))

    def from_cube(self, cube: Array) -> Array:
        """Return a vector for each point of the unit cube; uniform points give uniform vectors."""
        vectors = self._from_cube(cube)
        if self._region is None:
            return vectors
        return self._region.redrawn(vectors, cube, self._from_cube, self.branch)

    def _from_cube(self, cube: Array) -> Array:
        return self._active.masked(self.entries_from_cube(cube))

    def entries_from_cube(self, cube: Array) -> Array:
        """Return the vectors of `from_cube` with values for inactive parameters as well."""
        vectors = np.array(cube, dtype=float)
        for place, count in enumerate(self.num_categories):
            if count:
                vectors[:, place] = np.minimum(np.floor(vectors[:, place] * count), count - 1)
        return self._rounded(vectors)

    def snapped(self, vectors: Array, parents: Array | None = None) -> Array:
        """Return the vectors with entries rounded to valid values, NaN if inactive.

        Args:
            vectors: The vectors.
            parents: What each of them was changed from; what violates the relation of the space is
                moved towards it.
        """
        snapped = self._snapped(vectors)
        if self._region is None:
            return snapped
        return self._region.repaired(snapped, parents, self.branch)

    def _snapped(self, vectors: Array) -> Array:
        return self._active.masked(self._rounded(vectors))

    def _rounded(self, vectors: Array) -> Array:
        snapped = np.where(self.is_category, vectors, np.minimum(np.maximum(vectors, 0.0), 1.0))
        for place, column in enumerate(self.columns):
            if column.edges is not None and column.places is not None:
                index = np.searchsorted(column.edges, snapped[:, place], side="right")
                known = ~np.isnan(snapped[:, place])
                snapped[:, place] = np.where(known, column.places[index], np.nan)
        if self.branch is not None:
            place, entry = self.branch
            snapped[:, place] = entry
        return snapped

    def numbered(self, number: int) -> list[float]:
        """Return a vector of a finite flat space by its number, modulo how many there are."""
        vector = []
        for column in self.columns:
            number, index = divmod(number, column.num_values or 1)
            vector.append(column.nth(index))
        return self._settled(vector)

    def each(self, rng: Generator) -> Iterator[list[float]]:
        """Yield the vector of each configuration of a finite space once, from a random start.

        Where the space has a relation, no more than `MAX_ENUMERATED` are looked at.
        """
        each = self._each(rng)
        return each if self._region is None else filter(self.allows, islice(each, MAX_ENUMERATED))

    def _each(self, rng: Generator) -> Iterator[list[float]]:
        if not self._space.is_conditional:
            size = prod(column.num_values or 1 for column in self.columns)
            # numpy draws integers below 2**63 only.
            start = int(rng.integers(min(size, 2**62)))
            return (self.numbered(start + step) for step in range(size))
        return self._each_conditional(
            [int(rng.integers(min(column.num_values or 1, 2**62))) for column in self.columns]
        )

    def _each_conditional(self, starts: Sequence[int]) -> Iterator[list[float]]:
        """Enumerate the values of the last column fastest, each column from its own start."""
        counts = [column.num_values or 1 for column in self.columns]
        offsets = [0] * len(counts)
        while True:
            vector = self._settled(
                [
                    column.nth((start + offset) % count)
                    for column, start, offset, count in zip(
                        self.columns, starts, offsets, counts, strict=True
                    )
                ]
            )
            yield vector
            # An odometer that skips inactive columns: their values would only repeat a vector.
            for place in reversed(range(len(counts))):
                if not math.isnan(vector[place]) and offsets[place] + 1 < counts[place]:
                    offsets[place] += 1
                    break
                offsets[place] = 0
            else:
                return

    def _values(self, vector: Sequence[float]) -> dict[Path, Any]:
        return {
            column.steps: column.decode(entry)
            for column, entry in zip(self.columns, vector, strict=True)
            if not math.isnan(entry)
        }

    def _active_values(self, values: Mapping[Path, Any]) -> Mapping[Path, Any]:
        """Return the values by steps of active parameters."""
        if not self._space.is_conditional:
            return values
        by_name: dict[str, Any] = {}
        for parameter in self._space.parameters:
            if parameter.steps in values and parameter.is_active(by_name):
                by_name[parameter.name] = values[parameter.steps]
        return {
            parameter.steps: by_name[parameter.name]
            for parameter in self._space.parameters
            if parameter.name in by_name
        }


def key(vector: Sequence[float]) -> tuple[float | None, ...]:
    """Return a hashable form of a vector, equal for equal configurations."""
    # NaN equals nothing, and the last digits depend on how an entry was computed.
    return tuple(None if math.isnan(entry) else round(entry, 9) for entry in vector)
