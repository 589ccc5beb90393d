"""Style and parts of all charts: colours, fonts, figures, lines, axes, ticks and number formats.

The colours are readable on light and dark backgrounds.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import plotly.graph_objects as go

BEST: Final = "#e8752a"
"""The best trial, in every chart."""
GOOD: Final = "#3d82c4"
"""Data that is highlighted."""
OTHER: Final = "#93a1b0"
"""All others."""
INFEASIBLE: Final[Mapping[str, Any]] = {
    "mode": "markers",
    "marker": {
        "symbol": "x-thin",
        "size": 7,
        "line": {"color": OTHER, "width": 1.8},
        "opacity": 0.8,
    },
}
"""Trials that miss a constraint, in every chart with a dot for each trial."""
CUTOFF: Final = "#c8553d"
STATE_COLORS: Final[Mapping[str, str]] = {
    "completed": "#4b9a78",
    "stopped early": "#8fa3b8",
    "paused": "#d0a23f",
    "replaced": "#9b7fc0",
    "resized": "#5aa7b5",
    "failed": "#c8553d",
    "interrupted": "#b58a76",
    "running": GOOD,
    "pending": "#c3ccd5",
}
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_MAX_TICKS: Final = 6
_MAX_LINES: Final = 8
"""Of a hover text."""
_WIDE: Final = 100.0
_DECADE: Final = 10.0
MAX_TEXT: Final = 40
"""Longer names and values are truncated in charts."""


def require_plotly() -> Any:
    """Return ``plotly.graph_objects``.

    Raises:
        ImportError: If Plotly is not installed.
    """
    try:
        import plotly.graph_objects as go  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ImportError(
            'charts need Plotly, which is not installed; pip install "tuner-hpo[report]"'
        ) from error
    return go


def template(
    ink: str = "#7a8594",
    line: str = "rgba(128,140,155,0.55)",
    grid: str = "rgba(128,140,155,0.18)",
    paper: str = "rgba(0,0,0,0)",
) -> dict[str, Any]:
    """Return Plotly's template for the charts, whose background is transparent.

    Args:
        ink: Colour of texts.
        line: Colour of axes.
        grid: Colour of the lines behind the data.
        paper: Colour behind texts among the data: that of the page.
    """
    axis = {
        "gridcolor": grid,
        "linecolor": line,
        "tickcolor": line,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "exponentformat": "e",
        "title": {"standoff": 8, "font": {"size": 12.5}},
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 12.5, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": {**axis, "showgrid": False},
            "yaxis": axis,
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "font": {"size": 12},
            },
            "margin": {"l": 56, "r": 20, "t": 36, "b": 48},
            "hoverlabel": {"font": {"family": FONT, "size": 12.5}},
            "hovermode": "closest",
            "dragmode": "zoom",
            "title": {"x": 0, "xanchor": "left", "font": {"size": 15}},
            "annotationdefaults": {"font": {"color": ink}, "bgcolor": paper},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": line, "activecolor": ink},
        }
    }


def new_figure(height: int = 380, **layout: Any) -> go.Figure:
    """Return an empty chart in the common style.

    Args:
        height: In pixels; the width is that of the page.
        layout: More properties of Plotly's layout.
    """
    require_plotly()
    from .notebook_figure import NotebookFigure  # noqa: PLC0415  (an extra)

    return NotebookFigure(layout={"template": template(), "height": height, **layout})


@dataclass(frozen=True, slots=True)
class Panels:
    """A figure that consists of several charts in rows and columns.

    Attributes:
        figure: The figure.
        num_rows: How many rows of charts it has.
        num_columns: How many charts stand in a row.
    """

    figure: go.Figure
    num_rows: int
    num_columns: int

    def place(self, number: int) -> dict[str, int]:
        """Return Plotly's arguments for the chart with a number, counted from 0."""
        row, column = divmod(number, self.num_columns)
        return {"row": row + 1, "col": column + 1}


