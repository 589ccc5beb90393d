"""Results of all trials of an experiment: `ResultGrid`."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final, overload

from searchers.objectives.outcome_constraint import Constraints, comparisons
from tuner import capabilities
from tuner.core.checkpoints import RetentionPolicy
from tuner.core.feasibility import is_feasible
from tuner.core.trial import Status, Trial
from tuner.errors import TrialFailed
from tuner.journal.rows import JournalRows, Rows, histories_of
from tuner.journal.saving_cost import Persistence
from tuner.storage.directories import absolute_path
from tuner.storage.origin import origin_of
from tuner.storage.urls import is_like_url

if TYPE_CHECKING:
    import pandas as pd

    from tuner.core.pareto import Objectives

    from .charts import Plots, Source
    from .importances import At, Evaluator
    from .ranking import Mode, Scope
    from .result import FramesOnDemand, ObjectStorage, Result

_MAX_PRINTED = 20
_ON_DEMAND = ("_frames", "_results")


@final
class ResultGrid(Sequence["Result"]):
    """Results of all trials, of any status, in the order of their creation.

    A slice of a grid is a grid.

    Args:
        trials: The trials.
        experiment_path: Directory of the experiment.
        rows: Source of the trials' results, read on demand.
        metric: The metric that the experiment optimises, flattened; None for none.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
        retention: How the trials' checkpoints are ranked; None keeps all, ranked by recency.
        persistence: Cost of saving the experiment.
        several: Metric and mode of each objective if the experiment has several; there may be no
            single `metric` then.
        constraints: What a trial has to keep to be the best one, or on the Pareto front.
        storage: The object store that the experiment is in; None if it is in none.

    Departures:
        Trials stay in the order of creation where Ray Tune moves a retried one to the end, and
        trials without a result have a row in `get_dataframe`.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        experiment_path: str,
        rows: Rows,
        metric: str | None = None,
        mode: Mode | None = None,
        *,
        retention: RetentionPolicy | None = None,
        persistence: Persistence | None = None,
        several: Objectives = (),
        constraints: Constraints = (),
        storage: ObjectStorage | None = None,
    ) -> None:
        self._trials = tuple(trials)
        self._path = str(experiment_path)
        self._storage = storage
        self._rows = rows
        self._metric = metric
        self._mode = mode
        self._retention = retention or RetentionPolicy()
        self._persistence = persistence
        self._several = several
        self._constraints = tuple(constraints)

    @functools.cached_property
    def _frames(self) -> FramesOnDemand:
        from .result import FramesOnDemand  # noqa: PLC0415  (not after every run)

        return FramesOnDemand(self._trials, self._rows)

    @functools.cached_property
    def _results(self) -> list[Result]:
        from .result import result_of  # noqa: PLC0415  (not after every run)

        return [
            result_of(
                trial,
                self._path,
                self._rows,
                self._retention,
                metric=self._metric,
                mode=self._mode,
                constraints=self._constraints,
                frames=self._frames,
                storage=self._storage,
            )
            for trial in self._trials
        ]

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        metric: str | None = None,
        mode: Mode | None = None,
        *,
        storage_filesystem: Any = None,
    ) -> ResultGrid:
        """Return the results in the directory of an experiment.

        No training code is needed, nothing is unpickled and nothing is changed.

        The experiment may have ended, been killed or moved, or still be running: everything written
        so far is read, and a later call reads more. Directories of Ray Tune are read from their
        plain JSON files, and directories that lack a journal from the files of the trials.

        Of an experiment in an object store, journal and logs are downloaded into a temporary
        directory, which is removed with the results. Checkpoints are downloaded when they are used.

        Args:
            path: The experiment's directory, or its URL in an object store.
            metric: The metric, if the directory does not name one, or to replace the one that it
                names.
            mode: ``"min"`` if smaller values of the metric are better, ``"max"`` if larger ones
                are. Ray Tune never records it.
            storage_filesystem: The fsspec file system on which `path` is; None for that of the URL,
                or this machine.

        Returns:
            The results of all trials. Objects in configurations are replaced by text that describes
            them. Trials that were running are RUNNING; their results are read on demand, and may be
            newer than their status.

        Raises:
            FileNotFoundError: If there is no such directory, or no experiment in it.
            StorageError: If a later version wrote it.
            ValueError: If the mode is unknown.

        Example:
            >>> import tuner as tune
            >>> tuner = tune.Tuner(
            ...     lambda config: tune.report({"loss": config["x"]}),
            ...     param_space={"x": tune.grid_search([1, 2])},
            ...     tune_config=tune.TuneConfig(metric="loss", mode="min"),
            ...     run_config=tune.RunConfig(
            ...         name="read_again", storage_path=getfixture("tmp_path"), verbose=0
            ...     ),
            ... )
            >>> path = tuner.fit().experiment_path
            >>> tune.ResultGrid.from_directory(path).get_best_result().config
            {'x': 1}

        Departures:
            Ray Tune restores a `Tuner` to read results, which needs the training code, and
            unpickles files in the directory.
        """
        from .open_experiment import read_directory  # noqa: PLC0415  (not after a run)
        from .ranking import check_mode, mode_for  # noqa: PLC0415  (likewise)

        if mode is not None:
            check_mode(mode)
        copy: os.PathLike[str] | None = None
        if storage_filesystem is not None or is_like_url(os.fspath(path)):
            copy = capabilities.ReadableCopy(os.fspath(path), storage_filesystem)
        directory = absolute_path(copy or path)
        storage = None
        origin = origin_of(directory)
        if origin and origin.is_copy:
            copy = copy or directory
        found = read_directory(directory)
        if origin:
            from .result import ObjectStorage  # noqa: PLC0415  (in stores only)

            storage = ObjectStorage(origin.url, storage_filesystem, copy)
        return cls(
            found.trials,
            origin.url if origin and origin.is_copy else os.fspath(directory),
            # The copy, not its path, which would be removed.
            JournalRows(copy, histories_of(found.trials)) if copy else found.rows,
            metric or found.metric,
            mode or mode_for(metric, found.metric, found.mode, found.several),
            retention=found.retention,
            several=found.several,
            constraints=found.constraints,
            storage=storage,
        )

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The engine's records of the trials, in the order of the results; not to be modified."""
        return self._trials

    @property
    def experiment_path(self) -> str:
        """Directory of the experiment; its URL if it was opened by that."""
        return self._path

    @property
    def local_directory(self) -> str:
        """The directory of this machine that is read: the experiment's, or that of a copy."""
        copy = self._storage.copy if self._storage else None
        return os.fspath(copy) if copy else self._path

    @property
    def persistence(self) -> Persistence | None:
        """Cost of saving the experiment in this session; None if nothing was run."""
        return self._persistence

    @property
    def budget_left(self) -> dict[str, float]:
        """What is left of each entry of ``TuneConfig(budget=...)``, read from the directory."""
        from .open_experiment import budgets_in  # noqa: PLC0415  (seldom)

        budgets = budgets_in(Path(self.local_directory))
        return {unit: max(limit - spent, 0.0) for unit, (spent, limit) in budgets.items()}

    @property
    def filesystem(self) -> Any:
        """The fsspec file system of `experiment_path`; needs fsspec."""
        return capabilities.filesystem_of(
            self._path, self._storage.filesystem if self._storage else None
        )

    @property
    def errors(self) -> list[TrialFailed]:
        """Errors of the trials that failed for good, in the order of the trials."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed for good."""
        return sum(trial.status is Status.ERROR for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        """How many trials ended without failing, on their own or by a decision."""
        return sum(trial.status is Status.TERMINATED for trial in self._trials)

    def explain(self, trial_id: str | None = None, file: TextIO | None = None) -> None:
        """Print what happened to a trial: decisions with their numbers, attempts and endings.

        Args:
            trial_id: The trial, e.g. ``"t00003"``; None for why the experiment has ended.
            file: Where to print; None for the standard output.

        Raises:
            ValueError: If there is no such trial.
            StorageError: If the journal cannot be read.
        """
        from .explain import explain_end, explain_stored  # noqa: PLC0415  (not after every run)

        if trial_id is None:
            from .open_experiment import read_stored  # noqa: PLC0415  (likewise)

            end = explain_end(read_stored(Path(self.local_directory)))
            print(end, file=file or sys.stdout)
            return
        trial = next((trial for trial in self._trials if trial.trial_id == trial_id), None)
        if trial is None:
            known = [trial.trial_id for trial in self._trials]
            raise ValueError(
                f"trial_id must be that of one of {len(known)} trials, {known[:3]}..., got "
                f"{trial_id!r}"
            )
        directory = Path(self.local_directory)
        for line in explain_stored(trial, directory, self._metric, self.why_infeasible(trial)):
            print(line, file=file or sys.stdout)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: Scope = "last",
        filter_nan_and_inf: bool = True,
        *,
        feasible: bool = True,
        weights: Mapping[str, float] | None = None,
    ) -> Result:
        """Return the result of the best trial; of equally good ones, the one created first.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one; None for that of the
                `TuneConfig`. Trials that failed are compared as well, by what they had reported.
            mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are; None for
                that of the `TuneConfig`, which applies to its own metric only.
            scope: Which value of each trial counts: the ``last`` it reported, the mean of all
                (``avg``) or of the last five or ten (``last-5-avg``, ``last-10-avg``), or, for
                ``all``, the best finite one it ever reported.
            filter_nan_and_inf: Leave out trials whose value is NaN or infinite. Otherwise
                infinities are compared as numbers, and NaN is worse than any number.
            feasible: Leave out trials that miss a constraint of the `TuneConfig` by the newest
                value of its metric, in any scope. Otherwise they are compared like the others.
            weights: How much each of several objectives matters, instead of `metric`, e.g.
                ``{"accuracy": 0.7, "latency_ms": 0.3}``; one without a weight has 0. Of the Pareto
                front, the trial with the smallest augmented Chebyshev distance from the best value
                of each objective is taken, where the best and the worst value on the front are 0
                and 1: the largest weighted distance, plus 0.05 times the sum of all.

        Returns:
            The best trial's result. Its `best_metrics` and `best_checkpoint` belong to the step at
            which this metric was best, which is the step compared if the scope is ``all``;
            `metrics` and `checkpoint` are the latest in any scope. The only trial of a grid is
            returned without a comparison if neither the call nor the `TuneConfig` names a metric.

        Raises:
            ValueError: If no metric is named, no trial reported the one named here, mode or scope
                is unknown, or weights are given with them or for other metrics than the objectives.
            RuntimeError: If no trial can be compared: none reported the metric, none a finite
                value, or none is feasible.

        Reference:
            Knowles. ParEGO: A Hybrid Algorithm With On-Line Landscape Approximation for Expensive
            Multiobjective Optimization Problems. IEEE Transactions on Evolutionary Computation
            10(1), 2006, equation 2.

        Departures:
            The `TuneConfig`'s mode applies to its own metric only; Ray Tune applies it to any
            metric, so that it may return the worst trial. NaN is never better than a number,
            whether or not it is left out, and the error for an unknown metric lists those that
            exist.
        """
        if weights is not None:
            from .trade_offs import compromise  # noqa: PLC0415  (of several metrics only)

            source = self._source(feasible=feasible)
            chosen = compromise(source, weights, (metric, mode, scope))
            return self._results[self._trials.index(chosen)]
        if len(self) == 1 and metric is None and self._metric is None:
            self._check_feasible(feasible=feasible)
            return self._results[0]
        from .shortfalls import check_reported  # noqa: PLC0415  (not after every run)

        name, direction = self.objective(metric, mode)
        check_reported(self._trials, name, is_default=metric is None)
        ranked = self.ranked(name, direction, scope, filter_nan_and_inf, feasible=feasible)
        if not ranked:
            self._check_feasible(feasible=feasible)
            which = "feasible trial" if feasible and self._constraints else "trial"
            raise RuntimeError(
                f"no {which} has a finite value of {name!r} (scope {scope!r}); "
                f"filter_nan_and_inf=False compares the others"
            )
        return ranked[0][0]

    def _check_feasible(self, *, feasible: bool) -> None:
        """Check that a trial is feasible, where that is asked for."""
        if feasible and (why := self.why_none_feasible):
            raise RuntimeError(f"{why}; feasible=False compares the trials all the same")

    def why_infeasible(self, trial: Trial) -> str:
        """Return which constraints a trial misses, with its values; empty for a feasible one."""
        from tuner.core.near_misses import why_infeasible  # noqa: PLC0415  (rarely needed)

        return why_infeasible(trial, self._constraints)

    @property
    def why_none_feasible(self) -> str:
        """What trials miss and which one is closest, where none is feasible; else empty."""
        from tuner.core.near_misses import why_none_feasible  # noqa: PLC0415  (rarely needed)

        return why_none_feasible(self._trials, self._constraints)

    def ranked(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: Scope = "last",
        filter_nan_and_inf: bool = True,
        *,
        feasible: bool = True,
    ) -> list[tuple[Result, float]]:
        """Return the trials that can be compared with their values, best first.

        The first is that of `get_best_result`, which explains the arguments. Of equally good ones
        the one created first is first.

        Raises:
            ValueError: If no metric is named, or mode or scope is unknown.
        """
        from .ranking import SCOPES, best_first  # noqa: PLC0415  (not after every run)

        name, direction = self.objective(metric, mode)
        if scope not in SCOPES:
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, got {scope!r}")
        constraints = self._constraints if feasible else ()
        found = best_first(
            self._trials, self._rows, name, direction, scope=scope, constraints=constraints
        )
        # The best step of each result is to be that of the compared metric, which may not be the
        # experiment's.
        return [
            (dataclasses.replace(self._results[index], metric=name, mode=direction), value)
            for index, value in found
            if (math.isfinite(value) or not filter_nan_and_inf)
            and is_feasible(self._trials[index], constraints)
        ]

    @property
    def constraints(self) -> dict[str, str | list[str]]:
        """What a trial has to keep, as in the `TuneConfig`: a comparison or two for each metric."""
        return comparisons(self._constraints)

    @property
    def feasible(self) -> ResultGrid:
        """The results of the trials that keep all constraints, of any status.

        The newest value of each metric counts; a trial that has not reported one of them, or NaN,
        is not feasible.
        """
        return self._of([one for one in self._trials if is_feasible(one, self._constraints)])

    @property
    def objectives(self) -> Objectives:
        """Metric and mode of everything that the experiment optimises: several, one, or none."""
        return self._source().objectives

    def get_best_results(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> ResultGrid:
        """Return the results of the feasible trials on the Pareto front.

        No other feasible trial is better than these in one metric and at least as good in all
        others. Trials of any status are compared by their last values; a trial without a finite
        value of each metric is left out, and so is one that misses a constraint.

        Args:
            metrics: At least two metrics, ``"a/b"`` for a nested one; None for all objectives of
                the experiment.
            modes: For each of them ``"min"`` if smaller values are better, ``"max"`` if larger ones
                are; None where the experiment optimises each of them.

        Returns:
            A grid of these trials, best in the first metric first.

        Raises:
            ValueError: If they are not at least two with as many modes, or no trial reported one of
                those that are given.
        """
        from .charts.pareto import checked_objectives  # noqa: PLC0415  (of several metrics only)
        from .trade_offs import front_of  # noqa: PLC0415  (likewise)

        source = self._source()
        return self._of(front_of(source, checked_objectives(source, metrics, modes)))

    def pareto(
        self, metrics: Sequence[str] | None = None, modes: Sequence[Mode] | None = None
    ) -> pd.DataFrame:
        """Return the feasible trials on the Pareto front as a table.

        The best one in the first metric comes first.

        Args:
            metrics: As for `get_best_results`.
            modes: As for `get_best_results`.

        Returns:
            Columns ``trial_id``; the metrics; those that constraints bound; and the hyperparameters
            in force at the last result as ``config/...``. All values are the newest ones.

        Raises:
            ValueError: As `get_best_results`.

        Example:
            >>> import tuner as tune
            >>> def train(config):
            ...     width = config["width"]
            ...     tune.report({"loss": 1 / width, "latency_ms": width, "size_mb": width / 2})
            >>> results = tune.Tuner(
            ...     train,
            ...     param_space={"width": tune.grid_search([1, 2, 4, 8, 16])},
            ...     tune_config=tune.TuneConfig(
            ...         metric=["loss", "latency_ms"],
            ...         mode="min",
            ...         constraints={"size_mb": "<= 4"},
            ...     ),
            ...     run_config=tune.RunConfig(
            ...         name="trade_offs", storage_path=getfixture("tmp_path"), verbose=0
            ...     ),
            ... ).fit()
            >>> print(results.pareto())
              trial_id   loss  latency_ms  size_mb  config/width
            0   t00003  0.125         8.0      4.0             8
            1   t00002  0.250         4.0      2.0             4
            2   t00001  0.500         2.0      1.0             2
            3   t00000  1.000         1.0      0.5             1
            >>> results.get_best_result(weights={"loss": 0.7, "latency_ms": 0.3}).config
            {'width': 4}
            >>> print(results.hypervolume({"loss": 1.0, "latency_ms": 10})["hypervolume"].iloc[-1])
            5.75
        """
        from .charts.pareto import checked_objectives  # noqa: PLC0415  (of several metrics only)
        from .frames import with_hints  # noqa: PLC0415  (likewise)
        from .trade_offs import front_frame  # noqa: PLC0415  (likewise)

        source = self._source()
        return with_hints(front_frame(source, checked_objectives(source, metrics, modes)))

    def hypervolume(
        self,
        reference: Mapping[str, float] | None = None,
        metrics: Sequence[str] | None = None,
        modes: Sequence[Mode] | None = None,
    ) -> pd.DataFrame:
        """Return how much of the space of several metrics the feasible trials dominate, over time.

        Args:
            reference: The corner from which it is measured: a value for each metric, in its own
                units, that is just not acceptable any more, e.g. ``{"accuracy": 0.5, "latency_ms":
                100}``. Trials that are not better than it in each metric add nothing. None for a
                tenth of the feasible trials' range beyond their worst value of each metric (of the
                value itself, where all are equal), which tells how a search went on; give one to
                compare experiments.
            metrics: As for `get_best_results`.
            modes: As for `get_best_results`.

        Returns:
            A row for each trial that is over, in the order in which they ended: ``num_trials``, how
            many were over; ``time_s``, when, in seconds of experiment time, missing without a
            journal; ``trial_id``; and the ``hypervolume`` of the feasible ones so far, by their
            newest values, in the product of the metrics' units. Its ``attrs`` hold the
            ``reference``.

        Raises:
            TypeError: If `reference` is no mapping.
            ValueError: As `get_best_results`, or if `reference` lacks a metric or has another one.
        """
        from .charts.pareto import checked_objectives  # noqa: PLC0415  (of several metrics only)
        from .trade_offs import hypervolume_frame  # noqa: PLC0415  (likewise)

        source = self._source()
        return hypervolume_frame(source, checked_objectives(source, metrics, modes), reference)

    @property
    def plot(self) -> Plots:
        """Charts of the experiment as Plotly figures; ``plot.data`` has what they show.

        Figures need the extra ``report``.
        """
        from .charts import Plots  # noqa: PLC0415  (not after every run)

        return Plots(self._source())

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write an HTML page with charts and tables of all trials.

        It is one file, which a browser opens without network or server. Of more than 200 trials, or
        200 points of a curve, only some are drawn; the page says which.

        Args:
            path: The file, which is replaced; in a directory it is ``report.html``.

        Returns:
            Where it was written.

        Raises:
            ImportError: If Plotly is not installed; it comes with the extra ``report``.
            OSError: If the file cannot be written.
        """
        from .report import write_page  # noqa: PLC0415  (not after every run)

        return write_page(self._source(), path)

    def to_parquet(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the results as Parquet files; ``docs/tables.md`` documents them.

        Args:
            path: A directory, which is made, for ``trials.parquet`` with a row for each trial, as
                in `get_dataframe`, and ``results.parquet`` with every result of every trial. A name
                that ends in ``.parquet`` for the first of them alone.

        Returns:
            The files that were written, which are replaced as a whole where they existed.

        Raises:
            ImportError: If PyArrow is not installed; it comes with the extra ``parquet``.
            OSError: If a file cannot be written.
        """
        from .tables import last_rows, write_tables  # noqa: PLC0415  (not after every run)

        chosen = last_rows(self._trials, self._rows, self._metric)
        return write_tables(
            self._results, chosen, self._rows, path, has_constraints=bool(self._constraints)
        )

    def _source(self, *, feasible: bool = True) -> Source:
        from .charts import Source  # noqa: PLC0415  (not after every run)

        return Source(
            self._trials,
            self._rows,
            self._path,
            self._metric,
            self._mode,
            several=self._several,
            constraints=self._constraints if feasible else (),
        )

    def _of(self, trials: Sequence[Trial]) -> ResultGrid:
        return ResultGrid(
            trials,
            self._path,
            self._rows,
            self._metric,
            self._mode,
            retention=self._retention,
            several=self._several,
            constraints=self._constraints,
            storage=self._storage,
        )

    def objective(self, metric: str | None = None, mode: str | None = None) -> tuple[str, Mode]:
        """Return metric and mode, with those of the `TuneConfig` as defaults.

        The mode is ``"min"`` or ``"max"``; that of the `TuneConfig` applies to its own metric only.

        Raises:
            ValueError: If there is no metric, no mode, or no such mode.
        """
        from .ranking import mode_for, objective_of  # noqa: PLC0415  (not after every run)

        direction = mode or mode_for(metric, self._metric, self._mode, self._several)
        return objective_of(metric or self._metric, direction, self._several)

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: Mode | None = None
    ) -> pd.DataFrame:
        """Return a table with a row for every trial, of any status, in the order of creation.

        Args:
            filter_metric: Take of each trial the result with the best finite value of this metric,
                the latest of equal ones; ``"a/b"`` for a nested one. None takes the last result.
            filter_mode: ``"min"`` if smaller values of it are better, ``"max"`` if larger ones are;
                None for the `TuneConfig`'s mode, where that is its metric.

        Returns:
            Columns: ``trial_id``; the metrics under flattened names; ``training_iteration``;
            ``metric_iteration``; the hyperparameters as ``config/...``; ``feasible``, if there are
            constraints: whether the trial keeps them by its newest values; ``status``, ``ending``
            (``completed``, ``stopped_early``, ``interrupted`` or ``failed``, missing if the trial
            is not over) and ``error``; the fields that the engine adds to each result; and
            ``logdir``, the path of the trial's directory. Last results have the newest value of the
            experiment's metric, which was reported in ``metric_iteration``. ``done`` is whether the
            trial is over. A trial that never reported has its ``trial_id``, hyperparameters, ending
            and ``logdir``; one that never reported the `filter_metric` has its last result. A
            metric named like one of these columns replaces it.

        Raises:
            ValueError: If no trial reported the metric, or the mode is unknown, given without a
                metric, or lacking for it.

        Departures:
            Ray Tune leaves out trials without a result, writes the trial's id into ``logdir``, and
            has no ``metric_iteration``, ``status``, ``ending`` and ``error``.
        """
        from .frames import with_hints  # noqa: PLC0415  (not after every run)
        from .tables import best_rows, last_rows, trials_frame  # noqa: PLC0415  (likewise)

        if filter_metric is None:
            if filter_mode is not None:
                raise ValueError(
                    f"filter_mode={filter_mode!r} needs a filter_metric; pass both or none"
                )
            chosen = last_rows(self._trials, self._rows, self._metric)
        else:
            from .ranking import mode_for, objective_of  # noqa: PLC0415  (likewise)
            from .shortfalls import check_reported  # noqa: PLC0415  (likewise)

            direction = filter_mode or mode_for(
                filter_metric, self._metric, self._mode, self._several
            )
            _, direction = objective_of(filter_metric, direction, name="filter_mode")
            check_reported(self._trials, filter_metric, is_default=False)
            chosen = best_rows(self._trials, self._rows, filter_metric, direction)
        has_constraints = bool(self._constraints)
        return with_hints(trials_frame(self._results, chosen, has_constraints=has_constraints))

    def get_metrics_dataframe(self) -> pd.DataFrame:
        """Return a table with a row for every result of every trial, ordered by trial.

        Returns:
            The columns of `Result.metrics_dataframe`: ``trial_id``; the metrics under flattened
            names; ``training_iteration``; the configuration in force at the result as
            ``config/...``; and the fields that the engine adds to each result. Metrics and
            hyperparameters that a trial lacks are missing values. Results that were superseded by a
            retry are left out; trials that never reported have no row.

        Raises:
            StorageError: If the journal cannot be read.

        Example:
            >>> import tuner as tune
            >>> def train(config):
            ...     for step in range(3):
            ...         tune.report({"loss": config["x"] / (step + 1)})
            >>> tuner = tune.Tuner(
            ...     train,
            ...     param_space={"x": tune.grid_search([6, 12])},
            ...     run_config=tune.RunConfig(
            ...         name="curves", storage_path=getfixture("tmp_path"), verbose=0
            ...     ),
            ... )
            >>> frame = tuner.fit().get_metrics_dataframe()
            >>> print(frame[["trial_id", "loss", "training_iteration", "config/x"]])
              trial_id  loss  training_iteration  config/x
            0   t00000   6.0                   1         6
            1   t00000   3.0                   2         6
            2   t00000   2.0                   3         6
            3   t00001  12.0                   1        12
            4   t00001   6.0                   2        12
            5   t00001   4.0                   3        12

        Departures:
            Ray Tune has only a frame for each trial, in which ``config/...`` is the last
            configuration in every row.
        """
        from .frames import with_hints  # noqa: PLC0415  (not after every run)

        return with_hints(self._frames.made.joined())

    def get_param_importances(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        evaluator: Evaluator = "ped_anova",
        iteration: At = "common",
    ) -> pd.Series[float]:
        """Return an estimate of the importance of each hyperparameter.

        Trials are compared after equally long training. Numbers are assumed to have been searched
        on the scale, linear or logarithmic, on which they are spread more evenly; booleans, texts,
        lists and other values that are not finite numbers are categories.

        Args:
            metric: Name of the metric, ``"a/b"`` for a nested one; None for that of the
                `TuneConfig`.
            mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are; None for
                that of the `TuneConfig`, which applies to its own metric only.
            evaluator: ``"ped_anova"``, how differently a parameter is distributed among the best
                tenth of the trials, or the best five of fewer than 50, which also judges parameters
                that only some trials have; ``"fanova"``, its share of the metric's variance in a
                random forest; ``"mdi"``, its share of the decrease of impurity there. The forests
                leave out parameters that only some trials have.
            iteration: The ``training_iteration`` at which trials are compared, each by its newest
                value up to there; trials that ended before it are left out. ``"common"`` is the
                largest one that three quarters of the trials reached. ``"last"`` compares each
                trial by its last value; if a scheduler stopped some early, that mostly reflects how
                long they trained.

        Returns:
            The importances, which add up to 1, in descending order; the index holds the flattened
            names, e.g. ``"model/depth"``. Parameters that are the same in all trials have 0. Its
            ``attrs`` hold ``num_trials`` and ``iteration``: how many trials were compared, and at
            which iteration (None for ``"last"``). `plot.data.importances` has standard errors, too.

        Raises:
            ImportError: If Optuna or, for the forests, scikit-learn is not installed.
            ValueError: If fewer than 20 trials can be compared, no parameter differs, or metric,
                mode or evaluator is unknown.
            RuntimeError: If no trial reported the metric of the `TuneConfig`.

        Reference:
            Watanabe, Bansal, Hutter. PED-ANOVA: Efficiently Quantifying Hyperparameter Importance
            in Arbitrary Subspaces. IJCAI 2023, arXiv 2304.10255. Hutter, Hoos, Leyton-Brown. An
            Efficient Approach for Assessing Hyperparameter Importance. ICML 2014.
        """
        import pandas as pd  # noqa: PLC0415  (importing the engine stays light)

        from .charts.importance import param_importances  # noqa: PLC0415  (not after every run)
        from .importances import require_optuna  # noqa: PLC0415  (likewise)
        from .shortfalls import check_reported  # noqa: PLC0415  (likewise)

        name, direction = self.objective(metric, mode)
        require_optuna()
        check_reported(self._trials, name, is_default=metric is None)
        source = self._source().with_objective(name, direction)
        found = param_importances(source, evaluator, iteration)
        series = pd.Series(found.shares, name="importance", dtype=float)
        series.attrs = {"num_trials": found.num_trials, "iteration": found.iteration}
        return series

    def __getstate__(self) -> dict[str, Any]:
        # What is made on demand may be large, and is made again.
        return {key: value for key, value in vars(self).items() if key not in _ON_DEMAND}

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> ResultGrid: ...
    def __getitem__(self, index: int | slice) -> Result | ResultGrid:
        if isinstance(index, slice):
            return self._of(self._trials[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __repr__(self) -> str:
        """Return a table of the trials, the first twenty at most."""
        from .tables import format_trials  # noqa: PLC0415  (not after every run)

        shown = self._trials[:_MAX_PRINTED]
        metrics = [metric for metric, _ in self._several] or list(filter(None, [self._metric]))
        table = format_trials(shown, self._rows, metrics, self._constraints)
        more = self._more()
        return "\n".join([self._head(), *table, *([more] if more else [])])

    def _repr_html_(self) -> str:
        """Return the same table for a notebook."""
        from .tables import html_trials  # noqa: PLC0415  (not after every run)

        shown = self._trials[:_MAX_PRINTED]
        metrics = [metric for metric, _ in self._several] or list(filter(None, [self._metric]))
        return html_trials(
            self._head(), shown, self._rows, metrics, self._constraints, more=self._more()
        )

    def _head(self) -> str:
        return (
            f"ResultGrid of {len(self)} trials, {self.num_terminated} terminated, "
            f"{self.num_errors} failed, in {self._path}"
        )

    def _more(self) -> str:
        more = len(self) - _MAX_PRINTED
        return f"... and {more} more" if more > 0 else ""
