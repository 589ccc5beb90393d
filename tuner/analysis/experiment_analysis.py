"""`ExperimentAnalysis`: Ray Tune's older interface to results, on top of `ResultGrid`."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, final

from tuner.core.result import AUTO_FILLED
from tuner.core.trial import Trial
from tuner.errors import missing_name
from tuner.storage.checkpoints import Checkpoint

from .flat_results import flat_config
from .ranking import Mode, Scope
from .result import Result
from .result_grid import ResultGrid

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_REPLACEMENTS = {
    "best_logdir": "use best_trial.local_path",
    "best_result_df": "use best_dataframe",
    "fetch_trial_dataframes": "use trial_dataframes",
    "get_best_logdir": "use get_best_trial(metric, mode).local_path",
    "get_trial_checkpoints_paths": "use Result.best_checkpoints of the trial's result",
    "is_ray_client": "leave it out",
    "runner_data": "use trials",
    "stats": "use trials",
}
"""Names of Ray Tune that do not exist here, each with the alternative."""


@final
class ByTrial(dict[str, T]):
    """Mapping by trial id that also accepts the path of the trial's directory as a key.

    Args:
        values: The values by trial id.
        paths: The trials' ids by the paths of their directories.
    """

    def __init__(self, values: Mapping[str, T], paths: Mapping[str, str]) -> None:
        super().__init__(values)
        self._paths = paths

    def __missing__(self, path: str) -> T:
        if path not in self._paths:
            raise KeyError(path)
        return self[self._paths[path]]

    def __contains__(self, key: object) -> bool:
        # `in` does not call __missing__, and dict.get does not either.
        return super().__contains__(key) or key in self._paths

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value for a trial's id or path; `default` if there is no such trial."""
        try:
            return self[key]
        except KeyError:
            return default

    def __reduce__(self) -> tuple[Any, ...]:
        return ByTrial, (dict(self), self._paths)


