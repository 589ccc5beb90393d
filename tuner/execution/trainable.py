"""Trainables: functions of a configuration and subclasses of `Trainable`.

Also what can be attached to either kind (`with_parameters`, `with_resources`), how functions are
called, and the registry of trainables by name.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import dis
import functools
import inspect
import os
import pickle
import tempfile
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tuner.core.result import TIME_TOTAL_S
from tuner.errors import CheckpointError
from tuner.storage.checkpoints import Checkpoint, Provenance, read_manifest
from tuner.storage.directories import contents_of, make_folder
from tuner.storage.manifest import write_manifest

from .assignment import Assignment
from .group_trainable import GroupTrainable, TrainableSource, what_runs
from .metric_conversion import Converter, note_replaced_iteration
from .resources import PlacementGroupFactory, ResourceRequest, checked_labels, total_amounts
from .result_fields import AutoFill, counters_of, here

DICT_CHECKPOINT = "_dict_checkpoint.pkl"
"""File for the dictionary that `Trainable.save_checkpoint` returned."""
CHECKPOINT_DIR = "checkpoint_dir"
"""Argument of functions written for Ray Tune 1: where the checkpoint is to continue from."""
_RENAMED = {
    "_train": "step",
    "_setup": "setup",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_stop": "cleanup",
}
"""Methods of Ray Tune's first classes, and their names since."""
_STANDALONE = "default"
# inspect finds the source of a class by __firstlineno__, which exists from Python 3.13 on.
_ABOUT_A_CLASS = ("__module__", "__qualname__", "__doc__", "__firstlineno__")


