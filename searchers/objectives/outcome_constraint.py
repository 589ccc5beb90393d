"""Constraints on what trials report, such as a limit on the size of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, final

_COMPARISON: Final = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")
_OF_CONFIGURATIONS: Final = "config/"
_HOW: Final = "write a comparison such as '<= 4' or '>= 0.8'"


@final
@dataclass(frozen=True, slots=True)
class OutcomeConstraint:
    """A bound that a metric must keep.

    Attributes:
        metric: Flattened name of the metric.
        operator: ``"<="`` or ``">="``.
        bound: The largest or smallest value that is accepted.

    Example:
        >>> limit = OutcomeConstraint("size_mb", "<=", 4.0)
        >>> str(limit), limit.violation(4.43)
        ('size_mb <= 4', 0.4299999999999997)
    """

    metric: str
    operator: str
    bound: float

    def violation(self, value: float | None) -> float:
        """Return by how much a value misses the bound.

        Args:
            value: The metric's value, None if it was not reported.

        Returns:
            0 if the value keeps the bound; infinity for a value that is missing, NaN or infinite.
        """
        if value is None or not math.isfinite(value):
            return math.inf
        return max(self.excess(value), 0.0)

    def excess(self, value: float) -> float:
        """Return by how much a finite value misses the bound, or as a negative number keeps it."""
        return value - self.bound if self.operator == "<=" else self.bound - value

    @property
    def comparison(self) -> str:
        """The comparison, as in ``TuneConfig(constraints={metric: comparison})``."""
        short = f"{self.bound:.12g}"
        return f"{self.operator} {short if float(short) == self.bound else repr(self.bound)}"

    def __str__(self) -> str:
        """Return the metric with its comparison."""
        return f"{self.metric} {self.comparison}"


Constraints = Sequence[OutcomeConstraint]
Comparisons = Mapping[str, str | Sequence[str]]
"""A comparison for each metric, or a list of two."""


def outcome_constraints(given: Comparisons | None) -> tuple[OutcomeConstraint, ...]:
    """Return the constraints of a `TuneConfig`.

    Args:
        given: A comparison for each metric, such as ``{"size_mb": "<= 4"}``, or a list of two, a
            lower and an upper bound; None for none.

    Raises:
        TypeError: If `given` is no dictionary, or has a key or a comparison that is no text.
        ValueError: If a comparison cannot be read, no value can keep all those of a metric, or it
            bounds a hyperparameter.

    Example:
        >>> given = {"size_mb": [">= 1", "<= 4"], "fairness": ">=0.8"}
        >>> [str(each) for each in outcome_constraints(given)]
        ['size_mb >= 1', 'size_mb <= 4', 'fairness >= 0.8']
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(
            "constraints must be a dictionary of comparisons by metric, such as "
            f"{{'size_mb': '<= 4'}}, got {given!r}"
        )
    return tuple(each for metric, bounds in given.items() for each in _bounds(metric, bounds))


def comparisons(constraints: Constraints) -> dict[str, str | list[str]]:
    """Return constraints as they are given to a `TuneConfig`.

    Example:
        >>> comparisons(outcome_constraints({"size_mb": (">= 1", "<=4"), "fairness": [">=0.8"]}))
        {'size_mb': ['>= 1', '<= 4'], 'fairness': '>= 0.8'}
    """
    return {
        metric: [each.comparison for each in bounds] if len(bounds) > 1 else bounds[0].comparison
        for metric, bounds in by_metric(constraints).items()
    }


def by_metric(constraints: Constraints) -> dict[str, list[OutcomeConstraint]]:
    """Return the bounds of each metric."""
    metrics = dict.fromkeys(each.metric for each in constraints)
    return {name: [each for each in constraints if each.metric == name] for name in metrics}


def _bounds(metric: Any, given: Any) -> list[OutcomeConstraint]:
    if not isinstance(metric, str) or not metric:
        raise TypeError(f"constraints must have names of metrics as keys, got {metric!r}")
    if metric.startswith(_OF_CONFIGURATIONS):
        # Never reported, which would be known only at the end of the first trial.
        raise ValueError(
            f"constraints must bound what trials report, got {metric!r}; bound hyperparameters by "
            "tune.Space({...}, where='depth <= 4')"
        )
    listed = given if isinstance(given, list | tuple) else [given]
    bounds = [_parsed(metric, comparison) for comparison in listed]
    by_operator = {each.operator: each.bound for each in bounds}
    if not bounds or len(by_operator) < len(bounds):
        raise ValueError(
            f"constraints[{metric!r}] must be one comparison, or a list of a lower and an upper "
            f"bound, got {given!r}; write for example ['>= 1', '<= 4']"
        )
    if by_operator.get(">=", -math.inf) > by_operator.get("<=", math.inf):
        raise ValueError(
            f"constraints[{metric!r}] must leave values between its bounds, got {given!r}; "
            "exchange the two numbers"
        )
    return bounds


def _parsed(metric: str, comparison: Any) -> OutcomeConstraint:
    if not isinstance(comparison, str):
        raise TypeError(f"constraints[{metric!r}] must be a text, got {comparison!r}; {_HOW}")
    found = _COMPARISON.fullmatch(comparison)
    try:
        bound = float(found[2]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound):
        raise ValueError(
            f"constraints[{metric!r}] must be '<=' or '>=' and a number, got {comparison!r}; {_HOW}"
        )
    return OutcomeConstraint(metric, found[1], bound)


def number_of(value: Any) -> float | None:
    """Return a reported value as a number, an infinite one if it is too large.

    Returns:
        None for what is no number, such as the None of a metric that was not measured this time. It
        leaves what the trial has reported before as it is.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, float | int | Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
