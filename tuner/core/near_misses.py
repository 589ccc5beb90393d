"""What infeasible trials miss, in words, and which one comes closest where none is feasible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from searchers.objectives.outcome_constraint import Constraints, OutcomeConstraint

from .feasibility import newest
from .progress import Progress
from .trial import Trial


def why_infeasible(trial: Trial, constraints: Constraints) -> str:
    """Return what a trial misses, e.g. ``"size_mb 4.43 misses <= 4 by 0.43"``; else empty.

    Args:
        trial: The trial.
        constraints: Those of the experiment.
    """
    return ", ".join(filter(None, (_missed(each, trial) for each in constraints)))


def why_none_feasible(trials: Sequence[Trial], constraints: Constraints) -> str:
    """Return how many trials miss which constraint, and what the closest one misses.

    The closest one has the smallest sum of violations, each as a share of the largest one of its
    constraint.

    Args:
        trials: Trials of an experiment. Those that have not reported anything are left out.
        constraints: Those of the experiment.

    Returns:
        Empty where a trial is feasible or none has reported anything.
    """
    reported = [trial for trial in trials if trial.summary]
    violations = [
        [each.violation(newest(trial, each.metric)) for each in constraints] for trial in reported
    ]
    if not all(map(any, violations)) or not reported:
        return ""
    counts = ", ".join(
        f"{sum(map(bool, column))} of {len(reported)} miss {each}"
        for each, column in zip(constraints, zip(*violations, strict=True), strict=True)
        if any(column)
    )
    largest = [
        max(filter(math.isfinite, column), default=0.0) for column in zip(*violations, strict=True)
    ]
    distances = [
        sum(value and value / (limit or 1.0) for value, limit in zip(row, largest, strict=True))
        for row in violations
    ]
    closest = reported[distances.index(min(distances))]
    return (
        f"no trial is feasible: {counts}; the closest is {closest.trial_id}: "
        f"{why_infeasible(closest, constraints)}"
    )


def is_none_feasible(progress: Progress) -> bool:
    """Return whether trials have reported, and none of them keeps all constraints."""
    if not progress.constraints or progress.best or progress.front:
        return False
    return bool(progress.num_finished) or any(trial.summary for trial in progress.running)


def _missed(constraint: OutcomeConstraint, trial: Trial) -> str:
    value = newest(trial, constraint.metric)
    violation = constraint.violation(value)
    if not violation:
        return ""
    if value is None:
        return f"{constraint.metric}, to be {constraint.comparison}, is not reported"
    by = f" by {violation:.6g}" if math.isfinite(violation) else ""
    return f"{constraint.metric} {value:.6g} misses {constraint.comparison}{by}"
