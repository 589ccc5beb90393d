"""Searched parameters as models see them: each a column of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from searchers.space import Categorical, Domain, Float, Integer, Parameter, Path
from searchers.space.cardinality import num_values

if TYPE_CHECKING:
    from numpy import (
        ndarray,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

MAX_TABLE = 4096
"""The most values of a parameter that are tabulated; one with more counts as continuous until it is decoded."""


@final
@dataclass(frozen=True, slots=True)
class Column:
    """One searched parameter as a model sees it.

    Attributes:
        name: Its name, unique in the space.
        steps: The steps to it from the top of the space, as in `SearchSpace.assignments`.
        domain: What it may be.
        num_categories: How many unordered categories it has, 0 for a number.
        num_values: How many values it has, None for infinitely many.
        edges: Where the stretch of each value but the first begins, for a number with few values; else None.
        places: Where these values lie in the unit interval, for a number with few values; else None.
        prior: Where the user expects the best value, as an entry of a vector; None where nothing is expected.
        confidence: How sure the user is of that: ``"low"``, ``"medium"`` or ``"high"``.
    """

    name: str
    steps: Path
    domain: Domain
    num_categories: int
    num_values: int | None
    edges: Array | None
    places: Array | None
    prior: float | None
    confidence: str

    @property
    def entries(self) -> Array | None:
        """The entries that stand for its values, one after the other; None where these are too many."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        return np.arange(self.num_categories, dtype=float) if self.num_categories else self.places

    def indices(self, entries: Array) -> Array:
        """Return at which places of `entries` the values stand that some entries stand for; none of these may be NaN."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        found: Array = (
            entries.astype(int)
            if self.edges is None
            else np.searchsorted(self.edges, entries, side="right")
        )
        return found

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

    def nth(self, index: int) -> float:
        """Return the entry that stands for a value of finitely many by its number."""
        if self.num_categories:
            return float(index)
        if isinstance(self.domain, Categorical):
            return (index + 0.5) / len(self.domain.categories)
        lower, q = getattr(self.domain, "lower", 0), getattr(self.domain, "q", None) or 0
        return self.domain.to_unit(lower + index * q)


def column_of(parameter: Parameter) -> Column:
    """Return a parameter as models see it."""
    domain = parameter.domain
    num_categories = (
        len(domain.categories) if isinstance(domain, Categorical) and not domain.is_ordered else 0
    )
    count = num_values(domain)
    edges, places = None, None
    if count is not None and not num_categories and count <= MAX_TABLE:
        edges, places = _edges(domain, count), _places(domain, count)
    confidence = getattr(domain, "prior_confidence", None) or "medium"
    column = Column(
        parameter.name,
        parameter.steps,
        domain,
        num_categories,
        count,
        edges,
        places,
        None,
        confidence,
    )
    prior = getattr(domain, "prior", None)
    return column if prior is None else replace(column, prior=column.encode(prior))


def _edges(domain: Domain, num_values: int) -> Array:
    """Return where the stretches of the values meet: halfway between two values on the scale of values."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    if isinstance(domain, Integer | Float) and domain.is_log and domain.q is not None:
        bounds = np.log(domain.lower + domain.q * (np.arange(num_values + 1) - 0.5))
        edges: Array = (bounds[1:-1] - bounds[0]) / (bounds[-1] - bounds[0])
        return edges
    return np.arange(1, num_values) / num_values


def _places(domain: Domain, num_values: int) -> Array:
    """Return where the values lie in the unit interval."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    if isinstance(domain, Integer | Float) and domain.is_log and domain.q is not None:
        values = np.log(domain.lower + domain.q * np.arange(num_values))
        low, high = np.log(domain.lower - domain.q / 2), np.log(domain.upper + domain.q / 2)
        places: Array = (values - low) / (high - low)
        return places
    return (np.arange(num_values) + 0.5) / num_values
