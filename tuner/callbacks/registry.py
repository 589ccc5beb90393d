"""Registry of callbacks that an environment variable can switch on by name."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .callback import Callback

VARIABLE: Final = "TUNER_CALLBACKS"
_EXPECTED: Final = (
    f"{VARIABLE} must name callbacks as package.module.Class or package.module:Class, "
    "separated by commas"
)


def named_callbacks(
    given: Iterable[Callback] = (), environ: Mapping[str, str] = os.environ
) -> list[Callback]:
    """Return the callbacks that ``TUNER_CALLBACKS`` names, each constructed without arguments.

    Args:
        given: Callbacks that exist already; a class with an instance among them is not added.
        environ: The environment.

    Raises:
        ValueError: If a name is not a callback's, or the callback cannot be constructed without
            arguments.

    Example:
        >>> named_callbacks(environ={"TUNER_CALLBACKS": "tuner.callbacks:JsonLoggerCallback"})
        [<tuner.callbacks.files.json_logger.JsonLoggerCallback object at 0x...>]

    Departures:
        Ray Tune's ``RAY_TUNE_CALLBACKS`` is not read.
    """
    there = list(given)
    added: list[Callback] = []
    for name in _names(environ.get(VARIABLE, "")):
        kind = _class_of(name)
        if not any(isinstance(callback, kind) for callback in (*there, *added)):
            added.append(_constructed(kind, name))
    return added


def _names(text: str) -> Iterator[str]:
    yield from (name for part in text.split(",") if (name := part.strip()))


def _class_of(name: str) -> type[Callback]:
    module_name, _, class_name = name.rpartition(":" if ":" in name else ".")
    if not module_name or not class_name:
        raise ValueError(f"{_EXPECTED}, got {name!r}; write the whole path or unset the variable")
    try:
        found: Any = getattr(importlib.import_module(module_name), class_name)
    except Exception as cause:
        raise ValueError(
            f"{_EXPECTED}, got {name!r}, which cannot be imported ({cause}); correct it or "
            "unset the variable"
        ) from cause
    if not (isinstance(found, type) and issubclass(found, Callback)) or inspect.isabstract(found):
        raise ValueError(
            f"{_EXPECTED}, got {name!r}, which is not a callback class; name a subclass of "
            "tuner.Callback"
        )
    return found


def _constructed(kind: type[Callback], name: str) -> Callback:
    try:
        return kind()
    except Exception as cause:
        raise ValueError(
            f"{_EXPECTED}, got {name!r}, which cannot be constructed without arguments "
            f"({cause}); pass it in RunConfig(callbacks=[...])"
        ) from cause
