"""Trials that nothing beats in two metrics at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.analysis.ranking import Mode, check_mode, rank, unknown_metric

from .source import Source, state_of


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """A trial as it stands in two metrics.

    Attributes:
        trial_id: Which.
        state: Where it stands, see `state_of`.
        first: Its last value of the first metric.
        second: Its last value of the second metric.
        is_on_front: Whether no other trial is better in one metric and at least as good in the other.
    """

    trial_id: str
    state: str
    first: float
    second: float
    is_on_front: bool


def pareto(source: Source, metrics: tuple[str, str], modes: tuple[Mode, Mode]) -> list[Tradeoff]:
    """Return the trials that have a finite last value of both metrics, in the order of their creation.

    Args:
        source: The experiment.
        metrics: Two metrics, flattened.
        modes: For each of them ``"min"`` if smaller values are better, ``"max"`` if larger ones are.

    Raises:
        ValueError: If there are not two different metrics and two modes, or no trial reported one of them.
    """
    if len(metrics) != 2 or len(modes) != 2 or metrics[0] == metrics[1]:  # noqa: PLR2004  (a plane has two axes)
        raise ValueError(f"metrics and modes must be two each, of different metrics, got {metrics!r} and {modes!r}")
    directions = check_mode(modes[0], "modes[0]"), check_mode(modes[1], "modes[1]")
    known = {name for trial in source.trials for name in trial.summary}
    for metric in metrics:
        if source.trials and metric not in known:
            raise unknown_metric(metric, known, "a trial")
    values = [(trial, source.value_of(trial, metrics[0]), source.value_of(trial, metrics[1])) for trial in source.trials]
    finite = [(trial, first, second) for trial, first, second in values if math.isfinite(first) and math.isfinite(second)]
    front = _front([(first, second) for _, first, second in finite], directions)
    return [Tradeoff(trial.trial_id, state_of(trial), first, second, (first, second) in front) for trial, first, second in finite]


def _front(points: list[tuple[float, float]], modes: tuple[Mode, Mode]) -> set[tuple[float, float]]:
    """Return the points that nothing beats: from the best in the first metric on, those better in the second than all before."""
    front: set[tuple[float, float]] = set()
    bar = (False, 0.0)
    for first, second in sorted(points, key=lambda point: (rank(point[0], modes[0]), rank(point[1], modes[1])), reverse=True):
        if rank(second, modes[1]) > bar:
            front.add((first, second))
            bar = rank(second, modes[1])
    return front
