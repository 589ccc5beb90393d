"""Pareto front of two or more metrics, as data and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from searchers.objectives import pareto_front
from tuner.analysis.ranking import check_mode, unknown_metric
from tuner.core.pareto import Objectives, values_of

from .source import Source, state_of
from .style import BEST, GOOD, INFEASIBLE, OTHER, label, metric_axis, new_panels, offer_log_scale

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MAX_COLUMNS: Final = 2


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A trial's values of several metrics.

    Attributes:
        trial_id: The trial.
        state: Its state, see `state_of`.
        values: Its last value of each metric.
        is_on_front: Whether it is feasible, and no other feasible trial is better in one metric and
            at least as good in all others.
        is_feasible: Whether it keeps all constraints.
    """

    trial_id: str
    state: str
    values: tuple[float, ...]
    is_on_front: bool
    is_feasible: bool = True


def checked_objectives(
    source: Source, metrics: Sequence[str] | None = None, modes: Sequence[str] | None = None
) -> Objectives:
    """Return the given metrics and modes, or those of the experiment.

    Args:
        source: The experiment.
        metrics: At least two metrics, flattened; None for all objectives of the experiment.
        modes: ``"min"`` or ``"max"`` for each; None where the experiment optimises each of the
            metrics.

    Raises:
        ValueError: If there are not at least two different metrics and as many modes, or no trial
            reported one of the given metrics.
    """
    known_modes = dict(source.objectives)
    if metrics is None:
        if modes is not None:
            raise ValueError(
                f"modes must be given with metrics, got modes={modes!r} alone; pass both or none"
            )
        if len(known_modes) < 2:  # noqa: PLR2004  (a trade-off)
            raise ValueError(
                "metrics must be given, as the experiment does not have several objectives; pass "
                "at least two, and their modes"
            )
        # They need not be reported yet: then no trial is on the front.
        return [(metric, check_mode(mode)) for metric, mode in known_modes.items()]
    chosen = [known_modes.get(metric) for metric in metrics] if modes is None else list(modes)
    if (
        isinstance(metrics, str)
        or len(metrics) < 2  # noqa: PLR2004
        or len(set(metrics)) != len(metrics)
        or len(chosen) != len(metrics)
    ):
        raise ValueError(
            f"metrics must be at least two different ones with a mode for each, got {metrics!r} "
            f"and {modes!r}"
        )
    reported = {name for trial in source.trials for name in trial.summary}
    for metric in metrics:
        if source.trials and metric not in reported:
            raise unknown_metric(metric, reported, "a trial")
    return [
        (metric, check_mode(mode, f"modes[{place}]"))
        for place, (metric, mode) in enumerate(zip(metrics, chosen, strict=True))
    ]


def pareto(source: Source, objectives: Objectives) -> list[ParetoPoint]:
    """Return the trials with a finite last value of every metric, in the order of creation.

    Args:
        source: The experiment.
        objectives: The metrics with their modes.
    """
    found = [
        (trial, values)
        for trial in source.trials
        if (values := values_of(trial, objectives, source.value_of)) is not None
    ]
    feasible = [(trial, values) for trial, values in found if source.is_feasible(trial)]
    places = pareto_front([values for _, values in feasible], [mode for _, mode in objectives])
    front = {feasible[place][0].trial_id for place in places}
    return [
        ParetoPoint(
            trial.trial_id,
            state_of(trial),
            values,
            trial.trial_id in front,
            source.is_feasible(trial),
        )
        for trial, values in found
    ]


def pareto_figure(points: Sequence[ParetoPoint], objectives: Objectives) -> go.Figure:
    """Return all trials in the plane of each pair of metrics, with the Pareto front highlighted.

    With two metrics, a line joins the trials of the front. Infeasible trials are grey crosses.

    Args:
        points: The trials.
        objectives: Metric and mode (``"min"`` or ``"max"``: the direction in which it is optimised)
            of each value of a point.
    """
    pairs = list(combinations(range(len(objectives)), 2))
    panels = new_panels(
        len(pairs),
        _MAX_COLUMNS,
        horizontal_gap=0.24 / min(len(pairs), _MAX_COLUMNS),
        vertical_gap=0.3,
    )
    figure = panels.figure
    figure.update_layout(height=400 if panels.num_rows == 1 else 320 * panels.num_rows)
    front = [point for point in points if point.is_on_front]
    rest = [point for point in points if point.is_feasible and not point.is_on_front]
    infeasible = [point for point in points if not point.is_feasible]
    # With three metrics or more, the front is a surface, of which no line is drawn.
    line = (
        {"mode": "lines+markers", "line": {"color": BEST, "width": 2, "dash": "dot"}}
        if len(pairs) == 1
        else {"mode": "markers"}
    )
    for place, (first, second) in enumerate(pairs):
        for name, members, style in (
            *([("infeasible", infeasible, INFEASIBLE)] if infeasible else []),
            (
                "trials",
                rest,
                {
                    "mode": "markers",
                    "marker": {"color": GOOD if infeasible else OTHER, "size": 7, "opacity": 0.6},
                },
            ),
            (
                "Pareto front",
                sorted(front, key=lambda point: point.values[first]),
                {**line, "marker": {"size": 9, "color": BEST}},
            ),
        ):
            figure.add_scatter(
                x=[point.values[first] for point in members],
                y=[point.values[second] for point in members],
                text=[label(point.trial_id) for point in members],
                name=name,
                legendgroup=name,
                showlegend=place == 0,
                hovertemplate="%{text}: %{x:.6g}, %{y:.6g}<extra></extra>",
                **panels.place(place),
                **style,
            )
        for update, axis in ((figure.update_xaxes, first), (figure.update_yaxes, second)):
            update(
                **metric_axis(*objectives[axis], [point.values[axis] for point in points]),
                **panels.place(place),
            )
        number = "" if place == 0 else str(place + 1)
        offer_log_scale(figure, [f"xaxis{number}"], [point.values[first] for point in points])
        offer_log_scale(figure, [f"yaxis{number}"], [point.values[second] for point in points])
    return figure
