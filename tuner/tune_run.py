"""Ray Tune's older entry points, ``tune.run`` and ``tune.run_experiments``."""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, final

from schedulers.scheduler import Scheduler
from searchers.searcher import Searcher
from tuner.analysis.experiment_analysis import ExperimentAnalysis
from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.callback import Callback
from tuner.callbacks.console.reporter import ProgressReporter
from tuner.core.events import ResumeType
from tuner.core.stoppers import Stopper
from tuner.core.trial import Status, Trial
from tuner.errors import TrialFailed
from tuner.execution.trainable import get_trainable, with_resources
from tuner.spec.checked_settings import hint_for
from tuner.spec.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    TuneConfig,
)
from tuner.spec.experiment_location import named_location

from .tuner import Tuner, check_resumable

if TYPE_CHECKING:
    from tuner.cluster.cluster import Cluster
    from tuner.execution.resources import ResourceRequest
    from tuner.stopping.stop_search import StopSearch

_MAX_LISTED: Final = 5
"""How many failed trials an error lists with their failures."""
_RESUME: Final[Mapping[str, ResumeConfig]] = {
    "AUTO": ResumeConfig(),
    "AUTO+ERRORED": ResumeConfig(errored=ResumeType.RESUME),
    "AUTO+RESTART_ERRORED": ResumeConfig(errored=ResumeType.RESTART),
    "AUTO+ERRORED_ONLY": ResumeConfig(unfinished=ResumeType.SKIP, errored=ResumeType.RESUME),
    "AUTO+RESTART_ERRORED_ONLY": ResumeConfig(
        unfinished=ResumeType.SKIP, errored=ResumeType.RESTART
    ),
}
_REMEDIES: Final[Mapping[str, str]] = {
    "export_formats": "save models in save_checkpoint, and read them with Result.checkpoint",
    "global_checkpoint_period": "each result is saved before report returns; "
    "TUNE_GLOBAL_CHECKPOINT_S sets the period of snapshots",
    "loggers": "pass loggers as callbacks=[...]; CSV, JSON and TensorBoard are added automatically",
    "queue_trials": "leave it out; trials always wait for free resources",
    "ray_auto_init": "leave it out; there is nothing to initialise, and "
    "cluster=tune.RayCluster(address) uses a cluster",
    "restore": "pass the path in config, and load it in setup or at the beginning of the function; "
    "resume=True continues an experiment",
    "run_errored_only": 'resume="AUTO+ERRORED_ONLY" retries failed trials',
    "server_port": "tuner dash shows an experiment in a browser, tune.attach controls it",
    "sync_on_checkpoint": "leave it out; files of a trial stay in its directory",
    "sync_to_cloud": "give a URL as storage_path",
    "sync_to_driver": "leave it out; files of a trial stay in its directory",
    "trial_executor": "leave it out; trials run in processes of this machine, or of a cluster with "
    "cluster=tune.RayCluster(address)",
    "upload_dir": "give a URL as storage_path",
    "with_server": "tuner dash shows an experiment in a browser, tune.attach controls it",
}
"""Arguments of Ray Tune that are not supported, each with the alternative."""
_STATEFUL: Final = frozenset({"scheduler", "search_alg", "stop"})
"""Arguments whose objects keep state of their experiment."""


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | Sequence[str] | None = None,
    mode: Literal["min", "max"] | Sequence[Literal["min", "max"]] | None = None,
    stop: Mapping[str, Any]
    | Callable[[str, Mapping[str, Any]], bool]
    | Stopper
    | Sequence[Stopper]
    | None = None,
    time_budget_s: float | dt.timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: ResourceRequest
    | Callable[[dict[str, Any]], ResourceRequest]
    | None = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    storage_filesystem: Any = None,
    search_alg: Searcher | str | None = None,
    scheduler: Scheduler | str | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    log_to_file: bool | str | tuple[str, str] = True,
    trial_name_creator: Any = None,
    trial_dirname_creator: Any = None,
    sync_config: Any = None,
    max_failures: int = 0,
    fail_fast: bool | Literal["raise"] = False,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Callback] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: bool | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    if_exists: Literal["error", "new", "replace"] = "error",
    cluster: Cluster | None = None,
    constraints: Mapping[str, str | Sequence[str]] | None = None,
    budget: Mapping[str, float] | None = None,
    stop_search: StopSearch | Literal["auto", "never"] | None = None,
    **others: Any,
) -> ExperimentAnalysis:
    """Run an experiment and return its results; new code uses `Tuner`.

    Args:
        run_or_experiment: The trainable: a function of the configuration, a subclass of
            `Trainable`, or the registered name of either; or an `Experiment`.
        name: Name of the experiment, see `RunConfig`.
        metric: The metric to optimise, see `TuneConfig`.
        mode: ``"min"`` or ``"max"``: the direction in which `metric` is optimised.
        stop: The stop criterion, see `RunConfig`.
        time_budget_s: Maximum running time of the experiment, in seconds.
        config: The search space: the ``param_space`` of a `Tuner`.
        resources_per_trial: Resources of each trial, see `with_resources`; replaces the request of
            the trainable.
        num_samples: Number of trials, or of repetitions of a grid.
        storage_path: Directory or URL in which that of the experiment is created.
        storage_filesystem: The file system of `storage_path`, see `RunConfig`.
        search_alg: A searcher, or its short name, see `create_searcher`.
        scheduler: A scheduler, or its short name, see `create_scheduler`.
        checkpoint_config: Which checkpoints are made and kept.
        verbose: Amount of output, see `RunConfig`.
        progress_reporter: Content and frequency of the progress display.
        log_to_file: Accepted for compatibility, see `RunConfig`.
        trial_name_creator: Accepted for compatibility and not used, like `trial_dirname_creator`,
            `sync_config` and `reuse_actors`.
        trial_dirname_creator: See `trial_name_creator`.
        sync_config: See `trial_name_creator`.
        max_failures: How often a failed trial is retried, see `FailureConfig`.
        fail_fast: Whether the first failure ends the experiment, see `FailureConfig`.
        resume: True or ``"AUTO"`` continues the experiment of this name with these arguments, or
            starts it if there is none. ``"AUTO+ERRORED"`` also retries failed trials from their
            checkpoints, ``"AUTO+RESTART_ERRORED"`` from the beginning; with the suffix
            ``"_ONLY"``, unfinished trials end.
        resume_config: How to continue which trials; implies ``resume=True``.
        reuse_actors: See `trial_name_creator`.
        raise_on_failed_trial: Whether `TrialFailed`, which is a `TuneError`, is raised at the end
            if a trial has failed permanently.
        callbacks: See `RunConfig`.
        max_concurrent_trials: Maximum number of trials that run at once.
        keep_checkpoints_num: The ``num_to_keep`` of a `CheckpointConfig`, for older scripts, like
            the following three.
        checkpoint_score_attr: Its ``checkpoint_score_attribute``; with the prefix ``"min-"``,
            smaller values are better.
        checkpoint_freq: Its ``checkpoint_frequency``.
        checkpoint_at_end: Its ``checkpoint_at_end``.
        chdir_to_trial_dir: See `TuneConfig`.
        local_dir: The same as `storage_path`.
        if_exists: What to do if an experiment of this name exists, see `RunConfig`; not an argument
            of Ray Tune.
        cluster: The cluster on which trials run, see `RunConfig`; not an argument of Ray Tune.
        constraints: What a trial has to keep to be the best one, see `TuneConfig`; likewise, as the
            following two.
        budget: How much the experiment may spend, see `TuneConfig`.
        stop_search: When further trials no longer pay, see `TuneConfig`.
        **others: Unsupported arguments of Ray Tune; each raises an error that names the
            alternative.

    Raises:
        TypeError: If there is no such argument, or one has the wrong type.
        ValueError: If an argument is out of range or not supported.
        TrialFailed: If a trial has failed permanently and `raise_on_failed_trial` is True; all
            trials have ended then.
        Exception: As `Tuner.fit` does.

    Example:
        >>> import tuner as tune
        >>> def train(config):
        ...     for step in range(1, 4):
        ...         tune.report({"loss": config["x"] ** 2 / step})
        >>> space = {"x": tune.grid_search([1.0, 2.0])}
        >>> path = getfixture("tmp_path")
        >>> analysis = tune.run(
        ...     train, config=space, metric="loss", mode="min", storage_path=path, verbose=0
        ... )
        >>> analysis.best_config
        {'x': 1.0}

    Departures:
        A name that is taken is an error; Ray Tune mixes the trials of both experiments in one
        directory. With `resume`, the arguments of this call apply.
    """
    # Before any other variable is set, so that it holds arguments only.
    given = {name: value for name, value in locals().items() if name in _ARGUMENTS}
    _refuse_unsupported(others)
    if isinstance(run_or_experiment, Experiment):
        return run(run_or_experiment.trainable, **{**given, **run_or_experiment.arguments})
    if isinstance(run_or_experiment, list | tuple):
        raise TypeError(
            "run takes one experiment, got several; run_experiments runs them one after another"
        )
    tune_config = TuneConfig(
        metric=metric,
        mode=mode,
        constraints=constraints,
        budget=budget,
        stop_search=stop_search,
        num_samples=num_samples,
        search_alg=search_alg,
        scheduler=scheduler,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        reuse_actors=reuse_actors,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
        chdir_to_trial_dir=chdir_to_trial_dir,
    )
    run_config = RunConfig(
        name=name,
        storage_path=_storage_path(storage_path, local_dir),
        stop=stop,
        checkpoint_config=_checkpoint_config(
            checkpoint_config,
            keep_checkpoints_num,
            checkpoint_score_attr,
            frequency=checkpoint_freq,
            at_end=checkpoint_at_end,
        ),
        failure_config=FailureConfig(
            max_failures=max_failures, fail_fast=fail_fast, fail_script=not raise_on_failed_trial
        ),
        callbacks=callbacks,
        verbose=1 if verbose is None else verbose,
        log_to_file=log_to_file,
        progress_reporter=progress_reporter,
        sync_config=sync_config,
        storage_filesystem=storage_filesystem,
        if_exists=if_exists,
        cluster=cluster,
    )
    trainable = (
        get_trainable(run_or_experiment)
        if isinstance(run_or_experiment, str)
        else run_or_experiment
    )
    if resources_per_trial is not None:
        trainable = with_resources(trainable, resources_per_trial)
    tuner = _make_tuner(
        trainable, config, tune_config, run_config, _resume_config(resume, resume_config)
    )
    grid = tuner.fit()
    if raise_on_failed_trial:
        _raise_if_failed(grid)
    return ExperimentAnalysis(grid)


