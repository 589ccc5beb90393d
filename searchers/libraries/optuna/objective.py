"""What an Optuna study is told of a result: the values to optimise, and by how much constraints are violated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from searchers.searcher import MODES

Constraints = Callable[[Mapping[str, Any]], Sequence[float]] | Sequence[str]
"""A function of a flattened result that returns numbers, or names of metrics: each is satisfied at 0 or below."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One or several metrics with their directions, and the constraints beside them.

    Attributes:
        metrics: Their flattened names.
        modes: ``"min"`` or ``"max"`` for each of them: the direction in which it is optimised.
        constraints: See `Constraints`; None for none.
    """

    metrics: tuple[str, ...]
    modes: tuple[str, ...]
    constraints: Constraints | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is but one metric, whose intermediate values can be reported."""
        return len(self.metrics) == 1

    def value(self, result: Mapping[str, Any]) -> float | None:
        """Return the one metric's value, which may be NaN; None where there is no number."""
        return as_float(result.get(self.metrics[0]))

    def values(self, result: Mapping[str, Any]) -> list[float] | None:
        """Return the metrics' values in their order; None where one is missing, NaN or no number."""
        values = [as_float(result.get(metric)) for metric in self.metrics]
        numbers = [value for value in values if value is not None and not math.isnan(value)]
        return numbers if len(numbers) == len(values) else None

    def is_bad(self, result: Mapping[str, Any]) -> bool:
        """Return whether one of the metrics is there and NaN, infinite or no number."""
        reported = [
            as_float(result[metric]) for metric in self.metrics if result.get(metric) is not None
        ]
        return any(value is None or not math.isfinite(value) for value in reported)

    def rewards(self, reward: Any) -> list[float]:
        """Return a reward given by the user as values.

        Raises:
            ValueError: If it is no number, or not one for each metric.
        """
        given = [reward] if self.is_single and isinstance(reward, Real) else reward
        if (
            not isinstance(given, Sequence)
            or isinstance(given, str)
            or len(given) != len(self.metrics)
        ):
            wanted = (
                "numbers"
                if self.is_single
                else f"{len(self.metrics)} numbers for each point, one per metric"
            )
            raise ValueError(
                f"evaluated_rewards must hold {wanted}, got {reward!r}; leave out points without a result"
            )
        values = self.values(dict(zip(self.metrics, given, strict=True)))
        if values is None:
            raise ValueError(
                f"evaluated_rewards must hold numbers, got {reward!r}; leave out points without a result"
            )
        return values

    def violations(self, result: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the constraints' values by their names, or by their places in what the function returned.

        Returns:
            None where they cannot be told: one is missing, NaN or no number, or the function raised. Nothing without constraints.
        """
        given = self._computed(result)
        if given is None:
            return None
        values = {name: as_float(value) for name, value in given.items()}
        known = {
            name: value
            for name, value in values.items()
            if value is not None and not math.isnan(value)
        }
        return known if len(known) == len(values) else None

    def _computed(self, result: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.constraints is None or not callable(self.constraints):
            return {name: result.get(name) for name in self.constraints or ()}
        try:
            return {str(number): value for number, value in enumerate(self.constraints(result))}
        except Exception as error:  # noqa: BLE001  (the user's function; one trial's trouble must not end the others)
            warnings.warn(
                f"constraints raised {type(error).__name__}: {error}; the trial counts as failed",
                RuntimeWarning,
                stacklevel=2,
            )
            return None


def objective_of(metric: Any, mode: Any, constraints: Constraints | None) -> Objective:
    """Return the objective that a user's words stand for.

    Args:
        metric: A name, or a list of names for several objectives.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; a list of as many for several.
        constraints: See `Constraints`.

    Raises:
        ValueError: If there is no metric, no mode, or not as many of one as of the other.
        TypeError: If `constraints` are neither a function nor names.
    """
    metrics, modes = names_of(metric), names_of(mode)
    if not metrics or not all(isinstance(name, str) and name for name in metrics):
        raise ValueError(
            f"metric must be the name of one metric for OptunaSearch, got {metric!r}; set TuneConfig(metric=...)"
        )
    if not modes or any(each not in MODES for each in modes):
        raise ValueError(
            f"mode must be one of {MODES} for OptunaSearch, got {mode!r}; set TuneConfig(mode=...)"
        )
    if len(modes) != len(metrics) or len(set(metrics)) != len(metrics):
        raise ValueError(
            f"metric and mode must name as many different metrics as directions, got {metric!r} and {mode!r}; give one of each"
        )
    return Objective(metrics, modes, constraints)


def names_of(given: Any) -> tuple[Any, ...]:
    """Return one name or several as a tuple; nothing for None."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def check_constraints(constraints: Constraints | None) -> Constraints | None:
    """Return the constraints if they are a function or names.

    Raises:
        TypeError: If they are neither.
    """
    if constraints is None or callable(constraints):
        return constraints
    is_list = isinstance(constraints, Sequence) and not isinstance(constraints, str)
    if (
        not is_list
        or not constraints
        or not all(isinstance(name, str) and name for name in constraints)
    ):
        raise TypeError(
            f"constraints must be a function of a result or a list of names of metrics, got {constraints!r}; leave them out or name one"
        )
    return tuple(constraints)


def as_float(value: Any) -> float | None:
    """Return a real number as a float, None for anything else."""
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
