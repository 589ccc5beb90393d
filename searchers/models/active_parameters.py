"""Which entries of vectors exist: those of parameters whose conditions hold, beside the entries of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from searchers.space.parameters import Condition, Parameter

from .columns import Column

if TYPE_CHECKING:
    from numpy import (
        ndarray,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]


@final
class Existence:
    """Knows for many vectors at once what exists in them.

    Args:
        parameters: The parameters of a space, each after those that its existence depends on.
        columns: The same parameters as models see them.
    """

    def __init__(self, parameters: Sequence[Parameter], columns: Sequence[Column]) -> None:
        places = {parameter.name: place for place, parameter in enumerate(parameters)}
        self._gates = [
            (
                place,
                [
                    _Gate(places[condition.name], columns[places[condition.name]], condition)
                    for condition in parameter.conditions
                ],
            )
            for place, parameter in enumerate(parameters)
            if parameter.conditions
        ]

    def masked(self, vectors: Array) -> Array:
        """Return the vectors with NaN where the parameter does not exist; the vectors themselves if all parameters always do.

        Args:
            vectors: One per row, each entry at the place of a value.
        """
        if not self._gates:
            return vectors
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        masked = np.array(vectors, dtype=float)
        # Parents stand before their children, so that what hangs on something that does not exist is found out, too.
        for place, gates in self._gates:
            for gate in gates:
                masked[~gate.is_open(masked), place] = np.nan
        return masked


@final
class _Gate:
    """A condition on the entries of a column, with its answers worked out beforehand where there are few values."""

    def __init__(self, place: int, column: Column, condition: Condition) -> None:
        self._place = place
        self._column = column
        self._condition = condition
        entries = column.entries
        self._answers = None if entries is None else self._asked(entries)

    def is_open(self, vectors: Array) -> Array:
        """Return for each vector whether the condition holds; it does not where its parameter does not exist."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        entries = vectors[:, self._place]
        is_known = ~np.isnan(entries)
        is_open = np.zeros(len(vectors), dtype=bool)
        known = entries[is_known]
        is_open[is_known] = (
            self._asked(known)
            if self._answers is None
            else self._answers[self._column.indices(known)]
        )
        return is_open

    def _asked(self, entries: Array) -> Array:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        return np.array(
            [self._condition.holds(self._column.decode(entry)) for entry in entries.tolist()],
            dtype=bool,
        )
