"""Best value so far, over time or over trials, as data and as a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.analysis.ranking import Mode, rank

from .source import Source
from .style import (
    BEST,
    INFEASIBLE,
    OTHER,
    Panels,
    drawn,
    label,
    metric_axis,
    new_panels,
    offer_log_scale,
    time_axis,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One step of the search.

    Attributes:
        time_s: Experiment time in seconds at which the value was reported; over trials, that of the
            trial's last result. None without a journal.
        trial_number: Number of the trial, from 1 in the order of creation.
        trial_id: The trial.
        value: The value that it reported; over trials, its best value, NaN for none.
        best: The best value of a feasible trial so far, NaN before the first one.
        is_feasible: Whether the trial keeps all constraints by its newest values.
    """

    time_s: float | None
    trial_number: int
    trial_id: str
    value: float
    best: float
    is_feasible: bool = True


def history_over_time(source: Source) -> list[HistoryStep]:
    """Return the results that were better than all earlier ones, and a last step at the end.

    Those of infeasible trials are left out.

    Raises:
        ValueError: If the experiment has no metric.
    """
    source.objective  # noqa: B018  (raises the error)
    numbers = {trial.trial_id: number for number, trial in enumerate(source.trials, start=1)}
    steps = [
        HistoryStep(found.time_s, numbers[found.trial_id], found.trial_id, found.value, found.value)
        for found in source.timeline.improvements
    ]
    if steps:
        last = steps[-1]
        steps.append(
            HistoryStep(
                source.timeline.end_s, last.trial_number, last.trial_id, last.value, last.best
            )
        )
    return steps


def history_over_trials(source: Source) -> list[HistoryStep]:
    """Return a step for each trial, in the order of creation.

    Raises:
        ValueError: If the experiment has no metric.
    """
    metric, mode = source.objective
    reports = source.timeline.reports
    best = math.nan
    steps = []
    for number, trial in enumerate(source.trials, start=1):
        value = trial.summary[metric].by_scope("all", mode) if metric in trial.summary else math.nan
        is_feasible = source.is_feasible(trial)
        if is_feasible:
            # NaN ranks below every number, so it is only kept until the first value.
            best = max(best, value, key=lambda candidate: rank(candidate, mode))
        time_s = reports[trial.trial_id].times_s[-1] if trial.trial_id in reports else None
        steps.append(HistoryStep(time_s, number, trial.trial_id, value, best, is_feasible))
    return steps


def history_figure(
    histories: Sequence[tuple[Sequence[HistoryStep], str, Mode]], *, is_over_time: bool
) -> go.Figure:
    """Return the best value so far as a staircase; over trials with a dot for each trial.

    Args:
        histories: For each metric the steps, its name, and ``"min"`` or ``"max"``: the direction in
            which it is optimised. Those of several are drawn one below the other.
        is_over_time: Whether they are drawn over time instead of over trials.
    """
    panels = new_panels(len(histories), 1, horizontal_gap=0, vertical_gap=0.2)
    panels.figure.update_layout(height=120 + 240 * panels.num_rows)
    for number, (steps, metric, mode) in enumerate(histories):
        _draw(panels, number, steps, (metric, mode), is_over_time=is_over_time)
    panels.figure.update_layout(showlegend=not is_over_time)
    return panels.figure


def _draw(
    panels: Panels,
    number: int,
    steps: Sequence[HistoryStep],
    objective: tuple[str, Mode],
    *,
    is_over_time: bool,
) -> None:
    figure, place_of_panel = panels.figure, panels.place(number)
    unit, name = time_axis(max((step.time_s or 0.0 for step in steps), default=0.0))
    xs = [(step.time_s or 0.0) / unit if is_over_time else step.trial_number for step in steps]
    texts = [label(step.trial_id) for step in steps]
    dots = {"mode": "markers", "marker": {"color": OTHER, "size": 6, "opacity": 0.6}}
    for name_of_dots, is_feasible, style in (
        ("best of each trial", True, dots),
        ("infeasible", False, INFEASIBLE),
    ):
        places = [place for place, step in enumerate(steps) if step.is_feasible is is_feasible]
        if places and not is_over_time:
            figure.add_scatter(
                x=[xs[place] for place in places],
                y=drawn([steps[place].value for place in places]),
                text=[texts[place] for place in places],
                name=name_of_dots,
                legendgroup=name_of_dots,
                showlegend=number == 0,
                **place_of_panel,
                hovertemplate="%{text}: %{y:.6g}<extra></extra>",
                **style,
            )
    figure.add_scatter(
        x=xs,
        y=drawn([step.best for step in steps]),
        text=texts,
        mode="lines",
        name="best so far",
        legendgroup="best so far",
        showlegend=number == 0,
        **place_of_panel,
        line={"color": BEST, "width": 2.6, "shape": "hv"},
        hovertemplate="%{text}: %{y:.6g}<extra></extra>",
    )
    if number == panels.num_rows - 1:
        title = f"{name} since the beginning" if is_over_time else "trial"
        figure.update_xaxes(title_text=title, **place_of_panel)
    values = [step.best for step in steps] + (
        [] if is_over_time else [step.value for step in steps]
    )
    figure.update_yaxes(**metric_axis(*objective, values), **place_of_panel)
    offer_log_scale(figure, [f"yaxis{number + 1 if number else ''}"], values)
