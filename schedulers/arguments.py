"""Validation of constructor arguments that several schedulers share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from .decisions import Number
from .scheduler import MODES


def plain_number(name: str, value: Any) -> Number:
    """Return an argument as a number that JSON knows; numpy's are turned into Python's.

    Raises:
        TypeError: If it is no number.

    Example:
        >>> plain_number("max_t", 9)
        9
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return int(value) if isinstance(value, Integral) else float(value)


def checked_time(name: str, value: Any) -> Number:
    """Return a length of training as a number.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is negative or not finite.
    """
    number = plain_number(name, value)
    if not 0 <= number < math.inf:
        raise ValueError(
            f"{name} must be at least 0 and finite, got {number}; it is counted in time_attr units"
        )
    return number


def whole_number(name: str, value: Any) -> int:
    """Return an argument that must be a whole number.

    Raises:
        TypeError: If it is not.
    """
    # bool is a subclass of int, but True for a number of trials is a mistake.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    return value


def check_ranges(max_t: Number, grace_period: Number, reduction_factor: Number) -> None:
    """Check the range of `max_t`, `grace_period` and `reduction_factor`.

    Raises:
        ValueError: If one of them is out of range.
    """
    if not 1 <= max_t < math.inf:
        raise ValueError(
            f"max_t must be at least 1 and finite, got {max_t}; it is counted in time_attr units"
        )
    if not 1 <= grace_period <= max_t:
        raise ValueError(
            f"grace_period must be between 1 and max_t={max_t}, got {grace_period}; it is counted "
            "in time_attr units"
        )
    if not 1 < reduction_factor < math.inf:
        raise ValueError(
            f"reduction_factor must be more than 1 and finite, got {reduction_factor}; one trial "
            "in so many survives a level"
        )


def check_names(time_attr: str, metric: str | None, mode: str | None) -> None:
    """Check `time_attr`, `metric` and `mode`.

    Raises:
        ValueError: If one of them is empty, not text, or no mode.
    """
    check_entry("time_attr", time_attr, "'training_iteration' always is")
    if metric is not None and (not isinstance(metric, str) or not metric):
        raise ValueError(
            f"metric must be a name or None, got {metric!r}; None takes the one of TuneConfig"
        )
    if mode is not None and mode not in MODES:
        raise ValueError(
            f"mode must be 'min', 'max' or None, got {mode!r}; None takes the one of TuneConfig"
        )


def check_entry(name: str, value: Any, remedy: str) -> None:
    """Check that an argument names an entry of a result.

    Raises:
        ValueError: If it is no text, or empty.
    """
    if not isinstance(value, str) or not value:
        raise ValueError(
            f"{name} must be the name of an entry of each result, got {value!r}; {remedy}"
        )


def checked_brackets(brackets: Any, levels: Sequence[Number]) -> int:
    """Return the number of brackets: as asked for, but at most the number of levels.

    Raises:
        TypeError: If it is no whole number.
        ValueError: If it is less than 1.
    """
    number = whole_number("brackets", brackets)
    if number < 1:
        raise ValueError(
            f"brackets must be at least 1, got {number}; 1 compares all trials from the lowest "
            "level on"
        )
    return min(number, len(levels))


def check_count(name: str, value: Any, remedy: str) -> None:
    """Check that an argument is a whole number of at least 0.

    Raises:
        TypeError: If it is no whole number.
        ValueError: If it is negative.
    """
    if whole_number(name, value) < 0:
        raise ValueError(f"{name} must be at least 0, got {value}; {remedy}")
