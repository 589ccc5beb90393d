"""`Tuner`: declare an experiment, run it, get its results."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from schedulers.scheduler import Scheduler
from searchers.searcher import Searcher
from tuner.analysis.result import Result
from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.callback import Callback
from tuner.callbacks.formatting import printable
from tuner.core.trial import Status
from tuner.driver.background_run import Background
from tuner.driver.control import RequestQueue
from tuner.driver.run import Finished, Resumption, Run, read
from tuner.driver.signals import CODES_AT_THE_END, end_script_with, is_script, withdraw_failure
from tuner.errors import StorageError, trial_failed
from tuner.execution.trainable import is_class_trainable
from tuner.journal.rows import JournalRows, histories_of
from tuner.maintenance.rerun import compare_results, prepare_rerun
from tuner.restore.arguments import Given, changes, lacks_mode, restored_arguments
from tuner.restore.resume_command import take_rerun, take_resume
from tuner.spec.config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig
from tuner.spec.experiment_directory import (
    Record,
    check_restorable,
    named_directory,
    new_directory,
    read_record,
    remove_unused,
)
from tuner.spec.experiment_spec import ExperimentSpec, make_spec, with_seed
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import absolute_path

from .handle import Handle


class Tuner:
    """An experiment: many training runs, each with another configuration.

    Args:
        trainable: What each trial runs: a function of the configuration, a subclass of `Trainable`,
            or the name that either was registered under.
        param_space: The search space: a dictionary of constants, domains such as `uniform`, and
            ``grid_search``, nested as you like.
        tune_config: What is searched for, and how.
        run_config: Where the experiment lives, and how it is run.
        resume: ``"auto"`` continues the experiment of that name where there is one, with what is
            given here and as `restore` does, and starts it where there is none;
            ``RunConfig(name=...)`` has to be fixed for that. None, the default, starts it.

    Raises:
        TypeError: If an argument has the wrong type, e.g. a function that takes no configuration.
        ValueError: If a setting is out of range or two contradict each other.
        StorageError: If an experiment is to be resumed whose directory cannot be read; it never
            starts over.

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
        resume: Literal["auto"] | None = None,
    ) -> None:
        self._spec = make_spec(trainable, param_space, tune_config, run_config)
        self._grid: ResultGrid | None = None
        self._is_used = False
        self._directory: Path | None = None
        self._resumption: Resumption | None = None
        self._lacks_mode = False
        if resume is not None:
            _check_resume(resume, self._spec)
            directory = named_directory(self._spec.run)
            if is_experiment(directory):
                record = read_record(directory)
                _check_same_name(self._spec.name, record, directory)
                self._continue(directory, record, ResumeConfig())

    def _continue(
        self,
        directory: Path,
        record: Record,
        resume: ResumeConfig,
        *,
        steal: bool = False,
        salvage: bool = False,
    ) -> None:
        self._spec = dataclasses.replace(
            with_seed(self._spec, record.seed, record.experiment_id), rerun=record.rerun
        )
        self._directory = directory
        self._resumption = Resumption(
            record, resume, list(changes(record, self._spec)), steal=steal, salvage=salvage
        )

    @classmethod
    def restore(  # noqa: PLR0917  (Ray Tune's signature)
        cls,
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: ResumeConfig | None = None,
        *,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        resume_config: ResumeConfig | None = None,
        metric: str | None = None,
        mode: Literal["min", "max"] | None = None,
        scheduler: Scheduler | None = None,
        search_alg: Searcher | None = None,
        num_samples: int | None = None,
        time_budget_s: float | dt.timedelta | None = None,
        max_concurrent_trials: int | None = None,
        stop: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        failure_config: FailureConfig | None = None,
        resources: Mapping[str, float] | None = None,
        executor: Literal["process", "inline"] | None = None,
        verbose: int | None = None,
        steal: bool = False,
        salvage: bool = False,
        allow_other_trainable: bool = False,
    ) -> Self:
        """Return the experiment that lies in a directory, to be continued by `fit`.

        Trials that were not over go on from their latest checkpoints, under their ids; what was
        decided stays decided. The directory may have been moved or copied. Nothing in it is
        executed, imported or unpickled: what was declared by names and plain values is constructed
        anew by today's code, and what could only be described (functions, objects and classes of
        your own, callbacks) has to be given again.

        Whatever is given here holds from now on, in place of what was recorded; None stands for
        what was recorded. `fit` tells each difference. Another scheduler or stop criterion governs
        the future only, another space or searcher the trials to come, and the seed always stays.

        Args:
            path: The experiment's directory.
            trainable: What its trials run, which has the name of what they ran before. Changed code
                under that name is told, not refused.
            resume_unfinished: False ends the trials that were not over instead.
            resume_errored: Whether trials that failed are tried again, from their latest
                checkpoints.
            restart_errored: Whether they are tried again from the beginning; `resume_errored` comes
                first.
            param_space: The search space.
            storage_filesystem: Must be None, see `RunConfig`.
            _resume_config: The same as `resume_config`.
            tune_config: What is searched for, and how, as a whole.
            run_config: How it is run, as a whole; its ``name`` and ``storage_path`` do not matter.
            resume_config: What becomes of which trials, instead of the three switches.
            metric: As in `TuneConfig`, like the following six. With another metric, scheduler and
                searcher hear all earlier results again.
            mode: The direction of `metric`.
            scheduler: Governs the trials that go on and those to come.
            search_alg: Another searcher learns from what it proposes itself, and nothing from
                earlier configurations.
            num_samples: With more of them there will be more trials.
            time_budget_s: Counts from the beginning of the experiment; with more of it interrupted
                trials go on.
            max_concurrent_trials: 0 for as many as the resources allow.
            stop: As in `RunConfig`, like all that follow; ``{}`` for no criterion.
            callbacks: An empty list for none.
            checkpoint_config: Applies to checkpoints to come.
            failure_config: Applies to failures to come.
            resources: What the experiment may occupy in all; recorded amounts hold on another
                machine, too.
            executor: Where trials run.
            verbose: How much is shown.
            steal: Whether a driver of this machine that still holds the experiment, since it hangs,
                say, is killed.
            salvage: Whether a damaged journal is mended, or cut where that cannot be done; what is
                cut off is kept aside and done again.
            allow_other_trainable: Whether a trainable of another name is taken; trials that have
                begun go on with it.

        Raises:
            ValueError: If `trainable` has another name than what was trained, or something that
                could only be described is not given again; names every such place.
            StorageError: If there is no experiment, or it cannot be read.

        Departures:
            Ray Tune unpickles scheduler, searcher, stop criterion and callbacks from the directory,
            so that later changes to their code or arguments have no effect, and starts over where
            the state cannot be read.
        """
        if storage_filesystem is not None:
            raise ValueError(
                f"storage_filesystem must be None, got {storage_filesystem!r}; mount it and "
                "give a path"
            )
        switches = ResumeConfig.of(
            resume_unfinished=resume_unfinished,
            resume_errored=resume_errored,
            restart_errored=restart_errored,
        )
        given = Given(
            param_space,
            tune_config,
            run_config,
            tune=_given(
                metric=metric,
                mode=mode,
                scheduler=scheduler,
                search_alg=search_alg,
                num_samples=num_samples,
                time_budget_s=time_budget_s,
                max_concurrent_trials=max_concurrent_trials,
            ),
            run=_given(
                stop=stop,
                callbacks=callbacks,
                checkpoint_config=checkpoint_config,
                failure_config=failure_config,
                resources=resources,
                executor=executor,
                verbose=verbose,
            ),
        )
        directory = absolute_path(path)
        record = read_record(directory)
        tuner = cls(trainable, **restored_arguments(record, directory, given))
        if not allow_other_trainable:
            _check_same_name(tuner._spec.name, record, directory)
        tuner._continue(
            directory,
            record,
            _one_of(resume_config or _resume_config, switches),
            steal=steal,
            salvage=salvage,
        )
        tuner._lacks_mode = (
            lacks_mode(record) and tune_config is None and tuner._spec.metric is None
        )
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Return whether a directory holds an experiment that can be continued.

        Its declaration has to be readable and its journal whole, up to a torn end; nothing is
        locked or changed. Where this is False because of damage, `restore` says what is damaged,
        and a new `Tuner` of that name refuses to take the directory.

        Departures:
            Ray Tune looks for one file, whatever is in it.
        """
        try:
            check_restorable(absolute_path(path))
        except StorageError:
            return False
        return True

    def fit(self) -> ResultGrid:
        """Run the experiment and return the results of all its trials.

        A trial that fails does not raise: its error is in the results. Where all trials fail for
        one cause, the experiment stops early (see ``FailureConfig(max_common_failures=...)``) and
        says how it is continued, and the exit code of a script will be 1, unless it runs another
        experiment with success after that, or says `sys.exit` with a code of its own.

        The first Ctrl-C, or another signal that asks a program to end (SIGTERM, SIGHUP, and what
        batch systems send), lets running trials save and leave within
        ``RunConfig(interrupt_grace_s=...)``; the second kills them. So does a time limit that is
        nearly over. The experiment can be restored then, and the line of code for it is printed.
        After Ctrl-C `fit` returns what there is, with the interrupted trials marked, and the script
        goes on; its exit code will be 130, as shells expect of one that was interrupted. After any
        other signal, and at the time limit, a script ends here, with the exit code below; one that
        wants to go on catches the `SystemExit` and calls `get_results`. In a notebook or an
        interpreter `fit` always returns.

        Raises:
            RuntimeError: If it has been called before.
            ValueError: If scheduler and TuneConfig both name a metric, a trial asks for more than
                there is, or a `Secret` is not set.
            TrainableNotPicklable: If the trainable cannot be carried to a worker process; names the
                variable to blame.
            ExperimentExists: If the directory of this name already holds an experiment.
            StorageError: If the storage path cannot be written to.
            MetricNotReported: If a trial completed and no trial has ever reported the metric.
            TrialFailed: If a trial failed and ``FailureConfig(fail_fast="raise")`` was given.
            SystemExit: In a script that was told to end, once everything is saved: with 128 plus
                the signal's number (143 for SIGTERM, 129 for SIGHUP), or 124 at the time limit.

        Departures:
            Ray Tune loses what SIGTERM and SIGHUP find unsaved.
        """
        self._follow_request()
        return self._run_in(self._begin())

    def start(self) -> Handle:
        """Run the experiment in the background, and return a handle by which it is watched and steered.

        What `fit` refuses before anything is run is refused here; what it raises at the end,
        `Handle.wait` does. Signals are the script's own business then: none is caught while the
        experiment runs, and the engine exits no script. A script that comes to its end waits for
        the experiment.

        Raises:
            RuntimeError: If it, or `fit`, has been called before.
            Exception: As `fit` does before the first trial begins.

        Example:
            >>> import tuner as tune
            >>> tuner = tune.Tuner(
            ...     lambda config: tune.report({"loss": config["x"]}),
            ...     param_space={"x": 1},
            ...     run_config=tune.RunConfig(storage_path=getfixture("tmp_path"), verbose=0),
            ... )
            >>> tuner.start().wait()[0].metrics["loss"]
            1
        """
        self._follow_request()
        directory = self._begin()
        background = Background(lambda requests: self._run_in(directory, requests))
        background.start()
        return Handle(directory, background)

    def _follow_request(self) -> None:
        """Do what ``tuner rerun`` or ``tuner resume`` has started the script for, in place of beginning an experiment.

        Raises:
            SystemExit: Once a trial has been trained again; there are no results of a whole
                experiment with which the script could go on.
        """
        if self._is_used:
            return
        if found := take_rerun(self._spec):
            directory, trial_id = found
            again = rerun(directory, trial_id, self._spec.trainable, param_space=self._spec.space)
            raise SystemExit(1 if again.error else 0)
        if continued := take_resume(self._spec, self._directory):
            self._continue(continued, read_record(continued), ResumeConfig())

    def _begin(self) -> Path:
        """Return the directory to run in.

        Raises:
            RuntimeError: If there has been a run, or there is one.
            ValueError: If an experiment of an earlier release is to go on whose metric has no mode.
        """
        if self._is_used:
            where = f", for {self._grid.experiment_path!r}" if self._grid else ""
            raise RuntimeError(
                f"fit() or start() has been called before{where}; get_results() returns what "
                "was found, Tuner.restore continues it, "
                "and a new Tuner runs another"
            )
        if self._lacks_mode and self._resumption:
            metric = self._resumption.record.parts["tune_config"]["metric"]
            raise ValueError(
                f"mode must be 'min' or 'max' where a metric is named, got metric={metric!r} "
                f"without a mode in {str(self._directory)!r}; "
                "go on with Tuner.restore(..., mode='max') if a larger value is better, "
                "mode='min' if a smaller one is"
            )
        directory = self._directory or new_directory(self._spec)
        self._is_used = True
        return directory

    def _run_in(self, directory: Path, requests: RequestQueue | None = None) -> ResultGrid:
        try:
            finished = Run(self._spec, directory, self._resumption).execute(requests)
        except BaseException:
            self._is_used = False
            remove_unused(self._spec, directory)  # where nothing was started nothing is left behind
            raise
        self._grid = _grid(self._spec, finished)
        _raise_if_told(self._spec, finished)
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
        return _grid(self._spec, read(self._spec, self._directory, self._resumption))


def rerun(
    path: str | os.PathLike[str],
    trial: str | int,
    trainable: Any,
    *,
    param_space: Mapping[str, Any] | None = None,
    stop: Any = None,
    **run_config: Any,
) -> Result:
    """Train one trial of an experiment again, alone, with the configuration, the resources and the seed that it had.

    It becomes an experiment of its own beside the other one, named ``<experiment>_<trial>_rerun``,
    and begins at its first iteration, whatever checkpoints there are. No scheduler stops it: it
    trains to the end that ``RunConfig.stop`` or the scheduler's ``max_t`` sets, or its own; where
    no trial has come to such an end, to the iteration that it had reached. At the beginning it is
    printed what differs now (trainable, versions, git commit), at the end how the results compare
    with the recorded.

    Two runs agree as far as the training code takes its chance from ``get_context().get_seed()``,
    or from the global generators of Python and NumPy, which are seeded with it; PyTorch and others
    are for the code to seed.

    Args:
        path: The experiment's directory.
        trial: The trial's id, or its number: 3 stands for ``t00003``.
        trainable: What its trials run, with what `with_parameters` has bound.
        param_space: The experiment's space; needed where the trial's configuration holds functions
            or objects from it.
        stop: When the trial ends, as in `RunConfig`; None for what was declared.
        **run_config: Other fields of `RunConfig` that are to be different, ``storage_path``,
            ``executor`` or ``verbose`` for example.

    Raises:
        ValueError: If there is no such trial, or it went on from a checkpoint of another one, as
            under PBT.
        StorageError: If the experiment cannot be read, or the configuration holds objects and no
            `param_space` is given.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     tune.report({"loss": config["x"] + tune.get_context().get_seed()})
        >>> run_config = tune.RunConfig(name="seeds", storage_path=getfixture("tmp_path"), verbose=0)
        >>> first = tune.Tuner(train, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config).fit()
        >>> again = tune.rerun(first.experiment_path, 1, train, verbose=0)
        >>> again.config, again.metrics["loss"] == first[1].metrics["loss"]
        ({'x': 2}, True)
    """
    directory = absolute_path(path)
    repetition = prepare_rerun(
        directory, trial, trainable, param_space=param_space, stop=stop, **run_config
    )
    spec = repetition.spec
    seed = spec.seed_of("")
    _tell(
        spec,
        [
            f"training {repetition.trial_id} of {directory.name} again, with seed {seed}",
            *repetition.notes,
        ],
    )
    tuner = Tuner(spec.trainable)
    tuner._spec = spec  # noqa: SLF001  (its own module)
    grid = tuner._run_in(tuner._begin())  # noqa: SLF001
    (again,) = grid
    _tell(spec, compare_results(repetition.recorded, again.rows.of(again.trial_id)))
    return again


def _tell(spec: ExperimentSpec, lines: Sequence[str]) -> None:
    for line in lines if spec.run.verbose else ():
        sys.stdout.write(f"{printable(line)}\n")


def _grid(spec: ExperimentSpec, finished: Finished) -> ResultGrid:
    mode: Any = spec.mode
    retention = spec.checkpoint.policy(is_class=is_class_trainable(spec.trainable)).retention
    return ResultGrid(
        finished.trials,
        os.fspath(finished.directory),
        JournalRows(finished.directory, histories_of(finished.trials)),
        spec.metric,
        mode,
        retention=retention,
        persistence=finished.persistence,
        several=spec.several_objectives,
    )


def _check_resume(resume: Any, spec: ExperimentSpec) -> None:
    if resume != "auto":
        raise ValueError(
            f"resume must be 'auto' or None, got {resume!r}; Tuner.restore takes the finer switches"
        )
    check_resumable(spec.run, "resume='auto'")


def check_resumable(run: RunConfig, asked: str) -> None:
    """Check that an experiment can be found again by its name, and is not to be another one.

    Args:
        run: Names it.
        asked: How it was asked to be resumed, for messages.

    Raises:
        ValueError: If it has no fixed name, or `if_exists` asks for another experiment.
    """
    if not run.name:
        raise ValueError(
            f"{asked} needs a fixed name, got none: a directory named by the date is never "
            "found again; give it a name"
        )
    if run.if_exists != "error":
        raise ValueError(
            f"{asked} continues the experiment of that name, if_exists={run.if_exists!r} "
            "begins another; give one of them"
        )


def _check_same_name(name: str, record: Record, directory: Path) -> None:
    trained = record.trainable.get("name")
    if trained is not None and name != trained:
        raise ValueError(
            f"trainable must be {trained!r}, which the experiment in {str(directory)!r} "
            f"trains, got {name!r}; pass that one, begin another "
            "experiment under another name, or go on with this one by Tuner.restore(..., "
            "allow_other_trainable=True)"
        )


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _one_of(config: ResumeConfig | None, switches: ResumeConfig) -> ResumeConfig:
    if config is not None and switches != ResumeConfig():
        raise ValueError(
            f"resume_config and the switches must not both be given, got {config} and "
            f"{switches}; use resume_config alone"
        )
    return config or switches


def _raise_if_told(spec: ExperimentSpec, finished: Finished) -> None:
    failed = next((trial for trial in finished.trials if trial.status is Status.ERROR), None)
    if failed is not None and spec.failure.fail_fast == "raise":
        failure = failed.failures[-1]
        raise trial_failed(
            f"trial {failed.trial_id} failed with {failure}\n{failure.traceback}",
            (failure.kind, *failure.bases),
        )
    if not is_script():
        return
    if finished.exit_code is None:
        withdraw_failure()
        return
    if finished.exit_code in CODES_AT_THE_END or finished.is_searching:
        # The searcher's thread may be in the middle of C++ code, in which a Python that shuts down
        # orderly would abort the process.
        end_script_with(finished.exit_code)
    if finished.exit_code not in CODES_AT_THE_END:
        raise SystemExit(finished.exit_code)
