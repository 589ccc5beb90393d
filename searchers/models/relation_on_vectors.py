"""The relation of a space, decided for many vectors without making configurations of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from searchers.space import Path, SearchSpace, is_word
from searchers.space.relations import UNKNOWN, Relation

if TYPE_CHECKING:
    from .active_parameters import ActiveParameters
    from .columns import Column

Array = np.ndarray[Any, Any]

_Decode = Callable[[float], Any]


@final
class RelationOnVectors:
    """Returns for each of many vectors whether its configuration satisfies the relation.

    A vector that lacks an active parameter does not.

    Args:
        space: The space, which has a relation.
        columns: The columns of vectors.
        active: Finds the inactive parameters of vectors.
    """

    def __init__(
        self, space: SearchSpace, columns: Sequence[Column], active: ActiveParameters
    ) -> None:
        self._space = space
        self._relation = cast("Relation", space.where)
        self._columns = columns
        self._active = active
        names = self._relation.names
        sources = None if names is None else {path: self._sources(path) for path in names}
        # Of two options that are dictionaries it is not known what makes them differ.
        num_parts = sum(each.holds_parts for each in (sources or {}).values())
        self._sources_at = None if num_parts > 1 else sources

    def __call__(self, vectors: Array) -> Array:
        """Return for each vector whether it is feasible."""
        masked = self._active.masked(vectors)
        answers = self._active.are_complete(masked)
        decide = self._by_configuration if self._sources_at is None else self._by_entries
        places = np.flatnonzero(answers)
        answers[places] = decide(masked[places])
        return answers

    def _by_configuration(self, masked: Array) -> list[bool]:
        is_there = ~np.isnan(masked)
        return [
            self._space.allows(
                {
                    column.steps: column.decode(entry)
                    for column, entry, is_active in zip(self._columns, row, shown, strict=True)
                    if is_active
                }
            )
            for row, shown in zip(masked.tolist(), is_there.tolist(), strict=True)
        ]

    def _by_entries(self, masked: Array) -> list[bool]:
        readers = {path: each.reader(masked) for path, each in (self._sources_at or {}).items()}
        numbers = range(len(masked))
        return [self._relation.decide(lambda path: readers[path](number)) for number in numbers]  # noqa: B023

    def _sources(self, path: Path) -> _Sources:
        places = {column.steps: place for place, column in enumerate(self._columns)}
        sources = _Sources()
        for steps, node, conditions in self._space.found_at(path):
            if is_word(node):
                place = places[steps]
                sources.columns.append((place, _decoding(self._columns[place])))
            else:
                sources.constants.append((node, self._active.test_of(conditions)))
                sources.holds_parts |= isinstance(node, dict | list | tuple)
        return sources


@final
class _Sources:
    """What configurations may have at a path.

    Attributes:
        columns: Places of columns in vectors, with what decodes their entries.
        constants: Constants, with what tells the vectors of configurations that have them.
        holds_parts: Whether a constant stands for a dictionary or a list.
    """

    def __init__(self) -> None:
        self.columns: list[tuple[int, _Decode]] = []
        self.constants: list[tuple[Any, Callable[[Array], Array]]] = []
        self.holds_parts = False

    def reader(self, vectors: Array) -> Callable[[int], Any]:
        """Return a function that returns what a vector has by its number, `UNKNOWN` for nothing."""
        columns = [(vectors[:, place].tolist(), decode) for place, decode in self.columns]
        constants = [(value, are_there(vectors).tolist()) for value, are_there in self.constants]

        def read(number: int) -> Any:
            for entries, decode in columns:
                entry = entries[number]
                if entry == entry:  # noqa: PLR0124  (not NaN)
                    return decode(entry)
            for value, are_there in constants:
                if are_there[number]:
                    return value
            return UNKNOWN

        return read


def _decoding(column: Column) -> _Decode:
    """Return a column's `decode`, looked up where it has few values."""
    if column.num_categories or column.places is None:
        return column.decode
    known = {entry: column.decode(entry) for entry in column.places.tolist()}

    def decode(entry: float) -> Any:
        # An entry that was computed from a value may differ in its last digits.
        return known[entry] if entry in known else column.decode(entry)

    return decode
