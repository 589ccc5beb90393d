"""`DataParallelTrainer`: a training function that runs in several processes at once."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from searchers.space import flat_name, is_word, leaves
from tuner.analysis.result import Result
from tuner.callbacks.formatting import printable
from tuner.callbacks.user_callback import TrainRunContext
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import Failure, WorkerGroup
from tuner.driver.signals import withdraw_failure
from tuner.errors import CheckpointError, StorageError, TrialFailed
from tuner.execution.attempt import StopTraining, current_attempt
from tuner.execution.group_trainable import GroupTrainable
from tuner.execution.session import get_context
from tuner.execution.trainable import trainable_name
from tuner.spec.argument_codec import note
from tuner.spec.config import ResumeConfig, RunConfig
from tuner.spec.experiment_location import named_location
from tuner.spec.training_config import ScalingConfig, ValidationConfig
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.disk import write_text
from tuner.storage.layout import RETURN_VALUE, trial_directory
from tuner.storage.manifest import read_manifest
from tuner.tuner import Tuner

from .backend import BackendConfig, BackendHooks, check_backend
from .config import DataConfig
from .errors import ControllerError, PreemptionError, PreemptionInfo, group_error
from .running import TrainerRun, running
from .training_reporter import TrainingReporter

_DCP_METADATA: Final = ".metadata"
"""A file in checkpoints of PyTorch's distributed checkpoint, which are divided anew on loading."""
LOOP_CONFIG: Final = "train_loop_config"
SCALING_CONFIG: Final = "scaling_config"
_TRIAL_ID: Final = "t00000"
"""The only trial of a training of its own."""
_UNKNOWN: Final = Failure("TrialFailed", "the run has failed before a worker was started")
_SEARCHED: Final = (LOOP_CONFIG, SCALING_CONFIG)
"""Keys of a search space of a trainer."""


