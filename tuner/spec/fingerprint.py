"""Fingerprint of a trainable, by which a restore notices that it has changed."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.execution.group_trainable import GroupTrainable, recorded_part

_NUM_SHOWN = 12
_TYPED_IN = frozenset({"<string>", "<stdin>"})
"""File names of code that was given to ``exec`` or typed in; any such code has the same."""


def fingerprint(trainable: Any, name: str) -> dict[str, Any]:
    """Return a trainable's name, where it is defined, and the hash of its source if available.

    Of a trainable that tells what it is made from, that is its record instead of the source.

    Args:
        trainable: A function or class, or what the workers of a trainer run.
        name: Its name in tables.
    """
    code, recorded = _defined(trainable), recorded_part(trainable)
    told: dict[str, Any] = {
        "name": name,
        "module": str(getattr(code, "__module__", "")),
        "qualname": str(getattr(code, "__qualname__", "")),
        "source_sha256": None if recorded else _source_hash(code),
    }
    if recorded:
        return {**told, "record": dict(recorded.as_record())}
    trainer = getattr(trainable, "trainer", None) if isinstance(trainable, GroupTrainable) else None
    return told if trainer is None else {**told, "trainer": str(trainer)}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how one fingerprint differs from another."""
    # Not compared by module: a script's is "__main__" at one time and its file name at another.
    if then.get("qualname") != now["qualname"]:
        yield f"trainable: {then.get('qualname')} -> {now['qualname']}"
    before, after = then.get("record") or {}, now.get("record") or {}
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            yield f"trainable's {name}: {before[name]!r} -> {after[name]!r}"
    old, new = then.get("source_sha256"), now["source_sha256"]
    if old and new and old != new:
        yield f"trainable's source (SHA-256): {str(old)[:_NUM_SHOWN]} -> {str(new)[:_NUM_SHOWN]}"


def _defined(trainable: Any) -> Any:
    """Return the function or class that the user wrote."""
    while hasattr(trainable, "func"):  # bound by functools.partial or `with_parameters`
        trainable = trainable.func
    return trainable if hasattr(trainable, "__qualname__") else type(trainable)


def _source_hash(code: Any) -> str | None:
    try:
        if inspect.getfile(code) in _TYPED_IN:
            return None
        return hashlib.sha256(inspect.getsource(code).encode(errors="surrogatepass")).hexdigest()
    except (OSError, TypeError, SyntaxError, IndexError):
        # Typed in, generated or built in; or its file has changed since it was imported.
        return None
