"""How all charts look: colours that hold on light and on dark paper, one typeface, little ink for everything that is no data."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import plotly.graph_objects as go

BEST: Final = "#e8752a"
"""The best trial, in every chart."""
GOOD: Final = "#3d82c4"
"""What stands out among the rest."""
OTHER: Final = "#93a1b0"
"""All others."""
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
MAX_TEXT: Final = 40
"""Longer names and values are cut in charts."""


def require_plotly() -> ModuleType:
    """Return ``plotly.graph_objects``.

    Raises:
        ImportError: If Plotly is not installed.
    """
    try:
        import plotly.graph_objects as go  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ImportError('charts need Plotly, which is not installed; pip install "tuner-hpo[report]"') from error
    return go


def template(ink: str = "#7a8594", line: str = "rgba(128,140,155,0.55)", grid: str = "rgba(128,140,155,0.18)") -> dict[str, Any]:
    """Return the look of a chart that has no paper of its own.

    Args:
        ink: Colour of texts.
        line: Colour of axes.
        grid: Colour of the lines behind the data.
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
        "title": {"standoff": 10},
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 12.5, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": {**axis, "showgrid": False},
            "yaxis": axis,
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
            "margin": {"l": 56, "r": 20, "t": 36, "b": 48},
            "hoverlabel": {"font": {"family": FONT, "size": 12.5}},
            "hovermode": "closest",
            "dragmode": "zoom",
            "title": {"x": 0, "xanchor": "left", "font": {"size": 15}},
            "annotationdefaults": {"font": {"color": ink}},
        }
    }


def new_figure(height: int = 380, **layout: Any) -> go.Figure:
    """Return an empty chart in our look.

    Args:
        height: In pixels; the width is that of the page.
        layout: More of Plotly's layout.
    """
    go = require_plotly()
    return go.Figure(layout={"template": template(), "height": height, **layout})


def label(value: Any, max_length: int = MAX_TEXT) -> str:
    """Return a user's text or value so that Plotly shows it as it is: in one line, cut, and without meaning as markup.

    Example:
        >>> label("<b>bold</b>"), label(0.000123456789), label([64, 64])
        ('&lt;b&gt;bold&lt;/b&gt;', '0.000123457', '[64, 64]')
    """
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    text = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    return html.escape(text, quote=False)


def direction(mode: str | None) -> str:
    """Return which way is better, in brackets, behind a metric's name."""
    return "" if mode is None else " (lower is better)" if mode == "min" else " (higher is better)"


def drawn(values: Sequence[float]) -> list[float | None]:
    """Return numbers as they can be drawn: those that are not finite leave a gap."""
    return [value if math.isfinite(value) else None for value in values]


def log_if_wide(values: Sequence[float]) -> str:
    """Return ``"log"`` for positive values over more than two orders of magnitude, else ``"linear"``."""
    finite = [value for value in values if math.isfinite(value)]
    is_wide = bool(finite) and min(finite) > 0 and max(finite) > 100 * min(finite)
    return "log" if is_wide else "linear"


def config_text(config: Mapping[str, Any], max_lines: int = 8) -> str:
    """Return a configuration as lines of a hover text."""
    lines = [f"{label(name)} = {label(value)}" for name, value in list(config.items())[:max_lines]]
    return "<br>".join(lines + (["…"] if len(config) > max_lines else []))


def seconds(value: float | None) -> str:
    """Return a duration for people.

    Example:
        >>> seconds(0.0042), seconds(4.25), seconds(75), seconds(3 * 3600 + 20 * 60), seconds(200_000)
        ('4 ms', '4.2 s', '1 min 15 s', '3 h 20 min', '2 d 8 h')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:  # noqa: PLR2004  (a minute)
        return f"{value:.1f} s"
    for unit, name, part, part_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if value >= unit:
            whole, rest = divmod(round(value / part), unit // part)
            return f"{whole} {name} {rest} {part_name}" if rest else f"{whole} {name}"
    return f"{value:.0f} s"


def time_axis(end_s: float) -> tuple[float, str]:
    """Return by what to divide seconds for an axis that ends there, and the name of the unit."""
    for unit, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if end_s >= 2 * unit:
            return unit, name
    return 1.0, "seconds"
