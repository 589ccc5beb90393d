"""Columns of vectors: each a searched parameter, converted to numbers and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from searchers.space import Categorical, Domain, Float, Integer, Parameter, Path
from searchers.space.parameters import num_values

Array = np.ndarray[Any, Any]

MAX_TABLE = 4096
"""Most values of a parameter that are tabulated; with more values it counts as continuous."""


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A searched parameter as a column of vectors.

    Attributes:
        name: Its name, unique in the space.
        steps: The steps to it from the top of the space, as in `SearchSpace.assignments`.
        domain: Its domain.
        num_categories: How many unordered categories it has, 0 for a number.
        num_values: How many values it has, None for infinitely many.
        edges: The boundaries between the values in the unit interval, for a number with few values;
            else None.
        places: The positions of the values in the unit interval, for a number with few values; else
            None.
        prior: The entry of the prior; None if there is none.
        confidence: The confidence of the prior: ``"low"``, ``"medium"`` or ``"high"``.
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
        """The entries of its values in order; None if there are too many."""
        return np.arange(self.num_categories, dtype=float) if self.num_categories else self.places

    def indices(self, entries: Array) -> Array:
        """Return the indices in `entries` of the values of some entries, none of them NaN."""
        found: Array = (
            entries.astype(int)
            if self.edges is None
            else np.searchsorted(self.edges, entries, side="right")
        )
        return found

    def encode(self, value: Any) -> float:
        """Return the entry of a vector for the value."""
        if self.num_categories and isinstance(self.domain, Categorical):
            return float(self.domain.index(value))
        return self.domain.to_unit(value)

    def decode(self, entry: float) -> Any:
        """Return the value of an entry, or the nearest one."""
        if self.num_categories and isinstance(self.domain, Categorical):
            return self.domain.categories[int(entry)]
        return self.domain.from_unit(entry)

    def nth(self, index: int) -> float:
        """Return the entry for a value of a finite domain by its index."""
        if self.num_categories:
            return float(index)
        if isinstance(self.domain, Categorical):
            return (index + 0.5) / len(self.domain.categories)
        lower, q = getattr(self.domain, "lower", 0), getattr(self.domain, "q", None) or 0
        return self.domain.to_unit(lower + index * q)


def column_of(parameter: Parameter) -> Column:
    """Return the column of a parameter."""
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
    """Return the boundaries between values, halfway between neighbours on their scale."""
    # On a logarithmic scale, from half a step below the lower bound, as in the domain itself.
    if isinstance(domain, Integer | Float) and domain.is_log and domain.q is not None:
        bounds = np.log(domain.lower + domain.q * (np.arange(num_values + 1) - 0.5))
        edges: Array = (bounds[1:-1] - bounds[0]) / (bounds[-1] - bounds[0])
        return edges
    return np.arange(1, num_values) / num_values


def _places(domain: Domain, num_values: int) -> Array:
    """Return the positions of the values in the unit interval."""
    if isinstance(domain, Integer | Float) and domain.is_log and domain.q is not None:
        values = np.log(domain.lower + domain.q * np.arange(num_values))
        low, high = np.log(domain.lower - domain.q / 2), np.log(domain.upper + domain.q / 2)
        places: Array = (values - low) / (high - low)
        return places
    return (np.arange(num_values) + 0.5) / num_values
