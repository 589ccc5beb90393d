"""The driver's view of one worker of a group, which runs on a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from tuner.core.events import Event, Outcome, WorkerExited
from tuner.core.trial import Failure
from tuner.execution.group_protocol import PartStored, RankReported, to_group_event
from tuner.execution.local.exit_diagnosis import ExitInfo, last_lines, size

_STACK_LINES = 60
_STACKS_LINES = 200


@final
class RemoteRank:
    """One rank of a group, from its start until its node says that its processes are gone.

    Args:
        trial_id: The trial.
        attempt: Number of the attempt.
        rank: Its number in the group.
        node: Name of the node that it runs on.
        stderr: File with its standard error, in a directory that all nodes share.

    Attributes:
        trial_id: The trial.
        attempt: Number of the attempt.
        rank: Its number in the group.
        node: Name of the node that it runs on.
        exit_message: How the attempt ended according to the rank itself; None until it says so.
        failure: Why it ended according to its node, None if that has not said so.
        is_gone: Whether its processes are gone.
    """

    __slots__ = (
        "_is_waiting", "_stderr", "_stderr_start", "attempt", "exit_message", "failure", "is_gone",
        "node", "rank", "trial_id",
    )  # fmt: skip

    def __init__(self, trial_id: str, attempt: int, rank: int, node: str, stderr: Path) -> None:
        self.trial_id = trial_id
        self.attempt = attempt
        self.rank = rank
        self.node = node
        self.exit_message: WorkerExited | None = None
        self.failure: Failure | None = None
        self.is_gone = False
        self._is_waiting = False
        self._stderr = stderr
        self._stderr_start = size(stderr)  # earlier attempts wrote to the same file

    def read(self, messages: Sequence[Any]) -> list[Event | RankReported | PartStored]:
        """Return what messages of the rank mean, and note the last one.

        Raises:
            ValueError: If one violates the protocol. `failure` is the violation then.
        """
        try:
            return self._read(messages)
        except ValueError as error:
            self.failure = Failure("malformed message", f"{error}; nothing but report may send")
            raise

    def _read(self, messages: Sequence[Any]) -> list[Event | RankReported | PartStored]:
        events: list[Event | RankReported | PartStored] = []
        for message in messages:
            event = to_group_event(self.trial_id, self.attempt, message)
            if self.exit_message:
                raise ValueError("a message came after the last one")
            if isinstance(event, RankReported):
                if self._is_waiting:
                    raise ValueError("a report came before the last one was answered")
                self._is_waiting = True
            if isinstance(event, WorkerExited):
                self.exit_message = event
            else:
                events.append(event)
        return events

    # What the group needs, see `GroupMember`.

    def exit_event(self, exit_info: ExitInfo | None) -> WorkerExited:
        """See `GroupMember`; the node has said what was observed."""
        if self.exit_message:
            return self.exit_message
        if self.failure:
            return WorkerExited(self.trial_id, self.attempt, Outcome.FAILED, self.failure)
        what = "the process that started it" if exit_info is None else "its node"
        failure = Failure("lost", f"{what} died; the trial is not at fault")
        return WorkerExited(self.trial_id, self.attempt, Outcome.LOST, failure)

    def note_answer(self) -> None:
        """See `GroupMember`."""
        self._is_waiting = False

    @property
    def stderr_size(self) -> int:
        """See `GroupMember`."""
        return size(self._stderr)

    def last_lines(self) -> str:
        """See `GroupMember`."""
        return last_lines(self._stderr, self._stderr_start, _STACK_LINES)

    def lines_since(self, stderr_size: int) -> str:
        """See `GroupMember`."""
        return last_lines(self._stderr, stderr_size, _STACKS_LINES)