class DataParallelTrainer:
    """Runs a training function in several processes at once, which train one model together.

    `fit` trains once; ``Tuner(trainer, param_space={"train_loop_config": {...}})`` searches, and
    each trial then trains in as many processes. `TorchTrainer` and `TensorflowTrainer` also connect
    the processes with each other.

    Args:
        train_loop_per_worker: The training function, called in each process, without arguments or
            with the configuration.
        train_loop_config: The configuration; None for an empty one.
        backend_config: How the processes are connected; None for not at all.
        scaling_config: How many processes, and what each of them occupies.
        run_config: Where the run is stored, and how it is run. A `Tuner` uses it where it has none
            of its own.
        datasets: Datasets by name, of which each process gets a part from `get_dataset_shard`.
        dataset_config: Which of them are split.
        resume_from_checkpoint: What `get_checkpoint` returns until the run has a checkpoint of its
            own.
        metadata: Must be None; `Checkpoint.set_metadata` stores metadata with a checkpoint.
        validation_config: How reported checkpoints are validated beside the training.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If one is not supported.
        FileNotFoundError: If there is no such checkpoint to begin with.

    Departures:
        Ray Train refuses `resume_from_checkpoint`, and a trainer as the trainable of a `Tuner`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: Mapping[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: Mapping[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        takes_config(train_loop_per_worker)  # raises if it takes anything else
        for name, value, kind in (
            ("train_loop_config", train_loop_config, Mapping),
            ("backend_config", backend_config, BackendConfig),
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("datasets", datasets, Mapping),
            ("dataset_config", dataset_config, DataConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
            ("validation_config", validation_config, ValidationConfig),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {value!r:.200}")
        if scaling_config is not None and scaling_config.searched:
            raise ValueError(
                "scaling_config of a trainer must hold values, got something to be searched for "
                f"{', '.join(map(repr, scaling_config.searched))}; pass it to a search, "
                f"Tuner(trainer, param_space={{{SCALING_CONFIG!r}: ScalingConfig(...)}})"
            )
        if backend_config is not None:
            check_backend(backend_config)
        begun = resume_from_checkpoint
        if begun is not None and begun.is_local and not Path(begun.path).is_dir():
            raise FileNotFoundError(
                f"resume_from_checkpoint must be an existing directory, got {begun.path!r}"
            )
        if metadata is not None:
            raise ValueError(
                f"metadata must be None, got {metadata!r:.200}; store it with "
                "Checkpoint.set_metadata"
            )
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = dict(train_loop_config or {})
        self.backend_config = backend_config or BackendConfig()
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.datasets = dict(datasets or {})
        self.dataset_config = dataset_config or DataConfig()
        self.resume_from_checkpoint = resume_from_checkpoint
        self.validation_config = validation_config
        split = self.dataset_config.datasets_to_split
        for name, given in (
            ("datasets_to_split", () if split == "all" else split),
            ("datasets_with_all_rows", self.dataset_config.datasets_with_all_rows),
        ):
            if unknown := sorted(set(given) - set(self.datasets)):
                raise ValueError(
                    f"{name} must be names of datasets, {sorted(self.datasets)}, got {unknown}"
                )

    def as_trainable(self) -> TrainLoop:
        """Return what each process of a trial runs; `Tuner` calls this."""
        return TrainLoop(self)

    def fit(self) -> Result:
        """Train, and return the result.

        The run is an experiment of one trial in ``<storage_path>/<name>``. If there is one of this
        name already, it is continued from its latest checkpoint, which is printed. That includes
        one that has completed: the training function is called again, and finds in `get_checkpoint`
        that nothing is left to do, or trains on, e.g. for more epochs. Without any checkpoint it
        begins anew, and its results replace the recorded ones.

        Inside a trial or a validation function, it lies beside the experiment of these, and waits
        until that experiment has the resources to spare. What the process that waits here occupies
        itself is given to one of the workers.

        Raises:
            LeaseRefused: If the experiment of the trial or validation can never spare so much.
            ResourceDeadlock: If all its trials and validations wait for each other's resources.
            WorkerGroupError: If a process raised an exception or died, and no retry was left.
            PreemptionError: If the run was interrupted, e.g. by Ctrl-C.
            ControllerError: If the run could not be supervised, e.g. since the storage failed.
            ValueError: If there are fewer resources than the processes need, the name is that of a
                search or of a run of another training function, or `train_loop_config` holds
                something to be searched.
        """
        tuner = self._tuner()
        try:
            grid = tuner.fit()
        except (OSError, StorageError) as cause:
            raise ControllerError(cause) from cause
        except TrialFailed:  # with fail_fast="raise"
            grid = tuner.get_results()
        trial, result = grid.trials[0], grid[0]
        if trial.status is Status.ERROR:
            withdraw_failure()  # the caller decides what follows from the exception
            raise group_error(trial.failures[-1] if trial.failures else _UNKNOWN)
        if trial.ending in (None, TerminationReason.INTERRUPTED):
            raise PreemptionError(PreemptionInfo(reason=trial.reason.rule if trial.reason else ""))
        return result

    def _tuner(self) -> Tuner:
        run_config = self.run_config
        if self.scaling_config.max_workers == 0 and run_config.executor == "process":
            run_config = dataclasses.replace(run_config, executor="inline")
        loop = self.as_trainable()
        if run_config.name is None or run_config.if_exists != "error":
            return Tuner(loop, run_config=_shown(run_config))
        location = named_location(run_config)
        if not location.has_experiment():
            return Tuner(loop, run_config=_shown(run_config))
        record = location.read_record()
        if record.settings.max_trials != 1 or record.parts["param_space"] != note({}):
            raise ValueError(
                f"name must not be that of a search, got {run_config.name!r}; give the trainer "
                "another name, or continue the search with Tuner.restore"
            )
        trained = record.trainable.get("name")
        if trained is not None and loop.__name__ != trained:
            raise ValueError(
                f"train_loop_per_worker must be {trained!r}, which the run in {location.address!r} "
                f"trains, got {loop.__name__!r}; give this run another RunConfig(name=...), with "
                "resume_from_checkpoint=... to begin with a checkpoint of that one, or remove that "
                "one with RunConfig(if_exists='replace')"
            )
        if run_config.verbose:
            sys.stdout.write(
                f"{printable(location.address)} exists and is continued from its latest "
                "checkpoint, also if it has completed; give another name to start anew\n"
            )
        # Also for a validation that is repeated after a crash and finds the run that it had begun:
        # replacing it could delete a run of the user's that happens to have this name, and one that
        # has reported no checkpoint begins anew anyway.
        return Tuner.restore(
            location.address,
            loop,
            storage_filesystem=location.filesystem,
            run_config=_shown(run_config, trial_directory(location.directory, _TRIAL_ID)),
            resume_config=ResumeConfig(finished="resume", errored="resume"),
        )


def _shown(run_config: RunConfig, continued: Path | None = None) -> RunConfig:
    """Return settings with which the console shows a single training, unless they say otherwise."""
    if run_config.progress_reporter is not None or run_config.verbose == 0:
        return run_config
    return dataclasses.replace(run_config, progress_reporter=TrainingReporter(continued))


class TrainLoop(GroupTrainable):
    """The training function of a trainer as a trainable: called in each process of a trial.

    Args:
        trainer: The trainer, whose values count where the trial's configuration has none.

    Attributes:
        func: The user's function.
        trainer: Module and name of the trainer's class.
        validation_config: How checkpoints are validated, None for not at all.
    """

    def __init__(self, trainer: DataParallelTrainer) -> None:
        self.func = trainer.train_loop_per_worker
        self.trainer = f"{type(trainer).__module__}.{type(trainer).__qualname__}"
        self.validation_config = trainer.validation_config
        self._loop_config = trainer.train_loop_config
        self._backend = trainer.backend_config
        self._scaling = trainer.scaling_config
        self._run_config = trainer.run_config
        self._run = TrainerRun(
            trainer.datasets, trainer.dataset_config, trainer.resume_from_checkpoint
        )
        # Where and how the user's function is defined decides how this is pickled and named.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(self.func, name):
                setattr(self, name, getattr(self.func, name))
        self.__name__ = trainable_name(self.func)

    def __getstate__(self) -> dict[str, Any]:
        # Callbacks and the like stay in the driver's process; they may not be picklable.
        settings = RunConfig(logging_config=self._run_config.logging_config)
        return {**self.__dict__, "_run_config": settings}

    def __call__(self, config: Mapping[str, Any]) -> None:
        """Train in this process, together with the others of the group."""
        loop_config = self.loop_config(config)
        context = get_context()
        returned_path = Path(context.get_trial_dir(), RETURN_VALUE)
        is_first = context.get_world_rank() == 0
        if is_first:
            returned_path.unlink(missing_ok=True)  # what an earlier attempt returned
            _warn_of_other_size(context.get_world_size())
        if self._run_config.logging_config:
            logging.getLogger("tuner").setLevel(self._run_config.logging_config.log_level)
        with running(self._run):
            hooks = BackendHooks(self._backend)
            hooks.call("on_start")
            self._backend.on_start()
            hooks.call("on_training_start")
            try:
                with self._backend.train_func_context():
                    returned = self.func(loop_config) if takes_config(self.func) else self.func()
            except StopTraining:
                self._end(hooks)
                raise
            # Not after other exceptions: the others may wait in a collective that never ends.
            self._end(hooks)
        if returned is not None and is_first:
            _write_return_value(returned, returned_path)

    def _end(self, hooks: BackendHooks) -> None:
        hooks.call("on_shutdown")
        self._backend.on_end()

    def loop_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of the training function in a trial with this configuration."""
        given = config.get(LOOP_CONFIG) or {}
        if not isinstance(given, Mapping):
            raise TypeError(f"{LOOP_CONFIG} must be a dictionary, got {given!r:.200}")
        return _merged(self._loop_config, given)

    def scaling(self, config: Mapping[str, Any]) -> ScalingConfig:
        """Return the scaling configuration of a trial with this configuration."""
        given = config.get(SCALING_CONFIG)
        if given is None:
            return self._scaling
        if isinstance(given, ScalingConfig):
            return given
        if isinstance(given, Mapping):
            return dataclasses.replace(self._scaling, **given)
        raise TypeError(
            f"{SCALING_CONFIG} must be a ScalingConfig or a dictionary of its arguments, got "
            f"{given!r:.200}"
        )

    def group_for(self, config: Mapping[str, Any]) -> WorkerGroup:
        """Return the workers over which a trial with this configuration trains.

        Raises:
            ValueError: If the configuration has a key that a trainer does not know, or asks for
                workers that are not possible.
        """
        _check_keys(config)
        return self.scaling(config).group()

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Check a search space, ``{}`` for no search.

        Raises:
            ValueError: If there is a key that a trainer does not know, or the trainer's own
                `train_loop_config` holds a domain or the like, which only a `Tuner` replaces by
                values, and the space has nothing in its place.
        """
        _check_keys(space)
        searched = space.get(LOOP_CONFIG)
        given = searched if isinstance(searched, Mapping) else {}
        replaced = {path for path, _ in leaves(given)}
        for path, leaf in leaves(_merged(self._loop_config, given)):
            if path in replaced or not is_word(leaf):
                continue
            place = "".join(f"{{{step!r}: " for step in path)
            raise ValueError(
                "train_loop_config of a trainer must hold values, got something to be searched for "
                f"{flat_name(path)!r}; pass it to a search, Tuner(trainer, "
                f"param_space={{{LOOP_CONFIG!r}: {place}...{'}' * len(path)}}})"
            )

    def check_run(self, run_config: RunConfig) -> None:
        """Check where an experiment with this function is stored.

        Raises:
            ValueError: If it would remove the checkpoint that it begins with.
        """
        begun = self._run.resume_from_checkpoint
        if begun is None or not run_config.name or run_config.if_exists != "replace":
            return
        if Path(begun.path).is_relative_to(named_location(run_config).address):
            raise ValueError(
                f"resume_from_checkpoint must not lie in the run that if_exists='replace' removes, "
                f"got {begun.path!r}; give another RunConfig(name=...), or leave out if_exists to "
                "continue that run"
            )

    @property
    def preloaded_modules(self) -> tuple[str, ...]:
        """Modules that are imported once, before the workers are forked."""
        return self._backend.preloaded_modules

    @property
    def validator(self) -> Callable[..., Mapping[str, Any]] | None:
        """The declared validation function with its default arguments, None for none."""
        return self.validation_config.validator if self.validation_config else None

    def validation_sources(self, config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return the objects that the training function sees, which validations may be given."""
        return {LOOP_CONFIG: self.loop_config(config), "datasets": self._run.datasets}

    def run_context_for(self, config: Mapping[str, Any]) -> TrainRunContext:
        """Return what a `UserCallback` is told about a trial with this configuration."""
        return TrainRunContext(
            self._run_config,
            self.loop_config(config),
            self.scaling(config),
            self._backend,
            self._run.data_config,
        )


