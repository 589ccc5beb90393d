"""Hypervolume of the feasible trials over time or over trials, as data and as a chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from searchers.objectives import hypervolumes, minimised
from tuner.analysis.ranking import given_number
from tuner.core.pareto import Objectives, values_of
from tuner.core.trial import Trial

from .source import Source
from .style import BEST, drawn, label, new_figure, time_axis

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MARGIN: Final = 0.1
"""Share of the range by which the reference point lies beyond the worst values: at these, the best
trial of each metric would add nothing."""


@dataclass(frozen=True, slots=True)
class HypervolumeStep:
    """The end of a trial.

    Attributes:
        num_trials: How many trials were over, from 1.
        time_s: Experiment time in seconds; None without a journal.
        trial_id: The trial that ended.
        hypervolume: That of the feasible trials so far, in the product of the metrics' units.
    """

    num_trials: int
    time_s: float | None
    trial_id: str
    hypervolume: float


def hypervolume_steps(
    source: Source, objectives: Objectives, reference: Sequence[float]
) -> list[HypervolumeStep]:
    """Return a step for each trial that is over, in the order in which they ended.

    Args:
        source: The experiment.
        objectives: The metrics with their modes.
        reference: A value of each, from which the volume is measured; empty without any that is
            feasible.
    """
    modes = [mode for _, mode in objectives]
    ends = {attempt.trial_id: attempt.end_s for attempt in source.timeline.attempts}
    finished = sorted(
        (trial for trial in source.trials if trial.is_finished),
        key=lambda trial: ends.get(trial.trial_id, 0.0),
    )
    values = [_feasible_values(source, trial, objectives) for trial in finished]
    points = [None if one is None else minimised([one], modes)[0] for one in values]
    corner = minimised([reference], modes)[0] if reference else ()
    return [
        HypervolumeStep(number, ends.get(trial.trial_id), trial.trial_id, volume)
        for number, (trial, volume) in enumerate(
            zip(finished, hypervolumes(points, corner), strict=True), start=1
        )
    ]


def reference_for(
    source: Source, objectives: Objectives, given: Mapping[str, float] | None = None
) -> tuple[float, ...]:
    """Return the reference point in the order of the objectives.

    Args:
        source: The experiment.
        objectives: The metrics with their modes.
        given: A value for each metric; None for one that is worse than the worst one of a feasible
            trial by a tenth of their range, or of the value itself where all are equal.

    Returns:
        The point; empty if none is given and no trial is feasible.

    Raises:
        TypeError: If it is no mapping.
        ValueError: If it has other metrics than the objectives, or a value that is not finite.

    Reference:
        Ishibuchi, Imada, Setoguchi, Nojima. How to Specify a Reference Point in Hypervolume
        Calculation for Fair Performance Comparison. Evolutionary Computation 26(3), 2018.
    """
    metrics = [metric for metric, _ in objectives]
    if given is None:
        found = (_feasible_values(source, trial, objectives) for trial in source.trials)
        columns = zip(*(values for values in found if values), strict=True)
        return tuple(
            beyond_worst(column, mode)
            for (_, mode), column in zip(objectives, columns, strict=False)
        )
    if not isinstance(given, Mapping):
        raise TypeError(
            f"reference must be a dictionary by metric, such as {dict.fromkeys(metrics, 1.0)}, got "
            f"{given!r}"
        )
    numbers = {metric: given_number(value) for metric, value in given.items()}
    if numbers.keys() != set(metrics) or not all(map(math.isfinite, numbers.values())):
        raise ValueError(
            f"reference must have a finite number for each of {', '.join(metrics)}, got "
            f"{dict(given)!r}; give a value that is just not acceptable in the metric's units"
        )
    return tuple(numbers[metric] for metric in metrics)


def beyond_worst(values: Sequence[float], mode: str) -> float:
    """Return a value that is worse than all by a tenth of their range."""
    low, high = min(values), max(values)
    # Of values that are all equal, a share of them: without a margin nothing had a volume.
    margin = _MARGIN * (high - low or abs(high) or 1.0)
    return high + margin if mode == "min" else low - margin


def hypervolume_figure(steps: Sequence[HypervolumeStep], *, is_over_time: bool) -> go.Figure:
    """Return the hypervolume as a staircase.

    Args:
        steps: The steps.
        is_over_time: Whether they are drawn over time instead of over trials.
    """
    figure = new_figure(320)
    unit, name = time_axis(max((step.time_s or 0.0 for step in steps), default=0.0))
    figure.add_scatter(
        x=[(step.time_s or 0.0) / unit if is_over_time else step.num_trials for step in steps],
        y=drawn([step.hypervolume for step in steps]),
        text=[label(step.trial_id) for step in steps],
        mode="lines",
        line={"color": BEST, "width": 2.6, "shape": "hv"},
        hovertemplate="%{text}: %{y:.6g}<extra></extra>",
    )
    figure.update_xaxes(title_text=f"{name} since the beginning" if is_over_time else "trials")
    figure.update_yaxes(title_text="hypervolume", rangemode="tozero")
    figure.update_layout(showlegend=False)
    return figure


def _feasible_values(
    source: Source, trial: Trial, objectives: Objectives
) -> tuple[float, ...] | None:
    """Return a trial's values of the objectives; None if it does not count."""
    return values_of(trial, objectives, source.value_of) if source.is_feasible(trial) else None
