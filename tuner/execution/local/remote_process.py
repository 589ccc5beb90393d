"""The driver's view of a process that the zygote has started for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final

from tuner.core.events import Event, Outcome
from tuner.core.trial import Failure
from tuner.execution.group_protocol import PartStored, RankReported

from .exit_diagnosis import ExitInfo, diagnose_exit, last_lines, size
from .worker_connection import DriverEnd

Message = Event | RankReported | PartStored
"""What a message means; the second and third come from workers of groups alone."""

_STACK_LINES: Final = 60
"""Length of the quoted output of a killed process, which ends with its stack."""
_STACKS_LINES: Final = 200
"""Length of the stacks of all threads that are read at most."""


class RemoteProcess(ABC):
    """A process and its connection, from its start until its process group is gone.

    Attributes:
        number: Unique among all processes of the executor.
        end: The driver's end of the connection.
        stderr: File that its standard error is appended to.
        is_orphaned: Whether the zygote that started it is dead.
        mask: What the selector watches its connection for, 0 for nothing.
    """

    __slots__ = (
        "_kill_reason", "_protocol_failure", "_stderr_start", "end", "is_orphaned", "mask",
        "number", "stderr",
    )  # fmt: skip

    _RULE: ClassVar[str]
    """What may write to the connection."""
    _SUBJECT: ClassVar[str]
    """What the process is started for."""

    def __init__(self, number: int, end: DriverEnd, stderr: Path) -> None:
        """Expect the process's messages.

        Args:
            number: Unique among all processes of the executor.
            end: The driver's end of the connection.
            stderr: File that its standard error is appended to.
        """
        self.number = number
        self.end = end
        self.stderr = stderr
        self.is_orphaned = False
        self.mask = 0
        self._expect_messages()

    def _expect_messages(self) -> None:
        self._stderr_start = size(self.stderr)  # earlier processes wrote to the same file
        self._protocol_failure: Failure | None = None
        self._kill_reason: str | None = None

    def last_lines(self) -> str:
        """Return the end of what it has written to standard error, with its stack."""
        return last_lines(self.stderr, self._stderr_start, _STACK_LINES)

    @property
    def stderr_size(self) -> int:
        """How many bytes there are of its standard error."""
        return size(self.stderr)

    def lines_since(self, stderr_size: int) -> str:
        """Return what it has written to standard error since that had a size, or the end of it."""
        return last_lines(self.stderr, stderr_size, _STACKS_LINES)

    def receive(self) -> list[Message] | None:
        """Return what one read completes, None at the end of the connection.

        Raises:
            ValueError: If the process violates the protocol. It has to be killed; how it ended is
                then the violation.
        """
        try:
            messages = self.end.receive()
            return None if messages is None else self._events(messages)
        except ValueError as error:
            self._note_violation(error)
            raise

    def drain(self) -> list[Message]:
        """Return what a process that is gone has left in the connection."""
        if self._protocol_failure:
            return []
        try:
            return self._events(self.end.drain())
        except ValueError as error:
            self._note_violation(error)
            return []

    @property
    def is_killed(self) -> bool:
        """Whether the core has had it killed."""
        return self._kill_reason is not None

    def mark_killed(self, reason: str) -> None:
        """Note that the core has it killed; an exit message that comes later is ignored."""
        self._kill_reason = self._kill_reason or reason

    @abstractmethod
    def _events(self, messages: list[Any]) -> list[Message]:
        """Return what messages mean, and note the last one.

        Raises:
            ValueError: If one violates the protocol.
        """

    def _unsaid_exit(self, exit_info: ExitInfo | None) -> tuple[Outcome, Failure]:
        """Return how a process ended that has not said so itself.

        Args:
            exit_info: What the zygote observed; None if the zygote died.
        """
        # The most specific source first: a process that violated the protocol or was to be killed
        # may end with any exit code.
        if self._protocol_failure:
            return Outcome.FAILED, self._protocol_failure
        if self._kill_reason is not None:
            return Outcome.KILLED, Failure("killed", self._kill_reason, self.last_lines())
        if exit_info is None:
            why = f"the process that started it died; the {self._SUBJECT} is not at fault"
            return Outcome.LOST, Failure("lost", why)
        return Outcome.FAILED, diagnose_exit(exit_info, self.stderr, self._stderr_start)

    def _note_violation(self, error: ValueError) -> None:
        self._protocol_failure = Failure("malformed message", f"{error}; {self._RULE}")
