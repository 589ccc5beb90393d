"""Learning curves: the reported values of each trial, as data and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tuner.analysis.flat_results import value_at
from tuner.analysis.ranking import is_number
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Trial

from .downsample import MAX_POINTS, MAX_TRIALS, shown_places, shown_trials
from .source import Source, state_of
from .style import (
    BEST,
    OTHER,
    STATE_COLORS,
    Lines,
    drawn,
    label,
    metric_axis,
    new_figure,
    offer_log_scale,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Curve:
    """The learning curve of one trial, downsampled.

    Attributes:
        trial_id: The trial.
        state: State of the trial, see `state_of`.
        is_best: Whether it is the best trial of the experiment.
        xs: Positions of the points, in the order of the results. They step back where the trial
            continued from an earlier checkpoint.
        values: The metric at these positions; NaN and infinities as reported.
        num_results: How many results have both, before downsampling.
        is_feasible: Whether the trial keeps all constraints.
    """

    trial_id: str
    state: str
    is_best: bool
    xs: Sequence[float]
    values: Sequence[float]
    num_results: int
    is_feasible: bool = True


def learning_curves(
    source: Source,
    x: str = TRAINING_ITERATION,
    *,
    max_trials: int = MAX_TRIALS,
    max_points: int = MAX_POINTS,
) -> list[Curve]:
    """Return the curves of the trials that reported the metric, in the order of the trials.

    Args:
        source: The experiment.
        x: The horizontal axis: a number in each result, e.g. ``"time_total_s"``.
        max_trials: Maximum number of curves: of more trials, half are the best ones and half are
            spread over the ranks of the others.
        max_points: Maximum number of points of each: of more, the first, the last, the extremes and
            others evenly between them.

    Raises:
        ValueError: If the experiment has no metric.
    """
    metric = source.objective[0]
    curves = [
        _curve(source, trial, metric, x, max_points) for trial in shown_trials(source, max_trials)
    ]
    return [curve for curve in curves if curve.values]


def _curve(source: Source, trial: Trial, metric: str, x: str, max_points: int) -> Curve:
    pairs = (
        [(value_at(row, x), value_at(row, metric)) for row in source.rows.of(trial.trial_id)]
        if metric in trial.summary
        else []
    )
    known = [
        (float(place), float(value))
        for place, value in pairs
        if is_number(place) and is_number(value)
    ]
    kept = [known[place] for place in shown_places([value for _, value in known], max_points)]
    xs, values = [place for place, _ in kept], [value for _, value in kept]
    return Curve(
        trial.trial_id,
        state_of(trial),
        trial is source.best,
        xs,
        values,
        len(known),
        source.is_feasible(trial),
    )


def are_single(curves: Sequence[Curve]) -> bool:
    """Return whether the curves are single points at one place, and show nothing side by side."""
    return all(curve.num_results == 1 for curve in curves) and (
        len({curve.xs[0] for curve in curves}) == 1
    )


def curves_figure(curves: Sequence[Curve], metric: str, mode: str | None, x: str) -> go.Figure:
    """Return all curves, coloured by the trials' states, the best one on top.

    Those of infeasible trials are grey and dotted.

    Args:
        curves: The curves.
        metric: The metric that they show.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        x: The horizontal axis.
    """
    figure = new_figure(420)
    # Many curves are drawn paler, so that the best one and their density can be seen.
    opacity = max(0.3, min(0.85, 30 / max(1, len(curves))))
    if infeasible := [curve for curve in curves if not curve.is_feasible]:
        line = {"color": OTHER, "width": 1.2, "dash": "dot"}
        figure.add_scatter(**_joined(infeasible), name="infeasible", line=line, opacity=opacity)
    others = [curve for curve in curves if curve.is_feasible and not curve.is_best]
    for state in dict.fromkeys(curve.state for curve in others):
        members = [curve for curve in others if curve.state == state]
        line = {"color": STATE_COLORS.get(state, OTHER), "width": 1.4}
        figure.add_scatter(**_joined(members), name=state, line=line, opacity=opacity)
    for curve in curves:
        if curve.is_best:
            figure.add_scatter(
                **_joined([curve]),
                name=f"best: {label(curve.trial_id)}",
                line={"color": BEST, "width": 3},
            )
    figure.update_xaxes(title_text=label(x))
    values = [value for curve in curves for value in curve.values]
    figure.update_yaxes(**metric_axis(metric, mode, values))
    offer_log_scale(figure, ["yaxis"], values)
    return figure


def _joined(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return the arguments of a trace that shows curves."""
    lines, sizes = Lines(), []
    for curve in curves:
        # A curve that continues from an earlier checkpoint is broken there, since the line back to
        # its iteration would show values that the trial never had.
        breaks = [
            place
            for place, (before, after) in enumerate(pairwise(curve.xs), start=1)
            if after < before
        ]
        for begin, end in pairwise([0, *breaks, len(curve.xs)]):
            lines.add(curve.xs[begin:end], drawn(curve.values[begin:end]), label(curve.trial_id))
            # A line of one point is invisible, so it gets a marker.
            sizes += [5 if len(curve.xs) == 1 else 0] * (end - begin) + [0]
    return {
        "x": lines.xs,
        "y": lines.ys,
        "text": lines.texts,
        "mode": "lines+markers" if any(sizes) else "lines",
        "marker": {"size": sizes, "line": {"width": 0}},
        "hovertemplate": "%{text}<br>%{x}: %{y:.6g}<extra></extra>",
    }
