"""Learning curves as a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.analysis.charts.data.curves import Curve

from .style import BEST, OTHER, STATE_COLORS, label, metric_axis, new_figure, offer_log_scale

if TYPE_CHECKING:
    import plotly.graph_objects as go


def curves_figure(curves: Sequence[Curve], metric: str, mode: str | None, x: str) -> go.Figure:
    """Return all curves, coloured by where the trials stand, the best one on top.

    Args:
        curves: The curves.
        metric: What they show.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        x: What they are drawn over.
    """
    figure = new_figure(420)
    opacity = max(0.3, min(0.85, 30 / max(1, len(curves))))
    for state in dict.fromkeys(curve.state for curve in curves if not curve.is_best):
        members = [curve for curve in curves if curve.state == state and not curve.is_best]
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
    """Return curves as one line with gaps between them, which is drawn many times faster than as many lines."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    sizes: list[int] = []
    for curve in curves:
        name, before = label(curve.trial_id), -math.inf
        for place, value in zip(curve.xs, curve.values, strict=True):
            if place < before:  # gone on from a checkpoint further back
                _gap(xs, ys, texts, sizes)
            xs.append(place)
            ys.append(value if math.isfinite(value) else None)
            texts.append(name)
            sizes.append(5 if len(curve.values) == 1 else 0)  # a line of one point cannot be seen
            before = place
        _gap(xs, ys, texts, sizes)
    return {
        "x": xs,
        "y": ys,
        "text": texts,
        "mode": "lines+markers" if any(sizes) else "lines",
        "marker": {"size": sizes, "line": {"width": 0}},
        "hovertemplate": "%{text}<br>%{x}: %{y:.6g}<extra></extra>",
    }


def _gap(
    xs: list[float | None], ys: list[float | None], texts: list[str], sizes: list[int]
) -> None:
    xs.append(None)
    ys.append(None)
    texts.append("")
    sizes.append(0)
