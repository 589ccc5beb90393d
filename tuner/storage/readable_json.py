"""JSON for people and other programs, in log files and output: any value in, one way only.

A float that is not finite becomes the text ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``; what JSON
does not support becomes text. For what is read back see `strict_json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from searchers.plain_values import describe, plain_scalar

from . import fast_json
from .strict_json import float_name

_MAX_TEXT: Final = 1_000
"""Longer texts of values that JSON does not support are described, since every row of a log file
repeats the configuration."""


def encode_json(value: Any, *, is_pretty: bool = False) -> str:
    """Return a value as strict JSON in ASCII.

    With `is_pretty` it is indented and sorted.

    Example:
        >>> encode_json({"loss": float("nan"), "at": 1 + 2j})
        '{"loss":"NaN","at":"(1+2j)"}'
    """
    return json_bytes(value, is_pretty=is_pretty).decode()


def json_bytes(value: Any, *, is_pretty: bool = False) -> bytes:
    """Return `encode_json` of the value as files hold it."""
    if (data := fast_json.dumps(value, is_pretty=is_pretty)) is not None:
        return data
    encoder = _pretty_encoder if is_pretty else _encoder
    try:
        if not is_pretty:
            return encoder.encode(value).encode()
    except (TypeError, ValueError):
        # A number that is not finite, or a key that is not a string. Checking each value first
        # would cost more than encoding it.
        pass
    return encoder.encode(plain(value, _short_text)).encode()


def plain(value: Any, other: Callable[[Any], Any] | None = None, *, is_strict: bool = True) -> Any:
    """Return a value as JSON knows it.

    Args:
        value: The value.
        other: Returns what is written of a value that JSON does not support; by default arrays and
            sets become lists, and all else text.
        is_strict: Whether a float that is not finite becomes a text; otherwise it stays.

    Example:
        >>> plain({1: (math.inf, {2})})
        {'1': ['Infinity', [2]]}
    """
    match value:
        case float() if is_strict and not math.isfinite(value):
            return float_name(value)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            parts = value.items()
            return {str(key): plain(part, other, is_strict=is_strict) for key, part in parts}
        case list() | tuple():
            return [plain(part, other, is_strict=is_strict) for part in value]
        case _ if other:
            return other(value)
    listed = _listed(value)
    return str(value) if listed is None else plain(listed, is_strict=is_strict)


def _listed(value: Any) -> Any:
    """Return a set or an array, of NumPy or like it, as a list; None for anything else."""
    if isinstance(value, set | frozenset):
        return list(value)
    return value.tolist() if hasattr(value, "tolist") else None


def _short_text(value: Any) -> Any:
    """Return what a log file holds of a value that JSON does not support: a number or a text.

    A long text is replaced by a description.
    """
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    scalar = plain_scalar(value)
    if scalar is not value:
        return plain(scalar, _short_text)
    if isinstance(value, bytes | bytearray):
        return describe(value)
    try:
        text = str(value)
        return describe(value) if len(text) > _MAX_TEXT else text
    except Exception:  # noqa: BLE001  (a user's `__str__` may raise anything)
        return f"<{type(value).__name__}>"


_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_short_text)
_pretty_encoder = json.JSONEncoder(allow_nan=False, default=_short_text, indent=2, sort_keys=True)