@final
class ExperimentAnalysis:
    """View of a `ResultGrid` with the names of Ray Tune's older interface.

    New code should use the grid. Methods without a metric use that of the `TuneConfig`, in its
    direction; properties named ``best_`` require that it has one.

    Args:
        experiment: The results, or the directory or URL of an experiment, which is read as by
            `ResultGrid.from_directory`.
        default_metric: For a directory: the metric, if the directory does not name one, or to
            replace the one that it names.
        default_mode: For a directory: ``"min"`` if smaller values of the metric are better,
            ``"max"`` if larger ones are.
        storage_filesystem: For a URL: the fsspec file system it is on; None for that of the URL.

    Raises:
        FileNotFoundError: If there is no such directory, or no experiment in it.
        ValueError: If metric or mode are given with a `ResultGrid`, which has its own.

    Departures:
        Best trials are those of `ResultGrid.get_best_result`; of equally good steps the last one
        is the best. `best_result`, `best_checkpoint` and `best_dataframe` raise an error that says
        why there is no best trial. A metric that no trial reported is an error in `dataframe`,
        where Ray Tune returns the last results. Nothing is unpickled.
    """

    def __init__(
        self,
        experiment: ResultGrid | str | os.PathLike[str],
        *,
        default_metric: str | None = None,
        default_mode: Mode | None = None,
        storage_filesystem: Any = None,
    ) -> None:
        if not isinstance(experiment, ResultGrid):
            experiment = ResultGrid.from_directory(
                experiment, default_metric, default_mode, storage_filesystem=storage_filesystem
            )
        elif default_metric or default_mode:
            raise ValueError(
                f"default_metric and default_mode must be left out for a ResultGrid, got "
                f"{default_metric!r} and {default_mode!r}; "
                "pass the directory of the experiment instead"
            )
        self._grid = experiment

    @property
    def grid(self) -> ResultGrid:
        """The same results with the names of today, such as ``grid.pareto()``."""
        return self._grid

    @property
    def trials(self) -> list[Trial]:
        """All trials in the order of creation."""
        return list(self._grid.trials)

    @property
    def experiment_path(self) -> str:
        """Directory of the experiment."""
        return self._grid.experiment_path

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best last value of the metric; None if no trial can be compared."""
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any] | None:
        """Hyperparameters of the best trial; None if no trial can be compared."""
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
        """Every result of each trial, by the trial's id or the path of its directory."""
        return self._by_trial({result.trial_id: result.metrics_dataframe for result in self._grid})

    def dataframe(self, metric: str | None = None, mode: Mode | None = None) -> pd.DataFrame:
        """Return a row for each trial: its last result, or the one with the best value of `metric`.

        Raises:
            ValueError: If a mode is given without a metric, or no trial reported the metric.
        """
        if mode and not metric:
            raise ValueError(
                f"mode={mode!r} needs a metric; pass both, or none for the last results"
            )
        return self._grid.get_dataframe(metric if mode else None, mode)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Return each trial's hyperparameters, by the trial's id or the path of its directory.

        Args:
            prefix: Flatten them to ``{"config/lr": 0.1}``.
        """
        return self._by_trial(
            {
                result.trial_id: flat_config(result.config) if prefix else result.config
                for result in self._grid
            }
        )

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: Scope = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """Return the best trial; see `ResultGrid.get_best_result` for the arguments.

        Returns:
            The trial; None, with a warning, if no trial reported the metric, none a finite value,
            or none is feasible. The only trial of an experiment is returned without a comparison.

        Raises:
            ValueError: If no metric is named here or in the `TuneConfig`, or mode or scope is
                unknown.
        """
        if len(self._grid.feasible) == len(self._grid) == 1:
            return self._grid.trials[0]
        if why := self._grid.why_none_feasible:
            warnings.warn(f"there is no best trial, as {why}", RuntimeWarning, stacklevel=2)
            return None
        ranked = self._grid.ranked(metric, mode, scope, filter_nan_and_inf)
        if not ranked:
            name, _ = self._grid.objective(metric, mode)
            kind = "finite value" if filter_nan_and_inf else "value"
            known = (
                ", ".join(
                    sorted(
                        {key for trial in self._grid.trials for key in trial.summary} - AUTO_FILLED
                    )
                )
                or "none"
            )
            message = (
                f"there is no best trial, as none has a {kind} of {name!r} (scope {scope!r}); "
                f"metrics that were reported: {known}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return None
        return self._grid.trials[self._grid.index(ranked[0][0])]

    def get_best_config(
        self, metric: str | None = None, mode: Mode | None = None, scope: Scope = "last"
    ) -> dict[str, Any] | None:
        """Return the hyperparameters of the best trial (`get_best_trial`); None without one."""
        best = self.get_best_trial(metric, mode, scope)
        return self._of(best).config if best else None

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: Mode | None = None
    ) -> Checkpoint | None:
        """Return a trial's kept checkpoint with the best value of the metric.

        ``mode`` is ``"min"`` or ``"max"``.
        """
        name, direction = self._grid.objective(metric, mode)
        return self._of(trial).get_best_checkpoint(name, direction)

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str | None = None, mode: Mode | None = None
    ) -> Checkpoint | None:
        """Return the latest checkpoint of a trial, or of the best trial; None without one.

        `metric` and `mode` choose the best trial.
        """
        trial = trial or self.get_best_trial(metric, mode)
        return self._of(trial).checkpoint if trial else None

    if not TYPE_CHECKING:  # checkers are to see which names exist

        def __getattr__(self, name: str) -> Any:
            raise missing_name(f"{type(self).__name__!r} object", name, _REPLACEMENTS)

    @property
    def _best(self) -> Result:
        return self._grid.get_best_result()

    def _by_trial(self, values: Mapping[str, T]) -> ByTrial[T]:
        return ByTrial(values, {result.path: result.trial_id for result in self._grid})

    def _of(self, trial: Trial) -> Result:
        return self._grid[self._grid.trials.index(trial)]
