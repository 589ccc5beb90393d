"""`Tuner`: declare an experiment, run it, get its results."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from schedulers.scheduler import Scheduler
from searchers.searcher import Searcher
from searchers.space import SearchSpace
from tuner.callbacks.callback import Callback
from tuner.core.trial import Status
from tuner.driver.control import RequestQueue
from tuner.driver.run import Finished, Run
from tuner.driver.signals import (
    CODES_AT_THE_END,
    FAILED_EXIT_CODE,
    end_script_with,
    is_script,
    withdraw_failure,
)
from tuner.errors import StorageError, StorageUnreachable, trial_failed
from tuner.execution.trainable import is_class_trainable
from tuner.restore.shell_requests import is_requested
from tuner.spec.checked_settings import names_unknown_arguments
from tuner.spec.config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig
from tuner.spec.experiment_location import (
    ExperimentLocation,
    location_of,
    named_location,
    new_location,
    remove_unused,
)
from tuner.spec.experiment_spec import ExperimentSpec, make_spec, with_seed
from tuner.spec.record import Record, check_restorable
from tuner.storage.directories import absolute_path
from tuner.storage.urls import is_like_url

if TYPE_CHECKING:
    from tuner.analysis.result import Result
    from tuner.analysis.result_grid import ResultGrid
    from tuner.cluster.cluster import Cluster
    from tuner.driver.continued import Resumption
    from tuner.spec.training_config import ValidationConfig
    from tuner.stopping.stop_search import StopSearch
    from tuner.stores.readable_copy import ReadableCopy

    from .handle import Handle


@names_unknown_arguments
class Tuner:
    """An experiment: many training runs, each with another configuration.

    Args:
        trainable: The training code: a function of the configuration, a subclass of `Trainable`, or
            the registered name of either.
        param_space: The search space: a nested dictionary of constants, domains such as `uniform`,
            and ``grid_search``.
        tune_config: Objective and search settings.
        run_config: Storage and run settings.
        resume: ``"auto"`` continues the experiment of this name with these arguments, as `restore`
            does, or starts it if there is none; it needs a fixed ``RunConfig(name=...)``. None, the
            default, always starts a new experiment.

    Raises:
        TypeError: If an argument has the wrong type, e.g. a function that takes no configuration.
        ValueError: If a setting is out of range or two contradict each other.
        StorageError: If the directory of an experiment to resume cannot be read; it is never
            started anew.

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
        self._location: ExperimentLocation | None = None
        self._resumption: Resumption | None = None
        if resume is not None:
            _check_resume(resume, self._spec)
            location = named_location(self._spec.run)
            if location.has_experiment():
                from tuner.restore.arguments import check_same_trainable  # noqa: PLC0415  (restores only)

                record = location.read_record()
                check_same_trainable(self._spec, record, location.address)
                self._continue(location, record, ResumeConfig())

    def _continue(
        self,
        location: ExperimentLocation,
        record: Record,
        resume: ResumeConfig,
        *,
        steal: bool = False,
        salvage: bool = False,
    ) -> None:
        from tuner.driver.continued import Resumption  # noqa: PLC0415  (restores only)
        from tuner.restore.arguments import changes  # noqa: PLC0415  (likewise)

        self._spec = dataclasses.replace(
            with_seed(self._spec, record.seed, record.experiment_id), rerun=record.rerun
        )
        self._location = location
        self._resumption = Resumption(
            record,
            resume,
            list(changes(record, self._spec)),
            steal=steal,
            salvage=salvage,
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
        metric: str | Sequence[str] | None = None,
        mode: Literal["min", "max"] | Sequence[Literal["min", "max"]] | None = None,
        constraints: Mapping[str, str | Sequence[str]] | None = None,
        scheduler: Scheduler | None = None,
        search_alg: Searcher | None = None,
        num_samples: int | None = None,
        time_budget_s: float | dt.timedelta | None = None,
        budget: Mapping[str, float] | None = None,
        max_concurrent_trials: int | None = None,
        stop_search: StopSearch | Literal["auto", "never"] | None = None,
        stop: Any = None,
        callbacks: Sequence[Callback] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        failure_config: FailureConfig | None = None,
        validation_config: ValidationConfig | None = None,
        resources: Mapping[str, float] | None = None,
        executor: Literal["process", "inline"] | None = None,
        cluster: Cluster | None = None,
        node_wait_s: float | None = None,
        verbose: int | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        steal: bool = False,
        salvage: bool = False,
        allow_other_trainable: bool = False,
    ) -> Self:
        """Return the experiment in a directory, which `fit` continues.

        Unfinished trials continue from their latest checkpoints, under their ids; recorded
        decisions are kept. The directory may have been moved or copied. Nothing in it is executed,
        imported or unpickled: arguments that consist of names and plain values are constructed
        again from the recorded values, and all others (functions, objects and classes of your own,
        callbacks) have to be passed again.

        Arguments passed here replace the recorded ones from now on; None keeps a recorded one.
        `fit` reports each difference. Another scheduler or stop criterion applies to future results
        only, another space or searcher to future trials, and the seed cannot be changed.

        Args:
            path: The experiment's directory, or its URL in an object store, such as
                ``"s3://bucket/dir/name"``. A directory in which an experiment of an object store
                was run continues that one.
            trainable: The training code, with the same name as before. Changed code under that name
                is reported and accepted.
            resume_unfinished: Whether unfinished trials continue; False ends them.
            resume_errored: Whether failed trials are retried from their latest checkpoints.
            restart_errored: Whether failed trials are retried from the beginning; `resume_errored`
                takes precedence.
            param_space: The search space.
            storage_filesystem: The fsspec file system on which `path` is; None for that of the URL,
                or this machine.
            _resume_config: The same as `resume_config`.
            tune_config: Replaces all objective and search settings.
            run_config: Replaces all run settings; its ``name`` and ``storage_path`` are ignored.
            resume_config: How to continue which trials, instead of the three switches.
            metric: As in `TuneConfig`, like the following eight. With another metric or other
                constraints, all earlier results are passed to scheduler and searcher again.
            mode: The direction of `metric`.
            constraints: ``{}`` for none.
            scheduler: Applies to continued and future trials.
            search_alg: Another searcher learns from earlier trials as well, where their
                configurations are in its space and it can learn from what it has not suggested.
            num_samples: A larger number adds trials. Of a grid, each combination is run as often
                in all; without a grid it is the number of trials in all.
            time_budget_s: Counts from the start of the experiment, in seconds; with a larger budget
                interrupted trials continue.
            budget: Counts from the start as well; ``{}`` for no limit but that of time.
            max_concurrent_trials: 0 for as many as the resources allow.
            stop_search: ``"never"`` continues a search that has ended, and any other value than the
                recorded one does for a while at least.
            stop: As in `RunConfig`, like all that follow; ``{}`` for no criterion.
            callbacks: An empty list for none.
            checkpoint_config: Applies to future checkpoints.
            failure_config: Applies to future failures.
            validation_config: Applies to validations that have not ended.
            resources: Total resources of the experiment; recorded amounts also apply on another
                machine.
            executor: Where trials run.
            cluster: The cluster on which trials run from now on; None for this machine, since
                clusters are not recorded.
            node_wait_s: With a cluster: how long to wait for nodes.
            verbose: Amount of output.
            local_dir: With a URL: directory of this machine in which that of the experiment is, or
                will be made; None for ``~/tuner_results``.
            steal: Whether to kill a driver of this machine that still holds the experiment, for
                example because it hangs. An experiment in an object store is also taken from a
                driver on another machine, which then stops as soon as it notices.
            salvage: Whether to cut a damaged journal, and to accept one that lacks files; what is
                cut off is kept beside it, and its iterations are repeated.
            allow_other_trainable: Whether `trainable` may have another name; started trials
                continue with it.

        Raises:
            ValueError: If `trainable` has another name than the recorded one, or an argument that
                has to be passed again is missing; the message names all of them.
            StorageError: If there is no experiment, or it cannot be read.

        Departures:
            Ray Tune unpickles scheduler, searcher, stop criterion and callbacks from the directory,
            so later changes to their code or arguments have no effect. It starts over if the state
            cannot be read.
        """
        switches = ResumeConfig.of(
            resume_unfinished=resume_unfinished,
            resume_errored=resume_errored,
            restart_errored=restart_errored,
        )
        is_in_store = storage_filesystem is not None or is_like_url(os.fspath(path))
        if local_dir is None and run_config is not None and is_in_store:
            local_dir = run_config.local_dir
        from tuner.restore.arguments import (  # noqa: PLC0415  (restores only)
            Given,
            check_same_trainable,
            restored_arguments,
            storage_of,
        )

        location = location_of(path, storage_filesystem, local_dir)
        record = location.read_record()
        given = Given(
            param_space,
            tune_config,
            run_config,
            tune=_given(
                metric=metric,
                mode=mode,
                constraints=constraints,
                scheduler=scheduler,
                search_alg=search_alg,
                num_samples=num_samples,
                time_budget_s=time_budget_s,
                budget=budget,
                max_concurrent_trials=max_concurrent_trials,
                stop_search=stop_search,
            ),
            run=_given(
                stop=stop,
                callbacks=callbacks,
                checkpoint_config=checkpoint_config,
                failure_config=failure_config,
                validation_config=validation_config,
                resources=resources,
                executor=executor,
                cluster=cluster,
                node_wait_s=node_wait_s,
                verbose=verbose,
            )
            | storage_of(location, record),
        )
        tuner = cls(trainable, **restored_arguments(record, location.address, given))
        if not allow_other_trainable:
            check_same_trainable(tuner._spec, record, location.address)
        tuner._continue(
            location,
            record,
            _one_of(resume_config or _resume_config, switches),
            steal=steal,
            salvage=salvage,
        )
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Return whether a directory, or a URL, holds an experiment that can be continued.

        Its declaration has to be readable and its journal intact except for a torn end; nothing is
        locked or changed. If this is False because of damage, `restore` says what is damaged, and a
        new `Tuner` of that name does not use the directory. Of an experiment in an object store the
        journal is downloaded for this.

        Args:
            path: The directory or the URL.
            storage_filesystem: The fsspec file system on which it is; None for that of the URL, or
                this machine.

        Raises:
            StorageUnreachable: If the object store does not answer, or refuses.

        Departures:
            Ray Tune only checks that a file exists.
        """
        try:
            if storage_filesystem is not None or is_like_url(os.fspath(path)):
                copy = _readable(os.fspath(path), storage_filesystem)  # there as long as this
                check_restorable(copy.directory)
            else:
                check_restorable(absolute_path(path))
        except StorageUnreachable:
            raise
        except StorageError:
            return False
        return True

    def fit(self) -> ResultGrid:
        """Run the experiment and return the results of all its trials.

        A failed trial does not raise an exception: its error is in the results. If all trials fail
        for the same cause, the experiment stops early (see
        ``FailureConfig(max_common_failures=...)``) and prints how to continue it. Where trials
        failed and none succeeded, the exit code of the script will be 1, unless a later experiment
        in it succeeds, it calls `sys.exit` with another code, or ``FailureConfig(
        fail_script=False)`` is set.

        After the first Ctrl-C, or another termination signal (SIGTERM, SIGHUP, and those of batch
        systems), running trials may save and exit within ``RunConfig(interrupt_grace_s=...)``; a
        second signal kills them. A time limit that is nearly reached acts like a first signal. The
        experiment can then be restored, and the code for that is printed.

        After Ctrl-C `fit` returns the results so far, with the interrupted trials marked, and the
        script continues; its exit code will be 130, as shells expect after an interrupt. After any
        other signal, and at the time limit, a script ends here, with the exit code below; to
        continue, catch the `SystemExit` and call `get_results`. In a notebook or an interpreter
        `fit` always returns.

        Raises:
            RuntimeError: If it has been called before.
            ValueError: If scheduler and TuneConfig name different metrics, a trial requests more
                resources than there are, or a `Secret` is not set.
            TrainableNotPicklable: If the trainable cannot be sent to a worker process; names the
                variable that causes it.
            ExperimentExists: If the directory of this name already holds an experiment.
            StorageError: If the storage path cannot be written to.
            MetricNotReported: If a trial completed and no trial has ever reported the metric, or
                one that a constraint bounds; of those that a restore names, before it begins.
            TrialFailed: If a trial failed and ``FailureConfig(fail_fast="raise")`` was given.
            SystemExit: In a script after a signal other than SIGINT, once everything is saved: with
                128 plus the number of the signal (143 for SIGTERM, 129 for SIGHUP), or 124 at the
                time limit.

        Departures:
            Ray Tune loses unsaved state on SIGTERM and SIGHUP.
        """
        self._apply_shell_request()
        return self._run_in(self._begin())

    def start(self) -> Handle:
        """Run the experiment in the background, and return a handle to observe and control it.

        Exceptions that `fit` raises before the first trial starts are raised here, later ones by
        `Handle.wait`. The experiment catches no signals and does not exit the script. A script that
        reaches its end waits for the experiment.

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
        self._apply_shell_request()
        location = self._begin()
        from tuner.driver.background_run import Background  # noqa: PLC0415  (in notebooks)

        from .handle import Handle  # noqa: PLC0415  (likewise)

        background = Background(lambda requests: self._run_in(location, requests))
        background.start()
        return Handle(location.directory, background)

    def __repr__(self) -> str:
        """Return what is declared, and whether it has been run."""
        spec = self._spec
        if self._grid is not None:
            state = f"has run in {self._grid.experiment_path}"
        elif self._is_used:
            state = "is running"
        else:
            state = f"continues {self._location.address}" if self._location else "has not been run"
        names = [parameter.name for parameter in SearchSpace(spec.space).parameters]
        num = "unlimited" if spec.tune.num_samples < 0 else spec.tune.num_samples
        aims = spec.several_objectives or ((spec.metric, spec.mode),)
        lines = [
            f"Tuner of {spec.name}, which {state}",
            f"  searches: {', '.join(names) or 'nothing'}",
            f"  samples: {num}",
            *(f"  metric: {metric} ({mode})" for metric, mode in aims if metric),
            *(f"  constraint: {each}" for each in spec.constraints),
            *([f"  {spec.remark}"] if spec.remark else []),
        ]
        return "\n".join(lines)

    def _apply_shell_request(self) -> None:
        """Carry out ``tuner rerun`` or ``tuner resume`` if one of them has started this script.

        Raises:
            SystemExit: Once a trial has been trained again, since the rest of the script expects
                results of a whole experiment.
        """
        if self._is_used or not is_requested():
            return
        from tuner.restore import resume_command  # noqa: PLC0415  (by the command only)

        if found := resume_command.take_rerun(self._spec):
            directory, trial_id = found
            again = rerun(directory, trial_id, self._spec.trainable, param_space=self._spec.space)
            raise SystemExit(1 if again.error else 0)
        if continued := resume_command.take_resume(self._spec, self._location):
            self._continue(continued, continued.read_record(), ResumeConfig())

    def _begin(self) -> ExperimentLocation:
        """Return where to run the experiment.

        Raises:
            RuntimeError: If there has been a run, or there is one.
        """
        if self._is_used:
            where = f", for {self._grid.experiment_path!r}" if self._grid else ""
            raise RuntimeError(
                f"fit() or start() has been called before{where}; get_results() returns its "
                "results, Tuner.restore continues the experiment, and a new Tuner runs another"
            )
        location = self._location or new_location(self._spec)
        self._is_used = True
        return location

    def _run_in(
        self, location: ExperimentLocation, requests: RequestQueue | None = None
    ) -> ResultGrid:
        try:
            finished = Run(self._spec, location, self._resumption).execute(requests)
        except BaseException:
            # The user may correct the cause, and call fit again.
            self._is_used = False
            remove_unused(self._spec, location.directory)
            raise
        # Before anything is raised, so that get_results returns the results after a SystemExit.
        self._grid = _grid(self._spec, finished, location)
        _raise_failure(self._spec, finished)
        _end_script(finished)
        return self._grid

    def get_results(self) -> ResultGrid:
        """Return the results of `fit`, or before it, the recorded results of a restored experiment.

        Raises:
            RuntimeError: If the experiment has never been run.
            StorageError: If a restored experiment cannot be rebuilt.
        """
        if self._grid is not None:
            return self._grid
        if self._location is None or self._resumption is None:
            raise RuntimeError("the experiment has not been run yet; call fit() first")
        from tuner.driver.continued import recorded_trials  # noqa: PLC0415  (seldom asked for)

        location = self._location
        copy = _readable(location.address, location.filesystem) if location.url else None
        directory = copy.directory if copy else location.directory
        return _grid(
            self._spec,
            Finished(
                directory,
                recorded_trials(self._spec, directory, self._resumption),
            ),
            location,
            copy,
        )


