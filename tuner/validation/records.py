"""Records of validations: the state of each, and what is known of all those of one trial.

A report may ask for its checkpoint to be validated by a function that runs in a process of its own
while the trial trains on. Each request is a `Validation` of the trial::

    QUEUED ──start──▶ RUNNING ──return──▶ VALIDATED
      ▲                │ │ │ └──time out─▶ TIMEOUT
      └──retry, lose───┘ │ └──fail───────▶ FAILED
                         └──checkpoint lost──▶ FAILED

Only `move_validation` changes `Validation.state`. A move that the table does not list raises
`InvalidTransition`. A validation is RUNNING exactly while its process may exist, so that what it
occupies is booked until that is gone. The order in which they run is that of `ValidationQueue`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from schedulers.decisions import Reason
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord, Failure, ValidationRequest
from tuner.errors import InvalidTransition
from tuner.wire.declared import NEVER, OPTIONAL, Form, decode, encode


class ValidationState(enum.StrEnum):
    """Where a validation stands."""

    QUEUED = "QUEUED"
    """It waits for its turn, for resources, or for another session."""
    RUNNING = "RUNNING"
    """A process validates the checkpoint, or is asked for."""
    VALIDATED = "VALIDATED"
    """The function has returned metrics."""
    FAILED = "FAILED"
    """It raised, died or returned something else, and has no retry left; or could not begin."""
    TIMEOUT = "TIMEOUT"
    """It took too long."""

    @property
    def public_name(self) -> str:
        """The name of Ray's ``ReportedCheckpointStatus``."""
        return _PUBLIC_NAMES[self]


_PUBLIC_NAMES: Final = {
    ValidationState.QUEUED: "PENDING_VALIDATION",
    ValidationState.RUNNING: "PENDING_VALIDATION",
    ValidationState.VALIDATED: "VALIDATED",
    ValidationState.FAILED: "VALIDATION_FAILED",
    ValidationState.TIMEOUT: "VALIDATION_TIMEOUT",
}


_UNFINISHED: Final = frozenset({ValidationState.QUEUED, ValidationState.RUNNING})


@dataclass(slots=True)
class Validation:
    """The validation of one checkpoint.

    Attributes:
        checkpoint: The checkpoint, as it was recorded before.
        request: What was asked for.
        result: The checkpoint's result as reported, nested, without ``config``; empty once the
            validation is closed.
        state: See `ValidationState`.
        num_try: How often it has been started.
        num_failures: How many tries have failed.
        metrics: What the function returned, nested; None unless it did, and once retention has
            deleted the checkpoint.
        failure: What went wrong in the latest try that failed; None for nothing.
        is_open: Whether its outcome, if any, has not been passed on yet. Those of a trial are
            passed on in the order of its checkpoints.
        resources: What the process occupies.
        gpu_ids: Devices assigned to it.
        is_apart: Whether its CPUs are not those of the pool, which trials hold.
        kill_move: The `ValidationMove` that its end means, where it is to be killed; None where it
            is not.
        node: Name of the node of its process; empty without a process, and where there is only this
            machine.
        losses: The tries that were lost since one has ended otherwise, each with the reason; empty
            where `ExperimentSettings.max_validation_losses` sets no limit.
    """

    checkpoint: CheckpointRecord
    request: ValidationRequest
    state: ValidationState = ValidationState.QUEUED
    num_try: int = 0
    num_failures: Annotated[int, OPTIONAL] = 0
    result: Annotated[Mapping[str, Any], OPTIONAL] = field(default_factory=dict)
    metrics: Annotated[Mapping[str, Any] | None, OPTIONAL] = None
    failure: Annotated[Failure | None, OPTIONAL] = None
    is_open: Annotated[bool, OPTIONAL] = False
    resources: Mapping[str, float] = field(default_factory=dict)
    gpu_ids: tuple[int, ...] = ()
    is_apart: bool = False
    kill_move: str | None = None
    node: Annotated[str, OPTIONAL] = ""
    losses: Annotated[tuple[tuple[int, str], ...], OPTIONAL] = ()

    @property
    def status(self) -> str:
        """Its state by the name that users know."""
        return self.state.public_name

    @property
    def index(self) -> int:
        """Index of the checkpoint."""
        return self.checkpoint.index

    @property
    def is_unfinished(self) -> bool:
        """Whether it is yet to be run, or to end."""
        return self.state in _UNFINISHED

    @property
    def is_validated(self) -> bool:
        """Whether the function has returned metrics."""
        return self.state is ValidationState.VALIDATED


def _listed(validations: Mapping[int, Validation]) -> list[dict[str, Any]]:
    return [_validation_fields(validation) for validation in validations.values()]


def _validation_fields(validation: Validation) -> dict[str, Any]:
    fields = encode(validation)
    if validation.state is not ValidationState.RUNNING:
        for name in ("resources", "gpu_ids", "is_apart", "kill_move"):
            del fields[name]
    return fields


def _by_index(listed: list[dict[str, Any]]) -> dict[int, Validation]:
    validations = (decode(Validation, fields) for fields in listed)
    return {validation.index: validation for validation in validations}