class Trainable(ABC):
    """Base of class trainables: training in steps, with state that can be saved and restored.

    Override `setup` and `step`; for checkpoints also `save_checkpoint` and `load_checkpoint`. The
    engine calls `setup` once, then `step` once for each iteration, and `cleanup` at the end. Do not
    override ``__init__``.

    A trainable can be debugged without an experiment: construct it with a configuration and call
    `train`, `save`, `restore`, `stop`.

    Args:
        config: The hyperparameters; a copy is kept.
        assignment: The engine's assignment for this attempt, None without an experiment.

    Example:
        >>> class Countdown(Trainable):
        ...     def setup(self, config):
        ...         self.left = config["start"]
        ...
        ...     def step(self):
        ...         self.left -= 1
        ...         return {"left": self.left, "done": self.left == 0}
        >>> countdown = Countdown({"start": 3})
        >>> countdown.train()["left"], countdown.train()["left"], countdown.iteration
        (2, 1, 2)

    Departures:
        ``train_buffered``, ``export_model`` and ``resource_help`` do not exist. The working
        directory is never changed: write to `logdir`. Without an experiment, `logdir` is a new
        temporary directory, and the trial's name and id are ``"default"``.
    """

    requested_resources: ClassVar[Any] = None
    """Set by `with_resources`."""
    requested_labels: ClassVar[Any] = None
    """Set by it as well."""
    given_parameters: ClassVar[Mapping[str, Any]] = {}
    """Set by `with_parameters`."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, assignment: Assignment | None = None
    ) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._assignment = assignment
        self._logdir: str | None = None
        self._converter = Converter()
        self._autofill = AutoFill(self.trial_id, here())
        self._last_result: dict[str, Any] = {}
        self._num_saved = 0
        self._assigned_iteration: tuple[Any, int] = (0, 0)
        if assignment is not None:
            self._autofill.restore(
                assignment.iteration, assignment.time_total_s, assignment.counters
            )
        # A copy, so that `setup` cannot change what the trial was given.
        self.setup(copy.deepcopy(self.config), **self.given_parameters)
        if self.iteration:
            # A value that setup has assigned does not hold if a checkpoint is loaded next.
            self._assigned_iteration = (0, 0)

    # For users to override.

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:  # noqa: B027  (a hook)
        """Build the model, the data and all else that training needs.

        Args:
            config: The hyperparameters; a deep copy.
            **parameters: The objects that `with_parameters` has added.
        """

    @abstractmethod
    def step(self) -> dict[str, Any]:
        """Train for one iteration.

        Returns:
            The metrics, possibly none. ``done: True`` ends the trial, ``should_checkpoint: True``
            saves it at this iteration.
        """

    def save_checkpoint(
        self, checkpoint_dir: str
    ) -> dict[str, Any] | str | os.PathLike[str] | None:
        """Write the state of the training.

        Args:
            checkpoint_dir: An empty directory.

        Returns:
            None or `checkpoint_dir`; or a dictionary, which the engine pickles.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be saved; implement save_checkpoint and load_checkpoint"
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state of the training.

        Args:
            checkpoint: The dictionary that `save_checkpoint` returned, or else a directory with the
                files it wrote, whose path may be different.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be restored; "
            "implement save_checkpoint and load_checkpoint"
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Continue with another configuration in the same process.

        Returns:
            Whether that has worked; False, the default, makes the engine start a new process.
        """
        return False

    def cleanup(self) -> None:  # noqa: B027  (a hook)
        """Release resources; called when the trial has ended or is stopped, but not on a crash."""

    def log_result(self, result: dict[str, Any]) -> None:  # noqa: B027  (a hook)
        """Receive each complete result in the trial's process; changes to it have no effect."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:  # noqa: ARG003  (a hook)
        """Return what a trial occupies, None for 1 CPU; `with_resources` overrides it."""
        return None

    # Information for users.

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self._assignment.trial_id if self._assignment else _STANDALONE

    @property
    def trial_name(self) -> str:
        """Name of the trainable and id of the trial."""
        return f"{trainable_name(type(self))}_{self.trial_id}" if self._assignment else _STANDALONE

    @property
    def trial_resources(self) -> PlacementGroupFactory:
        """Resources of the trial in one bundle; as a mapping, the amounts by name."""
        return PlacementGroupFactory([self._assignment.resources if self._assignment else {}])

    @property
    def logdir(self) -> str:
        """The trial's directory, absolute; files written there stay with the experiment."""
        if self._assignment:
            return os.fspath(self._assignment.trial_dir)
        if self._logdir is None:
            self._logdir = tempfile.mkdtemp(prefix=f"{trainable_name(type(self))}_")
        return self._logdir

    @property
    def iteration(self) -> int:
        """Number of iterations that the trial has trained, earlier attempts included."""
        return self._autofill.iteration

    @property
    def _iteration(self) -> Any:
        """`iteration`, for code written for Ray Tune; it may be set, and counts on from there."""
        value, at = self._assigned_iteration
        return value + (self.iteration - at) if isinstance(value, int | float) else value

    @_iteration.setter
    def _iteration(self, value: Any) -> None:
        self._assigned_iteration = value, self.iteration

    @property
    def training_iteration(self) -> int:
        """The same as `iteration`."""
        return self.iteration

    def get_config(self) -> dict[str, Any]:
        """Return the hyperparameters."""
        return self.config

    # Called by the engine, or by users who run a trainable without one.

    def train(self) -> dict[str, Any]:
        """Run one step and return its result, converted and with the auto-filled keys.

        Raises:
            TypeError: If `step` returns no dictionary.
            ValueError: If it returns a value that cannot be reported, see `metric_conversion`.
        """
        self._autofill.resume()
        metrics = self.step()
        elapsed_s = self._autofill.elapsed_s()
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"step must return a dictionary of metrics, got {type(metrics).__name__}; "
                "return {} if there are none"
            )
        converted = self._converter.convert(metrics)
        self._last_result = self._autofill.fill(converted, elapsed_s)
        note_replaced_iteration(self._converter, converted, self._last_result)
        self._autofill.count(self._last_result)
        self.log_result(dict(self._last_result))
        return self._last_result

    def take_replaced(self) -> list[str]:
        """Return names that `step` has reported and the engine has filled in, each once."""
        return self._converter.take_replaced()

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Save the training without an experiment.

        Args:
            checkpoint_dir: A directory, created if missing; None for a new one in `logdir`.
        """
        directory = Path(checkpoint_dir or Path(self.logdir, f"checkpoint_{self._num_saved:06d}"))
        make_folder(directory)
        write_checkpoint(self, directory)
        provenance = Provenance(
            self.trial_id, 0, self._num_saved, self.iteration, self._last_result
        )
        write_manifest(directory, contents_of(directory), provenance, sync=False)
        self._num_saved += 1
        return Checkpoint.from_directory(directory)

    def restore(self, checkpoint: str | os.PathLike[str] | Checkpoint) -> None:
        """Continue from a checkpoint of this class, from an experiment or written by `save`.

        Args:
            checkpoint: The checkpoint, or its directory.
        """
        source = (
            checkpoint
            if isinstance(checkpoint, Checkpoint)
            else Checkpoint.from_directory(checkpoint)
        )
        with source.as_directory() as directory:
            read_checkpoint(self, directory)
            # The user's own files have no manifest, so their iteration is unknown.
            with contextlib.suppress(CheckpointError):
                manifest = read_manifest(directory)
                counted = manifest.metrics
                self._count_from(
                    manifest.iteration, float(counted.get(TIME_TOTAL_S, 0.0)), counters_of(counted)
                )

    def reset(self, new_config: Mapping[str, Any]) -> bool:
        """Start over with another configuration if `reset_config` can; counts begin at 0 again."""
        if not self.reset_config(copy.deepcopy(dict(new_config))):
            return False
        self.config = dict(new_config)
        self._count_from(0, 0.0, {})
        return True

    def adopt(self, assignment: Assignment, config: Mapping[str, Any]) -> bool:
        """Prepare for the trial's next attempt in this process; return whether that has worked."""
        self._assignment = assignment
        if not self.reset(config):
            return False
        self._count_from(assignment.iteration, assignment.time_total_s, assignment.counters)
        return True

    def _count_from(self, iteration: int, time_total_s: float, counters: Mapping[str, int]) -> None:
        self._autofill.restore(iteration, time_total_s, counters)
        self._assigned_iteration = (0, 0)

    def stop(self) -> None:
        """End the training by calling `cleanup`."""
        self.cleanup()


