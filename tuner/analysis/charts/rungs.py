"""Rungs and brackets: where trials were compared, stopped and promoted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tuner.core.trial import Status, Trial

from .source import Source
from .style import BEST, CUTOFF, GOOD, STATE_COLORS, Lines, label, metric_axis, new_panels
from .timeline import TimedDecision, Timeline

if TYPE_CHECKING:
    import plotly.graph_objects as go

RungOutcome = Literal["went on", "stopped", "waits", "fully trained"]
"""Outcome of a trial at a rung."""
_LEVEL_NAMES = ("rung", "level")
_COUNT_NAMES = ("num_recorded", "num_compared")
MAX_BRACKETS: Final = 6
MAX_DOTS: Final = 500
_OUTCOME_COLORS: Final = {
    "stopped": STATE_COLORS["stopped early"],
    "waits": STATE_COLORS["paused"],
    "went on": GOOD,
    "fully trained": STATE_COLORS["completed"],
}


@dataclass(frozen=True, slots=True)
class RungEntry:
    """A trial at a rung.

    Attributes:
        bracket: Number of the bracket, counted from 0.
        level: The rung: an amount of training in the scheduler's ``time_attr``.
        trial_id: The trial.
        value: The value of the metric that was compared; NaN if it was not a number.
        outcome: The outcome of the trial at the rung.
        cutoff: The worst value that was promoted when the trial was last decided about; None
            without a decision.
        rank: Its rank then, 1 for the best; None without a decision.
        num_compared: How many trials were ranked; None without a decision.
        rule: Rule of the decision, e.g. ``"asha.rung"``; empty without a decision.
        time_s: Time of the decision, or of reaching the rung, in seconds of experiment time.
    """

    bracket: int
    level: float
    trial_id: str
    value: float
    outcome: RungOutcome
    cutoff: float | None
    rank: int | None
    num_compared: int | None
    rule: str
    time_s: float


@dataclass(slots=True)
class _RungDecisions:
    """Decisions of an experiment that name a rung.

    Attributes:
        brackets: Bracket of each trial.
        levels: The levels of each bracket.
        decisions: Decisions by trial and level, the latest last.
        full_levels: Level of a full training, by bracket.
    """

    brackets: dict[str, int] = field(default_factory=dict)
    levels: dict[int, set[float]] = field(default_factory=dict)
    decisions: dict[tuple[str, float], list[TimedDecision]] = field(default_factory=dict)
    full_levels: dict[int, float] = field(default_factory=dict)

    def add(self, decision: TimedDecision) -> None:
        if decision.number("bracket") is None:
            return
        bracket = int(decision.number("bracket") or 0)
        top, level = decision.number("max_t"), decision.number(*_LEVEL_NAMES)
        if top is not None:
            self.full_levels[bracket] = top
        level = top if level is None else level
        if level is None:
            return
        self.brackets[decision.trial_id] = bracket
        self.levels.setdefault(bracket, set()).add(level)
        self.decisions.setdefault((decision.trial_id, level), []).append(decision)


def rungs(source: Source) -> list[RungEntry]:
    """Return the trials at each rung, ordered by bracket, level and trial.

    Empty if no scheduler compared trials at rungs.

    Decisions and their numbers come from the journal. Where a trial passed a rung without a
    decision, its value is that of the first result at the level; if levels are not counted in
    ``training_iteration``, such a trial is left out there.
    """
    timeline = source.timeline
    known_rungs = _RungDecisions()
    for decision in timeline.decisions:
        known_rungs.add(decision)
    if len(known_rungs.levels) == 1:
        # If there is a single bracket, trials without a decision belong to it as well.
        known_rungs.brackets = {
            **dict.fromkeys(
                (trial.trial_id for trial in source.trials), next(iter(known_rungs.levels))
            ),
            **known_rungs.brackets,
        }
    # Results are indexed by iteration; a scheduler may count levels in another unit, such as time.
    is_by_iteration = all(_is_at_iteration(decision) for decision in timeline.decisions)
    entries = [
        entry
        for trial in source.trials
        for entry in _entries(trial, known_rungs, timeline, is_by_iteration=is_by_iteration)
    ]
    return sorted(entries, key=lambda entry: (entry.bracket, entry.level, entry.trial_id))


def _is_at_iteration(decision: TimedDecision) -> bool:
    time = decision.number("time")
    return time is None or decision.number("bracket") is None or time == decision.iteration


def _entries(
    trial: Trial, known_rungs: _RungDecisions, timeline: Timeline, *, is_by_iteration: bool
) -> Iterator[RungEntry]:
    bracket = known_rungs.brackets.get(trial.trial_id)
    if bracket is None:
        return
    reports = timeline.reports.get(trial.trial_id)
    levels = sorted(known_rungs.levels[bracket])
    known = {level: known_rungs.decisions.get((trial.trial_id, level), []) for level in levels}
    reached = {level: reports.at(level) for level in levels} if reports and is_by_iteration else {}
    reached_levels = [level for level in levels if known[level] or reached.get(level)]
    for level in reached_levels:
        outcome = _outcome_at(
            trial,
            known[level],
            is_highest=level == reached_levels[-1],
            is_top=level == known_rungs.full_levels.get(bracket),
        )
        entry = RungEntry(
            bracket, level, trial.trial_id, math.nan, outcome, None, None, None, "", math.nan
        )
        yield _with_decisions(entry, known[level], reached.get(level))


def _outcome_at(
    trial: Trial, decisions: Iterable[TimedDecision], *, is_highest: bool, is_top: bool
) -> RungOutcome:
    if is_top:
        return "fully trained"
    kinds = [decision.kind for decision in decisions]
    if not is_highest or (kinds and kinds[-1] == "resume"):
        return "went on"
    if trial.status is Status.PAUSED:
        return "waits"
    return "stopped" if "stop" in kinds else "went on"


def _with_decisions(
    entry: RungEntry, decisions: Sequence[TimedDecision], reached: tuple[float, float] | None
) -> RungEntry:
    """Return the entry with what was decided there, or else with what the trial reported."""
    time_s, value = reached or (math.nan, math.nan)
    if not decisions:
        return replace(entry, value=value, time_s=time_s)
    latest = _merged_numbers(decisions)
    rank, compared = (
        latest.get("rank"),
        next((latest[name] for name in _COUNT_NAMES if name in latest), None),
    )
    return replace(
        entry,
        value=latest.get("value", value),
        cutoff=latest.get("cutoff"),
        rank=None if rank is None else int(rank),
        num_compared=None if compared is None else int(compared),
        rule=decisions[-1].rule,
        time_s=decisions[-1].time_s,
    )


def _merged_numbers(decisions: Iterable[TimedDecision]) -> Mapping[str, float]:
    """Return the numbers of all decisions about a trial at a rung, later ones replacing earlier."""
    return {
        name: number
        for decision in decisions
        for name in decision.numbers
        if (number := decision.number(name)) is not None
    }


def rungs_figure(
    entries: Sequence[RungEntry], metric: str | None, mode: str | None, best_id: str | None = None
) -> go.Figure:
    """Return a chart for each bracket: a column per rung, a dot per trial.

    Above each rung are the numbers of trials that reached it and of those that continued.

    Args:
        entries: Trials at rungs; of more than 6 brackets, those with the most trials are drawn.
        metric: The metric that was compared.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        best_id: The best trial, None for none.
    """
    shown = shown_brackets(entries)
    panels = new_panels(len(shown), 2, horizontal_gap=0.09, vertical_gap=0.36)
    figure, rows_height = panels.figure, 270 * panels.num_rows
    # The legend stands above the counts of the first row, 44 pixels over the charts.
    figure.update_layout(
        height=110 + rows_height, margin={"t": 80}, legend={"y": 1 + 44 / rows_height}
    )
    for number, bracket in enumerate(shown):
        members = [entry for entry in entries if entry.bracket == bracket]
        levels = sorted({entry.level for entry in members})
        place = panels.place(number)
        _add_dots(figure, members, levels, best_id, place)
        _add_cutoffs(figure, members, levels, place)
        _add_counts(figure, members, levels, place)
        title = "rung" if len(shown) == 1 else f"rungs of bracket {bracket}"
        figure.update_xaxes(
            tickmode="array",
            tickvals=list(range(len(levels))),
            ticktext=[f"{level:g}" for level in levels],
            **place,
            range=[-0.5, len(levels) - 0.5],
            title_text=title,
            ticks="",
        )
        axis = metric_axis(
            metric or "value",
            mode,
            [entry.value for entry in members],
            is_short=panels.num_columns > 1,
        )
        figure.update_yaxes(**axis, **place)
    return figure


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
    place: Mapping[str, int],
) -> None:
    for outcome, color in _OUTCOME_COLORS.items():
        xs, ys, texts, sizes, outlines = [], [], [], [], []
        for number, level in enumerate(levels):
            at_level = [
                entry
                for entry in entries
                if entry.level == level and entry.outcome == outcome and math.isfinite(entry.value)
            ]
            stride = math.ceil(len(at_level) / MAX_DOTS) or 1
            for order, entry in enumerate(at_level[::stride]):
                xs.append(number + _jitter(order))
                ys.append(entry.value)
                texts.append(_hover_text(entry))
                sizes.append(11 if entry.trial_id == best_id else 7)
                outline = color if outcome == "stopped" else "rgba(0,0,0,0)"
                outlines.append(BEST if entry.trial_id == best_id else outline)
        is_out = outcome == "stopped"
        marker = {
            "color": color,
            "size": sizes,
            "symbol": "circle-open" if is_out else "circle",
            "opacity": 0.85,
        }
        figure.add_scatter(
            x=xs,
            y=ys,
            text=texts,
            mode="markers",
            name=outcome,
            legendgroup=outcome,
            showlegend=bool(xs) and not _has_legend_entry(figure, outcome),
            marker={**marker, "line": {"color": outlines, "width": 1.6 if is_out else 2.5}},
            hovertemplate="%{text}<extra></extra>",
            **place,
        )


def _add_cutoffs(
    figure: go.Figure,
    entries: Sequence[RungEntry],
    levels: Sequence[float],
    place: Mapping[str, int],
) -> None:
    lines = Lines()
    for number, level in enumerate(levels):
        if (cutoff := _cutoff(entries, level)) is not None:
            lines.add((number - 0.36, number + 0.36), (cutoff, cutoff))
    figure.add_scatter(
        x=lines.xs,
        y=lines.ys,
        mode="lines",
        name="last cutoff",
        legendgroup="cutoff",
        line={"color": CUTOFF, "width": 1.5, "dash": "dot"},
        showlegend=bool(lines.xs) and not _has_legend_entry(figure, "last cutoff"),
        hovertemplate="cutoff %{y:.6g}<extra></extra>",
        **place,
    )


def _has_legend_entry(figure: go.Figure, name: str) -> bool:
    return any(trace.name == name and trace.showlegend for trace in figure.data)


def _jitter(order: int) -> float:
    """Return the horizontal offset of a dot, so that the dots of a column do not overlap."""
    # Multiples of the golden ratio, modulo 1, are evenly spread however many there are.
    return 0.56 * ((order * 0.618034) % 1 - 0.5)


def _cutoff(entries: Sequence[RungEntry], level: float) -> float | None:
    """Return the cutoff of the last decision at a rung that had one."""
    with_cutoff = [
        entry
        for entry in entries
        if entry.level == level and entry.cutoff is not None and math.isfinite(entry.cutoff)
    ]
    return max(with_cutoff, key=lambda entry: entry.time_s).cutoff if with_cutoff else None


def _hover_text(entry: RungEntry) -> str:
    rank = (
        f"<br>rank {entry.rank} of {entry.num_compared}"
        if entry.rank and entry.num_compared
        else ""
    )
    cutoff = f"<br>cutoff {label(entry.cutoff)}" if entry.cutoff is not None else ""
    return f"{label(entry.trial_id)} {entry.outcome}: {label(entry.value)}{rank}{cutoff}"


def _add_counts(
    figure: go.Figure,
    entries: Sequence[RungEntry],
    levels: Sequence[float],
    place: Mapping[str, int],
) -> None:
    for number, level in enumerate(levels):
        at_level = [entry for entry in entries if entry.level == level]
        num_on = sum(entry.outcome in ("went on", "fully trained") for entry in at_level)
        text = (
            f"{len(at_level)} → {num_on}"
            if any(entry.outcome != "fully trained" for entry in at_level)
            else f"{len(at_level)}"
        )
        figure.add_annotation(
            x=number,
            y=1,
            yref="y domain",
            text=text,
            showarrow=False,
            yanchor="bottom",
            yshift=3,
            font={"size": 11.5},
            **place,
        )
