"""Fast JSON for plain values: nearly all that is written.

Plain are dictionaries with text keys, lists, ASCII texts, finite floats and 64-bit integers.

Every result is written as JSON three times and read once, which was a tenth of the driver's work
with the standard library. orjson does it in a fraction of that, but writes ``null`` for what is not
finite and knows none of the tags of `strict_json`. So it gets only what is plain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import orjson

_NUM_DIGITS: Final = 19
"""So many digits an integer has at least that does not fit into 64 bits."""
_LONG: Final = re.compile(rb"(?:^|[\s:,\[])(-?\d{%d,})" % _NUM_DIGITS)
"""A number that may be such an integer; behind a point there may be any number of digits."""
_MAX_LENGTH: Final = 20
"""So many characters an integer has at most that fits into 64 bits, its sign among them."""
_SHAPE: Final = bytes(
    ord("0" if chr(byte).isdecimal() else "." if chr(byte) == "." else " ")
    for byte in range(1 << 7)
) + b" " * (1 << 7)
_LONG_SHAPE: Final = b"0" * _NUM_DIGITS
_NUMBERS: Final = frozenset({float, int})
_PRETTY: Final = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS


def dumps(value: Any, *, is_pretty: bool = False) -> bytes | None:
    """Return the value as strict JSON in ASCII; None for one that is not plain.

    Args:
        value: The value.
        is_pretty: Indent by two blanks and sort the keys; else it is one line without blanks.
    """
    try:
        data = (
            orjson.dumps(value, option=_PRETTY if is_pretty else None) if is_plain(value) else b""
        )
    # Other keys than texts, long integers, half a character, too deep.
    except (
        TypeError,
        RecursionError,
    ):
        return None
    return data if data and data.isascii() else None


def loads(data: bytes) -> Any:
    """Return the value.

    Raises:
        ValueError: If it is not strict JSON, or not plain.
    """
    # Nearly no text has so many digits in a row, but behind a point, which is found out ten times
    # faster than where they stand.
    shape = data.translate(_SHAPE)
    may_be_long = b" " + _LONG_SHAPE in shape or shape.startswith(_LONG_SHAPE)
    if may_be_long and not all(map(_fits, _LONG.findall(data))):
        raise ValueError("an integer of more than 64 bits would become a float")
    return orjson.loads(data)


def _fits(number: bytes) -> bool:
    """Return whether an integer in decimal digits fits into 64 bits."""
    return len(number) <= _MAX_LENGTH and -(1 << 63) <= int(number) < 1 << 64


def is_plain(value: Any) -> bool:
    """Return whether a value consists of what orjson writes as it is meant.

    That is dictionaries, lists, tuples, texts, integers, booleans, None and finite floats; keys and
    sizes are orjson's business. Also no, for speed, where of numbers in a list only the sum is not
    finite.
    """
    # Exact classes only: a subclass may mean something else.
    kind = value.__class__
    if kind is dict:
        items = value.values()
    elif kind is list or kind is tuple:
        if _NUMBERS.issuperset(map(type, value)):
            return _are_finite(value)
        items = value
    else:
        return _is_plain_scalar(value)
    for item in items:
        kind = item.__class__
        if kind is float:
            if item - item != 0.0:
                return False
        elif not (kind is str or kind is int or kind is bool or item is None) and (
            not (kind is dict or kind is list or kind is tuple) or not is_plain(item)
        ):
            return False
    return True


def _are_finite(values: Sequence[float]) -> bool:
    """Return whether the numbers are finite; also no, for speed, where only their sum is not."""
    try:
        return isfinite(sum(values))
    except OverflowError:
        return False


def _is_plain_scalar(value: Any) -> bool:
    if value.__class__ is float:
        return bool(value - value == 0.0)
    return value is None or value.__class__ in (str, int, bool)
