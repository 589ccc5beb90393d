"""Retry starts that failed because the system was short of descriptors, memory or disk."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from contextlib import suppress
from typing import Final, final

from tuner.core.commands import KillValidation, KillWorker, StartValidation, StartWorker
from tuner.core.worker_records import Failure

from .process_service import Unstarted

_SHORTAGES: Final = (
    errno.EMFILE,  # descriptors of the process
    errno.ENFILE,  # descriptors of the system
    errno.ENOMEM,
    errno.ENOBUFS,  # memory for sockets
    errno.EAGAIN,  # processes
    errno.ENOSPC,
    errno.EDQUOT,
)
_RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


def is_shortage(error: Exception) -> bool:
    """Return whether an error says that the system is short of something for now."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


@final
class StartRetryQueue:
    """Failed starts, all to be retried one second after the last of them failed."""

    def __init__(self) -> None:
        self._commands: deque[StartWorker | StartValidation] = deque()
        self._retry_at = 0.0
        self._has_warned = False

    @property
    def retry_at(self) -> float | None:
        """When to retry, by the monotonic clock; None if the queue is empty."""
        return self._retry_at if self._commands else None

    def add(self, command: StartWorker | StartValidation, why: str) -> None:
        """Queue a start that failed, and warn if it is the first one to fail."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "trial %s cannot be started now: %s; trying again every second",
                command.trial_id,
                why,
            )
        self._commands.append(command)
        self._retry_at = time.monotonic() + _RETRY_S

    def note_start(self) -> None:
        """Note that a start has succeeded, so that the next failure is worth a warning."""
        if self._has_warned and not self._commands:
            self._has_warned = False
            _log.warning("trials can be started again")

    def take_due(self) -> list[StartWorker | StartValidation]:
        """Remove and return the starts that are to be retried now."""
        if not self._commands or time.monotonic() < self._retry_at:
            return []
        due = list(self._commands)
        self._commands.clear()
        return due

    def take_on(self, node: str) -> list[StartWorker | StartValidation]:
        """Remove and return the starts that need a node."""
        found = [start for start in self._commands if node in _nodes_of(start)]
        for start in found:
            self._commands.remove(start)
        return found

    def withdraw(
        self, command: KillWorker | KillValidation
    ) -> StartWorker | StartValidation | None:
        """Remove and return the start of what is to be killed; None if it is not queued."""
        for start in self._commands:
            if _identity(start) == _identity(command):
                self._commands.remove(start)
                return start
        return None


def _nodes_of(start: StartWorker | StartValidation) -> tuple[str, ...]:
    return start.nodes if isinstance(start, StartWorker) else (start.node,)


def _identity(
    command: StartWorker | StartValidation | KillWorker | KillValidation,
) -> tuple[str | int, ...]:
    match command:
        case StartValidation(trial_id, checkpoint, num_try):
            return trial_id, checkpoint.index, num_try
        case KillValidation(trial_id, index, num_try):
            return trial_id, index, num_try
        case _:
            return command.trial_id, command.attempt


def describe_shortage(error: Exception) -> str:
    """Return an error's text; where a file system has space left but no inodes, say so."""
    if not (isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename):
        return str(error)
    with suppress(OSError, AttributeError):
        directory = os.path.dirname(os.fsdecode(error.filename))  # noqa: PTH120  (may be bytes)
        room = os.statvfs(directory)
        if room.f_files and not room.f_favail:
            return f"{error} (it has no inodes left for new files, see df -i; delete files)"
    return str(error)


def unstarted_by(key: int, error: Exception, what: str) -> Unstarted:
    """Return the record about a process whose start has raised an exception.

    Args:
        key: The process.
        error: The exception.
        what: What it was to be, for messages.
    """
    if is_shortage(error):
        return Unstarted(key, Failure(type(error).__name__, describe_shortage(error)))
    why = f"the {what} could not be started: {error}"
    return Unstarted(key, Failure(type(error).__name__, why), is_shortage=False)
