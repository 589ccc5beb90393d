"""Conversion of values that JSON does not know, to plain numbers and descriptions of objects."""

from __future__ import annotations

import numbers
import re
from typing import Any, Final

DESCRIPTION_LIMIT: Final = 200
"""Characters of a description that are kept."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def python_scalar(value: Any) -> Any:
    """Return a scalar of NumPy as Python's own number, truth value or text; all else unchanged."""
    return value.item() if _is_scalar(value) and type(value).__module__ == "numpy" else value


def plain_scalar(value: Any) -> Any:
    """Return a number, truth value or text of any class as Python's own; all else unchanged.

    Example:
        >>> import fractions, http
        >>> plain_scalar(http.HTTPStatus.OK), plain_scalar(fractions.Fraction(1, 2))
        (200, Fraction(1, 2))
    """
    if _is_scalar(value):
        value = value.item()
    match value:
        case bool():
            return value
        case numbers.Integral():
            return int(value)
        case numbers.Real() if not isinstance(value, numbers.Rational):
            return float(value)
        case str():
            return str.__str__(value)
        case _:
            return value


def _is_scalar(value: Any) -> bool:
    """Return whether a value is a scalar of NumPy, torch or another library of arrays."""
    # Looked up in the class, since an object of the user's may do anything where it is asked.
    return hasattr(type(value), "item") and getattr(value, "shape", None) == ()


def describe(value: Any) -> str:
    """Return a description that is the same in every process, cut at `DESCRIPTION_LIMIT`.

    Never raises.

    Example:
        >>> describe(lambda: 1), describe(b"abc")
        ('<function <lambda>>', "b'abc'")
    """
    return without_addresses(_repr(value))[:DESCRIPTION_LIMIT]


def without_addresses(text: str) -> str:
    """Return the ``repr`` of a value without its address, which differs between processes.

    Example:
        >>> without_addresses("<function mse at 0x7f12ab>")
        '<function mse>'
    """
    return _ADDRESS.sub("", text)


def _repr(value: Any) -> str:
    try:
        if isinstance(value, bytes | bytearray | str):
            return repr(value[:DESCRIPTION_LIMIT])
        if getattr(value, "ndim", 0) and isinstance(getattr(value, "shape", None), tuple):
            dtype = getattr(value, "dtype", None)
            return f"{type(value).__name__}(shape={tuple(value.shape)}, dtype={dtype})"
        return repr(value)
    except Exception:  # noqa: BLE001  (a user's __repr__ may raise anything)
        return object.__repr__(value)