def rerun(
    path: str | os.PathLike[str],
    trial: str | int,
    trainable: Any,
    *,
    param_space: Mapping[str, Any] | None = None,
    stop: Any = None,
    **run_config: Any,
) -> Result:
    """Train one trial of an experiment again, with the same configuration, resources and seed.

    The rerun is a separate experiment beside the original, named ``<experiment>_<trial>_rerun``. It
    begins at the first iteration and uses no checkpoints. No scheduler stops it: it ends where
    ``RunConfig.stop`` or the scheduler's ``max_t`` ends a full training, or where its code returns;
    if no trial was trained that long, at the iteration that the trial had reached. It first prints
    what has changed since (trainable, versions, git commit), and at the end how the results compare
    with the recorded ones.

    Two runs agree if all random numbers of the training code come from ``get_context().get_seed()``
    or from the global generators of Python and NumPy, which are seeded with it; the code has to
    seed PyTorch and other libraries.

    Args:
        path: The experiment's directory, or its URL in an object store.
        trial: The trial's id, or its number: 3 stands for ``t00003``.
        trainable: The training code, with all parameters bound by `with_parameters`.
        param_space: The experiment's space; needed if the trial's configuration holds functions or
            objects from it.
        stop: The stop criterion, as in `RunConfig`; None for the declared one.
        **run_config: Other fields of `RunConfig` to change, for example ``storage_path``,
            ``executor`` or ``verbose``; with ``cluster`` the trial is trained on a node of it, else
            on this machine.

    Raises:
        ValueError: If there is no such trial, or it continued from another trial's checkpoint, as
            under PBT.
        StorageError: If the experiment cannot be read, or the configuration holds objects and no
            `param_space` is given.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     tune.report({"loss": config["x"] + tune.get_context().get_seed()})
        >>> path = getfixture("tmp_path")
        >>> tuner = tune.Tuner(
        ...     train,
        ...     param_space={"x": tune.grid_search([1, 2])},
        ...     run_config=tune.RunConfig(name="seeds", storage_path=path, verbose=0),
        ... )
        >>> first = tuner.fit()
        >>> again = tune.rerun(first.experiment_path, 1, train, verbose=0)
        >>> again.config, again.metrics["loss"] == first[1].metrics["loss"]
        ({'x': 2}, True)
    """
    from tuner.maintenance.rerun import compare_results, prepare_rerun  # noqa: PLC0415  (seldom)

    copy = _readable(os.fspath(path)) if is_like_url(os.fspath(path)) else None
    directory = copy.directory if copy else absolute_path(path)
    repetition = prepare_rerun(
        directory, trial, trainable, param_space=param_space, stop=stop, **run_config
    )
    spec = repetition.spec
    seed = spec.seed_of("")
    _print_lines(
        spec,
        [
            f"training {repetition.trial_id} of {directory.name} again, with seed {seed}",
            *repetition.notes,
        ],
    )
    tuner = Tuner(spec.trainable, param_space=spec.declared_space)
    tuner._spec = spec  # noqa: SLF001  (its own module)
    grid = tuner._run_in(tuner._begin())  # noqa: SLF001
    (again,) = grid
    _print_lines(spec, compare_results(repetition.recorded, again.rows.of(again.trial_id)))
    return again


