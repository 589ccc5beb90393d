"""The charts of an experiment, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, final

from tuner.analysis.charts.data.curves import learning_curves
from tuner.analysis.charts.data.downsample import MAX_POINTS, MAX_TRIALS
from tuner.analysis.charts.data.history import history_over_time, history_over_trials
from tuner.analysis.charts.data.lineage import lineage, schedules
from tuner.analysis.charts.data.parameters import Axis, axes, param_importances, tried
from tuner.analysis.charts.data.pareto import checked_objectives, pareto
from tuner.analysis.charts.data.plot_data import Over, PlotData, check_over
from tuner.analysis.charts.data.rungs import rungs
from tuner.analysis.charts.data.slots import spans
from tuner.analysis.charts.data.source import Source
from tuner.analysis.importances import At, Evaluator
from tuner.analysis.ranking import Mode
from tuner.core.result import TRAINING_ITERATION

from .curves import curves_figure
from .decisions import lineage_figure, rungs_figure, schedules_figure
from .parameters import coordinates_figure, importance_figure, slice_figure
from .search import history_figure, pareto_figure, slots_figure
from .style import direction

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_AXES = 10
"""More parameters than this are left out of parallel coordinates, those that matter least."""
_MAX_LINES = 1000


@final
class Plots:
    """The charts of an experiment; each method returns a Plotly figure, which a notebook shows.

    Wherever a metric is left out, that of the `TuneConfig` counts, in its direction. Orange is the best trial, everywhere.

    Args:
        source: The experiment.

    Raises:
        ImportError: By each method, if Plotly is not installed: it comes with the extra ``report``.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     tune.report({"loss": config["x"] ** 2})
        >>> run_config = tune.RunConfig(verbose=0, storage_path=getfixture("tmp_path"))
        >>> grid = tune.Tuner(train, param_space={"x": tune.grid_search([3, 1])}, run_config=run_config).fit()
        >>> figure = grid.plot.slice(metric="loss", mode="min")
        >>> figure.layout.xaxis.title.text, list(figure.data[1].x), list(figure.data[1].y)
        ('x', [1], [1.0])
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def _repr_html_(self) -> str:
        """Return for a notebook which charts there are."""
        names = [name for name in vars(Plots) if not name.startswith("_") and name != "data"]
        said = {
            name: (getattr(Plots, name).__doc__ or "").partition("\n")[0].partition(";")[0]
            for name in names
        }
        rows = "".join(
            f'<tr><td style="text-align:left"><code>.{name}()</code></td><td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in said.items()
        )
        objectives = (
            ", ".join(f"{metric}{direction(mode)}" for metric, mode in self._source.objectives)
            or "no metric"
        )
        return f"<div><p>Charts of {len(self._source.trials)} trials by {escape(objectives)}</p><table>{rows}</table></div>"

    @property
    def data(self) -> PlotData:
        """What the charts show, as data frames, under the same names; needs no Plotly."""
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
        """Draw what each trial reported, one result after the other.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one.
            mode: ``"min"`` or ``"max"``: its direction.
            x: What the curves are drawn over: a number of each result, e.g. ``"time_total_s"``.
            max_trials: How many curves at most: of more, half are the best and half are spread over the ranks of the others.
            max_points: How many points of each at most: of more, the first, the last, the extremes and others evenly between them.

        Raises:
            ValueError: If there is no metric.
        """
        source = self._source.with_objective(metric, mode)
        curves = learning_curves(source, x, max_trials=max_trials, max_points=max_points)
        return curves_figure(curves, source.objective[0], source.mode, x)

    def parallel_coordinates(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> go.Figure:
        """Draw a line for each trial over its parameters and its last value of the metric; of more than 1,000 trials so many.

        Args:
            params: Which parameters, flattened; None for those that differ, the ten most important ones of more.
            metric: Name of the metric.
            mode: ``"min"`` or ``"max"``: its direction; better is up.

        Raises:
            ValueError: If there is no metric, or no such parameter that differs.
        """
        source = self._source.with_objective(metric, mode)
        name, direction = source.objective
        return coordinates_figure(
            tried(source, _MAX_LINES), chosen_axes(source, params, MAX_AXES), name, direction
        )

    def slice(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> go.Figure:
        """Draw each parameter against the last value of the metric.

        Args:
            params: Which parameters, flattened; None for those that differ, the twelve most important ones of more.
            metric: Name of the metric.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If there is no metric, or no such parameter that differs.
        """
        source = self._source.with_objective(metric, mode)
        return slice_figure(
            tried(source, 2 * _MAX_LINES),
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
        """Draw how much each parameter mattered; see `ResultGrid.get_param_importances` for the arguments and what is raised.

        The thin lines are one standard error to either side, by a bootstrap over the trials; only PED-ANOVA has them.
        """
        return importance_figure(
            param_importances(
                self._source.with_objective(metric, mode), evaluator, iteration, with_errors=True
            )
        )

    def history(
        self, over: Over = "time", metric: str | None = None, mode: Mode | None = None
    ) -> go.Figure:
        """Draw the best value so far of any trial at any result.

        Args:
            over: ``"time"`` or ``"trials"``.
            metric: Name of the metric.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If there is no metric, or `over` is neither.
        """
        source = self._source.with_objective(metric, mode)
        is_over_time = check_over(over) == "time"
        steps = history_over_time(source) if is_over_time else history_over_trials(source)
        return history_figure(steps, *source.objective, is_over_time=is_over_time)

    def rungs(self) -> go.Figure:
        """Draw who stood at which rung of which bracket, and who went on; empty where no scheduler compared trials at rungs."""
        return rungs_figure(
            rungs(self._source), self._source.metric, self._source.mode, self._best_id
        )

    def lineage(self) -> go.Figure:
        """Draw who went on from whose checkpoint; empty where nobody did."""
        return lineage_figure(lineage(self._source), schedules(self._source))

    def schedules(self) -> go.Figure:
        """Draw each hyperparameter over the iterations, along the ancestry of each trial; empty where nobody has ancestors."""
        return schedules_figure(schedules(self._source))

    def slots(self) -> go.Figure:
        """Draw which trial ran when, laid out over as many slots as ran at once; empty without a journal."""
        return slots_figure(spans(self._source), self._best_id)

    def pareto(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> go.Figure:
        """Draw the trials in the plane of two metrics, a plane for each pair of more, and those that no other trial beats in all of them.

        Args:
            metrics: At least two metrics, whose last values count; None for all objectives of the experiment.
            modes: For each of them ``"min"`` if smaller values are better, ``"max"`` if larger ones are; None where the experiment
                optimises each of them.

        Raises:
            ValueError: If they are not at least two with as many modes, or no trial reported one of the metrics.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        return pareto_figure(pareto(self._source, objectives), objectives)

    @property
    def _best_id(self) -> str | None:
        return self._source.best.trial_id if self._source.best else None


def chosen_axes(source: Source, params: Sequence[str] | None, max_axes: int) -> list[Axis]:
    """Return the parameters that are drawn.

    Args:
        source: The experiment.
        params: Which ones, in this order; None for all that differ.
        max_axes: How many at most, where none are named: those that matter most, or the first ones where that cannot be told.

    Raises:
        ValueError: If one of them is no parameter that differs between trials.
    """
    found = {axis.name: axis for axis in axes(source)}
    if params is not None:
        unknown = [name for name in params if name not in found]
        if unknown:
            raise ValueError(
                f"params must be parameters that differ between trials, {sorted(found)}, got {unknown[0]!r}; name one of them"
            )
        return [found[name] for name in params]
    if len(found) <= max_axes:
        return list(found.values())
    try:
        ranked = list(param_importances(source).shares)
    except (ImportError, ValueError):
        ranked = list(found)
    kept = set(ranked[:max_axes])
    return [axis for name, axis in found.items() if name in kept]
