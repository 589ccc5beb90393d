"""Several metrics: the Pareto front as a table, its hypervolume over time, one trial of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from searchers.objectives import Point, minimised
from tuner.core.feasibility import newest
from tuner.core.near_misses import why_none_feasible
from tuner.core.pareto import Objectives, best_trials, values_of
from tuner.core.result import TRIAL_ID
from tuner.core.trial import Trial

from .charts.hypervolume import HypervolumeStep, hypervolume_steps, reference_for
from .charts.pareto import checked_objectives
from .flat_results import flat_config
from .frames import in_order_of_appearance, to_frame
from .ranking import config_of, given_number
from .shortfalls import check_reported

if TYPE_CHECKING:
    import pandas as pd

    from .charts import Source

_AUGMENTATION: Final = 0.05
"""Weight of the sum in an augmented Chebyshev distance, which decides between equal maxima."""


def front_of(source: Source, objectives: Objectives) -> list[Trial]:
    """Return the feasible trials on the Pareto front, best in the first objective first."""
    return best_trials(source.trials, objectives, source.value_of, source.constraints)


def front_frame(source: Source, objectives: Objectives) -> pd.DataFrame:
    """Return the table of `ResultGrid.pareto`."""
    metrics = [metric for metric, _ in objectives]
    limited = [each.metric for each in source.constraints if each.metric not in metrics]
    rows: list[dict[str, Any]] = [
        {TRIAL_ID: trial.trial_id}
        | {metric: source.value_of(trial, metric) for metric in metrics}
        | {metric: newest(trial, metric) for metric in limited}
        | flat_config(config_of(trial, source.rows, source.metric))
        for trial in front_of(source, objectives)
    ]
    return to_frame(rows, in_order_of_appearance([[TRIAL_ID, *metrics, *limited], *rows]))


def hypervolume_frame(
    source: Source, objectives: Objectives, reference: Mapping[str, float] | None
) -> pd.DataFrame:
    """Return the table of `ResultGrid.hypervolume`."""
    limits = reference_for(source, objectives, reference)
    steps = hypervolume_steps(source, objectives, limits)
    names = [field.name for field in fields(HypervolumeStep)]
    frame = to_frame([{name: getattr(step, name) for name in names} for step in steps], names)
    frame.attrs["reference"] = dict(zip((metric for metric, _ in objectives), limits, strict=False))
    return frame


def compromise(
    source: Source, weights: Mapping[str, float], others: tuple[str | None, str | None, str]
) -> Trial:
    """Return the trial of `ResultGrid.get_best_result` with weights.

    Args:
        source: The experiment.
        weights: By objective.
        others: Metric, mode and scope, which must not be given.

    Raises:
        TypeError: If `weights` is no mapping.
        ValueError: If it has other metrics than the objectives or no positive numbers, or one of
            the others is given.
        RuntimeError: If no trial is on the front.
    """
    if others != (None, None, "last"):
        raise ValueError(
            f"metric, mode and scope must be left out with weights, got {others!r}; weights "
            "compare last values of all objectives"
        )
    if len(source.objectives) < 2:  # noqa: PLR2004  (a trade-off)
        raise ValueError(
            "weights must be left out, as the experiment does not have several objectives, got "
            f"{weights!r}; name one metric, or take pareto(metrics=..., modes=...)"
        )
    objectives = checked_objectives(source)
    shares = _checked_weights(objectives, weights)
    front = front_of(source, objectives)
    if not front:
        why = why_none_feasible(source.trials, source.constraints)
        if not why:
            for metric, _ in objectives:
                check_reported(source.trials, metric, is_default=True)
        raise RuntimeError(why or "no trial has a finite value of each objective")
    values = [values_of(trial, objectives, source.value_of) or () for trial in front]
    points = minimised(values, [mode for _, mode in objectives])
    ideal, nadir = (tuple(map(bound, zip(*points, strict=True))) for bound in (min, max))
    distances = [_distance(point, ideal, nadir, shares) for point in points]
    # Of equal ones the trial that was created first, as everywhere.
    closest = {
        trial.trial_id for trial, one in zip(front, distances, strict=True) if one == min(distances)
    }
    return next(trial for trial in source.trials if trial.trial_id in closest)


def _distance(point: Point, ideal: Point, nadir: Point, weights: Sequence[float]) -> float:
    parts = [
        weight * (value - best) / ((worst - best) or 1.0)
        for value, best, worst, weight in zip(point, ideal, nadir, weights, strict=True)
    ]
    return max(parts) + _AUGMENTATION * math.fsum(parts)


def _checked_weights(objectives: Objectives, weights: Mapping[str, float]) -> list[float]:
    metrics = [metric for metric, _ in objectives]
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"weights must be a dictionary by metric, such as {dict.fromkeys(metrics, 0.5)}, got "
            f"{weights!r}"
        )
    numbers = {metric: given_number(weight) for metric, weight in weights.items()}
    if (
        not numbers.keys() <= set(metrics)
        or not all(0 <= number < math.inf for number in numbers.values())
        or not any(numbers.values())
    ):
        raise ValueError(
            f"weights must be numbers from 0 on, not all of them 0, for some of the objectives "
            f"{', '.join(metrics)}, got {dict(weights)!r}"
        )
    return [numbers.get(metric, 0.0) for metric in metrics]
