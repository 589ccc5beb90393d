"""Rows of log files made from the text of results, as the workers have spelled them, without parsing it.

That is done in C, beside this file, and is most of what log files cost. Where it could not be compiled, or a result has anything in it but
numbers, texts, booleans and nulls, or a text that has to be quoted, rows are made from the parsed result instead, and say the same.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, final

from tuner.storage.strict_json import to_bytes

_rows: Any = None
with suppress(ImportError):  # no compiler was there when this was installed
    _rows = importlib.import_module("._rows", __package__)
IS_COMPILED: Final = _rows is not None
"""Whether rows can be made without parsing at all."""

_MAX_NAMES: Final = 255
_KIND: Final[Mapping[type, bytes]] = {
    int: b"i",
    float: b"f",
    str: b"s",
    bool: b"b",
    type(None): b"n",
}
"""How the classes of what a result consists of are told to the functions in C."""


@final
class Layout:
    """How the texts of results look that have the same names in the same order, each with a value of the same class.

    Args:
        class_of: The class of each value, by its name; all of them scalars.
    """

    __slots__ = ("_keys", "_kinds", "_place_of", "_places")

    def __init__(self, class_of: Mapping[str, type]) -> None:
        self._keys = tuple(to_bytes(name) + b":" for name in class_of)
        self._kinds = b"".join(_KIND[its_class] for its_class in class_of.values())
        self._place_of = {name: place for place, name in enumerate(class_of)}
        self._places = functools.lru_cache(maxsize=8)(self._new_places)

    def num_alike(self, texts: list[bytes], start: int) -> int:
        """Return how many of the texts look so, one behind the other from `start` on.

        Args:
            texts: JSON objects without blanks, valid, in ASCII.
            start: The number of the first to be looked at.
        """
        num: int = _rows.num_alike(texts, start, self._keys, self._kinds)
        return num

    def table(self, texts: list[bytes], columns: tuple[str, ...]) -> bytes | None:
        """Return a line of a CSV file for each of the texts; None if a cell would have to be quoted.

        Args:
            texts: Texts that look so.
            columns: Some of the names, in the order of the columns.
        """
        lines: bytes | None = _rows.table(texts, self._keys, self._places(columns))
        return lines

    def events(
        self,
        texts: list[bytes],
        times: list[float],
        step: str,
        names: Mapping[str, bytes],
        head: bytes,
    ) -> bytes | None:
        """Return a record of an event file for each of the texts; None where a step is not positive or a value exceeds 32 bits.

        Args:
            texts: Texts that look so.
            times: Unix time of each.
            step: The name under which their step is found, an integer.
            names: For the name of each curve, a number or a boolean, what stands before its value in a record.
            head: What stands before the first of them.
        """
        if step not in self._place_of:
            return None
        places, heads = self._places(tuple(names)), tuple(names.values())
        records: bytes | None = _rows.events(
            texts, times, self._keys, self._place_of[step], places, head, heads
        )
        return records

    def _new_places(self, names: Iterable[str]) -> bytes:
        return bytes(self._place_of[name] for name in names)


def layout_of(class_of: Mapping[str, type]) -> Layout | None:
    """Return how the texts of such results look; None where they are to be parsed.

    Args:
        class_of: The class of each value, by its name.
    """
    is_known = 0 < len(class_of) <= _MAX_NAMES and all(map(_KIND.__contains__, class_of.values()))
    return Layout(class_of) if IS_COMPILED and is_known else None
