"""The executor's view of a process: what its messages mean, and how it has ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from tuner.core.commands import StartValidation, StartWorker
from tuner.core.events import Event, Outcome, ValidationEnded, WorkerExited
from tuner.core.worker_records import Failure

from .exit_diagnosis import ExitInfo, diagnose_exit
from .group_protocol import PartStored, RankReported
from .process_service import Unstarted

Message = Event | RankReported | PartStored
"""What a message means; the second and third come from workers of groups alone."""


class RemoteProcess(ABC):
    """A process, from its start until its process group is gone.

    Attributes:
        key: Identifies it at the process service.
        stderr: The last lines that it has written to standard error, once it is gone.
        command: The command that started it.
        exit_message: How it ended according to the process itself; None until it says so.
    """

    __slots__ = ("_kill_reason", "_protocol_failure", "key", "stderr")

    command: StartWorker | StartValidation
    exit_message: WorkerExited | ValidationEnded | None

    _RULE: ClassVar[str]
    """What may write to the connection."""
    _SUBJECT: ClassVar[str]
    """What the process is started for."""

    def __init__(self, key: int) -> None:
        """Expect the process's messages.

        Args:
            key: Identifies it at the process service.
        """
        self.key = key
        self._expect_messages()

    @property
    @abstractmethod
    def node(self) -> str:
        """The machine that it runs on; empty for this one."""

    def _expect_messages(self) -> None:
        self.stderr = ""
        self._protocol_failure: Failure | None = None
        self._kill_reason: str | None = None

    @property
    def has_violated(self) -> bool:
        """Whether it has violated the protocol; nothing that comes after can be trusted."""
        return self._protocol_failure is not None

    @property
    def is_killed(self) -> bool:
        """Whether the core has had it killed."""
        return self._kill_reason is not None

    def mark_killed(self, reason: str) -> None:
        """Note that the core has it killed; an exit message that comes later is ignored."""
        self._kill_reason = self._kill_reason or reason

    def note_violation(self, why: str) -> None:
        """Note that it has violated the protocol; how it ended is then the violation."""
        self._protocol_failure = Failure("malformed message", f"{why}; {self._RULE}")

    def read(self, messages: Sequence[Any]) -> list[Message]:
        """Return what messages mean, and note the last one.

        Raises:
            ValueError: If the process violates the protocol, which is noted. It has to be killed.
        """
        try:
            return self._read(messages)
        except ValueError as error:
            self.note_violation(str(error))
            raise

    @abstractmethod
    def _read(self, messages: Sequence[Any]) -> list[Message]:
        """Return what messages mean, and note the last one.

        Raises:
            ValueError: If one violates the protocol.
        """

    def exit_event(self, exit_info: ExitInfo | None) -> WorkerExited | ValidationEnded:
        """Return how it ended, according to the process itself if it has said so.

        Args:
            exit_info: What was observed; None if nothing was.
        """
        return self.exit_message or self.end_event(*self._unsaid_exit(exit_info))

    @abstractmethod
    def end_event(self, outcome: Outcome, failure: Failure) -> WorkerExited | ValidationEnded:
        """Return the event that it has ended like this."""

    def _unsaid_exit(self, exit_info: ExitInfo | None) -> tuple[Outcome, Failure]:
        """Return how a process ended that has not said so itself.

        Args:
            exit_info: What was observed; None if nothing was.
        """
        # The most specific source first: a process that violated the protocol or was to be killed
        # may end with any exit code.
        if self._protocol_failure:
            return Outcome.FAILED, self._protocol_failure
        if self._kill_reason is not None:
            return Outcome.KILLED, Failure("killed", self._kill_reason, self.stderr)
        if exit_info is None:
            why = f"the process that started it died; the {self._SUBJECT} is not at fault"
            return Outcome.LOST, Failure("lost", why)
        return Outcome.FAILED, diagnose_exit(exit_info, self.stderr)


class ProcessOwner(ABC):
    """What processes are started for: an attempt of a trial, or a validation."""

    __slots__ = ()

    @abstractmethod
    def on_messages(self, process: Any, messages: Sequence[Message], /) -> None:
        """Handle what a process has sent."""

    @abstractmethod
    def on_gone(self, process: Any, exit_info: ExitInfo | None, /) -> None:
        """Note that a process's group is gone; without information if it was not observed."""

    @abstractmethod
    def on_unstarted(self, process: Any, unstarted: Unstarted, /) -> None:
        """Note that a process could not be started, now or at all."""

    # What matters only where a process has others beside it.

    def on_violation(self, process: Any, /) -> None:  # noqa: B027  (its end says it)
        """Note that a process has violated the protocol, and is killed."""

    def on_hangup(self, process: Any, /) -> None:  # noqa: B027  (it may live on)
        """Note that a process's connection has ended; mostly since it is dead."""

    def on_node_left(self, node: str, processes: Sequence[Any], alive_s: float, /) -> None:  # noqa: B027  (the core knows)
        """Note that processes are gone with their node, while others run elsewhere.

        Args:
            node: Its name.
            processes: Those whose end was not heard of.
            alive_s: Up to when it is known to have lived, by the monotonic clock.
        """

    def on_stack(self, process: Any, stack: str, /) -> None:  # noqa: B027  (none was asked for)
        """Handle the stack that a process was asked for."""


class OneProcessOwner(ProcessOwner):
    """What a single process is started for, which ends with it.

    Args:
        host: The executor.
    """

    __slots__ = ("_host",)

    def __init__(self, host: OwnerHost) -> None:
        self._host = host

    def on_gone(self, process: RemoteProcess, exit_info: ExitInfo | None) -> None:
        """See `ProcessOwner`."""
        self._host.emit(process.exit_event(exit_info))

    def on_unstarted(self, process: RemoteProcess, unstarted: Unstarted) -> None:
        """See `ProcessOwner`."""
        if process.is_killed:
            self._host.emit(process.exit_event(None))
        elif unstarted.is_shortage:
            self._host.start_again(process.command, unstarted.failure.message)
        else:
            self._host.emit(process.end_event(Outcome.FAILED, unstarted.failure))


class OwnerHost(Protocol):
    """What the owners of processes need of the executor."""

    def emit(self, event: Event, /) -> None:
        """Pass an event on to the driver."""

    def send(self, process: Any, line: bytes, /) -> None:
        """Begin to send a message to a process."""

    def kill(self, process: Any, /) -> None:
        """Kill a process's group."""

    def dump_stack(self, process: Any, /) -> None:
        """Have a process write its stack to its standard error."""

    def expect_exit(self, process: Any, /) -> None:
        """Kill a process that does not end in time."""

    def start_again(self, command: StartWorker | StartValidation, why: str, /) -> None:
        """Carry out a start again later; all that it has started is gone."""
