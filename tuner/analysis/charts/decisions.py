"""What schedulers did: rungs and brackets, who became whose clone, and the schedules that came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tuner.analysis.charts.data.lineage import ScheduleStep, Stretch
from tuner.analysis.charts.data.parameters import as_text
from tuner.analysis.charts.data.rungs import RungEntry
from tuner.analysis.importances import is_logarithmic
from tuner.analysis.ranking import is_number

from .style import (
    BEST,
    CUTOFF,
    GOOD,
    OTHER,
    STATE_COLORS,
    config_text,
    label,
    log_axis,
    metric_axis,
    new_figure,
    require_plotly,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_BRACKETS: Final = 6
MAX_MEMBERS: Final = 60
MAX_DOTS: Final = 500
_FATES: Final = {
    "stopped": STATE_COLORS["stopped early"],
    "waits": STATE_COLORS["paused"],
    "went on": GOOD,
    "fully trained": STATE_COLORS["completed"],
}


def rungs_figure(
    entries: Sequence[RungEntry], metric: str | None, mode: str | None, best_id: str | None = None
) -> go.Figure:
    """Return a chart for each bracket: a column for each rung, with a dot for each trial, and how many came and went on above it.

    Args:
        entries: Who stood where; of more than 6 brackets, those with the most trials are drawn.
        metric: What was compared.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        best_id: The best trial, None for none.
    """
    require_plotly()
    from plotly.subplots import make_subplots  # noqa: PLC0415  (an extra)

    shown = shown_brackets(entries)
    num_columns = 1 if len(shown) < 2 else 2  # noqa: PLR2004  (side by side)
    num_rows = max(1, math.ceil(len(shown) / num_columns))
    figure = make_subplots(
        num_rows,
        num_columns,
        vertical_spacing=0.36 / num_rows,
        horizontal_spacing=0.09,
        figure=new_figure(),
    )
    figure.update_layout(
        template=new_figure().layout.template, height=110 + 270 * num_rows, margin={"t": 80}
    )
    figure.update_layout(legend={"y": 1 + 44 / (270 * num_rows)})
    for place, bracket in enumerate(shown):
        members = [entry for entry in entries if entry.bracket == bracket]
        levels = sorted({entry.level for entry in members})
        row, column = divmod(place, num_columns)
        panel = _Panel(row + 1, column + 1, place + 1)
        _add_dots(figure, members, levels, best_id, panel)
        _add_cutoffs(figure, members, levels, panel)
        _add_counts(figure, members, levels, panel)
        title = "rung" if len(shown) == 1 else f"rungs of bracket {bracket}"
        figure.update_xaxes(
            tickmode="array", tickvals=list(range(len(levels))), ticktext=[f"{level:g}" for level in levels], **panel.place,
            range=[-0.5, len(levels) - 0.5], title_text=title, ticks="",
        )  # fmt: skip
        axis = metric_axis(
            metric or "value", mode, [entry.value for entry in members], is_short=num_columns > 1
        )
        figure.update_yaxes(**axis, **panel.place)
    return figure


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of several charts in a figure: its row, its column, and its number, all counted from 1."""

    row: int
    column: int
    number: int

    @property
    def place(self) -> dict[str, int]:
        return {"row": self.row, "col": self.column}


def shown_brackets(entries: Sequence[RungEntry]) -> list[int]:
    """Return the brackets that are drawn: those with the most trials, in their order."""
    counts: dict[int, set[str]] = {}
    for entry in entries:
        counts.setdefault(entry.bracket, set()).add(entry.trial_id)
    return sorted(sorted(counts, key=lambda bracket: -len(counts[bracket]))[:MAX_BRACKETS])


def _add_dots(
    figure: go.Figure,
    entries: Sequence[RungEntry],
    levels: Sequence[float],
    best_id: str | None,
    panel: _Panel,
) -> None:
    for fate, color in _FATES.items():
        xs, ys, texts, sizes, frames = [], [], [], [], []
        for number, level in enumerate(levels):
            there = [
                entry
                for entry in entries
                if entry.level == level and entry.fate == fate and math.isfinite(entry.value)
            ]
            for place, entry in enumerate(there[:: math.ceil(len(there) / MAX_DOTS) or 1]):
                xs.append(number + _jitter(place))
                ys.append(entry.value)
                texts.append(_told(entry))
                sizes.append(11 if entry.trial_id == best_id else 7)
                frames.append(
                    BEST
                    if entry.trial_id == best_id
                    else color
                    if fate == "stopped"
                    else "rgba(0,0,0,0)"
                )
        is_out = fate == "stopped"
        marker = {
            "color": color,
            "size": sizes,
            "symbol": "circle-open" if is_out else "circle",
            "opacity": 0.85,
        }
        figure.add_scatter(
            x=xs, y=ys, text=texts, mode="markers", name=fate, legendgroup=fate, showlegend=bool(xs) and not _has(figure, fate),
            marker={**marker, "line": {"color": frames, "width": 1.6 if is_out else 2.5}}, hovertemplate="%{text}<extra></extra>",
            **panel.place,
        )  # fmt: skip


