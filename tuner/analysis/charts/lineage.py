"""Lineage of a population and the hyperparameter schedules that result from its exploits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from tuner.analysis.ancestry import Stretch, ancestry, num_exploits_at
from tuner.analysis.importances import is_logarithmic
from tuner.analysis.ranking import is_number
from tuner.core.result import flatten
from tuner.core.trial import AppliedExploit, Trial

from .parameters import as_text
from .source import Source
from .style import BEST, GOOD, OTHER, Lines, config_text, label, log_axis, new_figure, new_panels

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_MEMBERS: Final = 60

_MAX_CHANGING: Final = 8
"""How many hyperparameters are shown."""


@dataclass(frozen=True, slots=True)
class LineageSegment:
    """Training of a trial between two of its exploits.

    Attributes:
        trial_id: The trial.
        branch: How many exploits the trial had made before.
        first_iteration: ``training_iteration`` of the checkpoint from which it continued.
        last_iteration: ``training_iteration`` that it reached at the next exploit, or at its end.
        donor_id: The trial from whose checkpoint it continued; None for the beginning of a trial.
        donor_branch: How many exploits the donor had made when it saved the checkpoint; None as
            above.
        config: The flattened configuration.
        is_in_best: Whether it is part of the best trial's ancestry.
    """

    trial_id: str
    branch: int
    first_iteration: int
    last_iteration: int
    donor_id: str | None
    donor_branch: int | None
    config: Mapping[str, Any]
    is_in_best: bool


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One step of the hyperparameter schedule by which a trial's model was trained.

    Attributes:
        trial_id: The trial whose schedule it is.
        ancestor_id: The trial that trained this step: itself, or one that it descends from.
        first_iteration: ``training_iteration`` at the beginning of the step.
        last_iteration: ``training_iteration`` at its end.
        config: The flattened configuration of the step.
        is_best: Whether it is the best trial's schedule.
    """

    trial_id: str
    ancestor_id: str
    first_iteration: int
    last_iteration: int
    config: Mapping[str, Any]
    is_best: bool


def lineage(source: Source) -> list[LineageSegment]:
    """Return the segments of each trial's training, in the order of the trials.

    Empty if there were no exploits.
    """
    trials = {trial.trial_id: trial for trial in source.trials}
    if not any(trial.grafts for trial in source.trials):
        return []
    best = source.best
    in_best = (
        {(trial.trial_id, branch) for trial, branch, _ in _ancestry(best, trials)}
        if best
        else set()
    )
    return [
        _segment(trial, branch, trials, in_best)
        for trial in source.trials
        for branch in range(len(trial.grafts) + 1)
    ]


def schedules(source: Source) -> list[ScheduleStep]:
    """Return the schedule of each trial, ordered by trial and iteration.

    Empty if there were no exploits.
    """
    trials = {trial.trial_id: trial for trial in source.trials}
    if not any(trial.grafts for trial in source.trials):
        return []
    return [
        step
        for trial in source.trials
        for step in _schedule(trial, trials, is_best=trial is source.best)
    ]


def _schedule(
    trial: Trial, trials: Mapping[str, Trial], *, is_best: bool
) -> Sequence[ScheduleStep]:
    steps = [
        ScheduleStep(
            trial.trial_id,
            ancestor.trial_id,
            _first(ancestor, branch),
            last,
            flatten(_config(ancestor, branch)),
            is_best,
        )
        for ancestor, branch, last in _ancestry(trial, trials)
    ]
    # Nothing is trained between two exploits in a row; such a step is left out.
    return [step for step in reversed(steps) if step.last_iteration > step.first_iteration]


def _ancestry(trial: Trial, trials: Mapping[str, Trial]) -> Iterator[tuple[Trial, int, int]]:
    """Yield a trial's ancestry, latest first: trial, its number of exploits, last iteration."""
    end = Stretch(trial.trial_id, len(trial.grafts), trial.iteration)
    for stretch in ancestry(end, lambda trial_id: _grafts_of(trials.get(trial_id))):
        yield trials[stretch.trial_id], stretch.num_exploits, stretch.last_iteration


def _grafts_of(trial: Trial | None) -> Sequence[AppliedExploit] | None:
    return None if trial is None else trial.grafts


def _segment(
    trial: Trial, branch: int, trials: Mapping[str, Trial], in_best: set[tuple[str, int]]
) -> LineageSegment:
    graft = trial.grafts[branch - 1] if branch else None
    donor = trials.get(graft.donor_id) if graft else None
    return LineageSegment(
        trial_id=trial.trial_id,
        branch=branch,
        first_iteration=_first(trial, branch),
        last_iteration=trial.grafts[branch].iteration
        if branch < len(trial.grafts)
        else trial.iteration,
        donor_id=graft.donor_id if graft else None,
        donor_branch=num_exploits_at(donor.grafts, graft.checkpoint.index)
        if donor and graft
        else None,
        config=flatten(_config(trial, branch)),
        is_in_best=(trial.trial_id, branch) in in_best,
    )


def _first(trial: Trial, branch: int) -> int:
    return trial.grafts[branch - 1].from_iteration if branch else 0


def _config(trial: Trial, branch: int) -> Mapping[str, Any]:
    return trial.grafts[branch].config if branch < len(trial.grafts) else trial.config


