"""Configurations as vectors, for searchers that fit models: everything that these know about a space stands here.

A vector has one entry per searched parameter: for a number its place in the unit interval, for a category its index, and NaN for a
parameter that does not exist in this configuration. Ordered categories count as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, final

from .space import Categorical, Domain, Float, Integer, Path, SearchSpace, flat_name

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

MAX_TABLE = 4096
"""The most values of a parameter that are tabulated; one with more counts as continuous until it is decoded."""


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One searched parameter as a model sees it.

    Attributes:
        name: Its flat name.
        path: Where its value stands in a configuration.
        domain: What it may be.
        num_categories: How many unordered categories it has, 0 for a number.
        num_values: How many values it has, None for infinitely many.
        edges: Where the stretch of each value but the first begins, for a number with few values; else None.
        prior: Where the user expects the best value, as an entry of a vector; None where nothing is expected.
        confidence: How sure the user is of that: ``"low"``, ``"medium"`` or ``"high"``.
    """

    name: str
    path: Path
    domain: Domain
    num_categories: int
    num_values: int | None
    edges: Array | None
    prior: float | None
    confidence: str

    def encode(self, value: Any) -> float:
        """Return the entry of a vector that stands for the value."""
        if self.num_categories and isinstance(self.domain, Categorical):
            return float(self.domain.index(value))
        return self.domain.to_unit(value)

    def decode(self, entry: float) -> Any:
        """Return the value that an entry stands for, or the nearest one."""
        if self.num_categories and isinstance(self.domain, Categorical):
            return self.domain.categories[int(entry)]
        return self.domain.from_unit(entry)


@final
class Encoding:
    """Turns configurations of a space into vectors and back.

    Args:
        space: The space.
        searcher: Who asks, for messages.

    Attributes:
        columns: What the entries of a vector stand for.
        num_categories: For each column the number of its categories, 0 for numbers.
        size: How many different configurations there are, None for infinitely many.

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
        for path in self._space.grid_axes:
            raise ValueError(
                f"{flat_name(path)!r} must be a range of numbers or a choice for {searcher}, got grid_search; "
                "use choice, or leave the searcher out for a grid"
            )
        self.columns = tuple(_column(path, domain) for path, domain in self._space.domains.items())
        self.num_categories = tuple(column.num_categories for column in self.columns)
        counts = [column.num_values for column in self.columns if column.num_values is not None]
        # What functions compute may differ each time, so that a configuration that comes again need not be the same.
        self.size = prod(counts) if len(counts) == len(self.columns) and not self._space.dependents else None

    def assignments(self, point: Mapping[str, Any]) -> dict[Path, Any]:
        """Return what a configuration, perhaps a partial one, gives for searched parameters.

        Raises:
            ValueError: If it does not fit the space.
        """
        return self._space.assignments(point)

    def missing(self, assignments: Mapping[Path, Any]) -> list[str]:
        """Return the names of parameters for which nothing is given."""
        return [column.name for column in self.columns if column.path not in assignments]

    def vector(self, config: Mapping[str, Any]) -> list[float]:
        """Return the vector of a configuration; NaN for what it does not have.

        Raises:
            ValueError: If it does not fit the space.
        """
        return self.encoded(self._space.assignments(config))

    def encoded(self, assignments: Mapping[Path, Any]) -> list[float]:
        """Return the vector of values by path; NaN for what is not given."""
        return [column.encode(assignments[column.path]) if column.path in assignments else float("nan") for column in self.columns]

    def config(self, vector: Sequence[float], rng: Generator | None, fixed: Mapping[Path, Any] | None = None) -> dict[str, Any]:
        """Return the configuration that a vector stands for.

        Args:
            vector: An entry for each column.
            rng: Source of chance for what functions compute; None will do where there are none.
            fixed: Values by path that are taken as they are.
        """
        return self._space.resolve({**self.decoded(vector), **(fixed or {})}, rng)

    def decoded(self, vector: Sequence[float]) -> dict[Path, Any]:
        """Return values by path: the domains' own, nearest to what the vector says."""
        return {column.path: column.decode(entry) for column, entry in zip(self.columns, vector, strict=True) if entry == entry}  # noqa: PLR0124  (NaN)

    def settled(self, vector: Sequence[float]) -> list[float]:
        """Return the vector of the configuration that a vector stands for, so that equal configurations have equal vectors."""
        return self.encoded(self.decoded(vector))

    def from_cube(self, cube: Array) -> Array:
        """Return a vector for each point of the unit cube, spread over the space as the points are over the cube."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        vectors = np.array(cube, dtype=float)
        for place, count in enumerate(self.num_categories):
            if count:
                vectors[:, place] = np.minimum(np.floor(vectors[:, place] * count), count - 1)
        return self.snapped(vectors)

    def snapped(self, vectors: Array) -> Array:
        """Return the vectors with each entry moved to the middle of the stretch that stands for the same value."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        snapped = np.array(vectors, dtype=float)
        for place, column in enumerate(self.columns):
            if column.edges is not None:
                edges = np.concatenate(([0.0], column.edges, [1.0]))
                index = np.searchsorted(column.edges, snapped[:, place], side="right")
                known = ~np.isnan(snapped[:, place])
                snapped[:, place] = np.where(known, (edges[index] + edges[np.minimum(index + 1, len(edges) - 1)]) / 2, np.nan)
            elif not column.num_categories:
                snapped[:, place] = np.clip(snapped[:, place], 0.0, 1.0)
        return snapped

    def numbered(self, number: int) -> list[float]:
        """Return the vector of a configuration of a finite space by its number, which is taken modulo `size`."""
        vector = []
        for column in self.columns:
            number, index = divmod(number, column.num_values or 1)
            vector.append(float(index) if column.num_categories else self._entry(column, index))
        return self.settled(vector)

    @staticmethod
    def _entry(column: Column, index: int) -> float:
        if isinstance(column.domain, Categorical):
            return (index + 0.5) / len(column.domain.categories)
        lower, q = getattr(column.domain, "lower", 0), getattr(column.domain, "q", None) or 0
        return column.domain.to_unit(lower + index * q)


