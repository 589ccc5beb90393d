"""The data of every chart as data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, final

from tuner.analysis import frames
from tuner.analysis.frames import flat_config
from tuner.analysis.importances import At, Evaluator
from tuner.analysis.ranking import Mode
from tuner.core.result import TRAINING_ITERATION

from .curves import learning_curves
from .failures import failed
from .history import history_over_time, history_over_trials
from .lineage import lineage, schedules
from .parameters import param_importances, tried
from .pareto import checked_objectives, pareto
from .rungs import rungs
from .slots import spans
from .source import Source
from .summary import slowest

if TYPE_CHECKING:
    import pandas as pd

Over = Literal["time", "trials"]
"""What the history of a search is told over."""


@final
class PlotData:
    """What each chart of `ResultGrid.plot` shows, under the same names, as data frames; ``docs/tables.md`` tells their columns.

    Wherever a metric is left out that of the `TuneConfig` counts, in its direction.

    Args:
        source: The experiment.

    Example:
        >>> from tuner.analysis import ResultGrid
        >>> from tuner.journal.rows import MemoryRows
        >>> grid = ResultGrid([], "/nowhere", MemoryRows({}), "loss", "min")
        >>> list(grid.plot.data.history("trials").columns)
        ['time_s', 'trial_number', 'trial_id', 'value', 'best']
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
        """Return a row for each point of each learning curve; nothing is thinned unless a limit is given.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one.
            mode: ``"min"`` or ``"max"``: its direction, by which ``is_best`` and the trials that are kept are chosen.
            x: What the curves are drawn over: a number of each result.
            max_trials: How many trials at most; None for all.
            max_points: How many points of each at most; None for all.

        Returns:
            Columns ``trial_id``, ``x``, ``value``, ``state``, ``is_best``, in the order of the trials and their results.
        """
        source = self._source.with_objective(metric, mode)
        limits = {
            "max_trials": max_trials or len(source.trials),
            "max_points": max_points or _EVERY,
        }
        rows = [
            {
                "trial_id": curve.trial_id,
                "x": place,
                "value": value,
                "state": curve.state,
                "is_best": curve.is_best,
            }
            for curve in learning_curves(source, x, **limits)
            for place, value in zip(curve.xs, curve.values, strict=True)
        ]
        return _frame(rows, ["trial_id", "x", "value", "state", "is_best"])

    def parallel_coordinates(
        self, metric: str | None = None, mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return a row for each trial: ``trial_id``, ``state``, ``value``, ``is_best``, and what differs as ``config/...``."""
        rows = [
            {
                "trial_id": one.trial_id,
                "state": one.state,
                "value": one.value,
                "is_best": one.is_best,
                **flat_config(one.config),
            }
            for one in tried(self._source.with_objective(metric, mode))
        ]
        names = dict.fromkeys(name for row in rows for name in row)
        return _frame(rows, list(dict.fromkeys(["trial_id", "state", "value", "is_best", *names])))

    def slice(
        self,
        params: Sequence[str] | None = None,
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> pd.DataFrame:
        """Return a row for each trial and parameter: ``parameter``, ``setting``, ``trial_id``, ``state``, ``value``, ``is_best``.

        Args:
            params: Which parameters, flattened; None for all that differ.
            metric: Name of the metric.
            mode: ``"min"`` or ``"max"``: its direction.
        """
        trials = tried(self._source.with_objective(metric, mode))
        names = (
            dict.fromkeys(name for one in trials for name in one.config)
            if params is None
            else params
        )
        rows = [
            {
                "parameter": name,
                "setting": one.config[name],
                "trial_id": one.trial_id,
                "state": one.state,
                "value": one.value,
                "is_best": one.is_best,
            }
            for name in names
            for one in trials
            if name in one.config
        ]
        return _frame(rows, ["parameter", "setting", "trial_id", "state", "value", "is_best"])

    def importances(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        evaluator: Evaluator = "ped_anova",
        iteration: At = "common",
    ) -> pd.DataFrame:
        """Return how much each parameter mattered, in descending order; see `ResultGrid.get_param_importances` for the arguments.

        Returns:
            Columns ``parameter``, ``importance``, ``std_error`` (by a bootstrap over the trials; of PED-ANOVA alone), ``num_trials`` and
            ``iteration``: how many trials were compared, and where; missing for the last result of each.
        """
        found = param_importances(
            self._source.with_objective(metric, mode), evaluator, iteration, with_errors=True
        )
        rows = [
            {
                "parameter": name,
                "importance": share,
                "std_error": found.std_errors[name],
                "num_trials": found.num_trials,
                "iteration": found.iteration,
            }
            for name, share in found.shares.items()
        ]
        return _frame(rows, ["parameter", "importance", "std_error", "num_trials", "iteration"])

    def history(
        self, over: Over = "time", metric: str | None = None, mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return how the best value came about, see `HistoryStep` for the columns.

        Args:
            over: ``"time"`` for a row for each result that was better than all before it, ``"trials"`` for one for each trial.
            metric: Name of the metric.
            mode: ``"min"`` or ``"max"``: its direction.

        Raises:
            ValueError: If `over` is neither.
        """
        source = self._source.with_objective(metric, mode)
        steps = (
            history_over_time(source) if check_over(over) == "time" else history_over_trials(source)
        )
        return _records(steps, ["time_s", "trial_number", "trial_id", "value", "best"])

    def rungs(self) -> pd.DataFrame:
        """Return a row for each trial at each rung, see `RungEntry` for the columns; empty where no scheduler had rungs."""
        return _records(rungs(self._source), _RUNG_COLUMNS)

    def lineage(self) -> pd.DataFrame:
        """Return a row for each stretch of training between two exploits, see `Stretch` for the columns; empty without exploits."""
        return _with_config(lineage(self._source), _STRETCH_COLUMNS)

    def schedules(self) -> pd.DataFrame:
        """Return a row for each step of each trial's schedule, see `ScheduleStep` for the columns; empty without exploits."""
        return _with_config(schedules(self._source), _STEP_COLUMNS)

    def slots(self) -> pd.DataFrame:
        """Return a row for each run of a trial, see `Span` for the columns; empty without a journal."""
        return _records(
            spans(self._source), ["slot", "trial_id", "attempt", "start_s", "end_s", "state"]
        )

    def pareto(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> pd.DataFrame:
        """Return a row for each trial that has all metrics: ``trial_id``, ``state``, the metrics, ``is_on_front``.

        Args:
            metrics: At least two metrics; None for all objectives of the experiment.
            modes: For each of them ``"min"`` or ``"max"``: its direction; None where the experiment optimises each of them.
        """
        objectives = checked_objectives(self._source, metrics, modes)
        names = [metric for metric, _ in objectives]
        rows = [
            {
                "trial_id": one.trial_id,
                "state": one.state,
                **dict(zip(names, one.values, strict=True)),
                "is_on_front": one.is_on_front,
            }
            for one in pareto(self._source, objectives)
        ]
        return _frame(rows, ["trial_id", "state", *names, "is_on_front"])

    def slowest(self, count: int = 10) -> pd.DataFrame:
        """Return the `count` trials that ran longest, see `Slow` for the columns."""
        return _records(
            slowest(self._source, count), ["trial_id", "state", "run_s", "num_iterations", "share"]
        )

    def failed(self) -> pd.DataFrame:
        """Return the trials that failed for good, see `Failed` for the columns."""
        return _records(
            failed(self._source), ["trial_id", "error", "num_failures", "training_iteration", "log"]
        )


_EVERY = 2**62
_RUNG_COLUMNS = (
    "bracket",
    "level",
    "trial_id",
    "value",
    "fate",
    "cutoff",
    "rank",
    "num_compared",
    "rule",
    "time_s",
)
_STRETCH_COLUMNS = (
    "trial_id",
    "branch",
    "first_iteration",
    "last_iteration",
    "donor_id",
    "donor_branch",
    "is_in_best",
)
_STEP_COLUMNS = ("trial_id", "ancestor_id", "first_iteration", "last_iteration", "is_best")


def check_over(over: str) -> Over:
    """Return what a history is told over if it is ``"time"`` or ``"trials"``.

    Raises:
        ValueError: If it is not one of them.
    """
    if over in ("time", "trials"):
        return cast("Over", over)
    raise ValueError(
        f"over must be 'time' or 'trials', got {over!r}; over time is told when, over trials by which one"
    )


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows as a table, in which states are one word each, as endings are in every other table."""
    words = [
        {**row, "state": row["state"].replace(" ", "_")} if "state" in row else row for row in rows
    ]
    return frames.to_frame(words, columns)


def _records(records: Sequence[Any], columns: Sequence[str]) -> pd.DataFrame:
    return _frame(
        [{name: getattr(record, name) for name in columns} for record in records], columns
    )


def _with_config(records: Sequence[Any], columns: Sequence[str]) -> pd.DataFrame:
    rows: list[Mapping[str, Any]] = [
        {**{name: getattr(record, name) for name in columns}, **flat_config(record.config)}
        for record in records
    ]
    return _frame(rows, list(dict.fromkeys([*columns, *(name for row in rows for name in row)])))
