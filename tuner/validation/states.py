"""State of a checkpoint's validation: every transition there is, as a table.

A report may ask for its checkpoint to be validated by a function that runs in a process of its own
while the trial trains on. Each request is a `Validation` of the trial::

    QUEUED ──start──▶ RUNNING ──return──▶ VALIDATED
      ▲                │ │ │ └──time out─▶ TIMEOUT
      └──retry, lose───┘ │ └──fail───────▶ FAILED
                         └──checkpoint lost──▶ FAILED

Only this module changes `Validation.state`. A move that the table does not list raises
`InvalidTransition`. A validation is RUNNING exactly while its process may exist, so that what it
occupies is booked until that is gone. The order in which they run is that of `validation_queue`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from tuner.errors import InvalidTransition

from .records import Validation, ValidationState


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
