"""Report of an experiment: one self-contained HTML file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import os
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tuner.analysis.charts.source import Source
from tuner.analysis.charts.style import STATE_COLORS, require_plotly, template
from tuner.storage.declaration import THIS_RELEASE
from tuner.storage.disk import require_parent, write_bytes

from .charts import Chart, charts
from .sections import (
    best_section,
    failures_section,
    front_section,
    has_validations,
    head,
    setup_section,
    tables,
    trial_table,
    validations_section,
)

_LOOKS: Final = {
    "light": template(
        "#4b5866", "rgba(75,88,102,0.45)", "rgba(75,88,102,0.12)", "rgba(255,255,255,0.8)"
    ),
    "dark": template(
        "#a9b5c1", "rgba(169,181,193,0.4)", "rgba(169,181,193,0.13)", "rgba(26,32,39,0.8)"
    ),
    "states": dict(STATE_COLORS),
}


def write_page(source: Source, path: str | os.PathLike[str]) -> Path:
    """Write the report of an experiment, and return its path.

    Args:
        source: The experiment.
        path: The file to write, which is replaced as a whole; a directory gets a ``report.html``.

    Raises:
        ImportError: If Plotly is not installed.
        OSError: If the file cannot be written.
    """
    require_plotly()
    file = Path(path).expanduser()
    file = file / "report.html" if file.is_dir() else file
    require_parent(file)
    # Not synced to the disk: a lost report can be written again.
    write_bytes(file, page(source).encode(), sync=False)
    return file.absolute()


def page(source: Source) -> str:
    """Return the report of an experiment as HTML."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  (an extra)

    found, setup = list(charts(source)), setup_section(source)
    # A browser hashes a script with its line ends normalized, so they must be so before.
    scripts = [get_plotlyjs().replace("\r\n", "\n"), _asset("page.js")]
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    title = escape(Path(source.experiment_path).name)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>",
            head(source),
            _navigation(source, found, has_setup=bool(setup)),
            f'<main>\n<div class="grid">\n{best_section(source)}{front_section(source)}',
            *map(_section, found),
            tables(source),
            validations_section(source),
            failures_section(source),
            setup,
            "</div>\n</main>",
            (
                f"<footer>Made by tuner-hpo {THIS_RELEASE} on {date}; nothing in this file is "
                f"loaded from elsewhere.</footer>"
            ),
            _data("figures", [_figure(chart) for chart in found if chart.figure is not None]),
            _data("looks", _LOOKS),
            _data("trials", trial_table(source)),
            *(f"<script>{script}</script>" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    """Return the policy that lets a browser run only these scripts, and load nothing."""
    # Texts of the user are on the page: even if one escaped as markup, it could not run a script.
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )


def _navigation(source: Source, found: list[Chart], *, has_setup: bool) -> str:
    links = [
        *([("best", "Best trial")] if source.best else []),
        *([("front", "Pareto front")] if source.several else []),
        *((chart.name, chart.title) for chart in found),
        ("all-trials", "Trials"),
        ("slowest", "Slowest and failed"),
        *([("validations", "Validations")] if has_validations(source) else []),
        *([("setup", "How it was searched")] if has_setup else []),
    ]
    return (
        "<nav><div>"
        + "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links)
        + "</div></nav>"
    )


def _section(chart: Chart) -> str:
    kind = ' class="wide"' if chart.is_wide else ""
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    if chart.figure is None:
        return f'<section id="{chart.name}"{kind}><h2>{escape(chart.title)}</h2>{note}</section>'
    place = (
        f'<div class="chart" id="chart-{chart.name}" '
        f'style="min-width:{chart.min_width}px;height:{chart.figure.layout.height}px"></div>'
    )
    heading = f"<h2>{escape(chart.title)}</h2>{_scale_switch(chart)}"
    return (
        f'<section id="{chart.name}"{kind}>{heading}{note}<div '
        f'class="scroll">{place}</div></section>'
    )


def _scale_switch(chart: Chart) -> str:
    """Return the button that switches a chart's scale; empty if its values span no decade."""
    if chart.figure is None or not chart.figure.layout.meta:
        return ""
    return f'<button class="more scale" type="button" data-chart="chart-{chart.name}"></button>'


def _figure(chart: Chart) -> dict[str, Any]:
    figure = chart.figure
    if figure is None:  # only charts with a figure have a place on the page
        return {}
    # The page's script applies its light or dark template, once for all charts.
    figure.layout.template = None
    drawn = json.loads(figure.to_json())
    log = (drawn["layout"].pop("meta", None) or {}).get("log", {})
    return {
        "place": f"chart-{chart.name}",
        "data": drawn["data"],
        "layout": drawn["layout"],
        "log": log,
    }


def _data(name: str, value: Any) -> str:
    """Return a value as a JSON element for scripts.

    Angle brackets are escaped, so that no text in it can end the element.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'
