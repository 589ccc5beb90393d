"""Pareto fronts: the trials that no other trial beats in every objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from searchers.objectives import pareto_front
from searchers.objectives.outcome_constraint import Constraints

from .feasibility import is_feasible, newest
from .trial import Trial

Objectives = Sequence[tuple[str, str]]
"""Metric and mode (``"min"`` or ``"max"``) of each objective."""

ValueOf = Callable[[Trial, str], float]
"""Returns the newest value of a metric in a trial, NaN for none."""


def newest_value(trial: Trial, metric: str) -> float:
    """Return the newest value of a metric that a trial has reported, NaN for none.

    Of the metric that the experiment optimises, that is a value which counts; of others it may be
    one that a failed attempt reported last.
    """
    value = newest(trial, metric)
    return math.nan if value is None else value


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
    trials: Iterable[Trial],
    objectives: Objectives,
    value_of: ValueOf = newest_value,
    constraints: Constraints = (),
) -> list[Trial]:
    """Return the feasible trials on the Pareto front of their newest values.

    The best trial in the first objective comes first.

    Args:
        trials: In the order of their creation. Trials without a finite value of every objective are
            left out, and so are those that miss a constraint.
        objectives: What is optimised, e.g. `ExperimentSettings.objectives`; at least one.
        value_of: Tells the values, as for `values_of`.
        constraints: Those of the experiment.
    """
    known = [
        (trial, values)
        for trial in trials
        if (values := values_of(trial, objectives, value_of)) is not None
        and is_feasible(trial, constraints)
    ]
    return [
        known[index][0]
        for index in pareto_front([values for _, values in known], [mode for _, mode in objectives])
    ]
