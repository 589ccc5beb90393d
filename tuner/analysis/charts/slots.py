"""Attempts of all trials over time, laid out on slots, as data and as a chart."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .source import Source, state_of
from .style import BEST, STATE_COLORS, Lines, label, new_figure, seconds, time_axis
from .timeline import TimedAttempt

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STATES: Final[Mapping[str, str]] = {
    "stop": "stopped early",
    "pause": "paused",
    "exploit": "replaced",
    "resize": "resized",
}
_NUM_TALL_ROWS: Final = 4
_MAX_BARS: Final = 3000
"""More runs than this are drawn as lines, which are drawn faster but have no hover text."""


@dataclass(frozen=True, slots=True)
class RunInterval:
    """One run of a trial.

    Attributes:
        slot: The row in which it is drawn, counted from 0: the lowest free one. The resources that
            the trial occupied are not shown.
        trial_id: The trial.
        attempt: Number of the run, from 1.
        start_s: When its worker was ready, in seconds of experiment time.
        end_s: When its worker exited.
        state: How it ended: ``"completed"``, ``"stopped early"``, ``"paused"``, ``"failed"``,
            ``"interrupted"``, ``"running"``, ``"replaced"`` if the trial continued from another
            trial's checkpoint, ``"resized"`` if it continued with other resources.
    """

    slot: int
    trial_id: str
    attempt: int
    start_s: float
    end_s: float
    state: str


def run_intervals(source: Source) -> list[RunInterval]:
    """Return the runs of all trials, ordered by their start; empty without a journal."""
    last = {attempt.trial_id: attempt.attempt for attempt in source.timeline.attempts}
    ends = {trial.trial_id: state_of(trial) for trial in source.trials}
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found = []
    for attempt in sorted(
        source.timeline.attempts, key=lambda attempt: (attempt.start_s, attempt.trial_id)
    ):
        # Slots of the runs that have ended by now become free; `busy` is ordered by the end.
        while busy and busy[0][0] <= attempt.start_s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (attempt.end_s, slot))
        is_last = last[attempt.trial_id] == attempt.attempt
        state = _state_of(attempt, ends[attempt.trial_id] if is_last else "")
        found.append(
            RunInterval(
                slot, attempt.trial_id, attempt.attempt, attempt.start_s, attempt.end_s, state
            )
        )
    return found


def _state_of(attempt: TimedAttempt, end: str) -> str:
    """Return how a run ended; `end` is the trial's state if it was its last run."""
    if attempt.outcome in ("failed", "unsaved", "killed", "lost"):
        return "failed"
    if attempt.outcome == "completed" or attempt.is_complete:
        return "completed"
    if attempt.outcome == "stopped" and attempt.last_decision in _STATES:
        return _STATES[attempt.last_decision]
    return end if end and end not in ("pending", "paused") else "interrupted"


def slots_figure(run_intervals: Sequence[RunInterval], best_id: str | None = None) -> go.Figure:
    """Return a row for each slot with the runs on it, coloured by how they ended.

    The best trial has a frame.

    Args:
        run_intervals: The runs.
        best_id: The best trial, None for none.
    """
    num_slots = 1 + max((interval.slot for interval in run_intervals), default=0)
    unit, name = time_axis(max((interval.end_s for interval in run_intervals), default=0.0))
    row_height = 30 if num_slots > _NUM_TALL_ROWS else 40
    figure = new_figure(min(900, 130 + row_height * num_slots))
    is_few = len(run_intervals) <= _MAX_BARS
    for state in sorted(
        {interval.state for interval in run_intervals}, key=list(STATE_COLORS).index
    ):
        members = [interval for interval in run_intervals if interval.state == state]
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
    figure: go.Figure,
    run_intervals: Sequence[RunInterval],
    unit: float,
    state: str,
    best_id: str | None,
) -> None:
    texts = [
        f"{label(interval.trial_id)}, run {interval.attempt}: "
        f"{state}<br>{seconds(interval.end_s - interval.start_s)}"
        for interval in run_intervals
    ]
    figure.add_bar(
        base=[interval.start_s / unit for interval in run_intervals],
        x=[(interval.end_s - interval.start_s) / unit for interval in run_intervals],
        y=[interval.slot for interval in run_intervals],
        orientation="h",
        name=state,
        marker={
            "color": STATE_COLORS[state],
            "line": {
                "color": [
                    BEST if interval.trial_id == best_id else "rgba(255,255,255,0.35)"
                    for interval in run_intervals
                ],
                "width": [
                    2.5 if interval.trial_id == best_id else 0.5 for interval in run_intervals
                ],
            },
        },
        text=[label(interval.trial_id) for interval in run_intervals],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": "white", "size": 10},
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _add_lines(
    figure: go.Figure, run_intervals: Sequence[RunInterval], unit: float, state: str
) -> None:
    lines = Lines()
    for interval in run_intervals:
        lines.add((interval.start_s / unit, interval.end_s / unit), (interval.slot, interval.slot))
    figure.add_scatter(
        x=lines.xs,
        y=lines.ys,
        mode="lines",
        name=state,
        line={"color": STATE_COLORS[state], "width": 14},
        hoverinfo="skip",
    )