def takes_config(function: Callable[..., Any]) -> bool:
    """Return whether a training function takes its configuration as an argument.

    Raises:
        TypeError: If it is no function, is asynchronous, or needs other arguments.

    Example:
        >>> takes_config(lambda config: None), takes_config(lambda: None)
        (True, False)
    """
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"train_loop_per_worker must be a function of the configuration, got {function!r:.200}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            "train_loop_per_worker must be a plain function, got a generator function; call report "
            "instead of yield"
        )
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            "train_loop_per_worker must be a plain function, got an asynchronous one; run it with "
            "asyncio.run inside a function"
        )
    parameters = inspect.signature(function).parameters.values()
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in needed):
        names = ", ".join(parameter.name for parameter in needed)
        raise TypeError(
            "train_loop_per_worker must take no argument, or the configuration alone, got one that "
            f"needs {names}; bind the others with functools.partial, or pass them in "
            "train_loop_config"
        )
    return bool(needed) or any(
        parameter.name == "config" or parameter.default is parameter.empty
        for parameter in positional
    )


def _check_keys(space: Mapping[str, Any]) -> None:
    if unknown := [key for key in space if key not in _SEARCHED]:
        raise ValueError(
            f"the search space of a trainer must have the keys {' and '.join(_SEARCHED)} only, "
            f"got {', '.join(map(repr, unknown))}; write "
            f"param_space={{{LOOP_CONFIG!r}: {{{unknown[0]!r}: ...}}}}"
        )


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return one dictionary with the values of another over its own, also in inner ones."""
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = (
            _merged(mine, value)
            if isinstance(mine, Mapping) and isinstance(value, Mapping)
            else value
        )
    return merged


def _warn_of_other_size(world_size: int) -> None:
    """Warn if a group of another size has written the checkpoint to continue from."""
    attempt = current_attempt()
    checkpoint = attempt and attempt.latest_checkpoint_dir
    if not checkpoint:
        return
    try:
        manifest = read_manifest(checkpoint)
    except CheckpointError:
        return  # the user's code will find out what is wrong with it
    is_dcp = any(PurePath(name).name == _DCP_METADATA for name in manifest.files)
    if manifest.world_size != world_size and not is_dcp:
        warnings.warn(
            f"training continues from {checkpoint}, which a group of {manifest.world_size} "
            f"has written, with num_workers={world_size}; what depends on the number of workers, "
            "such as parts of the model or of the data, has to be divided anew by the training "
            "function",
            stacklevel=2,
        )


def _write_return_value(value: Any, path: Path) -> None:
    try:
        text = json.dumps(value, default=_as_json)
    except (TypeError, ValueError, OverflowError) as refusal:
        warnings.warn(
            f"what the training function returned cannot be stored ({refusal}), and "
            "Result.return_value will be None; return JSON values, or report large ones as files "
            "of a checkpoint",
            stacklevel=2,
        )
        return
    write_text(path, text)


def _as_json(value: Any) -> Any:
    for convert in ("item", "tolist"):  # numbers and arrays of NumPy and torch
        method = getattr(value, convert, None)
        if callable(method) and (convert == "tolist" or getattr(value, "size", None) == 1):
            return method()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")
