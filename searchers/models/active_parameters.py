"""Which parameters of a conditional space are active in the vectors of its configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

from searchers.space import Parameter
from searchers.space.parameters import Condition

from .columns import Column

Array = np.ndarray[Any, Any]


@final
class ActiveParameters:
    """Finds the inactive parameters of many vectors at once.

    Args:
        parameters: The parameters of a space, each after those it depends on.
        columns: The columns of the same parameters.
    """

    def __init__(self, parameters: Sequence[Parameter], columns: Sequence[Column]) -> None:
        self._places = {parameter.name: place for place, parameter in enumerate(parameters)}
        self._columns = columns
        self._gates = [
            (place, self._gates_of(parameter.conditions))
            for place, parameter in enumerate(parameters)
            if parameter.conditions
        ]

    def _gates_of(self, conditions: Iterable[Condition]) -> list[_Gate]:
        return [
            _Gate(
                self._places[condition.name], self._columns[self._places[condition.name]], condition
            )
            for condition in conditions
        ]

    def masked(self, vectors: Array) -> Array:
        """Return the vectors with NaN for inactive parameters; unchanged if all are active.

        Args:
            vectors: One per row, with entries that are rounded already.
        """
        if not self._gates:
            return vectors
        masked = np.array(vectors, dtype=float)
        # Parents come before their children, so that a parameter that depends on an inactive one
        # becomes inactive as well.
        for place, gates in self._gates:
            for gate in gates:
                masked[~gate.is_open(masked), place] = np.nan
        return masked

    def are_complete(self, masked: Array) -> Array:
        """Return for each vector, as from `masked`, whether it has all active parameters."""
        is_missing: Array = np.isnan(masked)
        for place, gates in self._gates:
            for gate in gates:
                is_missing[:, place] &= gate.is_open(masked)
        complete: Array = np.logical_not(is_missing.any(axis=1))
        return complete

    def test_of(self, conditions: Sequence[Condition]) -> Callable[[Array], Array]:
        """Return a function that returns for each vector whether these conditions hold."""
        gates = self._gates_of(conditions)

        def are_met(vectors: Array) -> Array:
            is_met: Array = np.ones(len(vectors), dtype=bool)
            for gate in gates:
                is_met &= gate.is_open(vectors)
            return is_met

        return are_met


@final
class _Gate:
    """A condition on a column's entries, evaluated once per value if there are few values."""

    def __init__(self, place: int, column: Column, condition: Condition) -> None:
        self._place = place
        self._column = column
        self._condition = condition
        entries = column.entries
        self._answers = None if entries is None else self._evaluate(entries)

    def is_open(self, vectors: Array) -> Array:
        """Return for each vector whether the condition holds; False for an inactive parameter."""
        entries = vectors[:, self._place]
        is_known = ~np.isnan(entries)
        is_open = np.zeros(len(vectors), dtype=bool)
        known = entries[is_known]
        is_open[is_known] = (
            self._evaluate(known)
            if self._answers is None
            else self._answers[self._column.indices(known)]
        )
        return is_open

    def _evaluate(self, entries: Array) -> Array:
        return np.array(
            [self._condition.holds(self._column.decode(entry)) for entry in entries.tolist()],
            dtype=bool,
        )
