"""Which of two values of a metric is the better one, and what to say about a metric that does not exist."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from typing import Any, Literal, TypeGuard, get_args

from tuner.core.metric_watch import meant_by
from tuner.core.pareto import Objectives

Mode = Literal["min", "max"]
"""The direction in which a metric is optimised."""

MODES: tuple[Mode, ...] = get_args(Mode)

_MAX_LISTED = 10


def check_mode(mode: str | None, name: str = "mode") -> Mode:
    """Return the mode if it is ``"min"`` or ``"max"``.

    Args:
        mode: What was given.
        name: Name of the argument, for the message.

    Raises:
        ValueError: If it is not one of them.
    """
    for known in MODES:
        if mode == known:
            return known
    if mode is None:
        raise ValueError(
            f"{name} must be 'min' or 'max', got None; pass it, or set it in TuneConfig"
        )
    close = difflib.get_close_matches(str(mode).lower(), MODES, n=1, cutoff=0.3)
    raise ValueError(
        f"{name} must be 'min' or 'max', got {mode!r}"
        + (f"; did you mean {close[0]!r}?" if close else "")
    )


def mode_for(
    metric: str | None, own_metric: str | None, own_mode: Mode | None, several: Objectives = ()
) -> Mode | None:
    """Return the direction in which an experiment optimises a metric; None where it does not say.

    The direction of one metric says nothing about another one.

    Args:
        metric: The metric that is asked about; None for the experiment's own.
        own_metric: The metric that the experiment optimises; None if it does not name one. Its mode counts for every metric then.
        own_mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for unknown.
        several: Metric and mode of each objective of an experiment that has several.
    """
    if metric is not None and several:
        mode = dict(several).get(metric)
        return mode if mode is None else check_mode(mode)
    return own_mode if metric is None or own_metric in (None, metric) else None


def objective_of(
    metric: str | None, mode: str | None, several: Objectives = (), *, name: str = "mode"
) -> tuple[str, Mode]:
    """Return metric and mode (``"min"`` or ``"max"``: the direction of optimisation) if there are both.

    Args:
        metric: The metric, if there is one.
        mode: Its mode, if there is one.
        several: The objectives of an experiment that has several.
        name: Name of the argument that holds the mode, for the message.

    Raises:
        ValueError: If there is no metric, no mode, or no such mode.
    """
    if not metric and several:
        names = ", ".join(name for name, _ in several)
        raise ValueError(
            f"metric must be given, as the experiment has {len(several)} objectives: {names}; name one, or take the trials that no other "
            "beats with get_best_results()"
        )
    if not metric:
        raise ValueError(
            "metric must be given, as the experiment names none; pass metric=..., or set it in TuneConfig"
        )
    if mode is None:
        raise ValueError(
            f"{name} must be 'min' or 'max', got None; pass it, as the experiment does not say whether {metric!r} is minimised"
        )
    return metric, check_mode(mode, name)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a metric's value can be compared: a Python number, but no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number that can be drawn and averaged: finite, and not beyond all floats."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:
        return False


def rank(value: float, mode: Mode) -> tuple[bool, float]:
    """Return a key that is larger the better the value is; NaN is worse than everything.

    Args:
        value: The metric's value.
        mode: ``"max"`` if larger values are better, ``"min"`` if smaller ones are.

    Example:
        >>> max([0.3, float("nan"), 0.1], key=lambda loss: rank(loss, "min"))
        0.1
    """
    if math.isnan(value):
        return (False, 0.0)
    return (True, value if mode == "max" else -value)


def step_rank(value: float, mode: Mode) -> tuple[bool, float]:
    """Return a key that is larger the better a step of a trial is: what is not finite is worse than everything."""
    return rank(value if is_finite(value) else math.nan, mode)


def unknown_metric(metric: str, known: Collection[str], whose: str) -> ValueError:
    """Return the error for a metric that `whose` did not report as a number, with the closest of those that exist.

    Args:
        metric: The name asked for.
        known: The metrics that exist, flattened.
        whose: Who would have had to report it, e.g. ``"a trial"``.
    """
    message = f"metric must be one that {whose} reported as a number, got {metric!r}"
    if close := meant_by(metric, sorted(known)):
        return ValueError(f"{message}; did you mean {' or '.join(repr(name) for name in close)}?")
    listed = ", ".join(sorted(known)[:_MAX_LISTED]) or "none"
    return ValueError(
        f"{message}; reported were: {listed}{', ...' if len(known) > _MAX_LISTED else ''}"
    )
