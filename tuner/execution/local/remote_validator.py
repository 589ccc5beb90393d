"""The driver's view of a process that validates one checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from tuner.core.events import Event, LeaseOwner, Outcome, ValidationEnded
from tuner.core.trial import Failure
from tuner.execution.validation import ValidationAssignment
from tuner.execution.worker_protocol import lease_event, to_validation_end

from .exit_diagnosis import ExitInfo, diagnose_exit, last_lines, size
from .worker_connection import DriverEnd

_STACK_LINES = 60
"""Length of the quoted output of a killed process, which ends with its stack."""


@final
class RemoteValidator:
    """One try to validate a checkpoint, from its start until its process group is gone.

    It has the attributes of a `RemoteWorker` that an executor asks every process for.

    Attributes:
        number: Unique among all processes of the executor.
        assignment: What it was started for.
        end: The driver's end of the connection.
        exit_message: How the validation ended according to the process itself; None until then.
        is_orphaned: Whether the zygote that started it is dead.
        mask: What the selector watches its connection for, 0 for nothing.
    """

    __slots__ = (
        "_kill_reason", "_log", "_log_start", "_protocol_failure", "assignment", "end",
        "exit_message", "is_orphaned", "mask", "number",
    )  # fmt: skip

    def __init__(self, number: int, assignment: ValidationAssignment, end: DriverEnd) -> None:
        """Expect the process's messages.

        Args:
            number: Unique among all processes of the executor.
            assignment: What it is started for.
            end: The driver's end of the connection.
        """
        self.number = number
        self.assignment = assignment
        self.end = end
        self.exit_message: ValidationEnded | None = None
        self.is_orphaned = False
        self.mask = 0
        self._log = Path(assignment.trial_dir, assignment.log)
        self._log_start = size(self._log)  # earlier tries wrote to the same file
        self._protocol_failure: Failure | None = None
        self._kill_reason: str | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """Trial, checkpoint and try, which no other process has."""
        return self.assignment.trial_id, self.assignment.index, self.assignment.num_try

    def receive(self) -> list[Event] | None:
        """Return the events that one read completes, None at the end of the connection.

        Raises:
            ValueError: If the process violates the protocol. It has to be killed; `exit_event` then
                returns the violation.
        """
        try:
            messages = self.end.receive()
            return None if messages is None else self._events(messages)
        except ValueError as error:
            self._note_violation(error)
            raise

    def drain(self) -> list[Event]:
        """Return the events that a process that is gone has left in the connection."""
        if self._protocol_failure:
            return []
        try:
            return self._events(self.end.drain())
        except ValueError as error:
            self._note_violation(error)
            return []

    def mark_killed(self, reason: str) -> None:
        """Note that the core has it killed; a message that comes later is ignored."""
        self._kill_reason = self._kill_reason or reason

    def exit_event(self, exit_info: ExitInfo | None) -> ValidationEnded:
        """Return how the validation ended.

        Args:
            exit_info: What the zygote observed; None if the zygote died.
        """
        # In the same order as that of `RemoteWorker.exit_event`.
        if self.exit_message:
            return self.exit_message
        if self._protocol_failure:
            return self._ended(Outcome.FAILED, self._protocol_failure)
        if self._kill_reason is not None:
            where = last_lines(self._log, self._log_start, _STACK_LINES)
            return self._ended(Outcome.KILLED, Failure("killed", self._kill_reason, where))
        if exit_info is None:
            return self._ended(
                Outcome.LOST,
                Failure("lost", "the process that started it died; the validation is not at fault"),
            )
        return self._ended(Outcome.FAILED, diagnose_exit(exit_info, self._log, self._log_start))

    def _ended(self, outcome: Outcome, failure: Failure) -> ValidationEnded:
        return ValidationEnded(*self.key, outcome, failure=failure)

    def _note_violation(self, error: ValueError) -> None:
        self._protocol_failure = Failure(
            "malformed message", f"{error}; nothing but tuner may write to this connection"
        )

    def _events(self, messages: list[Any]) -> list[Event]:
        events: list[Event] = []
        for message in messages:
            if self.exit_message:
                raise ValueError("a message came after the last one")
            if isinstance(message, dict) and message.get("kind") in ("lease", "release"):
                trial_id, index, num_try = self.key
                events.append(lease_event(LeaseOwner(trial_id, num_try, index), message))
                continue
            ended = to_validation_end(*self.key, message)
            if self._kill_reason is None:  # else it counts as killed
                self.exit_message = ended
        return events
