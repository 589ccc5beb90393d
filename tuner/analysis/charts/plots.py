"""Charts of an experiment for notebooks, and their data as data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final

from tuner.analysis import frames
from tuner.analysis.flat_results import flat_config
from tuner.analysis.importances import At, Evaluator
from tuner.analysis.ranking import Mode
from tuner.core.pareto import Objectives
from tuner.core.result import CONFIG, TRAINING_ITERATION

from .curves import curves_figure, learning_curves
from .downsample import MAX_POINTS, MAX_TRIALS
from .history import HistoryStep, history_figure, history_over_time, history_over_trials
from .hypervolume import HypervolumeStep, hypervolume_figure, hypervolume_steps, reference_for
from .importance import importance_figure, param_importances
from .lineage import (
    LineageSegment,
    ScheduleStep,
    lineage,
    lineage_figure,
    schedules,
    schedules_figure,
)
from .parameters import (
    Axis,
    TrialPoint,
    axes,
    coordinates_figure,
    slice_figure,
    trial_lines,
    trial_points,
)
from .pareto import checked_objectives, pareto, pareto_figure
from .rungs import RungEntry, rungs, rungs_figure
from .slots import RunInterval, run_intervals, slots_figure
from .source import Source
from .style import direction
from .summary import FailedTrial, SlowTrial, failed, slowest

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Over = Literal["time", "trials"]
"""Horizontal axis of a history."""
_EVERY: Final = 2**62
"""A limit that no experiment reaches: everything is shown."""
MAX_AXES: Final = 10
"""Maximum number of parameters in parallel coordinates; the least important ones are left out."""
_MAX_LINES: Final = 1000


@final
class PlotData:
    """Data of each chart of `ResultGrid.plot` as data frames, under the same names.

    ``docs/tables.md`` documents their columns. The default metric is that of the `TuneConfig`, in
    its direction.

    Args:
        source: The experiment.

    Example:
        >>> from tuner.analysis import ResultGrid
        >>> from tuner.journal.rows import MemoryRows
        >>> grid = ResultGrid([], "/nowhere", MemoryRows({}), "loss", "min")
        >>> list(grid.plot.data.history("trials").columns)
        ['time_s', 'trial_number', 'trial_id', 'value', 'best', 'is_feasible']
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def learning_curves(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        x: str = TRAINING_ITERATION,
        *,
        max_trials: int | None = None,
        max_points: int | None = None,
    ) -> pd.DataFrame:
        """Return a row for each point of each learning curve, downsampled only if a limit is given.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one; None for that of the experiment,
                or the first of several.
            mode: ``"min"`` or ``"max"``: its direction, which determines ``is_best`` and the trials
                that are kept.
            x: The horizontal axis: a number in each result.
            max_trials: Maximum number of trials; None for all.
            max_points: Maximum number of points of each; None for all.

        Returns:
            Columns ``trial_id``, ``x``, ``value``, ``state``, ``is_best``, ``is_feasible``, in the
            order of the trials and their results.
        """
        source = self._source.with_objective(metric, mode).by_first()
        limits = {
            "max_trials": max_trials or len(source.trials),
            "max_points": max_points or _EVERY,
        }
        return _frame(
            ["trial_id", "x", "value", "state", "is_best", "is_feasible"],
            [
                (curve.trial_id, place, value, curve.state, curve.is_best, curve.is_feasible)
                for curve in learning_curves(source, x, **limits)
                for place, value in zip(curve.xs, curve.values, strict=True)
            ],
        )

    def parallel_coordinates(
        self, metric: str | None = None, mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return a row for each trial with the parameters that differ between trials.

        Columns ``trial_id``, ``state``, ``value``, ``is_best``, ``is_feasible``, and the parameters
        as ``config/...``. If several metrics are optimised and none is given, those of `pareto` and
        the parameters.
        """
        source = self._source.with_objective(metric, mode)
        if not source.is_trade_off:
            return _records(TrialPoint, trial_points(source))
        configs = {line.trial_id: flat_config(line.config) for line in trial_lines(source)}
        columns = _pareto_columns(source.several)
        rows = [{**row, **configs[row["trial_id"]]} for row in _pareto_rows(source, source.several)]
        return _frame_of_mappings(frames.in_order_of_appearance([columns, *rows]), rows)

    def slice(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> pd.DataFrame:
        """Return a row for each trial and parameter.

        Columns ``parameter``, ``setting``, ``trial_id``, ``state``, ``value``, ``is_best`` and
        ``is_feasible``.

        Args:
            params: The parameters, flattened; None for all that differ.
            metric: Name of the metric; None for that of the experiment, or the first of several.
            mode: ``"min"`` or ``"max"``: its direction.
        """
        trials = trial_points(self._source.with_objective(metric, mode).by_first())
        names = (
            dict.fromkeys(name for one in trials for name in one.config)
            if params is None
            else params
        )
        return _frame(
            ["parameter", "setting", "trial_id", "state", "value", "is_best", "is_feasible"],
            [
                (
                    name,
                    one.config[name],
                    one.trial_id,
                    one.state,
                    one.value,
                    one.is_best,
                    one.is_feasible,
                )
                for name in names
                for one in trials
                if name in one.config
            ],
        )

    def importances(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        evaluator: Evaluator = "ped_anova",
        iteration: At = "common",
    ) -> pd.DataFrame:
        """Return the importance of each parameter, in descending order.

        See `ResultGrid.get_param_importances` for the arguments.

        Returns:
            Columns ``parameter``, ``importance``, ``std_error`` (by a bootstrap over the trials;
            only with PED-ANOVA), ``num_trials`` (how many trials were compared) and ``iteration``
            (where they were compared; missing for the last result of each).
        """
        found = param_importances(
            self._source.with_objective(metric, mode), evaluator, iteration, with_errors=True
        )
        return _frame(
            ["parameter", "importance", "std_error", "num_trials", "iteration"],
            [
                (name, share, found.std_errors[name], found.num_trials, found.iteration)
                for name, share in found.shares.items()
            ],
        )

    def history(
        self, over: Over = "time", metric: str | None = None, mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return the improvements of the best feasible value, see `HistoryStep` for the columns.

        Args:
            over: ``"time"`` for a row for each result that was better than all before it,
                ``"trials"`` for a row for each trial.
            metric: Name of the metric; None for that of the experiment, or for each of several,
                whose rows then have it in a column ``metric``.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If `over` is neither.
        """
        is_over_time = check_over(over) == "time"
        source = self._source.with_objective(metric, mode)
        columns = [field.name for field in fields(HistoryStep)]
        rows = [
            {"metric": name} | {column: getattr(step, column) for column in columns}
            for steps, name, _ in _histories(source, is_over_time=is_over_time)
            for step in steps
        ]
        return _frame_of_mappings(["metric", *columns] if source.is_trade_off else columns, rows)

    def rungs(self) -> pd.DataFrame:
        """Return a row for each trial at each rung; empty if no scheduler compared trials at rungs.

        See `RungEntry` for the columns; ``outcome`` is called ``fate``.
        """
        return _records(RungEntry, rungs(self._source)).rename(columns={"outcome": "fate"})

    def lineage(self) -> pd.DataFrame:
        """Return a row for each segment of training between two exploits; empty without exploits.

        See `LineageSegment` for the columns.
        """
        return _records(LineageSegment, lineage(self._source))

    def schedules(self) -> pd.DataFrame:
        """Return a row for each step of each trial's schedule; empty without exploits.

        See `ScheduleStep` for the columns.
        """
        return _records(ScheduleStep, schedules(self._source))

    def slots(self) -> pd.DataFrame:
        """Return a row for each run of a trial; empty without a journal.

        See `RunInterval` for the columns.
        """
        return _records(RunInterval, run_intervals(self._source))

    def pareto(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> pd.DataFrame:
        """Return a row for each trial that reported all metrics.

        Columns ``trial_id``, ``state``, the metrics, ``is_on_front``, and ``is_feasible``.

        Args:
            metrics: At least two metrics; None for all objectives of the experiment.
            modes: For each of them ``"min"`` or ``"max"``: its direction; None if the experiment
                optimises each of them.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        return _frame_of_mappings(
            _pareto_columns(objectives), _pareto_rows(self._source, objectives)
        )

    def hypervolume(
        self,
        reference: Mapping[str, float] | None = None,
        metrics: Sequence[str] | None = None,
        modes: Sequence[Mode] | None = None,
    ) -> pd.DataFrame:
        """Return a row for each trial that is over, see `HypervolumeStep` for the columns.

        See `ResultGrid.hypervolume` for the arguments.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        corner = reference_for(self._source, objectives, reference)
        return _records(HypervolumeStep, hypervolume_steps(self._source, objectives, corner))

    def slowest(self, count: int = 10) -> pd.DataFrame:
        """Return the trials that ran longest, `count` at most; see `SlowTrial` for the columns."""
        return _records(SlowTrial, slowest(self._source, count))

    def failed(self) -> pd.DataFrame:
        """Return the trials that failed for good, see `FailedTrial` for the columns."""
        return _records(FailedTrial, failed(self._source))


def _pareto_columns(objectives: Objectives) -> list[str]:
    return ["trial_id", "state", *(name for name, _ in objectives), "is_on_front", "is_feasible"]


def _pareto_rows(source: Source, objectives: Objectives) -> list[dict[str, Any]]:
    return [
        {
            "trial_id": one.trial_id,
            "state": one.state,
            **dict(zip((name for name, _ in objectives), one.values, strict=True)),
            "is_on_front": one.is_on_front,
            "is_feasible": one.is_feasible,
        }
        for one in pareto(source, objectives)
    ]


def check_over(over: str) -> Over:
    """Return the horizontal axis of a history if it is ``"time"`` or ``"trials"``.

    Raises:
        ValueError: If it is not one of them.
    """
    if over in ("time", "trials"):
        return cast("Over", over)
    raise ValueError(
        f"over must be 'time' or 'trials', got {over!r}; they show the best value "
        "over time or over the number of trials"
    )


def _frame(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    return _frame_of_mappings(columns, [dict(zip(columns, row, strict=True)) for row in rows])


def _records(kind: type, records: Sequence[Any]) -> pd.DataFrame:
    """Return dataclass instances as a data frame: their fields, and then their configurations."""
    names = [field.name for field in fields(kind)]
    columns = [name for name in names if name != CONFIG]
    rows = [
        {name: getattr(record, name) for name in columns}
        | (flat_config(record.config) if CONFIG in names else {})
        for record in records
    ]
    return _frame_of_mappings(frames.in_order_of_appearance([columns, *rows]), rows)


def _frame_of_mappings(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame, with states written with underscores as in other tables."""
    rows = [
        {**row, "state": row["state"].replace(" ", "_")} if "state" in row else row for row in rows
    ]
    return frames.to_frame(rows, columns)


@final
class Plots:
    """The charts of an experiment; each method returns a Plotly figure, which a notebook shows.

    The default metric is that of the `TuneConfig`, in its direction. The best trial is orange in
    every chart.

    Args:
        source: The experiment.

    Raises:
        ImportError: By each method, if Plotly is not installed: it comes with the extra ``report``.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     tune.report({"loss": config["x"] ** 2})
        >>> run_config = tune.RunConfig(verbose=0, storage_path=getfixture("tmp_path"))
        >>> space = {"x": tune.grid_search([3, 1])}
        >>> grid = tune.Tuner(train, param_space=space, run_config=run_config).fit()
        >>> figure = grid.plot.slice(metric="loss", mode="min")
        >>> figure.layout.xaxis.title.text, list(figure.data[1].x), list(figure.data[1].y)
        ('x', [1], [1.0])
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def __repr__(self) -> str:
        """Return the list of charts."""
        charts = (f"  .{name}(): {text}" for name, text in self._summaries().items())
        return "\n".join([self._head(), *charts])

    def _repr_html_(self) -> str:
        """Return the list of charts, for notebooks."""
        rows = "".join(
            f'<tr><td style="text-align:left"><code>.{name}()</code></td><td '
            f'style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._summaries().items()
        )
        return f"<div><p>{escape(self._head())}</p><table>{rows}</table></div>"

    def _head(self) -> str:
        objectives = (
            ", ".join(f"{metric}{direction(mode)}" for metric, mode in self._source.objectives)
            or "no metric"
        )
        return f"Charts of {len(self._source.trials)} trials by {objectives}"

    @staticmethod
    def _summaries() -> dict[str, str]:
        names = [name for name in vars(Plots) if not name.startswith("_") and name != "data"]
        return {
            name: (getattr(Plots, name).__doc__ or "").partition("\n")[0].partition(";")[0]
            for name in names
        }

    @property
    def data(self) -> PlotData:
        """Data of the charts as data frames, under the same names; needs no Plotly."""
        return PlotData(self._source)

    def learning_curves(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        x: str = TRAINING_ITERATION,
        *,
        max_trials: int = MAX_TRIALS,
        max_points: int = MAX_POINTS,
    ) -> go.Figure:
        """Draw the learning curve of each trial.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one; None for that of the experiment,
                or the first of several.
            mode: ``"min"`` or ``"max"``: its direction.
            x: The horizontal axis: a number in each result, e.g. ``"time_total_s"``.
            max_trials: Maximum number of curves: of more, half are the best ones and half are
                spread over the ranks of the others.
            max_points: Maximum number of points of each: of more, the first, the last, the extremes
                and others evenly between them.

        Raises:
            ValueError: If there is no metric.
        """
        source = self._source.with_objective(metric, mode).by_first()
        curves = learning_curves(source, x, max_trials=max_trials, max_points=max_points)
        return curves_figure(curves, source.objective[0], source.mode, x)

    def parallel_coordinates(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> go.Figure:
        """Draw a line for each trial over its parameters and its last value of the metric.

        At most 1,000 trials are drawn. If several metrics are optimised and none is given, each has
        an axis, and the lines of the Pareto front are orange.

        Args:
            params: Which parameters, flattened; None for those that differ, the ten most important
                ones of more.
            metric: Name of the metric; None for all that are optimised.
            mode: ``"min"`` or ``"max"``: its direction; better is up.

        Raises:
            ValueError: If there is no metric, or no such parameter that differs.
        """
        source = self._source.with_objective(metric, mode)
        return coordinates_figure(
            trial_lines(source, _MAX_LINES), chosen_axes(source, params, MAX_AXES), source.chosen
        )

    def slice(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> go.Figure:
        """Draw each parameter against the last value of the metric.

        Args:
            params: Which parameters, flattened; None for those that differ, the twelve most
                important ones of more.
            metric: Name of the metric; None for that of the experiment, or the first of several.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If there is no metric, or no such parameter that differs.
        """
        source = self._source.with_objective(metric, mode).by_first()
        return slice_figure(
            trial_points(source, 2 * _MAX_LINES),
            chosen_axes(source, params, MAX_AXES + 2),
            *source.objective,
        )

    def importances(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        evaluator: Evaluator = "ped_anova",
        iteration: At = "common",
    ) -> go.Figure:
        """Draw the importance of each parameter.

        See `ResultGrid.get_param_importances` for the arguments and the errors.

        The thin lines are one standard error to either side, by a bootstrap over the trials; only
        PED-ANOVA has them.
        """
        return importance_figure(
            param_importances(
                self._source.with_objective(metric, mode), evaluator, iteration, with_errors=True
            )
        )

    def history(
        self, over: Over = "time", metric: str | None = None, mode: Mode | None = None
    ) -> go.Figure:
        """Draw the best value so far of any feasible trial at any result.

        Args:
            over: ``"time"`` or ``"trials"``.
            metric: Name of the metric; None for that of the experiment, or for each of several.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If there is no metric, or `over` is neither.
        """
        source = self._source.with_objective(metric, mode)
        is_over_time = check_over(over) == "time"
        return history_figure(
            _histories(source, is_over_time=is_over_time), is_over_time=is_over_time
        )

    def rungs(self) -> go.Figure:
        """Draw the trials at each rung of each bracket, and which of them were promoted.

        Empty if no scheduler compared trials at rungs.
        """
        return rungs_figure(
            rungs(self._source), self._source.metric, self._source.mode, self._source.best_id
        )

    def lineage(self) -> go.Figure:
        """Draw the exploits between trials; empty if there were none."""
        return lineage_figure(lineage(self._source), schedules(self._source))

    def schedules(self) -> go.Figure:
        """Draw each hyperparameter over the iterations, along each trial's ancestry.

        Empty if no trial exploited another one.
        """
        return schedules_figure(schedules(self._source))

    def slots(self) -> go.Figure:
        """Draw the runs of trials over time, on slots; empty without a journal."""
        return slots_figure(run_intervals(self._source), self._source.best_id)

    def pareto(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> go.Figure:
        """Draw the trials in the plane of each pair of metrics, with the Pareto front highlighted.

        Trials that miss a constraint are grey crosses, and never on the front.

        Args:
            metrics: At least two metrics, compared by last values; None for all objectives of the
                experiment.
            modes: For each of them ``"min"`` if smaller values are better, ``"max"`` if larger ones
                are; None if the experiment optimises each of them.

        Raises:
            ValueError: If they are not at least two with as many modes, or no trial reported one of
                the metrics.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        return pareto_figure(pareto(self._source, objectives), objectives)

    def hypervolume(
        self,
        reference: Mapping[str, float] | None = None,
        over: Over = "time",
        metrics: Sequence[str] | None = None,
        modes: Sequence[Mode] | None = None,
    ) -> go.Figure:
        """Draw how much of the metrics' space the feasible trials dominate.

        Args:
            reference: As for `ResultGrid.hypervolume`.
            over: ``"time"`` or ``"trials"``.
            metrics: As for `pareto`.
            modes: As for `pareto`.

        Raises:
            TypeError: If `reference` is no mapping.
            ValueError: As `pareto`, or if `reference` lacks a metric or has another one, or `over`
                is neither.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        corner = reference_for(self._source, objectives, reference)
        steps = hypervolume_steps(self._source, objectives, corner)
        is_over_time = check_over(over) == "time" and all(step.time_s is not None for step in steps)
        return hypervolume_figure(steps, is_over_time=is_over_time)


def _histories(
    source: Source, *, is_over_time: bool
) -> list[tuple[Sequence[HistoryStep], str, Mode]]:
    """Return the history of the metric, or of each of several."""
    chosen = (
        [source.with_objective(metric, None) for metric, _ in source.several]
        if source.is_trade_off
        else [source]
    )
    steps_of = history_over_time if is_over_time else history_over_trials
    return [(steps_of(one), *one.objective) for one in chosen]


def chosen_axes(source: Source, params: Sequence[str] | None, max_axes: int) -> list[Axis]:
    """Return the parameters that are drawn.

    Args:
        source: The experiment.
        params: The parameters, in this order; None for those that differ.
        max_axes: Maximum number without `params`: the most important ones are drawn, or the first
            ones if importances are unknown.

    Raises:
        ValueError: If one of `params` does not differ between trials.
    """
    found = {axis.name: axis for axis in axes(source)}
    if params is not None:
        unknown = [name for name in params if name not in found]
        if unknown:
            raise ValueError(
                f"params must be parameters that differ between trials, {sorted(found)}, got "
                f"{unknown[0]!r}; name one of them"
            )
        return [found[name] for name in params]
    if len(found) <= max_axes:
        return list(found.values())
    try:
        ranked = list(param_importances(source.by_first()).shares)
    except (ImportError, ValueError):  # Optuna is not installed, or there are too few trials
        ranked = list(found)
    # Importance decides which parameters are drawn, but not their order.
    kept = set(ranked[:max_axes])
    return [axis for name, axis in found.items() if name in kept]
