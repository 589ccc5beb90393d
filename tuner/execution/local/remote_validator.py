"""The driver's view of a process that validates one checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, final

from tuner.core.commands import StartValidation
from tuner.core.events import LeaseOwner, ValidationEnded
from tuner.execution.validation import ValidationAssignment
from tuner.execution.worker_protocol import lease_event, to_validation_end

from .exit_diagnosis import ExitInfo
from .remote_process import Message, RemoteProcess
from .worker_connection import DriverEnd


@final
class RemoteValidator(RemoteProcess):
    """One try to validate a checkpoint, from its start until its process group is gone.

    Attributes:
        assignment: What it was started for.
        command: The command that started it.
        exit_message: How the validation ended according to the process itself; None until then.
    """

    __slots__ = ("assignment", "command", "exit_message")

    _RULE: ClassVar[str] = "nothing but tuner may write to this connection"
    _SUBJECT: ClassVar[str] = "validation"

    def __init__(
        self,
        number: int,
        command: StartValidation,
        assignment: ValidationAssignment,
        end: DriverEnd,
    ) -> None:
        """Expect the process's messages.

        Args:
            number: Unique among all processes of the executor.
            command: The command that starts it.
            assignment: What it is started for.
            end: The driver's end of the connection.
        """
        super().__init__(number, end, Path(assignment.trial_dir, assignment.log))
        self.assignment = assignment
        self.command = command
        self.exit_message: ValidationEnded | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """Trial, checkpoint and try, which no other process has."""
        return self.assignment.trial_id, self.assignment.index, self.assignment.num_try

    def exit_event(self, exit_info: ExitInfo | None) -> ValidationEnded:
        """Return how the validation ended, according to the process itself if it has said so.

        Args:
            exit_info: What the zygote observed; None if the zygote died.
        """
        if self.exit_message:
            return self.exit_message
        outcome, failure = self._unsaid_exit(exit_info)
        return ValidationEnded(*self.key, outcome, failure=failure)

    def _events(self, messages: list[Any]) -> list[Message]:
        events: list[Message] = []
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