def write_checkpoint(trainable: Trainable, directory: Path) -> None:
    """Let a trainable save itself into an empty directory.

    Raises:
        ValueError: If `save_checkpoint` returns anything but None, the directory or a dictionary.
    """
    returned = trainable.save_checkpoint(str(directory))
    match returned:
        case None:
            return
        case dict():
            (directory / DICT_CHECKPOINT).write_bytes(pickle.dumps(returned))
        case str() | os.PathLike() if os.path.realpath(returned) == os.path.realpath(directory):
            return
        case _:
            raise ValueError(
                f"save_checkpoint must return None, a dictionary or the directory it was given "
                f"({str(directory)!r}), got {returned!r}; "
                "write the files into that directory"
            )


def read_checkpoint(trainable: Trainable, directory: str | os.PathLike[str]) -> None:
    """Let a trainable load itself from a directory that `write_checkpoint` has filled."""
    pickled = Path(directory, DICT_CHECKPOINT)
    if pickled.exists():
        state = pickle.loads(pickled.read_bytes())  # noqa: S301  (written by the same trial)
        trainable.load_checkpoint(state)
    else:
        trainable.load_checkpoint(os.fspath(directory))


def is_class_trainable(trainable: Any) -> bool:
    """Return whether this is a subclass of `Trainable`, and not a function."""
    return isinstance(trainable, type) and issubclass(trainable, Trainable)


def can_be_saved(trainable: Any) -> bool:
    """Return whether this is a class trainable that can save itself when it is asked to."""
    return (
        is_class_trainable(trainable) and trainable.save_checkpoint is not Trainable.save_checkpoint
    )


def why_unsavable(trainable: Any) -> str:
    """Return why a trainable cannot be asked for a checkpoint, and what to do; empty if it can."""
    name = trainable_name(trainable)
    if not is_class_trainable(trainable):
        return (
            f"{name} is a function, and functions report their checkpoints themselves; "
            "call tune.report(metrics, checkpoint=...) in it"
        )
    return (
        ""
        if can_be_saved(trainable)
        else f"{name} has no save_checkpoint; implement save_checkpoint and load_checkpoint"
    )


