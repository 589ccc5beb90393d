"""Fingerprint of a trainable, by which a restore recognises it without keeping its code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

_NUM_SHOWN = 12
_TYPED_IN = frozenset({"<string>", "<stdin>"})
"""Names that all code has which was given to ``exec`` or to an interpreter, whatever text may be
found under them."""


def fingerprint(trainable: Any, name: str) -> dict[str, str | None]:
    """Return a trainable's name, where it is defined, and the hash of its source where that can be had.

    Args:
        trainable: A function or class.
        name: The name it has in tables.
    """
    code = _defined(trainable)
    return {
        "name": name,
        "module": str(getattr(code, "__module__", "")),
        "qualname": str(getattr(code, "__qualname__", "")),
        "source_sha256": _source_hash(code),
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how one fingerprint differs from another; a module counts for nothing, since a script is another one each time."""
    if then.get("qualname") != now["qualname"]:
        yield f"trainable: {then.get('qualname')} -> {now['qualname']}"
    old, new = then.get("source_sha256"), now["source_sha256"]
    if old and new and old != new:
        yield f"trainable's source (SHA-256): {str(old)[:_NUM_SHOWN]} -> {str(new)[:_NUM_SHOWN]}"


def _defined(trainable: Any) -> Any:
    """Return the function or class that the user wrote, without the arguments that were bound to it."""
    while hasattr(trainable, "func"):
        trainable = trainable.func
    return trainable if hasattr(trainable, "__qualname__") else type(trainable)


def _source_hash(code: Any) -> str | None:
    try:
        if inspect.getfile(code) in _TYPED_IN:
            return None
        return hashlib.sha256(inspect.getsource(code).encode(errors="surrogatepass")).hexdigest()
    # Typed in, generated or built in; or its file has changed under it.
    except (
        OSError,
        TypeError,
        SyntaxError,
        IndexError,
    ):
        return None