class ValidationMove(enum.StrEnum):
    """What can happen to a validation."""

    START = "start"
    """There is room for it: a process is asked for."""
    RETURN = "return"
    """The function returned a dictionary."""
    FAIL = "fail"
    """It raised, died or returned something else; or it asks for resources that do not exist."""
    RETRY = "retry"
    """It raised or died, and may try again."""
    TIME_OUT = "time out"
    """It was killed since it took too long."""
    LOSE = "lose"
    """Its process was lost with the driver or its machine, or killed by an interruption."""
    LOSE_CHECKPOINT = "lose checkpoint"
    """What it validates is damaged or gone."""


VALIDATION_TABLE: Final[Mapping[tuple[ValidationState, ValidationMove], ValidationState]] = {
    (ValidationState.QUEUED, ValidationMove.START): ValidationState.RUNNING,
    (ValidationState.QUEUED, ValidationMove.FAIL): ValidationState.FAILED,
    (ValidationState.QUEUED, ValidationMove.LOSE_CHECKPOINT): ValidationState.FAILED,
    (ValidationState.RUNNING, ValidationMove.RETURN): ValidationState.VALIDATED,
    (ValidationState.RUNNING, ValidationMove.FAIL): ValidationState.FAILED,
    (ValidationState.RUNNING, ValidationMove.RETRY): ValidationState.QUEUED,
    (ValidationState.RUNNING, ValidationMove.TIME_OUT): ValidationState.TIMEOUT,
    (ValidationState.RUNNING, ValidationMove.LOSE): ValidationState.QUEUED,
    (ValidationState.RUNNING, ValidationMove.LOSE_CHECKPOINT): ValidationState.FAILED,
}


def move_validation(validation: Validation, move: ValidationMove) -> None:
    """Change the state of a validation as the table says.

    Raises:
        InvalidTransition: If the table has no such move; the validation is untouched.
    """
    after = VALIDATION_TABLE.get((validation.state, move))
    if after is None:
        raise InvalidTransition(
            f"{move!s} is not possible for the validation of {validation.checkpoint.directory}, "
            f"which is {validation.state} (try {validation.num_try})"
        )
    validation.state = after


@dataclass(slots=True)
class TrialValidations:
    """The validations of a trial's checkpoints, and what they mean for its results.

    A trial has one where checkpoints are validated, or several workers train.

    Attributes:
        validations: The validation of each checkpoint for which one was requested, by its index,
            oldest first; also of checkpoints that retention has deleted since.
        open_validations: Those of them whose outcome has not been passed on yet.
        validation_requests: Requests for checkpoints that are still being stored, by their index.
        checkpoint_results: The result of each checkpoint that is kept, nested, without ``config``,
            together with what its validation has returned.
        judged_index: Index of the newest checkpoint for which scheduler and searcher know the
            metric that they decide by; -1 for none, None where that is always the latest.
        judged_result: Its result, once a validation has supplied the metric and no later report
            has; None otherwise.
        dismissed_row: The position of the result on which the scheduler has decided that the trial
            leaves, while it has yet to report again, and learnt that from a validation; None for
            none.
        unjudged: Results after that one, merged with what their validations have returned, nested:
            the scheduler gets them if the trial continues. By the index of the checkpoint.
        late_pause: Why its next report will be answered with a pause: the scheduler decided so on a
            validation while it had no worker; None for no such pause.
    """

    validations: Annotated[dict[int, Validation], OPTIONAL, Form(_listed, _by_index)] = field(
        default_factory=dict
    )
    validation_requests: Annotated[dict[int, ValidationRequest], OPTIONAL] = field(
        default_factory=dict
    )
    checkpoint_results: Annotated[dict[int, Mapping[str, Any]], OPTIONAL] = field(
        default_factory=dict
    )
    judged_index: Annotated[int | None, OPTIONAL] = None
    judged_result: Annotated[Mapping[str, Any] | None, OPTIONAL] = None
    dismissed_row: Annotated[int | None, OPTIONAL] = None
    unjudged: Annotated[dict[int, Mapping[str, Any]], OPTIONAL] = field(default_factory=dict)
    late_pause: Annotated[Reason | None, OPTIONAL] = None
    open_validations: Annotated[dict[int, Validation], NEVER] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Pick those that are open, of a record that was read."""
        for index, validation in self.validations.items():
            if validation.is_open:
                self.open_validations[index] = validation

    def forget_checkpoints(self, indices: Collection[int]) -> None:
        """Forget what was noted of checkpoints that are gone."""
        for index in indices:
            self.checkpoint_results.pop(index, None)
            if (validation := self.validations.get(index)) and not validation.is_open:
                validation.metrics = None

    def drop_unstored(self, stored: Collection[CheckpointRecord]) -> None:
        """Forget checkpoints that were not stored before the attempt ended; `stored` were."""
        self.validation_requests.clear()
        indices = {checkpoint.index for checkpoint in stored}
        for index in self.checkpoint_results.keys() - indices:
            del self.checkpoint_results[index]


def validations_of(trial: Trial) -> TrialValidations:
    """Return what is known of the validations of a trial's checkpoints."""
    if trial.validation_part is None:
        trial.validation_part = TrialValidations()
    return trial.validation_part
