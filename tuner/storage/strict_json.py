"""Strict JSON for all state on disk and all messages between driver and worker.

The standard encoder writes ``NaN`` and ``Infinity``, which no strict parser takes; others turn them
into ``null`` without a word. Here a float that is not finite travels as ``{"$float": "NaN" |
"Infinity" | "-Infinity"}`` and comes back as the float it was. What JSON cannot hold at all
(functions, classes, arrays in a configuration) is refused, or, where the caller passes `opaque`,
written as ``{"$object": "<repr>"}`` and read back as an `Opaque` that says what stood there, and
where it can be had. Tuples become lists, except where the caller marks them by `as_tuple`:
``{"$tuple": [...]}``; dictionaries whose keys have to stay what they are, by `as_items`:
``{"$items": [[key, value], ...]}``. A dictionary of the user's that looks like such a tag gets one
more dollar sign on the way out and loses it on the way in.

The text is plain ASCII without line breaks, so any value fits on one line of a file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from searchers.plain_values import describe, plain_scalar

from . import fast_json

Default = Callable[[Any], Any]
"""Turns a value that JSON cannot hold into one that it can, or raises TypeError."""

_FLOAT: Final = "$float"
_OBJECT: Final = "$object"
_TUPLE: Final = "$tuple"
_ITEMS: Final = "$items"
_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands, after reading, for an object that JSON cannot hold; the user has to give it again.

    Attributes:
        text: What it was, see `describe`.
        source: Where in the search space it stood, empty if that is not known: keys, indices, and,
            for one of several categories or grid values, the number of that one.
        content: SHA-256 of the file that holds it, empty where it was not stored.
    """

    text: str
    source: tuple[str | int, ...] = ()
    content: str = ""


@final
class _Tag(dict[str, Any]):
    """A tag: its only key is written unchanged."""


def opaque(value: Any) -> Any:
    """Return what is written for a value that JSON cannot hold.

    A number or text of another class becomes Python's, all else its description.

    Made to be passed to `dumps` as `default`. The description is for people; nothing is ever
    rebuilt from it.

    Example:
        >>> dumps({"loss": len}, default=opaque)
        '{"loss":{"$object":"<built-in function len>"}}'
    """
    if isinstance(value, Opaque):
        return _tag_of(value)
    value = plain_scalar(value)
    is_plain = isinstance(value, bool | int | float | str)
    return value if is_plain else _Tag({_OBJECT: describe(value)})


def _tag_of(value: Opaque) -> _Tag:
    if not value.source and not value.content:
        return _Tag({_OBJECT: value.text})
    where = {"source": list(value.source), "content": value.content}
    return _Tag(
        {_OBJECT: {"text": value.text, **{name: place for name, place in where.items() if place}}}
    )


def as_tuple(items: Sequence[Any]) -> dict[str, Any]:
    """Return what `dumps` writes so that `loads` returns a tuple of these items.

    Example:
        >>> loads(dumps(as_tuple([1, 2])))
        (1, 2)
    """
    return _Tag({_TUPLE: list(items)})


