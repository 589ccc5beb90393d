"""Configurations as vectors, for searchers that fit models: everything that these know about a space stands here.

A vector has one entry per searched parameter: for a number its place in the unit interval, for a category its index, and NaN for a
parameter that does not exist in this configuration. Ordered categories count as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from searchers.space import Path, SearchSpace

from .active_parameters import Existence
from .columns import column_of

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]


@final
class Encoding:
    """Turns configurations of a space into vectors and back.

    In a conditional space each parameter has a column of its own, those of all options of a choice side by side; in a vector the entries of
    those that do not exist beside the others are NaN.

    Args:
        space: The space.
        searcher: Who asks, for messages.

    Attributes:
        columns: What the entries of a vector stand for.
        num_categories: For each column the number of its categories, 0 for numbers.
        has_prior: Whether the user expects anything of any of them.
        is_finite: Whether there are finitely many configurations.
        size: How many there are; None for infinitely many, or where conditions are too entangled to tell.

    Raises:
        ValueError: If a part of the space has to be crossed in full rather than searched.

    Example:
        >>> from searchers.space import choice, loguniform
        >>> encoding = Encoding({"lr": loguniform(1e-4, 1.0), "act": choice(["relu", "tanh"])}, "TreeSearch")
        >>> encoding.vector({"lr": 0.01, "act": "tanh"})
        [0.5, 1.0]
        >>> encoding.config([1.0, 1.0], rng=None)
        {'lr': 1.0, 'act': 'tanh'}
    """

    def __init__(self, space: Mapping[str, Any], searcher: str) -> None:
        self._space = SearchSpace(space)
        for axis in (parameter for parameter in self._space.parameters if parameter.is_grid):
            raise ValueError(
                f"{axis.name!r} must be a range of numbers or a choice for {searcher}, got grid_search; "
                "use choice, or leave the searcher out for a grid"
            )
        self.columns = tuple(map(column_of, self._space.parameters))
        self.num_categories = tuple(column.num_categories for column in self.columns)
        self.has_prior = any(column.prior is not None for column in self.columns)
        # What functions compute may differ each time, so that a configuration that comes again need not be the same.
        self.is_finite = (
            all(column.num_values is not None for column in self.columns)
            and not self._space.dependents
        )
        self.size = self._space.num_configurations()
        self._existence = Existence(self._space.parameters, self.columns)

    def assignments(self, point: Mapping[str, Any]) -> dict[Path, Any]:
        """Return what a configuration, perhaps a partial one, gives for searched parameters, by the steps to them.

        Raises:
            ValueError: If it does not fit the space.
        """
        return self._space.assignments(point)

    def missing(self, assignments: Mapping[Path, Any]) -> list[str]:
        """Return the names of parameters that exist beside what is given, but for which nothing is."""
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

    def vector(self, config: Mapping[str, Any]) -> list[float]:
        """Return the vector of a configuration; NaN for what it does not have.

        Raises:
            ValueError: If it does not fit the space.
        """
        return self.encoded(self._space.assignments(config))

    def encoded(self, assignments: Mapping[Path, Any]) -> list[float]:
        """Return the vector of values by steps; NaN for what is not given or does not exist beside the rest."""
        there = self._existing(assignments)
        return [
            column.encode(there[column.steps]) if column.steps in there else float("nan")
            for column in self.columns
        ]

    def completed(self, assignments: Mapping[Path, Any], rng: Generator) -> list[float]:
        """Return the vector of values by steps, with all else that exists beside them drawn."""
        drawn = self.entries_from_cube(rng.random((1, len(self.columns))))[0].tolist()
        return self.encoded({**self._values(drawn), **assignments})

    def config(
        self,
        vector: Sequence[float],
        rng: Generator | None,
        fixed: Mapping[Path, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the configuration that a vector stands for.

        Args:
            vector: An entry for each column.
            rng: Source of chance for what functions compute; None will do where there are none.
            fixed: Values by steps that are taken as they are.
        """
        return self._space.resolve({**self.decoded(vector), **(fixed or {})}, rng)

    def decoded(self, vector: Sequence[float]) -> Mapping[Path, Any]:
        """Return values by steps: the domains' own, nearest to what the vector says, of what exists beside each other."""
        return self._existing(self._values(vector))

    def settled(self, vector: Sequence[float]) -> list[float]:
        """Return the vector of the configuration that a vector stands for, so that equal configurations have equal vectors."""
        return self.encoded(self.decoded(vector))

    def from_cube(self, cube: Array) -> Array:
        """Return a vector for each point of the unit cube, spread over the space as the points are over the cube."""
        return self._existence.masked(self.entries_from_cube(cube))

    def entries_from_cube(self, cube: Array) -> Array:
        """Return what `from_cube` does, with entries also for what does not exist beside the others, should it come to."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        vectors = np.array(cube, dtype=float)
        for place, count in enumerate(self.num_categories):
            if count:
                vectors[:, place] = np.minimum(np.floor(vectors[:, place] * count), count - 1)
        return self._placed(vectors)

    def snapped(self, vectors: Array) -> Array:
        """Return the vectors with each entry moved to the place of the value for which it stands, and NaN for what does not exist."""
        return self._existence.masked(self._placed(vectors))

    def _placed(self, vectors: Array) -> Array:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        snapped = np.array(vectors, dtype=float)
        for place, column in enumerate(self.columns):
            if column.edges is not None and column.places is not None:
                index = np.searchsorted(column.edges, snapped[:, place], side="right")
                known = ~np.isnan(snapped[:, place])
                snapped[:, place] = np.where(known, column.places[index], np.nan)
            elif not column.num_categories:
                snapped[:, place] = np.clip(snapped[:, place], 0.0, 1.0)
        return snapped

    def numbered(self, number: int) -> list[float]:
        """Return the vector of a configuration of a finite flat space by its number, which is taken modulo `size`."""
        vector = []
        for column in self.columns:
            number, index = divmod(number, column.num_values or 1)
            vector.append(column.nth(index))
        return self.settled(vector)

    def each(self, rng: Generator) -> Iterator[list[float]]:
        """Yield the vector of each configuration of a finite space once, beginning anywhere."""
        if not self._space.is_conditional:
            size = self.size or 1
            start = int(rng.integers(min(size, 2**62)))
            return (self.numbered(start + step) for step in range(size))
        return self._each_of_branches(
            [int(rng.integers(min(column.num_values or 1, 2**62))) for column in self.columns]
        )

    def _each_of_branches(self, starts: Sequence[int]) -> Iterator[list[float]]:
        """Count like a clock from the last column on, each from its own start, over the columns that exist beside those before them."""
        counts = [column.num_values or 1 for column in self.columns]
        turned = [0] * len(counts)
        while True:
            places = (
                (start + turn) % count
                for start, turn, count in zip(starts, turned, counts, strict=True)
            )
            vector = self.settled(
                [column.nth(place) for column, place in zip(self.columns, places, strict=True)]
            )
            yield vector
            for place in reversed(range(len(counts))):
                if vector[place] == vector[place] and turned[place] + 1 < counts[place]:
                    turned[place] += 1
                    break
                turned[place] = 0
            else:
                return

    def _values(self, vector: Sequence[float]) -> dict[Path, Any]:
        return {
            column.steps: column.decode(entry)
            for column, entry in zip(self.columns, vector, strict=True)
            if entry == entry  # noqa: PLR0124  (NaN)
        }

    def _existing(self, values: Mapping[Path, Any]) -> Mapping[Path, Any]:
        """Return those of the values by steps whose parameters exist beside the others."""
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
    """Return what is equal for equal configurations, NaN included."""
    return tuple(None if entry != entry else round(entry, 9) for entry in vector)  # noqa: PLR0124  (NaN)