def key(vector: Sequence[float]) -> tuple[float | None, ...]:
    """Return what is equal for equal configurations, NaN included."""
    return tuple(None if entry != entry else round(entry, 9) for entry in vector)  # noqa: PLR0124  (NaN)


def _column(path: Path, domain: Domain) -> Column:
    num_categories = len(domain.categories) if isinstance(domain, Categorical) and not domain.is_ordered else 0
    num_values = _num_values(domain)
    edges = _edges(domain, num_values) if num_values is not None and not num_categories and num_values <= MAX_TABLE else None
    prior = getattr(domain, "prior", None)
    confidence = getattr(domain, "prior_confidence", None) or "medium"
    column = Column(flat_name(path), path, domain, num_categories, num_values, edges, None, confidence)
    if prior is None:
        return column
    return Column(flat_name(path), path, domain, num_categories, num_values, edges, column.encode(prior), confidence)


def _num_values(domain: Domain) -> int | None:
    if isinstance(domain, Categorical):
        return len(domain.categories)
    if isinstance(domain, Integer | Float) and domain.q is not None:
        return round((domain.upper - domain.lower) / domain.q) + 1
    return None


def _edges(domain: Domain, num_values: int) -> Array:
    """Return where the stretches of the values meet: halfway between two values on the scale of values."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    if isinstance(domain, Integer | Float) and domain.is_log and domain.q is not None:
        bounds = np.log(domain.lower + domain.q * (np.arange(num_values + 1) - 0.5))
        edges: Array = (bounds[1:-1] - bounds[0]) / (bounds[-1] - bounds[0])
        return edges
    return np.arange(1, num_values) / num_values
