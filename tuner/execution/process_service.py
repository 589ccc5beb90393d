"""The interface between the executor and what starts processes, here or elsewhere.

A process service knows no trial, attempt, rank or validation: it starts a process for what it is
assigned, carries messages, and observes its end. Which meaning they have is the executor's matter.
What it says are plain records, in order, so that they can be passed on by a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tuner.core.events import NodeDraining, NodeJoined, NodeLeft
from tuner.core.worker_records import Failure
from tuner.wire.record import record

from .assignment import Assignment
from .failures import ExitInfo
from .validation_assignment import ValidationAssignment


@record
class Listening:
    """The socket is open at which a process is to listen, see `ProcessService.listen`."""

    key: int
    address: str
    port: int


@record
class Said:
    """A process has sent messages, which need not be well-formed beyond being JSON."""

    key: int
    messages: list[Any]


@record
class Violated:
    """A process has sent what is no message; it is being killed, and says nothing more."""

    key: int
    why: str


@record
class HungUp:
    """The connection to a process has ended; mostly since the process is dead."""

    key: int


@record
class StackDumped:
    """What a process has written to its standard error since `ProcessService.dump_stack`."""

    key: int
    stack: str


@record
class Gone:
    """A process and its whole group are gone; the last record about a process.

    Attributes:
        key: The process.
        exit_info: How it ended; None if that was not observed.
        stderr: The last lines that it has written to standard error.
    """

    key: int
    exit_info: ExitInfo | None
    stderr: str = ""


@record
class Unstarted:
    """A process could not be started, or cannot listen; in the place of `Gone`.

    Attributes:
        key: The process.
        failure: Why.
        is_shortage: Whether it may be possible later.
    """

    key: int
    failure: Failure
    is_shortage: bool = True


ProcessEvent = Listening | Said | Violated | HungUp | StackDumped | Gone | Unstarted
"""What a service says about one process."""


@record
class NodeChanged:
    """A machine has come, is going to leave, or has left with all processes that it had.

    About those, nothing more is said.

    Attributes:
        event: What the core is to know.
        alive_s: Of one that has left, up to when it is known to have lived, by the monotonic clock.
    """

    event: NodeJoined | NodeDraining | NodeLeft
    alive_s: float = 0.0


@record
class Woken:
    """`ProcessService.wake` was called, or something was readable that is watched."""


ServiceEvent = ProcessEvent | NodeChanged | Woken
"""What a service says."""


class HasFileno(Protocol):
    """What a selector can watch."""

    def fileno(self) -> int:
        """Return the descriptor."""


class ProcessService(Protocol):
    """Starts processes and connects them with the executor.

    Keys are the executor's, and never used twice. `Gone` or `Unstarted` follows each start that has
    not raised, unless the process is gone with its machine. What is asked about a process that is
    gone is ignored.
    """

    @property
    def isolates(self) -> bool:
        """Whether there are processes indeed, which may be ranks, and may be reassigned."""

    def listen(self, key: int, node: str = "", *, is_local: bool = True) -> None:
        """Begin to open the socket at which a process will listen for the others of its group.

        `Listening` or `Unstarted` follows. The process is then started under the same key; `kill`
        closes a socket that is not needed after all.

        Args:
            key: Identifies the process.
            node: The machine on which it is to be started; empty for this one.
            is_local: Whether the others are on the same machine.

        Raises:
            OSError: If that is not possible.
        """

    def start(self, key: int, assignment: Assignment | ValidationAssignment) -> None:
        """Begin to start a process.

        Args:
            key: Identifies it.
            assignment: What it is to do.

        Raises:
            OSError: If the system is short of something, see `start_retry.is_shortage`.
            Exception: If a value of the assignment cannot be pickled.
        """

    def reassign(self, key: int, assignment: Assignment) -> None:
        """Give a process that waits for it another assignment.

        Raises:
            Exception: If a value of the assignment cannot be pickled.
        """

    def send(self, key: int, line: bytes) -> None:
        """Begin to send a message, a line of JSON."""

    def kill(self, key: int, grace_s: float = 0.0) -> None:
        """End a process and its group.

        Args:
            key: The process.
            grace_s: How long it may take to end when it is asked to; 0 for not at all.
        """

    def expect_exit(self, key: int) -> None:
        """Kill a process if it does not end by itself within the service's grace."""

    def dump_stack(self, key: int) -> None:
        """Have a process write its stack to its standard error; `StackDumped` follows."""

    def preload(self, modules: Iterable[str]) -> None:
        """Have modules imported before the next process is started; see `preload`."""

    def watch(self, readable: HasFileno, on_readable: Callable[[], None]) -> None:
        """Call a function during `wait` while something is readable."""

    def wait(self, timeout_s: float | None) -> Sequence[ServiceEvent]:
        """Return what there is to say; if there is nothing, wait for it.

        Args:
            timeout_s: How many seconds to wait at most, None for no limit. The result may be empty
                before.

        Raises:
            TunerError: If no process can be started any more.
        """

    def wake(self) -> None:
        """Have `Woken` said; may be called from signal handlers and other threads."""

    def close(self, deadline_s: float) -> None:
        """Kill all processes and release all resources.

        Args:
            deadline_s: How many seconds to wait at most.
        """
