"""What infeasible trials miss, in words, and which one comes closest where none is feasible."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from searchers.objectives.outcome_constraint import Constraints, by_metric

from .feasibility import newest
from .progress import Progress
from .trial import Trial


def why_infeasible(trial: Trial, constraints: Constraints) -> str:
    """Return what a trial misses, e.g. ``"size_mb 4.43 misses <= 4 by 0.43"``; else empty.

    Args:
        trial: The trial.
        constraints: Those of the experiment.
    """
    parts = []
    for metric, bounds in by_metric(constraints).items():
        if (value := newest(trial, metric)) is None:
            parts.append(f"{metric}, to be {joined(bounds)}, is not reported")
            continue
        for each in bounds:
            if violation := each.violation(value):
                by = f" by {violation:.6g}" if math.isfinite(violation) else ""
                parts.append(f"{metric} {value:.6g} misses {each.comparison}{by}")
    return ", ".join(parts)


def why_none_feasible(trials: Sequence[Trial], constraints: Constraints) -> str:
    """Return how many trials miss which constraint, and what the closest one misses.

    Those that have not reported a metric are counted apart. The closest one has the smallest sum of
    violations, each as a share of the largest one of its constraint; it has reported all of them.

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
    counts = ", ".join(_counts(reported, constraints))
    largest = [
        max(filter(math.isfinite, column), default=0.0) for column in zip(*violations, strict=True)
    ]
    distances = [
        sum(value and value / (limit or 1.0) for value, limit in zip(row, largest, strict=True))
        for row in violations
    ]
    told = f"no trial is feasible: {counts}"
    if not math.isfinite(min(distances)):
        return told
    closest = reported[distances.index(min(distances))]
    return f"{told}; the closest is {closest.trial_id}: {why_infeasible(closest, constraints)}"


def joined(bounds: Constraints) -> str:
    """Return the comparisons of the bounds of one metric, as in ``">= 1 and <= 4"``."""
    return " and ".join(each.comparison for each in bounds)


def is_none_feasible(progress: Progress) -> bool:
    """Return whether trials have reported, and none of them keeps all constraints."""
    if not progress.constraints or progress.best or progress.front:
        return False
    return bool(progress.num_finished) or any(trial.summary for trial in progress.running)


def _counts(trials: Sequence[Trial], constraints: Constraints) -> Iterator[str]:
    """Yield how many trials miss each constraint, and how many have not reported each metric."""
    unreported = dict.fromkeys((each.metric for each in constraints), 0)
    for each in constraints:
        values = [newest(trial, each.metric) for trial in trials]
        known = [value for value in values if value is not None]
        unreported[each.metric] = len(values) - len(known)
        if num_missed := sum(1 for value in known if each.violation(value)):
            yield f"{num_missed} of {len(trials)} miss {each}"
    for metric, num in unreported.items():
        if num:
            yield f"{metric} is not reported by {num} of {len(trials)}"
