"""Which trials keep the constraints of an experiment, by the newest values they have reported."""

from __future__ import annotations

from collections.abc import Mapping

from searchers.objectives.outcome_constraint import Constraints

from .trial import Trial


def missed(trial: Trial, constraints: Constraints) -> Mapping[str, float]:
    """Return the constraints that a trial does not keep, as texts, and by how much it misses each.

    It is infinity where the trial has not reported the metric, or NaN or an infinity as its newest
    value. The newest value need not be from the last result: a size is often reported only once.

    Args:
        trial: The trial.
        constraints: Those of the experiment.
    """
    return {
        str(each): violation
        for each in constraints
        if (violation := each.violation(newest(trial, each.metric)))
    }


def is_feasible(trial: Trial, constraints: Constraints) -> bool:
    """Return whether a trial keeps all constraints."""
    return not any(each.violation(newest(trial, each.metric)) for each in constraints)


def newest(trial: Trial, metric: str) -> float | None:
    """Return the newest value of a metric, None where a trial has not reported it."""
    if trial.objective.metric == metric and trial.objective.last is not None:
        return trial.objective.last.value
    return float(trial.summary[metric].last) if metric in trial.summary else None
