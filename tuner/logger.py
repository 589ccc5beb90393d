"""Ray Tune's import path of the loggers: ``from tuner.logger import LoggerCallback``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .callbacks import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from .errors import missing_name

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "pretty_print",
]

_DEFAULTS = "leave it out; CSV, JSON and TensorBoard loggers are added automatically"
_DERIVE = "derive a class from LoggerCallback, and pass it in RunConfig(callbacks=[...])"
_REPLACEMENTS = {
    "DEFAULT_LOGGERS": f"{_DEFAULTS}, others go into RunConfig(callbacks=[...])",
    "CSVLogger": _DEFAULTS,
    "JsonLogger": _DEFAULTS,
    "TBXLogger": _DEFAULTS,
    "Logger": _DERIVE,
    "UnifiedLogger": _DERIVE,
    "NoopLogger": "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1 leaves out the automatic loggers",
}
"""Names of Ray Tune 1 that do not exist here, each with the alternative."""


def pretty_print(result: Mapping[str, Any], exclude: Sequence[str] = ()) -> str:
    """Return a result as text, nested as reported, in the order of the names.

    Args:
        result: The result.
        exclude: Names that are left out, beside those without a value.

    Example:
        >>> print(pretty_print({"loss": 0.5, "val": {"acc": 0.25}, "note": None}), end="")
        loss: 0.5
        val:
          acc: 0.25
    """
    shown = {name: value for name, value in result.items() if name not in exclude}
    return "".join(f"{line}\n" for line in _lines(shown))


def _lines(node: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(node.items(), key=lambda item: str(item[0])):
        if isinstance(value, Mapping) and value:
            yield f"{name}:"
            yield from (f"  {line}" for line in _lines(value))
        elif value is not None:
            yield f"{name}: {value}"


def __getattr__(name: str) -> Any:
    raise missing_name(f"module {__name__!r}", name, _REPLACEMENTS)