def new_panels(
    num_panels: int,
    max_columns: int,
    *,
    horizontal_gap: float,
    vertical_gap: float,
    **options: Any,
) -> Panels:
    """Return a figure with empty charts; its height is left to the caller.

    Args:
        num_panels: How many charts.
        max_columns: How many of them stand in a row at most.
        horizontal_gap: Distance of columns, as a share of the figure's width.
        vertical_gap: Distance of rows, as a share of the height of a row.
        options: More arguments of Plotly's ``make_subplots``.
    """
    num_columns = max(1, min(max_columns, num_panels))
    num_rows = max(1, math.ceil(num_panels / num_columns))
    figure = new_figure()
    # Plotly measures gaps as shares of the whole figure.
    figure.set_subplots(
        num_rows,
        num_columns,
        horizontal_spacing=horizontal_gap,
        vertical_spacing=vertical_gap / num_rows,
        **options,
    )
    return Panels(figure, num_rows, num_columns)


@dataclass(slots=True)
class Lines:
    """Many lines as one trace, which Plotly draws many times faster than a trace for each line.

    Attributes:
        xs: Positions of the points; None between two lines, where Plotly leaves a gap.
        ys: Heights of the points, with the same gaps.
        texts: Hover texts of the points.
    """

    xs: list[Any] = field(default_factory=list)
    ys: list[Any] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, xs: Iterable[Any], ys: Iterable[Any], text: str = "") -> None:
        """Add a line, all points of which have the same hover text."""
        self.xs.extend((*xs, None))
        self.ys.extend((*ys, None))
        self.texts.extend([text] * (len(self.xs) - len(self.texts)))


def label(value: Any, max_length: int = MAX_TEXT) -> str:
    """Return text or a value as one line that Plotly shows literally, cut to `max_length`.

    Example:
        >>> label("<b>bold</b>"), label(0.000123456789), label([64, 64])
        ('&lt;b&gt;bold&lt;/b&gt;', '0.000123457', '[64, 64]')
    """
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    text = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    # Plotly interprets tags such as <b> and <a> in every text.
    return html.escape(text, quote=False)


def wrapped(name: str, width: int, max_lines: int = 3) -> str:
    """Return a name in short lines, broken behind separators; of a longer one, the last lines.

    Example:
        >>> wrapped("model/decoder/hidden_dimension_size", 14)
        'model/decoder/<br>hidden_<br>dimension_size'
        >>> wrapped("one_two_three_four_five", 6, max_lines=2)
        '…four_<br>five'
    """
    text = " ".join(str(name).split())
    lines = [""]
    for part in re.findall(r"[^/_.\-: ]*[/_.\-: ]|[^/_.\-: ]+", text):
        for piece in (part[at : at + width] for at in range(0, len(part), width)):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    if len(lines) > max_lines:
        lines = [f"…{lines[-max_lines]}", *lines[1 - max_lines :]] if max_lines > 1 else ["…"]
    return "<br>".join(label(line, width + 1) for line in lines)


def direction(mode: str | None) -> str:
    """Return the direction of optimisation in brackets, to be appended to a metric's name."""
    return "" if mode is None else " (lower is better)" if mode == "min" else " (higher is better)"


def drawn(values: Sequence[float]) -> list[float | None]:
    """Return numbers for drawing: None, which leaves a gap, instead of those not finite."""
    return [value if math.isfinite(value) else None for value in values]


def metric_axis(
    metric: str, mode: str | None, values: Sequence[float], *, is_short: bool = False
) -> dict[str, Any]:
    """Return title and scale of an axis that shows a metric.

    The scale is logarithmic if a minimised metric spans more than two orders of magnitude.

    Args:
        metric: The metric.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for none.
        values: The values that are shown.
        is_short: Whether to leave the direction out of the title.
    """
    finite = [value for value in values if math.isfinite(value)]
    is_wide = (
        mode == "min" and bool(finite) and min(finite) > 0 and max(finite) > _WIDE * min(finite)
    )
    scale = log_axis(min(finite), max(finite)) if is_wide else {}
    return {"title_text": label(metric) + ("" if is_short else direction(mode)), **scale}