@final
class Experiment:
    """The description of an experiment for `run` and `run_experiments`.

    Args:
        name: Name of the experiment.
        run: The trainable.
        **arguments: Arguments of `run`.

    Raises:
        TypeError: If `run` has no such argument.

    Example:
        >>> import tuner as tune
        >>> space = {"x": tune.uniform(0, 1)}
        >>> experiment = tune.Experiment(
        ...     "first", lambda config: {"loss": config["x"]}, config=space, num_samples=3
        ... )
        >>> experiment.name, sorted(experiment.arguments)
        ('first', ['config', 'name', 'num_samples'])
    """

    def __init__(self, name: str, run: Any, **arguments: Any) -> None:
        _refuse_unsupported(
            {argument: value for argument, value in arguments.items() if argument not in _ARGUMENTS}
        )
        self.name = name
        self.trainable = run
        self.arguments: Mapping[str, Any] = {"name": name, **arguments}

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment described by a dictionary ``{"run": trainable, "config": ...}``.

        Raises:
            TypeError: If `spec` is no such dictionary.
        """
        if not isinstance(spec, Mapping) or "run" not in spec:
            raise TypeError(
                f"experiment {name!r} must be a dictionary with 'run', the trainable, and "
                f"arguments of tune.run, got {spec!r:.200}"
            )
        return cls(name, **spec)


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Experiment | Mapping[str, Any]],
    concurrent: bool = True,  # noqa: ARG001  (Ray Tune's signature)
    **arguments: Any,
) -> list[Trial]:
    """Run experiments one after another and return all their trials; new code uses `Tuner`.

    Args:
        experiments: An `Experiment`, a dictionary of descriptions by names (``{"first": {"run":
            train, "config": ...}}``), or a list of either.
        concurrent: Accepted for compatibility; each experiment uses the whole machine.
        **arguments: Arguments of `run` for all of them. Each experiment gets its own copy of
            `scheduler`, `search_alg` and `stop`.

    Raises:
        TypeError: If there is no such argument, or an element is no experiment.
        TrialFailed: If a trial has failed permanently; later experiments are not run.
        Exception: As `run` does.

    Example:
        >>> import tuner as tune
        >>> first = {"first": {"run": lambda config: {"loss": config["x"]}, "config": {"x": 2}}}
        >>> path = getfixture("tmp_path")
        >>> trials = tune.run_experiments(first, storage_path=path, verbose=0)
        >>> [trial.last_result["loss"] for trial in trials]
        [2]

    Departures:
        Ray Tune lets the trials of all experiments compete for the machine, under one scheduler.
    """
    trials: list[Trial] = []
    listed = list(_experiments(experiments))
    for experiment in listed:
        own = _STATEFUL & arguments.keys() if len(listed) > 1 else ()
        trials += run(
            experiment, **{**arguments, **{name: copy.deepcopy(arguments[name]) for name in own}}
        ).trials
    return trials


def _experiments(given: Any) -> Iterable[Experiment]:
    match given:
        case Experiment():
            yield given
        case Mapping():
            yield from (
                spec if isinstance(spec, Experiment) else Experiment.from_json(name, spec)
                for name, spec in given.items()
            )
        case list() | tuple():
            for several in given:
                yield from _experiments(several)
        case _:
            raise TypeError(
                "experiments must be tune.Experiment, dictionaries of them by name, or a "
                f"list of these, got {given!r:.200}"
            )


_ARGUMENTS: Final = tuple(
    name
    for name, parameter in inspect.signature(run).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)


def _refuse_unsupported(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if name not in _REMEDIES:
            raise TypeError(f"tune.run() has no argument {name!r}{hint_for(name, _ARGUMENTS)}")
        if value:
            raise ValueError(f"{name}={value!r} is not supported; {_REMEDIES[name]}")


def _storage_path(storage_path: Any, local_dir: Any) -> Any:
    if storage_path is not None and local_dir is not None:
        raise ValueError(
            f"storage_path and local_dir mean the same, got {storage_path!r} and "
            f"{local_dir!r}; use storage_path alone"
        )
    return local_dir if storage_path is None else storage_path


def _checkpoint_config(
    config: CheckpointConfig | None,
    num_to_keep: int | None,
    score: str | None,
    *,
    frequency: int,
    at_end: bool,
) -> CheckpointConfig | None:
    older = {
        "keep_checkpoints_num": num_to_keep,
        "checkpoint_score_attr": score,
        "checkpoint_freq": frequency,
        "checkpoint_at_end": at_end,
    }
    given = [name for name, value in older.items() if value]
    if not given:
        return config
    if config is not None:
        raise ValueError(
            f"checkpoint_config and {given[0]} must not both be given; use checkpoint_config alone"
        )
    is_min = score is not None and score.startswith("min-")
    return CheckpointConfig(
        num_to_keep=num_to_keep,
        checkpoint_score_attribute=score.removeprefix("min-") if score else None,
        checkpoint_score_order="min" if is_min else "max",
        checkpoint_frequency=frequency,
        checkpoint_at_end=at_end or None,
    )


def _resume_config(resume: Any, config: ResumeConfig | None) -> ResumeConfig | None:
    """Return how to continue the experiment, None to start it."""
    if config is not None:
        return config
    if resume is None or resume is False:
        return None
    key = "AUTO" if resume is True else str(resume)
    if key not in _RESUME:
        accepted = ", ".join(map(repr, _RESUME))
        raise ValueError(
            f"resume must be True, False or one of {accepted}, got {resume!r}; Tuner.restore "
            "continues a directory"
        )
    return _RESUME[key]


def _make_tuner(
    trainable: Any,
    config: Any,
    tune_config: TuneConfig,
    run_config: RunConfig,
    resume: ResumeConfig | None,
) -> Tuner:
    if resume is not None:
        check_resumable(run_config, "resume")
        location = named_location(run_config)
        if location.has_experiment():
            return Tuner.restore(
                location.address,
                trainable,
                storage_filesystem=location.filesystem,
                param_space=config,
                tune_config=tune_config,
                run_config=run_config,
                resume_config=resume,
            )
    return Tuner(trainable, param_space=config, tune_config=tune_config, run_config=run_config)


def _raise_if_failed(grid: ResultGrid) -> None:
    failed = [trial for trial in grid.trials if trial.status is Status.ERROR]
    if not failed:
        return
    listed = [f"{trial.trial_id} ({trial.failures[-1]})" for trial in failed[:_MAX_LISTED]]
    more = "" if len(failed) <= _MAX_LISTED else f" and {len(failed) - _MAX_LISTED} more"
    raise TrialFailed(
        f"{len(failed)} of {len(grid)} trials failed: {', '.join(listed)}{more}; their "
        f"tracebacks are in error.txt under {grid.experiment_path!r}, and "
        "raise_on_failed_trial=False returns the results of the others"
    )
