"""The face of the engine: declare an experiment, run it, get its results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tuner.analysis.result_grid import ResultGrid
from tuner.analysis.rows import JournalRows
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status
from tuner.errors import StorageError, TrialFailed
from tuner.execution.trainable import is_class_trainable

from .config import RunConfig, TuneConfig
from .directory import check_same, new_directory, read_declaration
from .interrupts import is_script
from .plan import Plan, make_plan, with_seed
from .run import Finished, Resumption, Run, read


class Tuner:
    """An experiment: many training runs, each with another configuration.

    Args:
        trainable: What each trial runs: a function of the configuration, a subclass of `Trainable`, or the name that either was
            registered under.
        param_space: The search space: a dictionary of constants, domains such as `uniform`, and ``grid_search``, nested as you like.
        tune_config: What is searched for, and how.
        run_config: Where the experiment lives, and how it is run.

    Raises:
        TypeError: If an argument has the wrong type, e.g. a function that takes no configuration.
        ValueError: If a setting is out of range or two contradict each other.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     for step in range(1, 4):
        ...         tune.report({"loss": config["x"] ** 2 / step})
        >>> tuner = tune.Tuner(
        ...     train,
        ...     param_space={"x": tune.grid_search([1.0, 2.0])},
        ...     tune_config=tune.TuneConfig(metric="loss", mode="min"),
        ...     run_config=tune.RunConfig(storage_path=getfixture("tmp_path"), verbose=0),
        ... )
        >>> tuner.fit().get_best_result().config
        {'x': 1.0}
    """

    def __init__(
        self,
        trainable: Any,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        self._plan = make_plan(trainable, param_space, tune_config, run_config)
        self._grid: ResultGrid | None = None
        self._directory: Path | None = None
        self._resumption: Resumption | None = None

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> Self:
        """Return the experiment that lies in a directory, to be continued by `fit`.

        Trials that were not over go on from their latest checkpoint, under their ids; what had been decided stays decided. The directory
        may have been moved. Nothing in it is executed or unpickled, so what was given to the `Tuner` is given again; the number of samples
        may be larger, and time budget, failure and concurrency settings may differ.

        Args:
            path: The experiment's directory.
            trainable: What its trials run.
            resume_unfinished: False ends the trials that were not over instead.
            resume_errored: Whether trials that failed are tried again, from their latest checkpoint.
            param_space: The search space, as it was.
            tune_config: What is searched for, and how, as it was.
            run_config: How to run it; its ``name`` and ``storage_path`` do not matter.

        Raises:
            ValueError: If the trainable, space, scheduler or searcher is another one; names each difference.
            StorageError: If there is no experiment, or it cannot be read.
        """
        directory = Path(path).expanduser().absolute()
        tuner = cls(trainable, param_space=param_space, tune_config=tune_config, run_config=run_config)
        declaration = check_same(tuner._plan, directory)
        tuner._plan = with_seed(tuner._plan, declaration["seed"])
        tuner._directory = directory
        tuner._resumption = Resumption(ExperimentSettings.from_fields(declaration["settings"]), resume_unfinished, resume_errored)
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Return whether a directory holds an experiment whose declaration can be read."""
        try:
            read_declaration(Path(path).expanduser())
        except StorageError:
            return False
        return True

    def fit(self) -> ResultGrid:
        """Run the experiment and return the results of all its trials.

        A trial that fails does not raise: its error is in the results.

        The first Ctrl-C, or another signal that asks a program to end (SIGTERM, SIGHUP, and what batch systems send), lets running trials
        save and leave within ``RunConfig(interrupt_grace_s=...)``; the second kills them. So does a time limit that is nearly over. The
        experiment can be restored then, and the line of code for it is printed. In a notebook or an interpreter `fit` returns what there
        is, with the interrupted trials marked. A script ends there, as shells and batch systems expect of it, with the exit code below;
        a script that wants to go on catches the `SystemExit` and calls `get_results`.

        Raises:
            RuntimeError: If it has been called before.
            ValueError: If scheduler and TuneConfig both name a metric, or a trial asks for more than there is.
            TrainableNotPicklable: If the trainable cannot be carried to a worker process; names the variable to blame.
            ExperimentExists: If the directory of this name already holds an experiment.
            StorageError: If the storage path cannot be written to.
            TrialFailed: If a trial failed and ``FailureConfig(fail_fast="raise")`` was given.
            SystemExit: In a script that was interrupted, once everything is saved: with 128 plus the signal's number (130 for Ctrl-C, 143
                for SIGTERM, 129 for SIGHUP), or 124 at the time limit.

        Departures:
            Ray Tune returns after Ctrl-C in a script as well, and loses what SIGTERM and SIGHUP find unsaved.
        """
        if self._grid is not None:
            raise RuntimeError(
                f"fit() has been called before; get_results() returns what it found in {self._grid.experiment_path!r}, "
                "Tuner.restore continues it, and a new Tuner runs another"
            )
        directory = self._directory or new_directory(self._plan)
        try:
            finished = Run(self._plan, directory, self._resumption).execute()
        except BaseException:
            # Where nothing was started nothing is left behind.
            with contextlib.suppress(OSError):
                directory.rmdir()
            raise
        self._grid = _grid(self._plan, finished)
        _raise_if_told(self._plan, finished)
        return self._grid

    def get_results(self) -> ResultGrid:
        """Return the results of `fit`; of a restored experiment also before that, as they were when it ended.

        Raises:
            RuntimeError: If the experiment has never been run.
            StorageError: If a restored experiment cannot be rebuilt.
        """
        if self._grid is not None:
            return self._grid
        if self._directory is None or self._resumption is None:
            raise RuntimeError("the experiment has not been run yet; call fit() first")
        return _grid(self._plan, read(self._plan, self._directory, self._resumption))


def _grid(plan: Plan, finished: Finished) -> ResultGrid:
    mode: Any = plan.mode
    retention = plan.checkpoint.policy(is_class=is_class_trainable(plan.trainable)).retention
    return ResultGrid(
        finished.trials, os.fspath(finished.directory), JournalRows(finished.directory), plan.metric, mode, retention=retention
    )


def _raise_if_told(plan: Plan, finished: Finished) -> None:
    failed = next((trial for trial in finished.trials if trial.status is Status.ERROR), None)
    if failed is not None and plan.failure.fail_fast == "raise":
        failure = failed.failures[-1]
        raise TrialFailed(f"trial {failed.trial_id} failed with {failure}\n{failure.traceback}")
    if finished.exit_code is not None and is_script():
        raise SystemExit(finished.exit_code)
