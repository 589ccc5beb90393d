"""Parameters against the metric: parallel coordinates, one chart for each parameter, and how much each mattered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.analysis.charts.data.parameters import Axis, Scale, Tried
from tuner.analysis.importances import Importances
from tuner.analysis.ranking import Mode, rank

from .style import (
    BEST,
    GOOD,
    OTHER,
    config_text,
    label,
    linear_ticks,
    log_axis,
    log_ticks,
    metric_axis,
    new_figure,
    number,
    offer_log_scale,
    require_plotly,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MISSING = -0.09
"""Where a line goes on an axis whose parameter the trial does not have: below it."""
_ROOM = 0.06
"""How far apart, as part of an axis, two ticks have to be."""
_MAX_COLUMNS = 3


def coordinates_figure(
    trials: Sequence[Tried], axes: Sequence[Axis], metric: str, mode: Mode
) -> go.Figure:
    """Return a line for each trial that has a finite value, over an axis for each parameter and one for the metric.

    Drawn in vectors, so that it prints and needs no WebGL; the legend hides and shows the best tenth and the others.

    Args:
        trials: The trials.
        axes: Their parameters.
        metric: What the last axis shows.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; better is up.
    """
    known = sorted(
        (one for one in trials if math.isfinite(one.value)),
        key=lambda one: rank(one.value, mode),
        reverse=True,
    )
    values = [one.value for one in known]
    scale: Scale = "log" if metric_axis(metric, mode, values).get("type") == "log" else "linear"
    outcome = Axis(metric, scale, min(values, default=0), max(values, default=1))
    num_good = max(1, len(known) // 10)
    figure = new_figure(440, margin={"l": 40, "r": 60, "t": 70, "b": 24})
    best = [one for one in known if one.is_best]
    others = [one for one in known if not one.is_best]
    groups = [
        ("others", others[num_good:], OTHER, 1.0, 0.35),
        ("best tenth", others[:num_good], GOOD, 1.5, 0.75),
        ("best", best, BEST, 3.2, 1.0),
    ]
    for name, members, color, width, opacity in groups:
        if members:
            xs, ys, texts = _lines(members, axes, outcome, mode)
            title = f"best: {label(members[0].trial_id)}" if name == "best" else name
            figure.add_scatter(
                x=xs, y=ys, text=texts, name=title, mode="lines", line={"color": color, "width": width, "shape": "linear"},
                opacity=opacity, hovertemplate="%{text}<extra></extra>",
            )  # fmt: skip
    _draw_axes(figure, [*axes, outcome], mode)
    is_whole = all(axis.name in one.config for one in known for axis in axes)
    figure.update_yaxes(visible=False, range=[-0.04 if is_whole else _MISSING - 0.04, 1.03])
    return figure


def _lines(
    trials: Sequence[Tried], axes: Sequence[Axis], outcome: Axis, mode: Mode
) -> tuple[list[float | None], list[float | None], list[str]]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for one in trials:
        places = [_place(axis, one.config) for axis in axes]
        height = outcome.place(one.value) or 0.0
        text = f"{label(one.trial_id)}: {label(one.value)}<br>{config_text(one.config)}"
        xs += [*range(len(axes) + 1), None]
        ys += [*places, height if mode == "max" else 1 - height, None]
        texts += [text] * (len(axes) + 2)
    return xs, ys, texts


def _place(axis: Axis, config: Mapping[str, Any]) -> float:
    place = axis.place(config[axis.name]) if axis.name in config else None
    return _MISSING if place is None else place


def _draw_axes(figure: go.Figure, axes: Sequence[Axis], mode: Mode) -> None:
    last = len(axes) - 1
    for column, axis in enumerate(axes):
        figure.add_shape(
            type="line",
            x0=column,
            x1=column,
            y0=0,
            y1=1,
            line={"color": "rgba(128,140,155,0.8)", "width": 1},
            layer="below",
        )
        is_turned = column == last and mode == "min"
        for place, text in _ticks(axis):
            figure.add_annotation(
                x=column, y=1 - place if is_turned else place, text=text, showarrow=False, xanchor="left", xshift=5, font={"size": 10.5},
                borderpad=1,
            )  # fmt: skip
        name = f"<b>{label(axis.name, 22)}</b>" if column == last else label(axis.name, 22)
        figure.add_annotation(
            x=column,
            y=1,
            text=name,
            showarrow=False,
            yanchor="bottom",
            yshift=12,
            xanchor="right" if column == last else "center",
            textangle=0,
        )
    figure.update_xaxes(visible=False, range=[-0.25, last + 0.35])
    figure.update_layout(legend={"y": 1.14})


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    """Return where numbers or categories are written beside an axis: round ones, and the ends where there is room for them."""
    if axis.scale == "category":
        return [(axis.place(name) or 0.0, label(name, 16)) for name in axis.categories]
    inner = axis.marks or _round_ticks(axis)
    places = [
        (place, number(tick)) for tick in inner if 0 <= (place := axis.place(tick) or 0.0) <= 1
    ]
    ends = [
        (axis.place(end) or 0.0, number(float(f"{end:.3g}")))
        for end in dict.fromkeys((axis.low, axis.high))
    ]
    kept: list[tuple[float, str]] = []
    for place, text in [*places, *ends]:
        if all(abs(place - other) > _ROOM for other, _ in kept):
            kept.append((place, text))
    return kept


def _round_ticks(axis: Axis) -> list[float]:
    return (
        log_ticks(axis.low, axis.high) if axis.scale == "log" else linear_ticks(axis.low, axis.high)
    )


def slice_figure(
    trials: Sequence[Tried], axes: Sequence[Axis], metric: str, mode: Mode | None
) -> go.Figure:
    """Return a chart for each parameter: its values against the metric's last ones.

    Args:
        trials: The trials.
        axes: The parameters.
        metric: What the upright axes show.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
    """
    require_plotly()
    from plotly.subplots import make_subplots  # noqa: PLC0415  (an extra)

    num_columns = max(1, min(_MAX_COLUMNS, len(axes)))
    num_rows = max(1, math.ceil(len(axes) / num_columns))
    spacing = {"horizontal_spacing": 0.03, "vertical_spacing": 0.28 / num_rows}
    figure = make_subplots(num_rows, num_columns, shared_yaxes=True, **spacing, figure=new_figure())
    look = new_figure(60 + 250 * num_rows)
    figure.update_layout(template=look.layout.template, height=look.layout.height)
    for place, axis in enumerate(axes):
        row, column = divmod(place, num_columns)
        _add_slice(figure, trials, axis, (row + 1, column + 1), has_legend=place == 0)
    upright = metric_axis(metric, mode, [one.value for one in trials], is_short=num_rows > 1)
    figure.update_yaxes(**{key: value for key, value in upright.items() if key != "title_text"})
    figure.update_yaxes(title_text=upright["title_text"], col=1)
    offer_log_scale(
        figure,
        [name for name in figure.layout if name.startswith("yaxis")],
        [one.value for one in trials],
    )
    return figure


def _add_slice(
    figure: go.Figure,
    trials: Sequence[Tried],
    axis: Axis,
    place: tuple[int, int],
    *,
    has_legend: bool,
) -> None:
    known = [one for one in trials if axis.name in one.config and math.isfinite(one.value)]
    for name, color, size, members in (
        ("trials", GOOD, 6, [one for one in known if not one.is_best]),
        ("best", BEST, 11, [one for one in known if one.is_best]),
    ):
        shown = [axis.shown(one.config[axis.name]) for one in members]
        figure.add_scatter(
            x=[label(value, 16) for value in shown] if axis.scale == "category" else shown,
            y=[one.value for one in members],
            text=[f"{label(one.trial_id)}<br>{config_text(one.config)}" for one in members],
            mode="markers", name=name, legendgroup=name, showlegend=has_legend,
            marker={"color": color, "size": size, "opacity": 1.0 if name == "best" else 0.55},
            hovertemplate="%{text}<br>%{y:.6g}<extra></extra>", row=place[0], col=place[1],
        )  # fmt: skip
    kind = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [label(name, 16) for name in axis.categories],
    }
    numeric = log_axis(axis.low, axis.high) if axis.scale == "log" else {"type": "linear"}
    if axis.marks:
        shown = [
            (tick, text)
            for place, text in _ticks(axis)
            for tick in axis.marks
            if axis.place(tick) == place
        ]
        numeric |= {
            "tickmode": "array",
            "tickvals": [tick for tick, _ in shown],
            "ticktext": [text for _, text in shown],
        }
    figure.update_xaxes(
        title_text=label(axis.name),
        row=place[0],
        col=place[1],
        **(kind if axis.categories else numeric),
    )


def importance_figure(importances: Importances, max_shown: int = 20) -> go.Figure:
    """Return a bar for each parameter, the most important one on top, with its standard error where there is one.

    Args:
        importances: What to draw.
        max_shown: How many bars at most.
    """
    names = list(importances.shares)[:max_shown][::-1]
    shares = [importances.shares[name] for name in names]
    errors = [importances.std_errors[name] for name in names]
    has_errors = all(map(math.isfinite, errors))
    texts = [
        _percent(share) + (f" ± {100 * error:.0f}" if has_errors else "")
        for share, error in zip(shares, errors, strict=True)
    ]
    # The number stands behind whisker and bar, and a whisker never reaches beyond 0 or 1.
    ends = [
        min(1.0, share + error) if has_errors else share
        for share, error in zip(shares, errors, strict=True)
    ]
    figure = new_figure(90 + 28 * len(names))
    figure.add_bar(
        x=shares,
        y=[label(name, 28) for name in names],
        orientation="h",
        marker={"color": GOOD},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [end - share for end, share in zip(ends, shares, strict=True)],
            "arrayminus": [min(share, error) for share, error in zip(shares, errors, strict=True)],
            "color": OTHER,
            "thickness": 1.4,
            "width": 4,
            "visible": has_errors,
        },
        customdata=texts,
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )
    figure.add_scatter(
        x=ends,
        y=[label(name, 28) for name in names],
        text=[f" {text}" for text in texts],
        mode="text",
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    figure.update_xaxes(
        title_text="share of importance", tickformat=".0%", range=[0, 1.2 * max(ends, default=1)]
    )
    figure.update_yaxes(type="category", showgrid=False, ticks="")
    figure.update_layout(bargap=0.4, showlegend=False)
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
