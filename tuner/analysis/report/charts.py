"""Charts of the report, in their order, each with a title and a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.analysis.charts.curves import are_single, curves_figure, learning_curves
from tuner.analysis.charts.downsample import MAX_POINTS, MAX_TRIALS, spread
from tuner.analysis.charts.history import history_figure, history_over_time, history_over_trials
from tuner.analysis.charts.hypervolume import (
    hypervolume_figure,
    hypervolume_steps,
    reference_for,
)
from tuner.analysis.charts.importance import MAX_BARS, importance_figure, param_importances
from tuner.analysis.charts.lineage import (
    MAX_MEMBERS,
    lineage,
    lineage_figure,
    schedules,
    schedules_figure,
)
from tuner.analysis.charts.parameters import (
    Axis,
    axes,
    coordinates_figure,
    slice_figure,
    trial_lines,
    trial_points,
)
from tuner.analysis.charts.pareto import ParetoPoint, pareto, pareto_figure
from tuner.analysis.charts.plots import MAX_AXES, chosen_axes
from tuner.analysis.charts.rungs import MAX_BRACKETS, MAX_DOTS, rungs, rungs_figure
from tuner.analysis.charts.slots import run_intervals, slots_figure
from tuner.analysis.charts.source import Source
from tuner.analysis.importances import num_best_of
from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MAX_LINES: Final = 500
_MAX_POINTS: Final = 2000
_MAX_SLICES: Final = 12


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart on the page.

    Attributes:
        name: Its name in links.
        title: Its heading.
        note: Text below the heading.
        figure: The chart; None if it cannot be drawn, for the reason given in the note.
        is_wide: Whether it takes the whole width of the page.
        min_width: Minimum width in pixels; it is scrolled on a narrower screen.
    """

    name: str
    title: str
    note: str
    figure: go.Figure | None
    is_wide: bool = True
    min_width: int = 300


def charts(source: Source) -> Iterator[Chart]:
    """Yield the charts of an experiment that apply to it, e.g. rungs only with a bracket."""
    whole = source
    if source.several:
        yield _pareto(source)
        yield from _hypervolume(source)
        source = source.by_first()
    if source.metric is None or source.mode is None:
        yield Chart(
            "curves",
            "Learning curves",
            "The experiment names no metric and no mode, so nothing can be compared.",
            None,
        )
    elif not source.trials or not any(source.metric in trial.summary for trial in source.trials):
        yield Chart(
            "curves", "Learning curves", f"No trial reported {source.metric!r} as a number.", None
        )
    else:
        importance = _importance(source)
        yield _curves(source)
        # Charts of importance, one for each objective, take half the width. Beside an odd number of
        # them the history fills the free half; otherwise it is wide, so that no place stays empty.
        is_even = bool(source.several) and len(source.several) % 2 == 0
        yield _history(source, is_wide=importance.is_wide or is_even)
        yield importance
        for number, (metric, _) in enumerate(source.several[1:], start=2):
            yield _importance(source.with_objective(metric, None), f"importance-{number}")
        yield from _parameters(source, whole)
    for chart in (_rungs, _lineage, _schedules, _slots, _quality):
        yield from chart(source)


def _pareto(source: Source) -> Chart:
    points = pareto(source, source.several)
    if not points:
        return Chart(
            "pareto",
            "Trade-off between the objectives",
            "No trial has a finite value of each objective.",
            None,
        )
    shown, note = _thinned(points)
    note = (
        "Last values; orange are the trials that no other one beats in every objective."
        f"{_infeasible_note(points)}{note}"
    )
    return Chart(
        "pareto", "Trade-off between the objectives", note, pareto_figure(shown, source.several)
    )


def _infeasible_note(points: Sequence[ParetoPoint]) -> str:
    return (
        " Crosses are trials that miss a constraint."
        if any(not point.is_feasible for point in points)
        else ""
    )