def _add_cutoffs(
    figure: go.Figure, entries: Sequence[RungEntry], levels: Sequence[float], panel: _Panel
) -> None:
    cutoffs = [
        (number, cutoff)
        for number, level in enumerate(levels)
        if (cutoff := _cutoff(entries, level)) is not None
    ]
    xs_line = [x for number, _ in cutoffs for x in (number - 0.36, number + 0.36, None)]
    ys_line = [y for _, cutoff in cutoffs for y in (cutoff, cutoff, None)]
    figure.add_scatter(
        x=xs_line, y=ys_line, mode="lines", name="last cutoff", legendgroup="cutoff", line={"color": CUTOFF, "width": 1.5, "dash": "dot"},
        showlegend=bool(cutoffs) and not _has(figure, "last cutoff"), hovertemplate="cutoff %{y:.6g}<extra></extra>", **panel.place,
    )  # fmt: skip


def _has(figure: go.Figure, name: str) -> bool:
    return any(trace.name == name and trace.showlegend for trace in figure.data)


def _jitter(place: int) -> float:
    """Return an offset that spreads dots of one column evenly: the golden ratio never lets two neighbours meet."""
    return 0.56 * ((place * 0.618034) % 1 - 0.5)


def _cutoff(entries: Sequence[RungEntry], level: float) -> float | None:
    """Return the cutoff of the last decision at a rung that had one."""
    told = [
        entry
        for entry in entries
        if entry.level == level and entry.cutoff is not None and math.isfinite(entry.cutoff)
    ]
    return max(told, key=lambda entry: entry.time_s).cutoff if told else None


def _told(entry: RungEntry) -> str:
    rank = (
        f"<br>rank {entry.rank} of {entry.num_compared}"
        if entry.rank and entry.num_compared
        else ""
    )
    cutoff = f"<br>cutoff {label(entry.cutoff)}" if entry.cutoff is not None else ""
    return f"{label(entry.trial_id)} {entry.fate}: {label(entry.value)}{rank}{cutoff}"


def _add_counts(
    figure: go.Figure, entries: Sequence[RungEntry], levels: Sequence[float], panel: _Panel
) -> None:
    for number, level in enumerate(levels):
        there = [entry for entry in entries if entry.level == level]
        num_on = sum(entry.fate in ("went on", "fully trained") for entry in there)
        text = (
            f"{len(there)} → {num_on}"
            if any(entry.fate != "fully trained" for entry in there)
            else f"{len(there)}"
        )
        place = "" if panel.number == 1 else panel.number
        figure.add_annotation(
            x=number,
            y=1,
            xref=f"x{place}",
            yref=f"y{place} domain",
            text=text,
            showarrow=False,
            yanchor="bottom",
            yshift=3,
            font={"size": 11.5},
        )


def lineage_figure(stretches: Sequence[Stretch], steps: Sequence[ScheduleStep]) -> go.Figure:
    """Return a line for each member of a population over its iterations, and where it went on from another one's checkpoint.

    Args:
        stretches: What was trained between exploits; of more than 60 members, those that the best one descends from are drawn, and then
            the first ones.
        steps: The schedules of the same trials; that of the best one is drawn on top.
    """
    members = _members(stretches)
    rows = {trial_id: number for number, trial_id in enumerate(members)}
    shown = [stretch for stretch in stretches if stretch.trial_id in rows]
    figure = new_figure(max(280, 110 + 26 * len(rows)))
    best = [
        (step.ancestor_id, step.first_iteration, step.last_iteration, step.config)
        for step in steps
        if step.is_best and step.ancestor_id in rows
    ]
    every = [
        (stretch.trial_id, stretch.first_iteration, stretch.last_iteration, stretch.config)
        for stretch in shown
    ]
    _add_stretches(figure, every, rows, name="member", line={"color": OTHER, "width": 4})
    _add_stretches(
        figure, best, rows, name="led to the best trial", line={"color": BEST, "width": 5}
    )
    for is_best, name, color in (
        (False, "took over a checkpoint", GOOD),
        (True, "on the way to the best trial", BEST),
    ):
        _add_takeovers(
            figure,
            [
                stretch
                for stretch in shown
                if stretch.is_in_best is is_best and stretch.donor_id in rows
            ],
            rows,
            name,
            color,
        )
    figure.update_xaxes(title_text="training_iteration", rangemode="tozero")
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(rows.values()),
        ticktext=[label(name) for name in rows],
        autorange="reversed",
        ticks="",
    )
    return figure


