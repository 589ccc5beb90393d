"""Convert reported metrics to values that can stand in a result.

Results are sent to the driver as strict JSON and end up in tables. They are converted in the
worker, where an error can be raised at the line that caused it.

======================================= ============================================================
reported                                becomes
======================================= ============================================================
int, float, bool, str, None             itself; NaN and infinities are kept, but never count as best
dict, list, tuple                       dict and list of converted values
scalars, one-element arrays (numpy, …)  the Python number
arrays of up to 64 elements             nested lists
larger arrays                           ``{"shape", "dtype", "min", "max"}``, with a warning
anything else, and int beyond 64 bits   its ``repr``, at most 200 characters, with a warning
======================================= ============================================================

A value under a name that the engine fills in (`RESERVED`) is left out, with one warning by the
driver.

numpy and torch are not imported here: their values occur only if training code has imported them.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.core.result import (
    AUTO_FILLED,
    CONFIG,
    DEFAULT_METRIC,
    DELIMITER,
    DONE,
    MAX_SIZE_BYTES,
    SHOULD_CHECKPOINT,
    SUPPLIED_BY_USER,
    TRAINING_ITERATION,
)
from tuner.storage import strict_json

from .secrets import redact

MAX_KEYS = 1_000
MAX_LISTED_ELEMENTS = 64
MAX_REPR_LENGTH = 200
MAX_DEPTH = 32

_KEPT = SUPPLIED_BY_USER | {TRAINING_ITERATION}
RESERVED = AUTO_FILLED - _KEPT
_NOTHING: Mapping[str, Any] = {}
_MAX_INT = 2**63  # beyond 64 bits, most readers of JSON, tables and TensorBoard files fail
_SIZE_WORTH_MEASURING = MAX_SIZE_BYTES // 16  # JSON escapes blow a string up by at most 12


class Converter:
    """Converts the results of one trial; remembers which of its keys have been warned about.

    Attributes:
        replaced: Reported names that the engine fills in, since `take_replaced` was last called.
        reserved: Values that were reported under names of the engine, in the latest result.

    Example:
        >>> Converter().convert({"loss": 0.5, "layers": (16, 16), 7: None})
        {'loss': 0.5, 'layers': [16, 16], '7': None}
    """

    __slots__ = ("_num_keys", "_replaced", "_size", "_warned", "replaced", "reserved")

    def __init__(self) -> None:
        """Create a converter that has not warned yet."""
        self._warned: set[str] = set()
        self._replaced: set[str] = set()
        self.replaced: list[str] = []
        self.reserved: Mapping[str, Any] = _NOTHING
        self._num_keys = 0
        self._size = 0

    def convert(self, metrics: Mapping[Any, Any]) -> dict[str, Any]:
        """Return a copy of the metrics with JSON values only; non-finite floats stay floats.

        Raises:
            TypeError: If `metrics` is not a dictionary.
            ValueError: If a name stands for two values, or if there are too many names or bytes.
        """
        self.reserved = _NOTHING
        if _is_plain(metrics):
            return dict(metrics)
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"metrics must be a dictionary, got {type(metrics).__name__}; "
                "report numbers by name, e.g. {'loss': 0.1}"
            )
        self._num_keys = self._size = 0
        converted = self._mapping(metrics, "", 0)
        self.reserved = {
            name: value
            for name, value in converted.items()
            if name in AUTO_FILLED or name.startswith(CONFIG + DELIMITER)
        }
        for name in self.reserved:
            if name not in _KEPT:
                del converted[name]
                self.note_replaced(name)
        for name in SUPPLIED_BY_USER.intersection(converted):
            _check_supplied(name, converted[name])
        _refuse_ambiguous(converted)
        self._refuse_oversized(converted)
        return converted

    def note_replaced(self, name: str) -> None:
        """Note that the engine fills in a reported name."""
        if name not in self._replaced:
            self._replaced.add(name)
            self.replaced.append(name)

    def take_replaced(self) -> list[str]:
        """Return reported names that the engine has filled in, each once."""
        replaced, self.replaced = self.replaced, []
        return replaced

    def _refuse_oversized(self, converted: dict[str, Any]) -> None:
        size = len(strict_json.dumps(converted)) if self._size > _SIZE_WORTH_MEASURING else 0
        if size > MAX_SIZE_BYTES:
            raise ValueError(
                f"a result may take at most {MAX_SIZE_BYTES} bytes as JSON, got {size}; "
                "write the details to a file instead"
            )

    def _mapping(self, mapping: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        converted: dict[str, Any] = {}
        origins: dict[str, Any] = {}
        self._num_keys += len(mapping)
        if self._num_keys > MAX_KEYS:
            raise ValueError(
                f"a result may hold at most {MAX_KEYS} names, got {self._num_keys}; "
                "write the details to a file instead"
            )
        for key, value in mapping.items():
            name = _text(key if isinstance(key, str) else str(key))
            if name in converted:
                raise ValueError(
                    f"the names {origins[name]!r} and {key!r} both become {path + name!r}; "
                    "rename one of them"
                )
            origins[name] = key
            self._size += len(name) + 6  # with quotes, colon, comma and spaces
            converted[name] = self._value(value, path + name, depth + 1)
        return converted

    def _value(self, value: Any, path: str, depth: int) -> Any:  # noqa: PLR0911  (one a type)
        self._refuse_deep(path, depth)
        self._size += 8  # an estimate; only what comes near the limit is measured as JSON
        match value:
            case None | bool():
                return value
            case float():
                return float(value)
            case int() if -_MAX_INT <= value < _MAX_INT:
                return int(value)
            case str():
                self._size += len(value)
                return _text(redact(value))
            case Mapping():
                return self._mapping(value, path + DELIMITER, depth)
            case list() | tuple():
                return self._sequence(value, path, depth)
            case _:
                return self._other(value, path, depth)

    def _sequence(self, values: list[Any] | tuple[Any, ...], path: str, depth: int) -> list[Any]:
        # Checked first, so that a list of a million numbers is not converted only to be refused.
        if self._size + 2 * len(values) > MAX_SIZE_BYTES:
            raise ValueError(
                f"{path!r} holds {len(values)} values, more than fit into a result; "
                "write them to a file instead"
            )
        return [self._value(value, path, depth + 1) for value in values]

    def _refuse_deep(self, path: str, depth: int) -> None:
        if depth > MAX_DEPTH or self._size > 4 * MAX_SIZE_BYTES:
            raise ValueError(
                f"{path[:MAX_REPR_LENGTH]!r} is too deep or too large for a result, "
                "or contains itself; report a summary instead"
            )

    def _other(self, value: Any, path: str, depth: int) -> Any:
        """Convert a value that is not of one of Python's built-in types."""
        try:
            plain = _from_array(value)
        except Exception:  # noqa: BLE001  (the type's own code; its repr is kept)
            plain = value
        if plain is value:
            what = (
                "an integer beyond 64 bits"
                if isinstance(value, int)
                else f"of type {type(value).__name__}, which is no number"
            )
            self._warn(path, f"is {what}; its repr is kept")
            return _short_repr(value)
        if isinstance(plain, dict):
            self._warn(
                path,
                f"has {math.prod(plain['shape'])} elements; only shape, type, min and max are kept",
            )
        return self._value(plain, path, depth + 1)

    def _warn(self, path: str, what: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            warnings.warn(
                f"the reported value {path!r} {what}; "
                "report a number or a short list to silence this",
                stacklevel=2,
            )


def note_replaced_iteration(
    converter: Converter, converted: Mapping[str, Any], result: Mapping[str, Any]
) -> None:
    """Note a reported ``training_iteration`` that was replaced because it does not increase."""
    if (
        TRAINING_ITERATION in converted
        and converted[TRAINING_ITERATION] != result[TRAINING_ITERATION]
    ):
        converter.note_replaced(TRAINING_ITERATION)


def as_metrics(value: Any) -> Any:
    """Return what training code returned or yielded as metrics.

    A number becomes ``{"_metric": number}``; anything else is returned unchanged.

    Example:
        >>> as_metrics(0.25)
        {'_metric': 0.25}
    """
    if isinstance(value, (dict, Mapping)):
        return value
    plain = _from_array(value)
    return (
        {DEFAULT_METRIC: plain}
        if isinstance(plain, (int, float)) and not isinstance(plain, bool)
        else value
    )


def _is_plain(metrics: Any) -> bool:
    """Return whether this is a flat dictionary that needs no conversion, as most results are."""
    if (
        type(metrics) is not dict
        or len(metrics) > MAX_KEYS // 10
        or not AUTO_FILLED.isdisjoint(metrics)
    ):
        return False
    for key, value in metrics.items():
        if (
            type(key) is not str
            or not key.isascii()
            or len(key) > MAX_REPR_LENGTH
            or DELIMITER in key
        ):
            return False
        # By exact type: subclasses such as numpy.float64 have to be converted.
        kind = type(value)
        if (
            kind is not float
            and kind is not bool
            and (kind is not int or not -_MAX_INT <= value < _MAX_INT)
        ):
            return False
    return True


def _check_supplied(name: str, value: Any) -> None:
    if name in (DONE, SHOULD_CHECKPOINT):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")
    elif (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf
    ):
        raise ValueError(
            f"{name} must be a finite number of at least 0, got {value!r}; "
            "leave it out to have it filled in"
        )


def _refuse_ambiguous(converted: dict[str, Any]) -> None:
    # Files have one column for {"a": {"b": 1}} and {"a/b": 1}.
    seen: dict[str, tuple[str, ...]] = {}
    for parts in _leaf_paths(converted, ()):
        joined = DELIMITER.join(parts)
        if joined in seen:
            raise ValueError(
                f"{_nested(seen[joined])} and {_nested(parts)} both become {joined!r} in tables; "
                "rename one of them"
            )
        seen[joined] = parts


def _leaf_paths(node: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in node.items():
        if isinstance(value, dict):
            yield from _leaf_paths(value, (*above, name))
        else:
            yield (*above, name)


def _nested(parts: tuple[str, ...]) -> str:
    """Return a path as one would write it, e.g. ``{'a': {'b'}}``."""
    *outer, last = parts
    return (
        "".join(f"{{{name!r}: " for name in outer)
        + (f"{{{last!r}}}" if outer else repr(last))
        + "}" * len(outer)
    )


def _from_array(value: Any) -> Any:
    """Return the plain form of a numpy or torch scalar or array, or of what numpy can convert.

    Anything else is returned unchanged.
    """
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_shaped(value.detach(), value.numel())
    if numpy is None:
        return value
    if isinstance(value, numpy.floating):
        return float(value)
    if isinstance(value, numpy.generic):
        plain = value.item()
        return value if type(plain) is type(value) else plain  # e.g. of clongdouble
    if not isinstance(value, numpy.ndarray):
        if not hasattr(type(value), "__array__"):
            return value
        value = numpy.asarray(value)  # of JAX, TensorFlow, pandas
    return _from_shaped(value, value.size)


def _from_shaped(array: Any, num_elements: int) -> Any:
    if num_elements == 1:
        return array.item()
    if num_elements <= MAX_LISTED_ELEMENTS:
        return array.tolist()
    low, high = _extremes(array)
    return {"shape": list(array.shape), "dtype": str(array.dtype), "min": low, "max": high}


def _extremes(array: Any) -> tuple[Any, Any]:
    try:
        return array.min().item(), array.max().item()
    except Exception:  # noqa: BLE001  (text, complex numbers and objects have no order)
        return None, None


def _short_repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  (a repr may raise anything)
        text = f"<{type(value).__name__} without a repr>"
    text = redact(text)
    return _text(text if len(text) <= MAX_REPR_LENGTH else text[: MAX_REPR_LENGTH - 1] + "…")


def _text(text: str) -> str:
    """Return the text as a plain `str` that can be encoded, i.e. without lone surrogates."""
    plain = str.__str__(text)
    return plain if plain.isascii() else plain.encode("utf-8", "backslashreplace").decode()