def _readable(url: str, filesystem: Any = None) -> ReadableCopy:
    from tuner.stores.readable_copy import ReadableCopy  # noqa: PLC0415  (in stores only)

    return ReadableCopy(url, filesystem)


def _print_lines(spec: ExperimentSpec, lines: Sequence[str]) -> None:
    from tuner.callbacks.formatting import printable  # noqa: PLC0415  (few experiments print any)

    for line in lines if spec.run.verbose else ():
        sys.stdout.write(f"{printable(line)}\n")


def _grid(
    spec: ExperimentSpec,
    finished: Finished,
    location: ExperimentLocation,
    copy: ReadableCopy | None = None,
) -> ResultGrid:
    # Here, so that trials need not wait for them.
    from tuner.analysis.result_grid import ResultGrid  # noqa: PLC0415
    from tuner.journal.rows import JournalRows, histories_of  # noqa: PLC0415

    mode: Any = spec.mode
    storage = None
    if location.url:
        from tuner.analysis.result import ObjectStorage  # noqa: PLC0415  (in stores only)

        storage = ObjectStorage(location.url, location.filesystem, copy)
    retention = spec.checkpoint.policy(is_class=is_class_trainable(spec.trainable)).retention
    return ResultGrid(
        finished.trials,
        copy.url if copy else os.fspath(finished.directory),
        JournalRows(copy or finished.directory, histories_of(finished.trials)),
        spec.metric,
        mode,
        retention=retention,
        persistence=finished.persistence,
        several=spec.several_objectives,
        constraints=spec.constraints,
        storage=storage,
    )


