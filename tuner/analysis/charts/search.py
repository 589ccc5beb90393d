"""How the search went: the best value so far, the trade-off between two metrics, and which trial ran when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final

from tuner.analysis.charts.data.history import HistoryStep
from tuner.analysis.charts.data.pareto import Tradeoff
from tuner.analysis.charts.data.slots import Span
from tuner.analysis.ranking import Mode
from tuner.core.pareto import Objectives

from .style import (
    BEST,
    OTHER,
    STATE_COLORS,
    drawn,
    label,
    metric_axis,
    new_figure,
    offer_log_scale,
    seconds,
    time_axis,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MAX_COLUMNS: Final = 2
_MAX_BARS: Final = 3000
"""More runs than this are drawn as lines, which tell nothing when they are pointed at."""


def history_figure(
    steps: Sequence[HistoryStep], metric: str, mode: Mode, *, is_over_time: bool
) -> go.Figure:
    """Return the best value so far as a staircase; over trials with a dot for each trial.

    Args:
        steps: The steps.
        metric: What they show.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        is_over_time: Whether they are drawn over time, and not over the number of trials.
    """
    figure = new_figure(360)
    unit, name = time_axis(max((step.time_s or 0.0 for step in steps), default=0.0))
    xs = [(step.time_s or 0.0) / unit if is_over_time else step.trial_number for step in steps]
    texts = [label(step.trial_id) for step in steps]
    if not is_over_time:
        figure.add_scatter(
            x=xs, y=drawn([step.value for step in steps]), text=texts, mode="markers", name="best of each trial",
            marker={"color": OTHER, "size": 6, "opacity": 0.6}, hovertemplate="%{text}: %{y:.6g}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=xs, y=drawn([step.best for step in steps]), text=texts, mode="lines", name="best so far",
        line={"color": BEST, "width": 2.6, "shape": "hv"}, hovertemplate="%{text}: %{y:.6g}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title_text=f"{name} since the beginning" if is_over_time else "trial")
    values = [step.best for step in steps] + (
        [] if is_over_time else [step.value for step in steps]
    )
    figure.update_yaxes(**metric_axis(metric, mode, values))
    offer_log_scale(figure, ["yaxis"], values)
    figure.update_layout(showlegend=not is_over_time)
    return figure


def pareto_figure(points: Sequence[Tradeoff], objectives: Objectives) -> go.Figure:
    """Return all trials in the plane of each pair of metrics; those that nothing beats stand out, joined by a line where the pair is all.

    Args:
        points: The trials.
        objectives: Metric and mode (``"min"`` or ``"max"``: the direction in which it is optimised) of each value of a point.
    """
    pairs = list(combinations(range(len(objectives)), 2))
    num_columns = min(len(pairs), _MAX_COLUMNS)
    num_rows = math.ceil(len(pairs) / num_columns)
    figure = new_figure(400 if num_rows == 1 else 320 * num_rows)
    spacing = {"horizontal_spacing": 0.24 / num_columns, "vertical_spacing": 0.3 / num_rows}
    figure.set_subplots(num_rows, num_columns, **spacing)
    front = [point for point in points if point.is_on_front]
    rest = [point for point in points if not point.is_on_front]
    line = (
        {"mode": "lines+markers", "line": {"color": BEST, "width": 2, "dash": "dot"}}
        if len(pairs) == 1
        else {"mode": "markers"}
    )
    for place, (first, second) in enumerate(pairs):
        row, column = divmod(place, num_columns)
        for name, members, style in (
            (
                "trials",
                rest,
                {"mode": "markers", "marker": {"color": OTHER, "size": 7, "opacity": 0.6}},
            ),
            (
                "Pareto front",
                sorted(front, key=lambda point: point.values[first]),
                {**line, "marker": {"size": 9, "color": BEST}},
            ),
        ):
            figure.add_scatter(
                x=[point.values[first] for point in members], y=[point.values[second] for point in members],
                text=[label(point.trial_id) for point in members], name=name, legendgroup=name, showlegend=place == 0,
                hovertemplate="%{text}: %{x:.6g}, %{y:.6g}<extra></extra>", row=row + 1, col=column + 1, **style,
            )  # fmt: skip
        for update, axis in ((figure.update_xaxes, first), (figure.update_yaxes, second)):
            update(
                **metric_axis(*objectives[axis], [point.values[axis] for point in points]),
                row=row + 1,
                col=column + 1,
            )
        number = "" if place == 0 else str(place + 1)
        offer_log_scale(figure, [f"xaxis{number}"], [point.values[first] for point in points])
        offer_log_scale(figure, [f"yaxis{number}"], [point.values[second] for point in points])
    return figure


def slots_figure(spans: Sequence[Span], best_id: str | None = None) -> go.Figure:
    """Return a row for each slot with what ran there, coloured by how it ended; the best trial has a frame.

    Args:
        spans: The runs.
        best_id: The best trial, None for none.
    """
    num_slots = 1 + max((span.slot for span in spans), default=0)
    unit, name = time_axis(max((span.end_s for span in spans), default=0.0))
    figure = new_figure(min(900, 130 + max(30, 26 if num_slots > 4 else 40) * num_slots))  # noqa: PLR2004  (few are drawn higher)
    is_few = len(spans) <= _MAX_BARS
    for state in sorted({span.state for span in spans}, key=list(STATE_COLORS).index):
        members = [span for span in spans if span.state == state]
        if is_few:
            _add_bars(figure, members, unit, state, best_id)
        else:
            _add_lines(figure, members, unit, state)
    figure.update_xaxes(title_text=f"{name} since the beginning", rangemode="tozero")
    numbers = range(0, num_slots, max(1, num_slots // 16))
    ticks = {
        "tickmode": "array",
        "tickvals": list(numbers),
        "ticktext": [str(number + 1) for number in numbers],
        "ticks": "",
    }
    figure.update_yaxes(title_text="slot", autorange="reversed", showgrid=False, **ticks)
    figure.update_layout(barmode="overlay", bargap=0.25, uniformtext={"mode": "hide", "minsize": 9})
    return figure


def _add_bars(
    figure: go.Figure, spans: Sequence[Span], unit: float, state: str, best_id: str | None
) -> None:
    texts = [
        f"{label(span.trial_id)}, run {span.attempt}: {state}<br>{seconds(span.end_s - span.start_s)}"
        for span in spans
    ]
    figure.add_bar(
        base=[span.start_s / unit for span in spans],
        x=[(span.end_s - span.start_s) / unit for span in spans],
        y=[span.slot for span in spans],
        orientation="h",
        name=state,
        marker={
            "color": STATE_COLORS[state],
            "line": {
                "color": [
                    BEST if span.trial_id == best_id else "rgba(255,255,255,0.35)" for span in spans
                ],
                "width": [2.5 if span.trial_id == best_id else 0.5 for span in spans],
            },
        },
        text=[label(span.trial_id) for span in spans],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": "white", "size": 10},
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _add_lines(figure: go.Figure, spans: Sequence[Span], unit: float, state: str) -> None:
    xs: list[float | None] = []
    ys: list[int | None] = []
    for span in spans:
        xs += [span.start_s / unit, span.end_s / unit, None]
        ys += [span.slot, span.slot, None]
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        name=state,
        line={"color": STATE_COLORS[state], "width": 14},
        hoverinfo="skip",
    )