def trainable_name(trainable: Any) -> str:
    """Return the name under which a trainable appears in tables and in the names of experiments.

    Example:
        >>> trainable_name(lambda config: None)
        'lambda'
    """
    function = trainable
    while not hasattr(function, "__name__") and hasattr(function, "func"):  # functools.partial
        function = function.func
    name = str(getattr(function, "__name__", type(function).__name__))
    return "lambda" if name == "<lambda>" else name


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """Return the trainable with objects that every trial gets in addition to its configuration.

    The objects are loaded once and shared by all trials of this machine, which should not change
    them. The original trainable is not changed.

    Args:
        trainable: A function ``train(config, data=…)``, or a subclass of `Trainable` with
            ``setup(self, config, data=…)``.
        **parameters: The objects by the names of these arguments.

    Raises:
        TypeError: If the function or `setup` does not take such an argument.

    Example:
        >>> train = with_parameters(lambda config, data: config["k"] * sum(data), data=[1, 2, 3])
        >>> train({"k": 10})
        60
    """
    if is_class_trainable(trainable):
        check_trainable(trainable)
        check_call(trainable.setup, trainable_name(trainable) + ".setup", (None, None), parameters)
        return derive(trainable, given_parameters={**trainable.given_parameters, **parameters})
    _refuse_group(trainable, "with_parameters")
    if isinstance(trainable, type) or not callable(trainable):
        check_trainable(trainable)
    if "config" in parameters:
        raise TypeError(
            "config cannot be given with with_parameters: each trial gets its own; "
            "choose another name"
        )
    check_call(trainable, trainable_name(trainable), *with_config(trainable, None, parameters))
    return bind(trainable, parameters)


def derive(trainable: Any, **attributes: Any) -> Any:
    """Return a trainable that behaves and is named like this one but has these attributes."""
    _refuse_group(trainable, "with_resources")
    if is_class_trainable(trainable):
        names = {
            name: getattr(trainable, name) for name in _ABOUT_A_CLASS if hasattr(trainable, name)
        }
        return types.new_class(
            trainable.__name__, (trainable,), exec_body=lambda body: body.update(names | attributes)
        )
    bound = bind(trainable, {})
    vars(bound).update(attributes)
    return bound


def check_trainable(trainable: Any) -> None:
    """Check that this can be trained.

    Accepted are functions of one configuration, and subclasses of `Trainable` that define `step`.

    Raises:
        TypeError: If it cannot.
    """
    name = trainable_name(trainable)
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise TypeError(
                f"a class trainable must derive from Trainable, got {name}; "
                "derive it, or pass a function of the configuration"
            )
        if inspect.isabstract(trainable):
            older = [f"{old} to {new}" for old, new in _RENAMED.items() if hasattr(trainable, old)]
            hint = f"rename {', '.join(older)}" if older else "it is called once for each iteration"
            raise TypeError(f"{name} must implement step, which is abstract; {hint}")
    elif not callable(trainable):
        raise TypeError(
            f"trainable must be a function of the configuration or a subclass of Trainable, "
            f"got {trainable!r:.80}"
        )
    else:
        check_function(trainable, name)


def _refuse_group(trainable: Any, asked: str) -> None:
    is_group = isinstance(trainable, GroupTrainable | TrainableSource)
    if is_group and not isinstance(trainable, type):
        raise TypeError(
            f"{asked} needs a function or a subclass of Trainable, got the trainer "
            f"{trainable_name(trainable)!r}; give the trainer its arguments and resources"
        )


def call_function(
    function: Callable[..., Any],
    config: dict[str, Any],
    ask_for_checkpoint: Callable[[], str | None] = lambda: None,
) -> Any:
    """Call a function trainable with the configuration as ``config``, or as first argument.

    One with an argument ``checkpoint_dir``, as Ray Tune 1 had it, gets the directory of the
    checkpoint to continue from, None at the first start.
    """
    arguments, named = with_config(function, config, {})
    # Ray Tune 1 asked for this argument where checkpoints were written, so some do not use it.
    if CHECKPOINT_DIR in named and _uses_argument(function, CHECKPOINT_DIR):
        named[CHECKPOINT_DIR] = ask_for_checkpoint()
    return function(*arguments, **named)