def lineage_figure(segments: Sequence[LineageSegment], steps: Sequence[ScheduleStep]) -> go.Figure:
    """Return a line for each member over its iterations, with the exploits between members.

    Args:
        segments: The segments of training; of more than 60 members, the ancestors of the best one
            are drawn, and then the first ones.
        steps: The schedules of the same trials; that of the best one is drawn on top.
    """
    members = _members(segments)
    rows = {trial_id: number for number, trial_id in enumerate(members)}
    shown = [segment for segment in segments if segment.trial_id in rows]
    figure = new_figure(max(280, 110 + 26 * len(rows)))
    best = [
        (step.ancestor_id, step.first_iteration, step.last_iteration, step.config)
        for step in steps
        if step.is_best and step.ancestor_id in rows
    ]
    every = [
        (segment.trial_id, segment.first_iteration, segment.last_iteration, segment.config)
        for segment in shown
    ]
    _add_segments(figure, every, rows, name="member", line={"color": OTHER, "width": 4})
    _add_segments(
        figure, best, rows, name="led to the best trial", line={"color": BEST, "width": 5}
    )
    for is_best, name, color in (
        (False, "took over a checkpoint", GOOD),
        (True, "on the way to the best trial", BEST),
    ):
        _add_exploits(
            figure,
            [
                segment
                for segment in shown
                if segment.is_in_best is is_best and segment.donor_id in rows
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


def _members(segments: Sequence[LineageSegment]) -> list[str]:
    every = list(dict.fromkeys(segment.trial_id for segment in segments))
    first = list(dict.fromkeys(segment.trial_id for segment in segments if segment.is_in_best))
    chosen = set(dict.fromkeys([*first, *every][:MAX_MEMBERS]))
    return [trial_id for trial_id in every if trial_id in chosen]


def _add_segments(
    figure: go.Figure,
    segments: Sequence[tuple[str, int, int, Mapping[str, Any]]],
    rows: dict[str, int],
    *,
    name: str,
    line: dict[str, Any],
) -> None:
    """Add a line for each segment, given as trial, first iteration, last iteration and config."""
    lines = Lines()
    for trial_id, first, last, config in segments:
        text = f"{label(trial_id)}<br>{config_text(config)}"
        lines.add((first, last), (rows[trial_id], rows[trial_id]), text)
    figure.add_scatter(
        x=lines.xs,
        y=lines.ys,
        text=lines.texts,
        mode="lines",
        name=name,
        line=line,
        hovertemplate="%{text}<extra></extra>",
    )


def _add_exploits(
    figure: go.Figure,
    segments: Sequence[LineageSegment],
    rows: dict[str, int],
    name: str,
    color: str,
) -> None:
    lines = Lines()
    for segment in segments:
        lines.add(
            (segment.first_iteration, segment.first_iteration),
            (rows[segment.donor_id or ""], rows[segment.trial_id]),
            f"{label(segment.trial_id)} from {label(segment.donor_id)}<br>"
            f"{config_text(segment.config)}",
        )
    # Donor, receiver, gap: only the receiving end has a dot.
    sizes = [0, 7, 0] * len(segments)
    figure.add_scatter(
        x=lines.xs,
        y=lines.ys,
        text=lines.texts,
        mode="lines+markers",
        name=name,
        line={"color": color, "width": 1.2},
        opacity=0.9,
        marker={"size": sizes, "color": color},
        hovertemplate="%{text}<extra></extra>",
    )


def schedules_figure(steps: Sequence[ScheduleStep]) -> go.Figure:
    """Return a chart for each hyperparameter that changed, along the ancestry of each trial.

    Args:
        steps: The schedules; that of the best trial is drawn on top. Of the others the first 60 are
            drawn.
    """
    kept = set(
        list(dict.fromkeys(step.trial_id for step in steps if not step.is_best))[:MAX_MEMBERS]
    )
    steps = [step for step in steps if step.is_best or step.trial_id in kept]
    names = _changing(steps)
    panels = new_panels(len(names), 2, horizontal_gap=0.12, vertical_gap=0.3)
    figure = panels.figure
    figure.update_layout(height=80 + 270 * panels.num_rows)
    for number, name in enumerate(names):
        place = panels.place(number)
        values = [step.config[name] for step in steps if name in step.config]
        for is_best, title, color, width in (
            (False, "other trials", OTHER, 1.2),
            (True, "best trial", BEST, 3),
        ):
            lines = _stairs([step for step in steps if step.is_best is is_best], name)
            figure.add_scatter(
                x=lines.xs,
                y=lines.ys,
                mode="lines",
                name=title,
                legendgroup=title,
                showlegend=number == 0,
                opacity=1 if is_best else 0.5,
                line={"color": color, "width": width},
                hovertemplate="%{x}: %{y}<extra></extra>",
                **place,
            )
        numeric = [float(value) for value in values if is_number(value)]
        if len(numeric) < len(values):
            axis = {"type": "category"}
        else:
            axis = log_axis(min(numeric), max(numeric)) if is_logarithmic(numeric) else {}
        figure.update_yaxes(title_text=label(name), **axis, **place)
        figure.update_xaxes(title_text="training_iteration", **place)
    return figure


def _changing(steps: Sequence[ScheduleStep]) -> list[str]:
    names = dict.fromkeys(name for step in steps for name in step.config)
    return [name for name in names if len({as_text(step.config.get(name)) for step in steps}) > 1][
        :_MAX_CHANGING
    ]


def _stairs(steps: Sequence[ScheduleStep], name: str) -> Lines:
    """Return the values of a hyperparameter over the iterations, one line for each trial."""
    lines = Lines()
    for _, schedule in groupby(steps, key=lambda step: step.trial_id):
        xs: list[int] = []
        ys: list[Any] = []
        for step in schedule:
            value = step.config.get(name)
            xs += [step.first_iteration, step.last_iteration]
            ys += [value if is_number(value) else label(as_text(value), 20)] * 2
        lines.add(xs, ys)
    return lines
