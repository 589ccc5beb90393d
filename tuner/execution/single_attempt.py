"""An attempt of a trial that one process trains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, final

from tuner.core.commands import AnswerReport
from tuner.core.events import Outcome, ResultReported, WorkerExited

from .exit_diagnosis import ExitInfo
from .group_protocol import PartStored, RankReported
from .process_service import Unstarted
from .remote_process import Message, OwnerHost, ProcessOwner
from .remote_worker import RemoteWorker, answer_line


class SingleHost(OwnerHost, Protocol):
    """What an attempt with one process needs of the executor."""

    def keep(self, worker: RemoteWorker, /) -> None:
        """Pass on the end of an attempt whose process waits for the next one."""

    def replace(self, worker: RemoteWorker, /) -> None:
        """Start another process for an attempt, in the place of one that is unfit for it."""


@final
class SingleAttempt(ProcessOwner):
    """One attempt of a trial, with its only process, whose messages are passed on as they come.

    Args:
        worker: The process.
        trial_dir: The trial's directory.
        host: The executor.

    Attributes:
        trial_dir: The trial's directory.
        members: The process.
    """

    __slots__ = ("_host", "members", "trial_dir")

    def __init__(
        self, worker: RemoteWorker, trial_dir: str | os.PathLike[str], host: SingleHost
    ) -> None:
        self.trial_dir = trial_dir
        self.members = (worker,)
        self._host = host

    def answer(self, command: AnswerReport) -> None:
        """Send the answer to a report."""
        (worker,) = self.members
        if worker.is_waiting:
            worker.is_waiting = False
            self._host.send(worker, answer_line(command))

    def kill(self, reason: str, *, is_silent: bool = False) -> None:
        """Note that the core has the attempt killed; the executor kills the process."""
        del is_silent  # there is no other process that has waited for this one
        self.members[0].mark_killed(reason)

    def on_messages(self, process: RemoteWorker, messages: Sequence[Message]) -> None:
        """See `ProcessOwner`."""
        for message in messages:
            # Only the workers of groups send other messages than events.
            if isinstance(message, (RankReported, PartStored)):
                continue
            # The core would drop it as well.
            if not (process.is_killed and isinstance(message, ResultReported)):
                self._host.emit(message)
        if process.is_unfit:
            self._host.replace(process)
        elif process.exit_message and process.is_reusable:
            self._host.keep(process)
        elif process.exit_message:
            self._host.expect_exit(process)

    def on_gone(self, process: RemoteWorker, exit_info: ExitInfo | None) -> None:
        """See `ProcessOwner`."""
        self._host.emit(process.exit_event(exit_info))

    def on_unstarted(self, process: RemoteWorker, unstarted: Unstarted) -> None:
        """See `ProcessOwner`."""
        if process.is_killed:
            self._host.emit(process.exit_event(None))
        elif unstarted.is_shortage:
            self._host.start_again(process.command, unstarted.failure.message)
        else:
            self._host.emit(
                WorkerExited(process.trial_id, process.attempt, Outcome.FAILED, unstarted.failure)
            )