def _members(stretches: Sequence[Stretch]) -> list[str]:
    every = list(dict.fromkeys(stretch.trial_id for stretch in stretches))
    first = list(dict.fromkeys(stretch.trial_id for stretch in stretches if stretch.is_in_best))
    chosen = set(dict.fromkeys([*first, *every][:MAX_MEMBERS]))
    return [trial_id for trial_id in every if trial_id in chosen]


def _add_stretches(
    figure: go.Figure,
    stretches: Sequence[tuple[str, int, int, Mapping[str, Any]]],
    rows: dict[str, int],
    *,
    name: str,
    line: dict[str, Any],
) -> None:
    """Add a line for each stretch: who trained, from which iteration, to which one, and with what."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for trial_id, first, last, config in stretches:
        xs += [first, last, None]
        ys += [rows[trial_id], rows[trial_id], None]
        texts += [f"{label(trial_id)}<br>{config_text(config)}"] * 3
    figure.add_scatter(
        x=xs,
        y=ys,
        text=texts,
        mode="lines",
        name=name,
        line=line,
        hovertemplate="%{text}<extra></extra>",
    )


def _add_takeovers(
    figure: go.Figure, stretches: Sequence[Stretch], rows: dict[str, int], name: str, color: str
) -> None:
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for stretch in stretches:
        place = rows[stretch.trial_id]
        xs += [stretch.first_iteration, stretch.first_iteration, None]
        ys += [rows[stretch.donor_id or ""], place, None]
        texts += [
            "",
            f"{label(stretch.trial_id)} from {label(stretch.donor_id)}<br>{config_text(stretch.config)}",
            "",
        ]
    sizes = [0, 7, 0] * len(stretches)
    figure.add_scatter(
        x=xs, y=ys, text=texts, mode="lines+markers", name=name, line={"color": color, "width": 1.2}, opacity=0.9,
        marker={"size": sizes, "color": color}, hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def schedules_figure(steps: Sequence[ScheduleStep]) -> go.Figure:
    """Return a chart for each hyperparameter that changed: its value over the iterations, along the ancestry of each trial.

    Args:
        steps: The schedules; that of the best trial is drawn on top. Of the others the first 60 are drawn.
    """
    require_plotly()
    from plotly.subplots import make_subplots  # noqa: PLC0415  (an extra)

    kept = set(
        list(dict.fromkeys(step.trial_id for step in steps if not step.is_best))[:MAX_MEMBERS]
    )
    steps = [step for step in steps if step.is_best or step.trial_id in kept]
    names = _changing(steps)
    num_columns = 2 if len(names) > 1 else 1
    num_rows = max(1, math.ceil(len(names) / num_columns))
    figure = make_subplots(
        num_rows,
        num_columns,
        horizontal_spacing=0.12,
        vertical_spacing=0.3 / num_rows,
        figure=new_figure(),
    )
    figure.update_layout(template=new_figure().layout.template, height=80 + 270 * num_rows)
    for number, name in enumerate(names):
        row, column = divmod(number, num_columns)
        values = [step.config[name] for step in steps if name in step.config]
        for is_best, title, color, width in (
            (False, "other trials", OTHER, 1.2),
            (True, "best trial", BEST, 3),
        ):
            xs, ys = _stairs([step for step in steps if step.is_best is is_best], name)
            figure.add_scatter(
                x=xs, y=ys, mode="lines", name=title, legendgroup=title, showlegend=number == 0, opacity=1 if is_best else 0.5,
                line={"color": color, "width": width}, hovertemplate="%{x}: %{y}<extra></extra>", row=row + 1, col=column + 1,
            )  # fmt: skip
        numeric = [float(value) for value in values if is_number(value)]
        is_log = len(numeric) == len(values) and is_logarithmic(numeric)
        axis = (
            log_axis(min(numeric), max(numeric))
            if is_log
            else {}
            if len(numeric) == len(values)
            else {"type": "category"}
        )
        figure.update_yaxes(title_text=label(name), **axis, row=row + 1, col=column + 1)
        figure.update_xaxes(title_text="training_iteration", row=row + 1, col=column + 1)
    return figure


def _changing(steps: Sequence[ScheduleStep], max_shown: int = 8) -> list[str]:
    names = dict.fromkeys(name for step in steps for name in step.config)
    return [name for name in names if len({as_text(step.config.get(name)) for step in steps}) > 1][
        :max_shown
    ]


def _stairs(steps: Sequence[ScheduleStep], name: str) -> tuple[list[Any], list[Any]]:
    """Return the steps as lines, one for each trial, with gaps between trials."""
    xs: list[Any] = []
    ys: list[Any] = []
    for number, step in enumerate(steps):
        value = step.config.get(name)
        xs += [step.first_iteration, step.last_iteration]
        ys += [value if is_number(value) else label(as_text(value), 20)] * 2
        if number + 1 == len(steps) or steps[number + 1].trial_id != step.trial_id:
            xs.append(None)
            ys.append(None)
    return xs, ys
