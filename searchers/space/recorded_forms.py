"""Forms of a space's objects in files: lists for tuples and arrays, text for other objects.

Configurations that were read from the files of an experiment have these forms. As points of a
search they stand for the objects of the space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from searchers.plain_values import DESCRIPTION_LIMIT, without_addresses


def is_recorded_form(value: Any, recorded: Any) -> bool:
    """Return whether this is what a file keeps of the value.

    Example:
        >>> is_recorded_form((1, 2), [1, 2]), is_recorded_form(len, "<built-in function len>")
        (True, True)
        >>> is_recorded_form("relu", "tanh"), is_recorded_form(1, True)
        (False, False)
    """
    match value:
        case bool() | str() | None:
            return type(recorded) is type(value) and recorded == value
        case int() | float() if type(value) in (int, float):
            return _is_same_number(value, recorded)
        case list() | tuple():
            return (
                isinstance(recorded, list | tuple)
                and len(recorded) == len(value)
                and all(map(is_recorded_form, value, recorded))
            )
        case dict():
            return isinstance(recorded, dict) and _are_same_items(value, recorded)
        case _:
            return _is_form_of_object(value, recorded)


def recorded_index(options: Sequence[Any], recorded: Any) -> int | None:
    """Return the index of the only option that a file keeps in this form, None if there is none."""
    found = [place for place, option in enumerate(options) if is_recorded_form(option, recorded)]
    # The text with the address is that of one object, as long as the process lives.
    is_text = isinstance(recorded, str)
    exact = [place for place in found if is_text and repr(options[place]) == recorded]
    return next((places[0] for places in (exact, found) if len(places) == 1), None)


def _is_same_number(value: float, recorded: Any) -> bool:
    if isinstance(recorded, bool) or not isinstance(recorded, int | float):
        return False
    return recorded == value or (math.isnan(recorded) and math.isnan(value))


def _are_same_items(value: dict[Any, Any], recorded: dict[Any, Any]) -> bool:
    by_text = {str(key): part for key, part in recorded.items()}
    return len(by_text) == len(value) and all(
        str(key) in by_text and is_recorded_form(part, by_text[str(key)])
        for key, part in value.items()
    )


def _is_form_of_object(value: Any, recorded: Any) -> bool:
    try:
        if isinstance(recorded, str):
            texts = (without_addresses(text(value)) for text in (repr, str))
            wanted = without_addresses(recorded)
            return any(
                text == wanted
                or (len(wanted) == DESCRIPTION_LIMIT and text[:DESCRIPTION_LIMIT] == wanted)
                for text in texts
            )
        if hasattr(value, "tolist"):  # an array, or one of its numbers
            given = recorded.tolist() if type(recorded) is type(value) else recorded
            return is_recorded_form(value.tolist(), given)
        return bool(value == recorded)
    except Exception:  # noqa: BLE001  (a user's __repr__ or __eq__ may raise anything)
        return False