def _hypervolume(source: Source) -> Iterator[Chart]:
    corner = reference_for(source, source.several)
    steps = hypervolume_steps(source, source.several, corner)
    if not corner or not steps:
        return
    limits = ", ".join(
        f"{metric} {value:.6g}" for (metric, _), value in zip(source.several, corner, strict=True)
    )
    is_over_time = all(step.time_s is not None for step in steps)
    yield Chart(
        "hypervolume",
        "Hypervolume",
        f"How much of the objectives' space the feasible trials dominate, measured from a tenth of "
        f"their range beyond the worst values: {limits}.",
        hypervolume_figure(steps, is_over_time=is_over_time),
    )


def _thinned(points: Sequence[ParetoPoint]) -> tuple[list[ParetoPoint], str]:
    """Return the points that are drawn, including the front, and a note about those left out."""
    shown = [point for point in points if point.is_on_front] + spread(
        [point for point in points if not point.is_on_front], _MAX_POINTS
    )
    if len(shown) == len(points):
        return shown, ""
    return shown, f" Shows {len(shown):,} of {len(points):,} trials, with all of the front."


def _curves(source: Source) -> Chart:
    metric, mode = source.objective
    found = learning_curves(source)
    if are_single(found):
        return Chart(
            "curves",
            "Value of each trial",
            f"{_objective_note(source)}Each trial has reported once.",
            history_figure([(history_over_trials(source), metric, mode)], is_over_time=False),
        )
    num_long = sum(curve.num_results > MAX_POINTS for curve in found)
    notes = [_objective_note(source).strip()]
    if any(not curve.is_feasible for curve in found):
        notes.append("Dotted curves miss a constraint.")
    if len(source.trials) > MAX_TRIALS:
        half = MAX_TRIALS // 2
        notes.append(
            f"Shows {MAX_TRIALS} of {len(source.trials):,} trials: the best {half}, and others "
            f"spread evenly over the ranks."
        )
    if num_long:
        notes.append(
            f"A curve with more than {MAX_POINTS} points ({num_long} here) is drawn from its "
            f"first, last and extreme points and others evenly spaced between them."
        )
    return Chart(
        "curves",
        "Learning curves",
        " ".join(filter(None, notes)),
        curves_figure(found, metric, mode, TRAINING_ITERATION),
    )


def _objective_note(source: Source) -> str:
    """Return which objective a chart shows; empty for a single objective."""
    return f"By {source.metric}, one of the objectives. " if source.several else ""


def _history(source: Source, *, is_wide: bool) -> Chart:
    steps = history_over_time(source)
    is_over_time = bool(steps)
    kind = "feasible trial" if source.constraints else "trial"
    figure = history_figure(
        [(steps or history_over_trials(source), *source.objective)], is_over_time=is_over_time
    )
    return Chart(
        "history",
        "Best so far",
        f"{_objective_note(source)}Best value of any {kind}, at any of its results.",
        figure,
        is_wide=is_wide,
    )


def _importance(source: Source, name: str = "importance") -> Chart:
    title = (
        f"Parameter importance for {source.metric}" if source.several else "Parameter importance"
    )
    try:
        found = param_importances(source, with_errors=True)
    except (ImportError, ValueError) as error:
        return Chart(name, title, f"Not shown: {error}.", None)
    num_params = len(found.shares)
    note = (
        f"Compares {found.num_trials:,} of {len(source.trials):,} trials by {source.metric} at "
        f"iteration {found.iteration}: how differently each parameter is distributed among the "
        f"best {num_best_of(found.num_trials)} (PED-ANOVA), ± its standard error."
    )
    if num_params > MAX_BARS:
        note += f" Shows the first {MAX_BARS} of {num_params} parameters."
    return Chart(name, title, note, importance_figure(found), is_wide=False)


