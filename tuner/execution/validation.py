"""Validation of checkpoints: packed where they are reported, run in a process of its own.

A report names a function and its arguments. The worker writes both down twice: in the request that
goes into the journal, the function is named as ``module:qualname``, and the arguments are JSON
values or descriptions (see `validation_arguments`). The payload is a file with the pickled function
and arguments, for what JSON cannot hold; its name holds its SHA-256.

Only the session whose worker has reported a payload uses it, and of that only the process that
validates: a pickle that was found on disk could come from elsewhere, and would run any code. After
a restart of the driver, the function is the declared one, or is imported, and the arguments are
read from the request.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast, final

from tuner.core.result import AUTO_FILLED
from tuner.core.worker_records import ValidationRequest
from tuner.storage import layout
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.disk import write_bytes
from tuner.wire.record import record

from .failures import as_message
from .failures import describe as describe_failure
from .metric_conversion import Converter
from .report_options import ValidationTask
from .secrets import resolve_secrets
from .validation_arguments import ArgumentPacker, restored, unpickled
from .validation_assignment import (
    NOT_DECLARED,
    DeclaredValidator,
    ValidationAssignment,
    ValidationError,
    Validator,
    payload_digest,
)

_MAIN: Final = "__main__"


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
@record
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
    packing = ArgumentPacker(sources)
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
        kwargs = restored(request.kwargs, sources)
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
    return unpickled(data, sources)