def bind(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with these arguments bound, and with its name and attributes."""
    bound = functools.partial(function, **parameters)

    @functools.wraps(function)
    def train(*arguments: Any, **named: Any) -> Any:
        return bound(*arguments, **named)

    # Or inspect would report the signature of the original, without the arguments bound here.
    del train.__wrapped__
    vars(train)["func"] = function
    if signature := _signature(bound):
        vars(train)["__signature__"] = signature
    return train


def with_config(
    function: Callable[..., Any], config: Any, parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments to call `function` with."""
    if _takes_checkpoint_dir(function):
        parameters = {CHECKPOINT_DIR: None, **parameters}
    return (
        ((), {"config": config, **parameters})
        if _takes_config_by_name(function)
        else ((config,), dict(parameters))
    )


def check_function(function: Callable[..., Any], name: str) -> None:
    """Check that a function can be called with the configuration alone.

    Raises:
        TypeError: If it cannot, if which argument that is is ambiguous, or if it is asynchronous.
    """
    called = getattr(function, "__call__", function)  # noqa: B004  (callables only)
    if any(
        inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)
        for code in (function, called)
    ):
        raise TypeError(
            f"{name} is asynchronous, and training blocks; "
            "pass a plain function that runs it with asyncio.run"
        )
    if any(one.name == "reporter" and one.default is one.empty for one in _arguments(function)):
        raise TypeError(
            f"{name} must take the configuration alone, got {_shown(function)}; "
            "leave reporter out, and call tune.report(metrics) in place of it"
        )
    if not (_takes_config_by_name(function) or _takes_config_first(function)):
        raise TypeError(
            f"{name} must take the configuration as an argument config or as the only one without "
            f"a default, got {_shown(function)}; "
            "read hyperparameters from config, and pass other objects with with_parameters"
        )
    check_call(function, name, *with_config(function, None, {}))


