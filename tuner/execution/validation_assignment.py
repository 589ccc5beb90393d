"""What a process has to know to validate a checkpoint, and which function was declared for it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from tuner.core.worker_records import ValidationRequest
from tuner.storage import layout
from tuner.wire.record import record

from .group_trainable import GroupTrainable

if TYPE_CHECKING:
    # To define the classes of commands takes time in each process that starts.
    from tuner.core.commands import StartValidation

Validator = Callable[..., Mapping[str, Any]]
"""A validation function."""

LARGE_BYTES: Final = 10 * 2**20
"""Size of a payload above which a warning is logged."""

_PAYLOAD: Final = re.compile(rf"{re.escape(layout.VALIDATION_PREFIX)}\d+-([0-9a-f]{{64}})\.pkl")


class ValidationError(RuntimeError):
    """A validation cannot be run; the message says why and what to do."""


@final
@record
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


@record
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
        node: The machine that the process is to run on; empty for this one.
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
    has_payload: bool = False
    node: str = ""

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
            node=command.node,
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


def payload_digest(name: str) -> str:
    """Return the SHA-256 that the name of a payload holds, empty if it is no such name."""
    found = _PAYLOAD.fullmatch(name)
    return found[1] if found else ""