def offer_log_scale(figure: go.Figure, axes: Iterable[str], values: Sequence[float]) -> None:
    """Store logarithmic versions of axes in ``layout.meta``, for the switch in the report.

    Nothing is stored if the values span less than a decade, or are not all positive.

    Args:
        figure: The chart.
        axes: Names of the axes, e.g. ``["yaxis", "yaxis2"]``.
        values: The values that they show.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite or min(finite) <= 0 or max(finite) < _DECADE * min(finite):
        return
    known = dict(figure.layout.meta or {}).get("log", {})
    figure.update_layout(
        meta={"log": {**known, **dict.fromkeys(axes, log_axis(min(finite), max(finite)))}}
    )


def log_axis(low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis with labelled ticks."""
    ticks = log_ticks(low, high)
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [number(tick) for tick in ticks],
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers around two positive ones, for a logarithmic axis.

    Example:
        >>> log_ticks(0.002, 0.03), log_ticks(1e-5, 0.1)
        ([0.001, 0.002, 0.005, 0.01, 0.02, 0.05], [1e-05, 0.0001, 0.001, 0.01, 0.1])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)  # noqa: PLR2004  (decades)
    stride = 1 + (last - first) // 8
    ticks = [float(f"{step}e{power}") for power in range(first, last + 1, stride) for step in steps]
    return [tick for tick in ticks if low / 2 <= tick <= high * 2]


def linear_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two others.

    Example:
        >>> linear_ticks(0.003, 0.498), linear_ticks(2, 11)
        ([0.1, 0.2, 0.3, 0.4], [2.0, 4.0, 6.0, 8.0, 10.0])
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    widths = (width * power for width in (1, 2, 5, 10))
    step = next(width for width in widths if (high - low) / width <= _MAX_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    # Formatting removes errors of multiplication such as 0.30000000000000004.
    return [float(f"{count * step:.10g}") for count in range(first, last + 1)]


def number(value: float) -> str:
    """Return the text of a tick's number.

    Example:
        >>> number(0.00001), number(0.01), number(250000.0), number(3.0)
        ('1e-5', '0.01', '250000', '3')
    """
    text = f"{value:.4g}" if abs(value) < 1e4 else f"{value:.6g}"  # noqa: PLR2004
    mantissa, mark, power = text.partition("e")  # 1e-05 is written as 1e-5
    return f"{mantissa}e{int(power)}" if mark else text


def config_text(config: Mapping[str, Any]) -> str:
    """Return a configuration as lines of a hover text."""
    lines = [f"{label(name)} = {label(value)}" for name, value in list(config.items())[:_MAX_LINES]]
    return "<br>".join(lines + (["…"] if len(config) > _MAX_LINES else []))


def seconds(value: float | None) -> str:
    """Return a duration as text.

    Example:
        >>> seconds(0.0042), seconds(4.25), seconds(75), seconds(12_000), seconds(200_000)
        ('4 ms', '4.2 s', '1 min 15 s', '3 h 20 min', '2 d 8 h')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:  # noqa: PLR2004  (a minute)
        return f"{value:.1f} s"
    for unit, name, part, part_name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if value >= unit:
            # Rounded before it is divided: 119.7 s are 2 min, and not 1 min 60 s.
            whole, rest = divmod(round(value / part), unit // part)
            return f"{whole} {name} {rest} {part_name}" if rest else f"{whole} {name}"
    return f"{value:.0f} s"


def time_axis(end_s: float) -> tuple[float, str]:
    """Return the unit of an axis that ends at this time: its length in seconds, and its name."""
    for unit, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if end_s >= 2 * unit:
            return unit, name
    return 1.0, "seconds"
