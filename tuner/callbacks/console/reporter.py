"""Progress reporters with Ray Tune's interface, which configure the console."""

from __future__ import annotations

import heapq
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tuner.core.feasibility import is_feasible
from tuner.core.progress import Progress
from tuner.core.trial import Trial
from tuner.core.trial_metrics import Evaluation

from .progress_table import TableOptions, cost_of

_NUM_LEADERS: Final = 5

Report = Callable[[Sequence[Trial], bool], None]
"""Shows the progress of trials; the flag says whether the experiment is over."""


class ProgressReporter(ABC):
    """Reports the progress of an experiment; given as ``RunConfig(progress_reporter=...)``.

    It replaces the live view, the status lines and the summary; notices and failures are still
    printed. `should_report` is called at most twice a second, and once more at the end, but never
    at ``verbose=0``. A reporter that raises is switched off with a warning, and the usual display
    replaces it.

    Example:
        >>> class AtTheEnd(ProgressReporter):
        ...     def should_report(self, trials, done=False):
        ...         return done
        ...     def report(self, trials, done, *sys_info):
        ...         print(len(trials), "trials")
        >>> AtTheEnd().should_report([], done=True)
        True

    Departures:
        Ray Tune calls it in each turn of its loop, so that a slow reporter slows trials down, and
        ignores reporters unless ``RAY_AIR_NEW_OUTPUT=0`` is set.
    """

    def setup(  # noqa: B027  (a reporter may have nothing to prepare)
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepare, before the first trial.

        Args:
            start_time: When the experiment was started, in seconds since 1970.
            total_samples: How many trials there will be, None where that is open.
            metric: The metric that the experiment optimises, None for none.
            mode: ``"min"`` or ``"max"``: its direction.
            **kwargs: For arguments of later versions.
        """

    @abstractmethod
    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return whether to report now.

        Args:
            trials: All trials, a live list that is not to be modified.
            done: Whether the experiment is over.
        """

    @abstractmethod
    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Report.

        Args:
            trials: All trials.
            done: Whether the experiment is over.
            *sys_info: Two lines of text: how many trials are in which state, and which resources
                are in use.
        """


class TableReporter(ProgressReporter, ABC):
    """Shows the usual display with columns of the user's choice.

    On a terminal and in a notebook the whole view is redrawn at each report; elsewhere a report is
    one line. `total_samples`, `metric` and `mode` override the arguments of `setup`.

    Args:
        metric_columns: Which metrics have a column, by their flattened names, as a list or with the
            titles of their columns. None for the first `infer_limit` numbers. The optimised metric
            always has one.
        parameter_columns: Which hyperparameters have one, likewise. None for those that differ
            among the trials that are listed.
        total_samples: How many trials there will be, None for the experiment's number.
        max_progress_rows: How many trials are listed at most; fewer where the terminal has fewer
            lines.
        max_error_rows: How many failed trials are listed at most.
        max_column_length: How many characters of a title or a value are shown; longer ones are cut
            in the middle.
        max_report_frequency: Seconds between two reports, at least; half a second where it is less.
        infer_limit: How many metrics are shown at most if `metric_columns` is None.
        print_intermediate_tables: Whether trials are listed while the experiment runs. None, the
            default, for yes where the table is redrawn in place, and no where it would be printed
            again and again.
        metric: By which trials are ranked, None for what the experiment optimises.
        mode: ``"min"`` if a smaller value of `metric` is better, ``"max"`` if a larger one is; None
            for the experiment's.
        sort_by_metric: Whether running trials, and others, are each sorted by their latest metric,
            best first, rather than by age.

    Raises:
        ValueError: If a number is negative or `mode` is unknown.
        TypeError: If columns are neither a list of names nor a dictionary.

    Departures:
        In Ray Tune, the default columns are those of its own results, ``print_intermediate_tables``
        depends on ``verbose``, and a table is printed anew for each report. Here, titles may be
        given for columns that are added to a list.
    """

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f"mode must be 'min', 'max' or None, got {mode!r}")
        for name, number, least in (
            ("max_progress_rows", max_progress_rows, 0),
            ("max_error_rows", max_error_rows, 0),
            ("max_column_length", max_column_length, 1),
            ("max_report_frequency", max_report_frequency, 0),
            ("infer_limit", infer_limit, 0),
            ("total_samples", total_samples or 0, 0),
        ):
            if not number >= least:
                raise ValueError(f"{name} must be at least {least}, got {number!r}")
        self._metric_columns = _titles("metric_columns", metric_columns)
        self._parameter_columns = _titles("parameter_columns", parameter_columns)
        self._rows = (max_progress_rows, max_error_rows, max_column_length, infer_limit)
        self._period_s = max_report_frequency
        self._tables = print_intermediate_tables
        self._sort_by_metric = sort_by_metric
        self._reported_at_s = float("-inf")
        self._show: Report | None = None
        self.total_samples = total_samples
        self.metric = metric
        self.mode = mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Add a column for a metric; from then on only named metrics have one.

        Args:
            metric: Its flattened name, e.g. ``"val/loss"``.
            representation: The column's title, None for the name.

        Raises:
            ValueError: If it has a column already.
        """
        self._metric_columns = _with(self._metric_columns, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Add a column for a hyperparameter; from then on only named ones have one.

        Args:
            parameter: Its flattened name, e.g. ``"model/width"``.
            representation: The column's title, None for the name.

        Raises:
            ValueError: If it has a column already.
        """
        self._parameter_columns = _with(self._parameter_columns, parameter, representation)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return whether the next report is due, or the experiment is over."""
        now_s = time.monotonic()
        if not done and now_s - self._reported_at_s < self._period_s:
            return False
        self._reported_at_s = now_s
        return True

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show the progress.

        Raises:
            RuntimeError: If no experiment is running.
        """
        if self._show is None:
            raise RuntimeError(
                f"{type(self).__name__} shows nothing by itself; give it as "
                "RunConfig(progress_reporter=...)"
            )
        self._show(trials, done)

    def attach(self, show: Report) -> None:
        """Use `show` for the reports of the experiment that begins."""
        self._show = show
        self._reported_at_s = float("-inf")

    def adjusted(self, progress: Progress, trials: Sequence[Trial]) -> Progress:
        """Return the progress by the metric, mode and number of trials of this reporter."""
        progress = replace(progress, num_total=self.total_samples or progress.num_total)
        metric, mode = self.metric or progress.metric, self.mode or progress.mode
        if (metric, mode) == (progress.metric, progress.mode):
            return progress
        costs = {
            trial: cost_of(trial, metric, mode)
            for trial in trials
            if metric and mode and is_feasible(trial, progress.constraints)
        }
        leaders = [
            trial
            for trial in heapq.nsmallest(_NUM_LEADERS, costs, key=costs.__getitem__)
            if math.isfinite(costs[trial])
        ]
        if not (leaders and metric):
            return replace(
                progress,
                metric=metric,
                mode=mode,
                leaders=(),
                best=None,
                best_last=None,
                best_ever=None,
            )
        # The engine records iterations for its own metric only, so these have none.
        summary = leaders[0].summary[metric]
        last, ever = Evaluation(summary.last), Evaluation(summary.by_scope("all", mode or "min"))
        return replace(
            progress,
            metric=metric,
            mode=mode,
            leaders=leaders,
            best=leaders[0],
            best_last=last,
            best_ever=ever,
        )

    def options(self, *, redraws: bool) -> TableOptions:
        """Return the options for displays that redraw in place, or that append."""
        max_progress_rows, max_error_rows, max_column_length, infer_limit = self._rows
        return TableOptions(
            self._metric_columns,
            self._parameter_columns,
            max_progress_rows,
            max_error_rows,
            max_column_length,
            infer_limit,
            self._sort_by_metric,
            lists_all=True,
            has_progress_table=redraws if self._tables is None else self._tables,
        )


class CLIReporter(TableReporter):
    """Shows progress as text, on a terminal and elsewhere, in a notebook too.

    Subclasses may override `should_report`, or `report` and call it.

    Example:
        >>> reporter = CLIReporter(metric_columns=["loss", "accuracy"], max_progress_rows=10)
        >>> reporter.add_parameter_column("lr", "learning rate")
    """


class JupyterNotebookReporter(TableReporter):
    """Shows progress as a table in a notebook, and elsewhere like `CLIReporter`.

    Args:
        overwrite: Whether each report replaces the one before, rather than being added to it.
        **options: Those of `CLIReporter`.

    Example:
        >>> columns = {"training_iteration": "epoch", "loss": "loss"}
        >>> reporter = JupyterNotebookReporter(metric_columns=columns, sort_by_metric=True)
    """

    def __init__(self, *, overwrite: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.overwrite = overwrite


def _titles(name: str, columns: Any) -> dict[str, str] | None:
    if columns is None:
        return None
    titles = dict(columns) if isinstance(columns, Mapping) else None
    if titles is None and isinstance(columns, Sequence) and not isinstance(columns, str):
        titles = {column: column for column in columns}
    if titles is None or not all(isinstance(text, str) for pair in titles.items() for text in pair):
        raise TypeError(
            f"{name} must be a list of names or a dictionary of titles by name, got {columns!r}"
        )
    return titles


def _with(columns: Mapping[str, str] | None, name: str, title: str | None) -> dict[str, str]:
    if columns and name in columns:
        raise ValueError(f"{name!r} has a column already, with the title {columns[name]!r}")
    return {**(columns or {}), name: title or name}