def check_call(
    function: Callable[..., Any], name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Check that a function takes these arguments.

    Raises:
        TypeError: If it does not; says which are missing or too many.
    """
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(*arguments, **named)
    except TypeError as cause:
        asked = ", ".join(("config", *(given for given in named if given != "config")))
        raise TypeError(
            f"{name}{_shown(function)} cannot be called with ({asked}): {cause}; "
            "see with_parameters for further arguments"
        ) from cause


def _shown(function: Callable[..., Any]) -> str:
    """Return the arguments without their defaults, which may be huge."""
    signature = _signature(function)
    return f"({', '.join(signature.parameters)})" if signature else "(...)"


def _takes_config_by_name(function: Callable[..., Any]) -> bool:
    # Then it may stand anywhere, e.g. behind arguments that functools.partial has bound.
    signature = _signature(function)
    config = signature.parameters.get("config") if signature else None
    return config is not None and config.kind in (config.POSITIONAL_OR_KEYWORD, config.KEYWORD_ONLY)


def _uses_argument(function: Callable[..., Any], name: str) -> bool:
    """Return whether the code of a function mentions an argument; True where that is not known."""
    while inner := getattr(function, "func", None) or getattr(function, "__wrapped__", None):
        function = inner
    code = getattr(function, "__code__", None)
    if code is None or name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return True
    # One instruction may name two variables from Python 3.13 on.
    named = (instruction.argval for instruction in dis.get_instructions(code))
    return any(name in one if isinstance(one, tuple) else one == name for one in named)


def _takes_config_first(function: Callable[..., Any]) -> bool:
    """Return whether the configuration can only be the first argument, whatever its name."""
    positional = [
        argument
        for argument in _arguments(function)
        if argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
    ]
    needed = [one for one in positional if one.default is one.empty and one.name != CHECKPOINT_DIR]
    return len(positional) < 2 or needed == positional[:1]  # noqa: PLR2004  (it and others)


def _takes_checkpoint_dir(function: Callable[..., Any]) -> bool:
    """Return whether there is an argument ``checkpoint_dir`` to which nothing else is bound."""
    return any(
        argument.name == CHECKPOINT_DIR
        and argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY)
        and (argument.default is None or argument.default is argument.empty)
        for argument in _arguments(function)
    )


def _arguments(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    signature = _signature(function)
    return signature.parameters.values() if signature else ()


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, None for builtins that do not tell theirs."""
    with contextlib.suppress(TypeError):
        return _signature_of_hashable(function)
    return _signature_of_hashable.__wrapped__(function)


@functools.lru_cache(maxsize=16)
def _signature_of_hashable(function: Callable[..., Any]) -> inspect.Signature | None:
    # Cached before the fork: in each worker it would take a tenth of the time of an empty trial.
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def forget_signatures() -> None:
    """Let functions be freed whose signatures are cached."""
    _signature_of_hashable.cache_clear()


DEFAULT_REQUEST = {"cpu": 1.0}


def with_resources(
    trainable: Any,
    resources: ResourceRequest | Callable[[dict[str, Any]], ResourceRequest],
    labels: Mapping[str, str] | Callable[[dict[str, Any]], Mapping[str, str]] | None = None,
) -> Any:
    """Return the trainable with a request for resources, which replaces an earlier one.

    The original trainable is not changed.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        resources: What each trial occupies, e.g. ``{"cpu": 2, "gpu": 0.5}``, or a function of the
            configuration that returns it. Trials may share a GPU by fractions. A trial occupies
            nothing of resources that are not named.
        labels: What the node must have on which a trial runs, e.g. ``{"accelerator": "A100"}``, or
            a function of the configuration that returns it; only with ``RunConfig(cluster=...)``.
            Besides a value, ``"in(A100,H100)"`` asks for one of several, and ``"!A100"`` and
            ``"!in(A100,H100)"`` for any other one, or none. None, the default, for any node.

    Raises:
        TypeError: If `trainable`, `resources` or `labels` has another type.
        ValueError: If an amount is negative or no number.

    Example:
        >>> train = with_resources(lambda config: None, {"cpu": 2, "gpu": 0.5})
        >>> resources_for(train, {})
        {'cpu': 2.0, 'gpu': 0.5}

    Departures:
        `labels` is no argument of Ray Tune's.
    """
    _refuse_group(trainable, "with_resources")
    check_trainable(trainable)
    if not callable(resources):
        total_amounts(resources)
    if labels is not None and not callable(labels):
        labels = checked_labels(labels)
    return derive(trainable, requested_resources=resources, requested_labels=labels)


def resources_for(trainable: Any, config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a trial with this configuration occupies: 1 CPU without a request.

    Raises:
        TypeError: If the request is neither a dictionary nor a `PlacementGroupFactory`.
        ValueError: If an amount is negative or no number.
    """
    request = getattr(trainable, "requested_resources", None)
    if request is None and is_class_trainable(trainable):
        request = trainable.default_resource_request(dict(config))
    elif callable(request):
        request = request(dict(config))
    return dict(DEFAULT_REQUEST) if request is None else total_amounts(request)


def labels_for(trainable: Any, config: Mapping[str, Any]) -> dict[str, str]:
    """Return what the node must have of a trial with this configuration; empty for any node.

    Raises:
        TypeError: If the request is no dictionary of strings.
    """
    labels = getattr(trainable, "requested_labels", None)
    return checked_labels(labels(dict(config)) if callable(labels) else labels or {})


def asks_for_labels(trainable: Any) -> bool:
    """Return whether trials ask for labels of their nodes, or may do so."""
    return bool(getattr(trainable, "requested_labels", None))


def requests_vary(trainable: Any) -> bool:
    """Return whether trials may ask for different resources, by their configurations."""
    if is_class_trainable(trainable) and getattr(trainable, "requested_resources", None) is None:
        declared = trainable.default_resource_request.__func__
        return declared is not Trainable.default_resource_request.__func__  # type: ignore[attr-defined]
    return isinstance(trainable, GroupTrainable) or any(
        callable(getattr(trainable, name, None))
        for name in ("requested_resources", "requested_labels")
    )


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any) -> None:
    """Register a trainable under a name, which `Tuner` accepts instead of it.

    Args:
        name: The name; an earlier trainable of this name is replaced.
        trainable: A function of the configuration, a subclass of `Trainable`, or a trainer.

    Raises:
        TypeError: If `name` is no string, or `trainable` cannot be trained.

    Example:
        >>> register_trainable("quadratic", lambda config: {"loss": config["x"] ** 2})
        >>> get_trainable("quadratic")({"x": 3})
        {'loss': 9}
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    check_trainable(what_runs(trainable))
    _registered[name] = trainable


def get_trainable(name: str) -> Any:
    """Return the trainable registered under the name.

    Raises:
        ValueError: If there is none; the message names the closest ones.
    """
    if name in _registered:
        return _registered[name]
    close = difflib.get_close_matches(str(name), _registered)
    known = (
        f"did you mean {' or '.join(map(repr, close))}"
        if close
        else f"registered are {sorted(_registered) or 'none'}"
    )
    raise ValueError(
        f"no trainable is registered as {name!r}; {known}; "
        f"call register_trainable({name!r}, trainable) first"
    )
