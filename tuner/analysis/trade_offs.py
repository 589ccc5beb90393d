"""Several metrics: the Pareto front as a table, its hypervolume over time, one trial of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from searchers.objectives import Point, hypervolumes, minimised
from tuner.core.feasibility import is_feasible, newest
from tuner.core.near_misses import why_none_feasible
from tuner.core.pareto import Objectives, best_trials, values_of
from tuner.core.result import TRIAL_ID
from tuner.core.trial import Trial

from .charts.pareto import checked_objectives
from .flat_results import flat_config
from .frames import in_order_of_appearance, to_frame
from .ranking import config_of, is_finite

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
    modes = [mode for _, mode in objectives]
    finished, points = _finished(source), _feasible_values(source, objectives)
    limits = checked_reference(objectives, reference) or _worst(list(points.values()), modes)
    volumes = hypervolumes(
        [
            minimised([points[trial.trial_id]], modes)[0] if trial.trial_id in points else None
            for trial, _ in finished
        ],
        minimised([limits], modes)[0] if limits else (),
    )
    frame = to_frame(
        [
            {
                "num_trials": number,
                "time_s": time_s,
                TRIAL_ID: trial.trial_id,
                "hypervolume": volume,
            }
            for number, ((trial, time_s), volume) in enumerate(
                zip(finished, volumes, strict=True), start=1
            )
        ],
        ["num_trials", "time_s", TRIAL_ID, "hypervolume"],
    )
    frame.attrs["reference"] = dict(zip((metric for metric, _ in objectives), limits, strict=False))
    return frame


def checked_reference(
    objectives: Objectives, reference: Mapping[str, float] | None
) -> tuple[float, ...]:
    """Return the reference point in the order of the objectives; empty for None.

    Raises:
        TypeError: If it is no mapping.
        ValueError: If it has other metrics than the objectives, or a value that is not finite.
    """
    if reference is None:
        return ()
    metrics = [metric for metric, _ in objectives]
    if not isinstance(reference, Mapping):
        raise TypeError(
            f"reference must be a dictionary by metric, such as {dict.fromkeys(metrics, 1.0)}, got "
            f"{reference!r}"
        )
    if set(reference) != set(metrics) or not all(map(is_finite, reference.values())):
        raise ValueError(
            f"reference must have a finite number for each of {', '.join(metrics)}, got "
            f"{dict(reference)!r}; give a value that is just not acceptable in the metric's units"
        )
    return tuple(float(reference[metric]) for metric in metrics)


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
    objectives = checked_objectives(source)
    shares = _checked_weights(objectives, weights)
    front = front_of(source, objectives)
    if not front:
        why = why_none_feasible(source.trials, source.constraints)
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
    unknown = [metric for metric in weights if metric not in metrics]
    numbers = list(weights.values())
    if (
        unknown
        or not all(is_finite(number) and number >= 0 for number in numbers)
        or not any(numbers)
    ):
        raise ValueError(
            f"weights must be numbers from 0 on, not all of them 0, for some of the objectives "
            f"{', '.join(metrics)}, got {dict(weights)!r}"
        )
    return [float(weights.get(metric, 0.0)) for metric in metrics]


def _feasible_values(source: Source, objectives: Objectives) -> dict[str, tuple[float, ...]]:
    """Return the values of each feasible trial that has a finite one of every objective."""
    return {
        trial.trial_id: values
        for trial in source.trials
        if is_feasible(trial, source.constraints)
        and (values := values_of(trial, objectives, source.value_of)) is not None
    }


def _worst(points: Sequence[tuple[float, ...]], modes: Sequence[str]) -> tuple[float, ...]:
    return tuple(
        (max if mode == "min" else min)(column)
        for mode, column in zip(modes, zip(*points, strict=True), strict=False)
    )


def _finished(source: Source) -> list[tuple[Trial, float | None]]:
    """Return the trials that are over in the order of their ends, with the times of these."""
    ends = {attempt.trial_id: attempt.end_s for attempt in source.timeline.attempts}
    finished = [(trial, ends.get(trial.trial_id)) for trial in source.trials if trial.is_finished]
    return sorted(finished, key=lambda found: found[1] or 0.0)
