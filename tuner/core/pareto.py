"""Pareto fronts: the trials that no other trial beats in every objective."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from schedulers.pareto import Point, dominates

from .trial import Trial

Objectives = Sequence[tuple[str, str]]
"""Metric and mode (``"min"`` or ``"max"``) of each objective."""


def pareto_front(points: Sequence[Sequence[float]], modes: Sequence[str]) -> list[int]:
    """Return the indices of the points that no other point dominates, best in the first objective first; equal points are all on it.

    Args:
        points: A finite value for each objective.
        modes: ``"min"`` or ``"max"`` for each objective.

    Example:
        >>> pareto_front([(0.9, 50), (0.8, 10), (0.8, 20)], ["max", "min"])
        [0, 1]
    """
    turned: list[Point] = [tuple(value if mode == "min" else -value for value, mode in zip(point, modes, strict=True)) for point in points]
    front: list[int] = []
    # In sorted order no point dominates an earlier one, so each is compared with the front found so far.
    for index in sorted(range(len(turned)), key=turned.__getitem__):
        if not any(dominates(turned[member], turned[index]) for member in front):
            front.append(index)
    return front


def values_of(trial: Trial, objectives: Objectives) -> tuple[float, ...] | None:
    """Return a trial's last value of each objective; None where one is missing or not finite."""
    values = tuple(float(trial.summary[metric].last) if metric in trial.summary else math.nan for metric, _ in objectives)
    return values if all(map(math.isfinite, values)) else None


def best_trials(trials: Iterable[Trial], objectives: Objectives) -> list[Trial]:
    """Return the trials on the Pareto front of their last values, best in the first objective first.

    Args:
        trials: In the order of their creation. Trials without a finite value of every objective are left out.
        objectives: What is optimised, e.g. `ExperimentSettings.objectives`; at least one.
    """
    known = [(trial, values) for trial in trials if (values := values_of(trial, objectives)) is not None]
    return [known[index][0] for index in pareto_front([values for _, values in known], [mode for _, mode in objectives])]
