"""The questions that scripts written for ``tune.run`` ask of its outcome, answered from a `ResultGrid`."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, final

from tuner.core.trial import Trial
from tuner.storage.checkpoints import Checkpoint

from .best import Scope
from .ranking import Mode
from .result import Result
from .result_grid import ResultGrid

if TYPE_CHECKING:
    import pandas as pd


@final
class ExperimentAnalysis:
    """A thin view of a `ResultGrid` under older names; new code asks the grid itself.

    Wherever a metric is left out, that of the `TuneConfig` counts, in its direction; what is named ``best_`` needs one.

    Args:
        experiment: The results, or the directory of an experiment, which is read as by `ResultGrid.from_directory`.
        default_metric: For a directory: what is optimised, where the directory does not say, or another metric than it says.
        default_mode: For a directory: ``"min"`` if smaller values of the metric are better, ``"max"`` if larger ones are.

    Raises:
        FileNotFoundError: If there is no such directory, or no experiment in it.
        ValueError: If metric or mode are given beside a `ResultGrid`, which knows its own.

    Departures:
        Best trials are those of `ResultGrid.get_best_result`, which raises where Ray Tune returns None. Nothing is unpickled.
    """

    def __init__(
        self,
        experiment: ResultGrid | str | os.PathLike[str],
        *,
        default_metric: str | None = None,
        default_mode: Mode | None = None,
    ) -> None:
        if not isinstance(experiment, ResultGrid):
            experiment = ResultGrid.from_directory(experiment, default_metric, default_mode)
        elif default_metric or default_mode:
            raise ValueError(
                f"default_metric and default_mode must be left out for a ResultGrid, got {default_metric!r} and {default_mode!r}; "
                "pass the directory of the experiment instead"
            )
        self._grid = experiment

    @property
    def trials(self) -> list[Trial]:
        """All trials in the order of creation."""
        return list(self._grid.trials)

    @property
    def experiment_path(self) -> str:
        """Directory of the experiment."""
        return self._grid.experiment_path

    @property
    def best_trial(self) -> Trial:
        """The trial with the best last value of the metric."""
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any]:
        """Hyperparameters of the best trial."""
        return self.get_best_config()

    @property
    def best_result(self) -> dict[str, Any]:
        """Last result of the best trial, nested."""
        return self._best.metrics

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best trial's checkpoint with the best value of the metric, None without one."""
        return self._best.best_checkpoint

    @property
    def best_dataframe(self) -> pd.DataFrame:
        """Every result of the best trial."""
        return self._best.metrics_dataframe

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Last result of each trial, nested, by the trial's id."""
        return {result.trial_id: result.metrics for result in self._grid}

    @functools.cached_property
    def results_df(self) -> pd.DataFrame:
        """A row for each trial with its last result, indexed by the trial's id."""
        return self._grid.get_dataframe().set_index("trial_id")

    @functools.cached_property
    def trial_dataframes(self) -> dict[str, pd.DataFrame]:
        """Every result of each trial, by the path of the trial's directory."""
        return {result.path: result.metrics_dataframe for result in self._grid}

    def dataframe(self, metric: str | None = None, mode: Mode | None = None) -> pd.DataFrame:
        """Return a row for each trial: its last result, or the one with the best (``mode``) value of `metric`."""
        return self._grid.get_dataframe(metric, mode)

    def get_all_configs(self) -> dict[str, dict[str, Any]]:
        """Return the hyperparameters of each trial, by the path of the trial's directory."""
        return {result.path: result.config for result in self._grid}

    def get_best_trial(
        self, metric: str | None = None, mode: Mode | None = None, scope: Scope = "last", filter_nan_and_inf: bool = True
    ) -> Trial:
        """Return the best trial; see `ResultGrid.get_best_result` for the arguments."""
        best = self._grid.get_best_result(metric, mode, scope, filter_nan_and_inf)
        return self._grid.trials[self._grid.index(best)]

    def get_best_config(self, metric: str | None = None, mode: Mode | None = None, scope: Scope = "last") -> dict[str, Any]:
        """Return the hyperparameters of the best trial; see `ResultGrid.get_best_result` for the arguments."""
        return self._grid.get_best_result(metric, mode, scope).config

    def get_best_checkpoint(self, trial: Trial, metric: str | None = None, mode: Mode | None = None) -> Checkpoint | None:
        """Return a trial's kept checkpoint with the best value of the metric; ``mode`` is ``"min"`` or ``"max"``: its direction."""
        name, direction = self._grid.objective(metric, mode)
        return self._of(trial).get_best_checkpoint(name, direction)

    def get_last_checkpoint(self, trial: Trial | None = None) -> Checkpoint | None:
        """Return the latest checkpoint of a trial, or of the best one."""
        return (self._of(trial) if trial else self._best).checkpoint

    @property
    def _best(self) -> Result:
        return self._grid.get_best_result()

    def _of(self, trial: Trial) -> Result:
        return self._grid[self._grid.trials.index(trial)]