def as_items(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a form of a dictionary with any keys that `dumps` writes and `loads` restores.

    Example:
        >>> loads(dumps(as_items({0: "a", None: "b"})))
        {0: 'a', None: 'b'}
    """
    return _Tag({_ITEMS: [[key, value] for key, value in mapping.items()]})


def dumps(value: Any, default: Default | None = None) -> str:
    """Return the value as strict JSON on one line.

    Args:
        value: Dictionaries, lists, tuples (which come back as lists), strings, numbers, booleans
            and None. Keys that are numbers, booleans or None become strings, as everywhere in JSON.
        default: Called with each value that is none of these; `opaque` writes its ``repr``. None
            refuses it.

    Raises:
        TypeError: If a value or a key is none of these and there is no `default`.
        ValueError: If the value contains itself.

    Example:
        >>> dumps({"loss": float("nan"), "steps": 3})
        '{"loss":{"$float":"NaN"},"steps":3}'
    """
    return to_bytes(value, default).decode()


def to_bytes(value: Any, default: Default | None = None) -> bytes:
    """Return the value as `dumps` does, in bytes, of which it is made."""
    data = fast_json.dumps(value)
    return data if data is not None and b'{"$' not in data else _slowly(value, default).encode()


def _slowly(value: Any, default: Default | None) -> str:
    encode = _encoder(default)
    try:
        text = encode(value)
    except ValueError:
        # The usual reason is a float that is not finite: rare enough to pay for a second pass only
        # then.
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
            return value if math.isfinite(value) else {_FLOAT: float_name(value)}
        case str() | int() | None:
            return value
        case _Tag():
            return _Tag(
                {
                    key: item if key == _OBJECT else _tag(item, default)
                    for key, item in value.items()
                }
            )
        case dict():
            return {_escaped(key, len(value)): _tag(item, default) for key, item in value.items()}
        case list() | tuple():
            return [_tag(item, default) for item in value]
        case _ if default is None:
            raise TypeError(
                f"{value!r} of type {type(value).__name__} is not JSON; convert it, or pass "
                "default=opaque"
            )
        case _:
            return _tag(default(value), default)


def _escaped(key: Any, num_keys: int) -> Any:
    return f"${key}" if num_keys == 1 and isinstance(key, str) and key.startswith("$") else key


def float_name(value: float) -> str:
    """Return the name of a float that is not finite."""
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
        if b"$" in text:
            return _decoded(_decode_tagged, text.decode())
        try:
            return fast_json.loads(text)
        except ValueError:  # the slow decoder accepts it, or says what is wrong
            text = text.decode()
    return _decoded(_decode_tagged if "$" in text else _decode, text)


def _decoded(decode: Callable[[str], Any], text: str) -> Any:
    try:
        return decode(text)
    except RecursionError as cause:
        raise ValueError("the text is nested too deeply") from cause


def _refuse_constant(literal: str) -> Any:
    raise ValueError(
        f"{literal} is not strict JSON; such a float is written as {{{_FLOAT!r}: {literal!r}}}"
    )


def _untag(node: dict[str, Any]) -> Any:
    if len(node) != 1:
        return node
    ((key, value),) = node.items()
    if not key.startswith("$"):
        return node
    if tag := _TAGS.get(key):
        return tag(value)
    return {key[1:]: value} if key.startswith("$$") else node


def _float_named(name: Any) -> float:
    try:
        return _FLOATS[name]
    except (KeyError, TypeError):
        raise ValueError(f"{_FLOAT} must be one of {', '.join(_FLOATS)}, got {name!r}") from None


def _opaque_from(fields: Any) -> Opaque:
    if not isinstance(fields, dict):
        return Opaque(str(fields))
    return Opaque(
        str(fields.get("text")), _tuple_of(fields.get("source", [])), str(fields.get("content", ""))
    )


def _tuple_of(items: Any) -> tuple[Any, ...]:
    if not isinstance(items, list):
        # The text is wrong, not a caller's argument.
        raise ValueError(f"{_TUPLE} must be a list, got {items!r:.80}")  # noqa: TRY004
    return tuple(items)


def _dictionary_of(items: Any) -> dict[Any, Any]:
    try:
        return dict(items)
    except TypeError as cause:
        raise ValueError(
            f"{_ITEMS} must be a list of keys with their values, got {items!r:.80}"
        ) from cause


_TAGS: Final[Mapping[str, Callable[[Any], Any]]] = {
    _FLOAT: _float_named,
    _OBJECT: _opaque_from,
    _TUPLE: _tuple_of,
    _ITEMS: _dictionary_of,
}

_decode: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
_decode_tagged: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_hook=_untag).decode

_SEAL_START: Final = '{"sha256":"'
_SEAL_MIDDLE: Final = '","body":'
_SEAL_END: Final = "}\n"
_SIGNATURE: Final = "sha256"


def seal(value: Any, default: Default | None = None) -> str:
    """Return the value as JSON with its own SHA-256, which shows any changed byte."""
    return b"".join(seal_parts([to_bytes(value, default)])).decode()


def seal_parts(body: Sequence[bytes]) -> list[bytes]:
    """Return JSON text in parts with its own SHA-256, in parts since it may be long; see `seal`."""
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return [f"{_SEAL_START}{digest.hexdigest()}{_SEAL_MIDDLE}".encode(), *body, _SEAL_END.encode()]


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


def signed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary of JSON values with their SHA-256, for files that people read too."""
    text = dumps(dict(body))
    return {**loads(text), _SIGNATURE: hashlib.sha256(text.encode()).hexdigest()}


def checked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given to `signed`, after it has been read back.

    Raises:
        ValueError: If anything but the layout of the text has changed.

    Example:
        >>> checked(signed({"seed": 3}))
        {'seed': 3}
    """
    rest = {key: value for key, value in body.items() if key != _SIGNATURE}
    if hashlib.sha256(dumps(rest, opaque).encode()).hexdigest() != body.get(_SIGNATURE):
        raise ValueError("its SHA-256 does not match its content")
    return rest