def _parameters(source: Source, whole: Source) -> Iterator[Chart]:
    """Yield the charts of the parameters, by one metric, and by all of the whole experiment."""
    every = axes(source)
    if not every:
        yield Chart("parallel", "Parameters", "No parameter differs between trials.", None)
        return
    metric, mode = source.objective
    shown = chosen_axes(source, None, MAX_AXES)
    lines = trial_lines(whole, _MAX_LINES)
    front = " Orange lines are on the Pareto front." if whole.is_trade_off else ""
    notes = [
        f"Each line is a trial; better is up.{front}"
        + (" Dotted lines miss a constraint." if source.constraints else "")
        + (
            " A line below an axis: the trial has no such parameter."
            if _is_conditional(source, shown)
            else ""
        )
    ]
    if len(source.trials) > _MAX_LINES:
        notes.append(
            f"Shows {len(lines)} of {len(source.trials):,} trials, spread evenly, with the best."
        )
    if len(every) > len(shown):
        notes.append(f"Shows the {len(shown)} most important of {len(every)} parameters.")
    yield Chart(
        "parallel",
        "Parallel coordinates",
        " ".join(notes),
        coordinates_figure(lines, shown, whole.chosen),
        min_width=100 * (len(shown) + len(whole.chosen)),
    )
    sliced = chosen_axes(source, None, _MAX_SLICES)
    dots = trial_points(source, _MAX_POINTS)
    note = (
        f"Shows {len(dots):,} of {len(source.trials):,} trials, spread evenly over the ranks."
        if len(source.trials) > len(dots)
        else ""
    )
    note = f"{_objective_note(source)}{note}"
    yield Chart(
        "slices",
        "Parameter against metric",
        note,
        slice_figure(dots, sliced, metric, mode),
        min_width=220 * min(3, len(sliced)),
    )


def _is_conditional(source: Source, shown: list[Axis]) -> bool:
    return any(axis.name not in trial.evaluated_params for axis in shown for trial in source.trials)


def _rungs(source: Source) -> Iterator[Chart]:
    entries = rungs(source)
    if entries:
        brackets = {entry.bracket for entry in entries}
        note = "A dot is a trial at a rung; above each rung: how many came → how many went on."
        if len(brackets) > MAX_BRACKETS:
            note += f" Shows the {MAX_BRACKETS} largest of {len(brackets)} brackets."
        if any(
            count > MAX_DOTS
            for count in Counter(
                (entry.bracket, entry.level, entry.outcome) for entry in entries
            ).values()
        ):
            note += f" At most {MAX_DOTS} dots of one colour are drawn at a rung, evenly chosen."
        figure = rungs_figure(entries, source.metric, source.mode, source.best_id)
        yield Chart("rungs", "Rungs and brackets", note, figure)


def _lineage(source: Source) -> Iterator[Chart]:
    segments = lineage(source)
    if segments:
        num_members = len({segment.trial_id for segment in segments})
        more = (
            f" Shows {MAX_MEMBERS} of {num_members:,} members." if num_members > MAX_MEMBERS else ""
        )
        note = f"Vertical lines: a trial continues from another one's checkpoint.{more}"
        yield Chart("lineage", "Lineage", note, lineage_figure(segments, schedules(source)))


def _schedules(source: Source) -> Iterator[Chart]:
    steps = schedules(source)
    if steps:
        note = (
            "Each line follows a trial back to where its training began, over all trials that "
            "it descends from."
        )
        num_lines = len({step.trial_id for step in steps})
        if num_lines > MAX_MEMBERS:
            note += (
                f" Shows the best one of {num_lines:,} trials and the first {MAX_MEMBERS} others."
            )
        yield Chart(
            "schedules",
            "Schedules of hyperparameters",
            note,
            schedules_figure(steps),
            min_width=520,
        )


def _slots(source: Source) -> Iterator[Chart]:
    runs = run_intervals(source)
    if runs:
        best_id = None if source.several else source.best_id
        note = (
            f"{len(runs):,} runs of {len({run.trial_id for run in runs}):,} "
            f"trials{'; the best one is framed' if best_id else ''}."
        )
        yield Chart("slots", "Which trial ran when", note, slots_figure(runs, best_id))


def _quality(source: Source) -> Iterator[Chart]:
    if source.metric is None or source.mode is None or source.metric == TIME_TOTAL_S:
        return
    if source.best is None or TIME_TOTAL_S not in source.best.summary:
        return
    objectives = ((TIME_TOTAL_S, "min"), (source.metric, source.mode))
    points = pareto(source, objectives)
    note = (
        "Training time and last value of each trial; the line joins those that no other one "
        f"beats in both.{_infeasible_note(points)}"
    )
    shown, more = _thinned(points)
    yield Chart(
        "quality", "Quality against training time", note + more, pareto_figure(shown, objectives)
    )
