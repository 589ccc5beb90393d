"""Validation of checkpoints: packed where they are reported, run in a process of its own.

A report names a function and its arguments. The worker writes both down twice. The request that
goes into the journal has the function as ``module:qualname`` and the arguments as JSON values. What
is no JSON value is described there by one of these::

    {"$config": ["train_loop_config", "dataset"]}   an object of the configuration, by its place
    {"$secret": "API_KEY"}                          the value of an environment variable
    {"$tuple": [...]}                               a tuple
    {"$object": "<Model>"}                          anything else, which only the payload holds

The payload is a file with the pickled function and arguments. Its name holds its SHA-256. Only the
session whose worker has reported it uses it, and of that only the process that validates: a pickle
that was found on disk could come from elsewhere, and would run any code. After a restart of the
driver, the function is the declared one, or is imported, and the arguments are read from the
request.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import numbers
import os
import pickle
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, final

import cloudpickle

from tuner.core.commands import StartValidation
from tuner.core.result import AUTO_FILLED
from tuner.core.trial import ValidationRequest
from tuner.storage import layout, strict_json
from tuner.storage.atomic import write_bytes
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.strict_json import describe

from .failures import as_message
from .failures import describe as describe_failure
from .group_trainable import GroupTrainable
from .metric_conversion import Converter
from .pickling import can_be_pickled, explanation, pickling_by_value
from .report_options import ValidationTask
from .secrets import named_secret, redact, resolve_secrets

LARGE_BYTES: Final = 10 * 2**20
"""Size of a payload above which a warning is logged."""
_MAX_ARGUMENT_BYTES: Final = 1 << 14

_PAYLOAD: Final = re.compile(rf"{re.escape(layout.VALIDATION_PREFIX)}\d+-([0-9a-f]{{64}})\.pkl")
_CONFIG, _SECRET, _TUPLE, _OBJECT = "$config", "$secret", "$tuple", "$object"
_SHARED: Final = "datasets"
"""The part of a trainer's declaration whose objects a payload names instead of holding them."""
_MAIN: Final = "__main__"

Validator = Callable[..., Mapping[str, Any]]
Place = tuple[str | int, ...]


class ValidationError(RuntimeError):
    """A validation cannot be run; the message says why and what to do."""


@final
@dataclass(frozen=True, slots=True)
class DeclaredValidator:
    """The validation function that was declared with the experiment.

    Attributes:
        function: The function, None for none.
        error: What kept it from being loaded; None for nothing.
    """

    function: Validator | None = None
    error: BaseException | None = None

    @property
    def exists(self) -> bool:
        """Whether one was declared."""
        return self.function is not None or self.error is not None


NOT_DECLARED: Final = DeclaredValidator()


@dataclass(frozen=True, slots=True)
class ValidationAssignment:
    """What a process has to know to validate one checkpoint.

    Attributes:
        trial_id: Whose checkpoint.
        index: Index of the checkpoint.
        num_try: Which try, from 1.
        trial_dir: The trial's directory, absolute.
        checkpoint_dir: The checkpoint's directory.
        request: What was asked for.
        config: The trial's configuration, for references to its objects.
        resources: What the process may use.
        gpu_ids: Devices assigned to it.
        seed: Seed of the trial's random numbers.
        has_payload: Whether the request's payload was written in this session.
    """

    trial_id: str
    index: int
    num_try: int
    trial_dir: str
    checkpoint_dir: str
    request: ValidationRequest
    config: Mapping[str, Any]
    resources: Mapping[str, float]
    gpu_ids: tuple[int, ...] = ()
    seed: int = 0
    has_payload: bool = field(default=False, kw_only=True)

    @classmethod
    def of(
        cls, command: StartValidation, trial_dir: str, config: Mapping[str, Any], seed: int
    ) -> ValidationAssignment:
        """Return the assignment for a command."""
        return cls(
            command.trial_id,
            command.checkpoint.index,
            command.num_try,
            trial_dir,
            os.path.join(trial_dir, command.checkpoint.directory),  # noqa: PTH118  (a text)
            command.request,
            config,
            command.resources,
            command.gpu_ids,
            seed,
        )

    @property
    def log(self) -> str:
        """Name of the file in the trial's directory with the process's output."""
        return layout.validation_log(self.index)


def own_validator(trainable: Any) -> Validator | None:
    """Return the validation function that a trainable brings itself, None for none."""
    return trainable.validator if isinstance(trainable, GroupTrainable) else None


def no_validation(command: StartValidation) -> ValidationAssignment:
    """Refuse to validate, in an executor that was given no other way to assign validations.

    Raises:
        ValidationError: Always.
    """
    raise ValidationError(f"this executor validates no checkpoint, got {command}")


