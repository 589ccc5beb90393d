"""JSON without surprises: every state of ours on disk, and every frame between driver and worker, is written by these functions.

The standard encoder writes ``NaN`` and ``Infinity``, which no strict parser takes; others turn them into ``null`` without a word.
Here a float that is not finite travels as ``{"$float": "NaN" | "Infinity" | "-Infinity"}`` and comes back as the float it was. What
JSON cannot hold at all (functions, classes, arrays in a configuration) is refused, or, where the caller passes `opaque`, written as
``{"$object": "<repr>"}`` and read back as an `Opaque` that says what stood there. A dictionary of the user's that looks like such a tag
gets one more dollar sign on the way out and loses it on the way in.

The text is plain ASCII without line breaks, so one value fits on one line of a file whatever strings it holds.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import numbers
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Default = Callable[[Any], Any]
"""Turns a value that JSON cannot hold into one that it can, or raises TypeError."""

OBJECT_REPR_LIMIT: Final = 200
"""Characters of an opaque object's ``repr`` that are kept."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_FLOAT: Final = "$float"
_OBJECT: Final = "$object"
_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands, after reading, where something stood that JSON cannot hold; whoever needs the thing itself has to be given it again.

    Attributes:
        text: Its ``repr``, at most `OBJECT_REPR_LIMIT` characters.
    """

    text: str


def opaque(value: Any) -> Any:
    """Return what is written for a value that JSON cannot hold: a NumPy scalar as its number, all else as its ``repr``.

    Made to be passed to `dumps` as `default`. The ``repr`` is for people; nothing is ever rebuilt from it.

    Example:
        >>> dumps({"loss": len}, default=opaque)
        '{"loss":{"$object":"<built-in function len>"}}'
    """
    if isinstance(value, Opaque):
        return {_OBJECT: value.text}
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    return {_OBJECT: _describe(value)}


def without_addresses(text: str) -> str:
    """Return a ``repr`` without where in memory objects lie, which differs from process to process."""
    return _ADDRESS.sub("", text)


def _describe(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (a user's __repr__ may raise anything, and a journal must not die of it)
        text = object.__repr__(value)
    return text[:OBJECT_REPR_LIMIT]


def dumps(value: Any, default: Default | None = None) -> str:
    """Return the value as strict JSON on one line.

    Args:
        value: Dictionaries, lists, tuples (which come back as lists), strings, numbers, booleans and None. Keys that are numbers,
            booleans or None become strings, as everywhere in JSON.
        default: Called with each value that is none of these; `opaque` writes its ``repr``. None refuses it.

    Raises:
        TypeError: If a value or a key is none of these and there is no `default`.
        ValueError: If the value contains itself.

    Example:
        >>> dumps({"loss": float("nan"), "steps": 3})
        '{"loss":{"$float":"NaN"},"steps":3}'
    """
    encode = _encoder(default)
    try:
        text = encode(value)
    except ValueError:
        # The usual reason is a float that is not finite: rare enough to pay for a second pass only then.
        return encode(_tagged(value, default))
    # Looking for the single character first is five times faster, and nearly every text lacks it.
    if "$" in text and '{"$' in text:
        return encode(_tagged(value, default))
    return text


@functools.lru_cache(maxsize=8)
def _encoder(default: Default | None) -> Callable[[Any], str]:
    return json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=default).encode


def _tagged(value: Any, default: Default | None) -> Any:
    try:
        return _tag(value, default)
    except RecursionError as cause:
        raise ValueError("value contains itself, or is nested too deeply for JSON") from cause


def _tag(value: Any, default: Default | None) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else {_FLOAT: _name_of(value)}
        case str() | int() | None:
            return value
        case dict():
            return {_escaped(key, len(value)): _tag(item, default) for key, item in value.items()}
        case list() | tuple():
            return [_tag(item, default) for item in value]
        case _ if default is None:
            raise TypeError(f"{value!r} of type {type(value).__name__} is not JSON; convert it, or pass default=opaque")
        case _:
            substitute = default(value)
            return substitute if isinstance(substitute, dict) and _OBJECT in substitute else _tag(substitute, default)


def _escaped(key: Any, num_keys: int) -> Any:
    return f"${key}" if num_keys == 1 and isinstance(key, str) and key.startswith("$") else key


def _name_of(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def loads(text: str | bytes) -> Any:
    """Return the value that `dumps` wrote.

    Raises:
        ValueError: If the text is not strict JSON; the literals ``NaN`` and ``Infinity`` are not.

    Example:
        >>> loads('{"loss":{"$float":"-Infinity"}}')
        {'loss': -inf}
    """
    if isinstance(text, bytes):
        text = text.decode()
    return (_decode_tagged if "$" in text else _decode)(text)


def _refuse_constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not strict JSON; such a float is written as {{{_FLOAT!r}: {literal!r}}}")


def _untag(node: dict[str, Any]) -> Any:
    if len(node) != 1:
        return node
    ((key, value),) = node.items()
    if not key.startswith("$"):
        return node
    if key == _FLOAT:
        return _float_named(value)
    if key == _OBJECT:
        return Opaque(str(value))
    return {key[1:]: value} if key.startswith("$$") else node


def _float_named(name: Any) -> float:
    try:
        return _FLOATS[name]
    except (KeyError, TypeError):
        raise ValueError(f"{_FLOAT} must be one of {', '.join(_FLOATS)}, got {name!r}") from None


_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
_decode_tagged: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_hook=_untag).decode

_SEAL_START: Final = '{"sha256":"'
_SEAL_MIDDLE: Final = '","body":'
_SEAL_END: Final = "}\n"


def seal(value: Any, default: Default | None = None) -> str:
    """Return the value as a JSON text that carries its own SHA-256, so that no changed byte goes unnoticed."""
    return seal_text(dumps(value, default))


def seal_text(body: str) -> str:
    """Return a JSON text with its own SHA-256; see `seal`."""
    return f"{_SEAL_START}{hashlib.sha256(body.encode()).hexdigest()}{_SEAL_MIDDLE}{body}{_SEAL_END}"


def unseal(text: bytes) -> Any:
    """Return the value that `seal` wrote.

    Raises:
        ValueError: If the text is cut, changed, or was never sealed.
    """
    start, middle = _SEAL_START.encode(), _SEAL_MIDDLE.encode()
    body_at = len(start) + hashlib.sha256().digest_size * 2 + len(middle)
    body = text[body_at : -len(_SEAL_END)]
    expected = start + hashlib.sha256(body).hexdigest().encode() + middle
    if text[:body_at] != expected or text[-len(_SEAL_END) :] != _SEAL_END.encode():
        raise ValueError("its SHA-256 does not match its content")
    return loads(body)