def _check_resume(resume: Any, spec: ExperimentSpec) -> None:
    if resume != "auto":
        raise ValueError(
            f"resume must be 'auto' or None, got {resume!r}; Tuner.restore has other options"
        )
    check_resumable(spec.run, "resume='auto'")


def check_resumable(run: RunConfig, asked: str) -> None:
    """Check that the settings identify the experiment to resume by its name.

    Args:
        run: The settings.
        asked: The argument that asks to resume, for messages.

    Raises:
        ValueError: If they have no fixed name, or `if_exists` asks for another experiment.
    """
    if not run.name:
        raise ValueError(
            f"{asked} needs a fixed name, got none: a directory named by the date is never "
            "found again; set RunConfig(name=...)"
        )
    if run.if_exists != "error":
        raise ValueError(
            f"{asked} continues the experiment of that name, if_exists={run.if_exists!r} "
            "starts another; pass only one of them"
        )


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _one_of(config: ResumeConfig | None, switches: ResumeConfig) -> ResumeConfig:
    if config is not None and switches != ResumeConfig():
        raise ValueError(
            f"resume_config and the switches must not both be given, got {config} and "
            f"{switches}; use only resume_config"
        )
    return config or switches


def _raise_failure(spec: ExperimentSpec, finished: Finished) -> None:
    """Raise the error of a failed trial, if ``fail_fast="raise"`` asks for it."""
    failed = next((trial for trial in finished.trials if trial.status is Status.ERROR), None)
    if failed is not None and spec.failure.fail_fast == "raise":
        failure = failed.failures[-1]
        raise trial_failed(
            f"trial {failed.trial_id} failed with {failure}\n{failure.traceback}",
            (failure.kind, *failure.bases),
        )


def _end_script(finished: Finished) -> None:
    """End the script with the exit code of an interrupted experiment, unless it may continue."""
    if not is_script():
        return
    if finished.exit_code == FAILED_EXIT_CODE and "pytest" in sys.modules:
        return  # the tests decide
    if finished.exit_code is None:
        withdraw_failure()
        return
    if finished.exit_code in CODES_AT_THE_END or finished.is_searching:
        # The searcher's thread may be running C++ code; a regular shutdown of Python would then
        # abort the process.
        end_script_with(finished.exit_code)
    if finished.exit_code not in CODES_AT_THE_END:
        raise SystemExit(finished.exit_code)
