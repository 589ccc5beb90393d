"""Pareto fronts: the trials that no other trial beats in every objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from schedulers.dominance import Point, dominates

from .trial import Trial

Objectives = Sequence[tuple[str, str]]
"""Metric and mode (``"min"`` or ``"max"``) of each objective."""

ValueOf = Callable[[Trial, str], float]
"""Returns the newest value of a metric in a trial, NaN for none."""


def pareto_front(points: Sequence[Sequence[float]], modes: Sequence[str]) -> list[int]:
    """Return the indices of the points that no other point dominates; equal points are all on it.

    The best point in the first objective comes first.

    Args:
        points: A finite value for each objective.
        modes: ``"min"`` or ``"max"`` for each objective.

    Example:
        >>> pareto_front([(0.9, 50), (0.8, 10), (0.8, 20)], ["max", "min"])
        [0, 1]
    """
    turned: list[Point] = [
        tuple(value if mode == "min" else -value for value, mode in zip(point, modes, strict=True))
        for point in points
    ]
    front: list[int] = []
    # In sorted order no point dominates an earlier one, so each is compared with the front found so
    # far.
    for index in sorted(range(len(turned)), key=turned.__getitem__):
        if not any(dominates(turned[member], turned[index]) for member in front):
            front.append(index)
    return front


def newest_value(trial: Trial, metric: str) -> float:
    """Return the newest value of a metric that a trial has reported, NaN for none.

    Of the metric that the experiment optimises, that is a value which counts; of others it may be
    one that a failed attempt reported last.
    """
    if trial.objective.metric == metric:
        return trial.objective.last.value if trial.objective.last else math.nan
    return float(trial.summary[metric].last) if metric in trial.summary else math.nan


def values_of(
    trial: Trial, objectives: Objectives, value_of: ValueOf = newest_value
) -> tuple[float, ...] | None:
    """Return a trial's newest value of each objective; None where one is missing or not finite.

    Args:
        trial: The trial.
        objectives: What is optimised.
        value_of: Tells the values; one that reads the trial's results leaves out what failed
            attempts reported in vain.
    """
    values = tuple(value_of(trial, metric) for metric, _ in objectives)
    return values if all(map(math.isfinite, values)) else None


def best_trials(
    trials: Iterable[Trial], objectives: Objectives, value_of: ValueOf = newest_value
) -> list[Trial]:
    """Return the trials on the Pareto front of their newest values.

    The best trial in the first objective comes first.

    Args:
        trials: In the order of their creation. Trials without a finite value of every objective are
            left out.
        objectives: What is optimised, e.g. `ExperimentSettings.objectives`; at least one.
        value_of: Tells the values, as for `values_of`.
    """
    known = [
        (trial, values)
        for trial in trials
        if (values := values_of(trial, objectives, value_of)) is not None
    ]
    return [
        known[index][0]
        for index in pareto_front([values for _, values in known], [mode for _, mode in objectives])
    ]
