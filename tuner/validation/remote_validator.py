"""A process that validates one checkpoint, as the executor knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from tuner.core.commands import StartValidation
from tuner.core.events import LeaseOwner, Outcome, ValidationEnded
from tuner.core.worker_records import Failure
from tuner.execution.group_protocol import PartStored, RankReported
from tuner.execution.remote_process import OneProcessOwner, OwnerHost, RemoteProcess
from tuner.execution.validation_assignment import ValidationAssignment
from tuner.execution.worker_protocol import lease_event, to_validation_end

if TYPE_CHECKING:
    from tuner.execution.remote_process import Message


@final
class RemoteValidator(RemoteProcess):
    """One try to validate a checkpoint, from its start until its process group is gone.

    Attributes:
        assignment: What it was started for.
        command: The command that started it.
        exit_message: How the validation ended according to the process itself; None until then.
    """

    __slots__ = ("assignment", "command", "exit_message")

    command: StartValidation
    _RULE: ClassVar[str] = "nothing but tuner may write to this connection"
    _SUBJECT: ClassVar[str] = "validation"

    def __init__(
        self, key: int, command: StartValidation, assignment: ValidationAssignment
    ) -> None:
        """Expect the process's messages.

        Args:
            key: Identifies it at the process service.
            command: The command that starts it.
            assignment: What it is started for.
        """
        super().__init__(key)
        self.assignment = assignment
        self.command = command
        self.exit_message: ValidationEnded | None = None

    @property
    def node(self) -> str:
        return self.command.node

    @property
    def names(self) -> tuple[str, int, int]:
        """Trial, checkpoint and try, which no other process has."""
        return self.assignment.trial_id, self.assignment.index, self.assignment.num_try

    def end_event(self, outcome: Outcome, failure: Failure) -> ValidationEnded:
        return ValidationEnded(*self.names, outcome, failure=failure)

    def _read(self, messages: Sequence[Any]) -> list[Message]:
        events: list[Message] = []
        for message in messages:
            if self.exit_message:
                raise ValueError("a message came after the last one")
            if isinstance(message, dict) and message.get("kind") in ("lease", "release"):
                trial_id, index, num_try = self.names
                events.append(lease_event(LeaseOwner(trial_id, num_try, index), message))
                continue
            ended = to_validation_end(*self.names, message)
            if self._kill_reason is None:  # else it counts as killed
                self.exit_message = ended
        return events


@final
class ValidationTry(OneProcessOwner):
    """One try to validate a checkpoint, with its process.

    Args:
        key: Identifies the process at the process service.
        command: The command that starts it.
        assignment: What it is started for.
        host: The executor.

    Attributes:
        process: The process.
    """

    __slots__ = ("process",)

    def __init__(
        self, key: int, command: StartValidation, assignment: ValidationAssignment, host: OwnerHost
    ) -> None:
        super().__init__(host)
        self.process = RemoteValidator(key, command, assignment)

    def on_messages(self, process: RemoteValidator, messages: Sequence[Message]) -> None:
        for message in messages:
            if not isinstance(message, (RankReported, PartStored)):
                self._host.emit(message)
        if process.exit_message:
            self._host.expect_exit(process)
