"""Trials that no other trial beats in several metrics at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.analysis.ranking import check_mode, unknown_metric
from tuner.core.pareto import Objectives, pareto_front, values_of

from .source import Source, state_of


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """A trial as it stands in several metrics.

    Attributes:
        trial_id: Which.
        state: Where it stands, see `state_of`.
        values: Its last value of each metric.
        is_on_front: Whether no other trial is better in one metric and at least as good in all others.
    """

    trial_id: str
    state: str
    values: tuple[float, ...]
    is_on_front: bool


def checked_objectives(
    source: Source, metrics: Sequence[str] | None = None, modes: Sequence[str] | None = None
) -> Objectives:
    """Return metrics and modes that were named, or those of the experiment.

    Args:
        source: The experiment.
        metrics: At least two metrics, flattened; None for all objectives of the experiment.
        modes: ``"min"`` or ``"max"`` for each; None where the experiment optimises each of the metrics.

    Raises:
        ValueError: If there are not at least two different metrics and as many modes, or no trial reported one of the metrics.
    """
    known_modes = dict(source.objectives)
    if metrics is None:
        if modes is not None:
            raise ValueError(
                f"modes must be given with metrics, got modes={modes!r} alone; pass both or none"
            )
        metrics = list(known_modes)
        if len(metrics) < 2:  # noqa: PLR2004  (a trade-off)
            raise ValueError(
                "metrics must be given, as the experiment does not have several objectives; pass at least two, and their modes"
            )
    chosen = [known_modes.get(metric) for metric in metrics] if modes is None else list(modes)
    if (
        isinstance(metrics, str)
        or len(metrics) < 2  # noqa: PLR2004
        or len(set(metrics)) != len(metrics)
        or len(chosen) != len(metrics)
    ):
        raise ValueError(
            f"metrics must be at least two different ones with a mode for each, got {metrics!r} and {modes!r}"
        )
    reported = {name for trial in source.trials for name in trial.summary}
    for metric in metrics:
        if source.trials and metric not in reported:
            raise unknown_metric(metric, reported, "a trial")
    return [
        (metric, check_mode(mode, f"modes[{place}]"))
        for place, (metric, mode) in enumerate(zip(metrics, chosen, strict=True))
    ]


def pareto(source: Source, objectives: Objectives) -> list[Tradeoff]:
    """Return the trials that have a finite last value of all metrics, in the order of their creation.

    Args:
        source: The experiment.
        objectives: Metrics with their modes.
    """
    found = [
        (trial, values)
        for trial in source.trials
        if (values := values_of(trial, objectives, source.value_of)) is not None
    ]
    front = set(pareto_front([values for _, values in found], [mode for _, mode in objectives]))
    return [
        Tradeoff(trial.trial_id, state_of(trial), values, place in front)
        for place, (trial, values) in enumerate(found)
    ]