def sources_of(trainable: Any, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the objects that training code has been given, by where they were declared.

    Args:
        trainable: The trainable; a trainer's names them itself.
        config: The configuration, with its secrets resolved.
    """
    named = getattr(trainable, "validation_sources", None)
    return named(config) if callable(named) else {"config": config}


# Packing.


@final
@dataclass(frozen=True, slots=True)
class ValidationContext:
    """What an attempt has to know to ask for validations.

    Attributes:
        trainable: The trainable.
        declared: The function declared with the experiment.
    """

    trainable: Any = None
    declared: DeclaredValidator = NOT_DECLARED

    def check(self, task: ValidationTask, *, has_checkpoint: bool) -> None:
        """Check what a report asks for, before anything is stored; see `check_task`."""
        check_task(task, self.declared, has_checkpoint=has_checkpoint)

    def pack(
        self,
        task: ValidationTask,
        trial_dir: str | os.PathLike[str],
        index: int,
        config: Mapping[str, Any],
    ) -> ValidationRequest:
        """Return the request for a validation; see `pack_validation`."""
        sources = sources_of(self.trainable, resolve_secrets(config))
        return pack_validation(task, trial_dir, index, self.declared, sources)


NO_VALIDATION: Final = ValidationContext()


def pack_validation(
    task: ValidationTask,
    trial_dir: str | os.PathLike[str],
    index: int,
    declared: DeclaredValidator,
    sources: Mapping[str, Any],
) -> ValidationRequest:
    """Return the request for a validation; writes its payload where it needs one.

    Args:
        task: What training code asks for.
        trial_dir: The trial's directory, for the payload.
        index: Index of the reported checkpoint.
        declared: The function declared with the experiment.
        sources: See `sources_of`.

    Raises:
        ValueError: If there is no function, or something cannot be pickled.
        TypeError: See `check_task`.
        OSError: If the payload cannot be written.
    """
    check_task(task, declared)
    function = None if task.function is declared.function else task.function
    kwargs = dict(task.kwargs or {})
    packing = _Packing(sources)
    described = packing.described(kwargs)
    payload = ""
    if function is not None or packing.is_lossy:
        data = packing.pickled(function, kwargs)
        digest = hashlib.sha256(data).hexdigest()
        payload = f"{layout.VALIDATION_PREFIX}{index}-{digest}.pkl"
        # It need not survive a power cut: the next session does not use it.
        write_bytes(Path(trial_dir, payload), data, sync=False)
    return ValidationRequest(
        function=name_of(function) if function is not None else "",
        kwargs=described,
        timeout_s=task.timeout_s,
        payload=payload,
        takes_config=task.takes_config,
    )


def check_task(
    task: ValidationTask, declared: DeclaredValidator, *, has_checkpoint: bool = True
) -> None:
    """Check a validation that a report asks for, before anything is stored.

    Raises:
        ValueError: If there is no checkpoint to validate, or no function to do it.
        TypeError: If the function cannot be called, or its arguments are no dictionary.
    """
    if not has_checkpoint:
        raise ValueError(
            "validation needs a checkpoint, got None; report one with report(metrics, "
            "checkpoint=...), or leave the validation out"
        )
    if task.function is None and not declared.exists:
        raise ValueError(
            "validation needs a function, and none was declared; declare it with "
            "validation_config=ValidationConfig(fn=...), or pass validate_fn= to report"
        )
    if task.function is not None and not callable(task.function):
        raise TypeError(f"the validation function must be callable, got {task.function!r}")
    if task.kwargs is not None and not isinstance(task.kwargs, Mapping):
        raise TypeError(
            f"the arguments of a validation must be a dictionary, got {task.kwargs!r}; "
            "give them by name"
        )


def name_of(function: Any) -> str:
    """Return a function's ``module:qualname``.

    Example:
        >>> name_of(name_of)
        'tuner.execution.validation:name_of'
    """
    plain = _unwrapped(function)
    module = getattr(plain, "__module__", None) or _MAIN
    return f"{module}:{getattr(plain, '__qualname__', type(plain).__qualname__)}"


def payload_digest(name: str) -> str:
    """Return the SHA-256 that the name of a payload holds, empty if it is no such name."""
    found = _PAYLOAD.fullmatch(name)
    return found[1] if found else ""


@final
class _Packing:
    """Describes and pickles the arguments of one validation.

    Attributes:
        is_lossy: Whether an argument is described by something that may be lost on a restart.
    """

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._places = dict(_objects_in(sources, ()))
        self.is_lossy = False

    def described(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        return {str(name): self._argument(value) for name, value in kwargs.items()}

    def _argument(self, value: Any) -> Any:
        described = self._value(value)
        # The journal is no place for data.
        is_large = len(strict_json.dumps(described)) > _MAX_ARGUMENT_BYTES
        return self._lost(redact(describe(value))) if is_large else described

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        if kind is str:
            return self._text(value)
        if kind is dict and all(type(key) is str for key in value):
            return {_escaped(key, value): self._value(part) for key, part in value.items()}
        if kind is list:
            return [self._value(part) for part in value]
        if kind is tuple:
            return {_TUPLE: [self._value(part) for part in value]}
        return self._other(value)

    def _text(self, value: str) -> Any:
        if secret := named_secret(value):
            return {_SECRET: secret}
        # A secret may also be a part of it, and must not reach the journal.
        return value if redact(value) == value else self._lost(redact(value))

    def _other(self, value: Any) -> Any:
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
            return float(value)
        if (place := self._places.get(id(value))) is None:
            return self._lost(redact(describe(value)))
        # Training code may have changed the object, such as a model, since it was given it. What is
        # in `datasets` is only read, and often large.
        self.is_lossy |= place[0] != _SHARED
        return {_CONFIG: list(place)}

    def _lost(self, text: str) -> dict[str, Any]:
        self.is_lossy = True
        return {_OBJECT: text}

    def pickled(self, function: Validator | None, kwargs: Mapping[str, Any]) -> bytes:
        """Return the pickled function and arguments."""
        shared = {key: place for key, place in self._places.items() if place[0] == _SHARED}
        file = io.BytesIO()
        try:
            with pickling_by_value(function):
                _Pickler(file, shared).dump((function, kwargs))
        except Exception as error:  # the user's own reduction methods may raise anything
            for name, value in kwargs.items():
                if not can_be_pickled(value):
                    raise ValueError(
                        f"the argument {name!r} of the validation function "
                        f"({type(value).__name__}) cannot be carried to another process "
                        f"({error}); pass what it is made from"
                    ) from error
            raise ValueError(explanation(function, error)) from error
        return file.getvalue()


@final
class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes references to shared objects and secrets."""

    def __init__(self, file: io.BytesIO, shared: Mapping[int, Place]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> tuple[str, Any] | None:
        if (place := self._shared.get(id(value))) is not None:
            return _CONFIG, place
        if type(value) is str and (secret := named_secret(value)):
            return _SECRET, secret
        return None


def _objects_in(node: Any, place: Place) -> Iterator[tuple[int, Place]]:
    """Yield identity and place of the objects of a declaration that JSON cannot hold."""
    match node:
        case None | bool() | int() | float() | str():
            return
        case dict() | types.MappingProxyType():
            for key, part in node.items():
                if isinstance(key, str | int):
                    yield from _objects_in(part, (*place, key))
        case list() | tuple():
            for index, part in enumerate(node):
                yield from _objects_in(part, (*place, index))
        case _:
            yield id(node), place


def _escaped(key: str, mapping: Mapping[str, Any]) -> str:
    return f"${key}" if len(mapping) == 1 and key.startswith("$") else key


def _unwrapped(function: Any) -> Any:
    """Return the function to which `functools.partial` or `with_parameters` has bound arguments."""
    while not isinstance(function, types.FunctionType) and hasattr(function, "func"):
        function = function.func
    return function


# Running.


def run_validation(
    trainable: Any, declared: DeclaredValidator, assignment: ValidationAssignment
) -> dict[str, Any]:
    """Validate a checkpoint.

    Returns:
        The message to the driver with what the function returned, or why it failed.
    """
    try:
        metrics = _validated(trainable, declared, assignment)
    except BaseException as error:  # noqa: BLE001  (the user's code may raise anything, or exit)
        return {"kind": "failed", "failure": as_message(describe_failure(error))}
    return {"kind": "validated", "metrics": metrics}


def _validated(
    trainable: Any, declared: DeclaredValidator, assignment: ValidationAssignment
) -> dict[str, Any]:
    request = assignment.request
    sources = sources_of(trainable, resolve_secrets(assignment.config))
    if assignment.has_payload:
        function, kwargs = _read_payload(assignment, sources)
    else:
        function = None
        kwargs = {name: _found(value, name, sources) for name, value in request.kwargs.items()}
    if function is None:
        function = _resolved(request.function, trainable, declared)
    checkpoint = Checkpoint(assignment.checkpoint_dir)
    if not request.takes_config:
        return validated_metrics(function(checkpoint, **kwargs))
    if isinstance(function, functools.partial):  # a declared function with default arguments
        kwargs = {**function.keywords, **kwargs}
        function = cast("Validator", function.func)
    return validated_metrics(function(checkpoint, kwargs))


def validated_metrics(returned: Any) -> dict[str, Any]:
    """Return what a validation function returned as metrics of a result.

    Names that the engine fills in are left out: a function may return all metrics of an experiment
    of its own, whose iterations and times are not those of the checkpoint.

    Raises:
        TypeError: If it is no dictionary.
        ValueError: If it cannot be part of a result, see `metric_conversion`.
    """
    if not isinstance(returned, Mapping):
        raise TypeError(
            f"the validation function must return a dictionary of metrics, got "
            f"{type(returned).__name__}; e.g. return {{'accuracy': 0.9}}"
        )
    return Converter().convert(
        {name: value for name, value in returned.items() if name not in AUTO_FILLED}
    )


def _resolved(name: str, trainable: Any, declared: DeclaredValidator) -> Validator:
    """Return the function of a request that comes without a payload."""
    function = _imported(name) or _among_globals(name, trainable) if name else None
    if function is not None:
        return function
    if declared.error is not None:
        raise declared.error
    if declared.function is not None:
        return declared.function
    if not name:
        raise ValidationError(
            "the function declared for validations is not declared any more; "
            "restore with validation_config=ValidationConfig(fn=...)"
        )
    raise ValidationError(
        f"the validation function {name!r} cannot be found after a restart, since it is no "
        "function of a module; pass validation_config=ValidationConfig(fn=...)"
    )


def _imported(name: str) -> Validator | None:
    module_name, _, qualname = name.partition(":")
    if module_name == _MAIN:
        return None  # this process has another one
    try:
        found: Any = importlib.import_module(module_name)
        for step in qualname.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, ValueError):
        return None
    return found if callable(found) else None


def _among_globals(name: str, trainable: Any) -> Validator | None:
    """Return a function of the script that the training function uses by its global name."""
    known: Mapping[str, Any] = getattr(_unwrapped(trainable), "__globals__", {})
    found = known.get(name.partition(":")[2])
    return found if callable(found) and name_of(found) == name else None


def _read_payload(
    assignment: ValidationAssignment, sources: Mapping[str, Any]
) -> tuple[Validator | None, dict[str, Any]]:
    name = assignment.request.payload
    data = Path(assignment.trial_dir, name).read_bytes()
    if hashlib.sha256(data).hexdigest() != payload_digest(name):
        raise ValidationError(
            f"{name} in {assignment.trial_dir} has been changed since the trial has written it; "
            "nothing but tuner may write there"
        )
    function, kwargs = _Unpickler(io.BytesIO(data), sources).load()
    return function, kwargs


@final
class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, sources: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._sources = sources

    def persistent_load(self, reference: tuple[str, Any]) -> Any:
        kind, what = reference
        return _secret(what, what) if kind == _SECRET else _at(self._sources, what, "")


def _found(stored: Any, argument: str, sources: Mapping[str, Any]) -> Any:
    """Return the value that `_Packing` described.

    Raises:
        ValidationError: If it cannot be had.
    """
    match stored:
        case list():
            return [_found(part, argument, sources) for part in stored]
        case dict() if len(stored) == 1:
            ((key, value),) = stored.items()
            return _untagged(key, value, argument, sources)
        case Mapping():
            return {key: _found(part, argument, sources) for key, part in stored.items()}
        case _:
            return stored


def _untagged(key: str, value: Any, argument: str, sources: Mapping[str, Any]) -> Any:
    match key:
        case "$config":
            return _at(sources, value, argument)
        case "$secret":
            return _secret(value, argument)
        case "$tuple":
            return tuple(_found(part, argument, sources) for part in value)
        case "$object":
            raise ValidationError(
                f"the argument {argument!r} of the validation function was an object ({value}) "
                "that is not stored, and the experiment has been restarted since it was reported; "
                "pass it in the configuration of the trial or of the trainer, or as a default "
                "argument with validation_config="
            )
        case _:
            plain = key.removeprefix("$") if key.startswith("$$") else key
            return {plain: _found(value, argument, sources)}


def _at(sources: Mapping[str, Any], place: Any, argument: str) -> Any:
    node: Any = sources
    try:
        for step in place:
            node = node[step]
    except (KeyError, IndexError, TypeError):
        where = "".join(f"[{step!r}]" for step in place[1:])
        raise ValidationError(
            f"the argument {argument!r} of the validation function was {place[0]}{where}, which is "
            "not there any more; restore with the configuration that the experiment was run with"
        ) from None
    return node


def _secret(name: str, argument: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValidationError(
            f"the argument {argument!r} of the validation function is the environment variable "
            f"{name!r}, which is not set; set it where the experiment is started"
        )
    return value
