"""Starts for which the system was short of something, which is no fault of the trial's: they are tried again every second."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from contextlib import suppress
from typing import Final, final

from tuner.core.commands import KillWorker, StartWorker

_SCARCITIES: Final = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOBUFS,
    errno.EAGAIN,
    errno.ENOSPC,
    errno.EDQUOT,
)
_RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


def is_scarcity(error: Exception) -> bool:
    """Return whether an error says that the system is short of something for now."""
    return isinstance(error, OSError) and error.errno in _SCARCITIES


@final
class PostponedStarts:
    """Keeps starts until it is time to try them again."""

    def __init__(self) -> None:
        self._commands: deque[StartWorker] = deque()
        self._retry_at = 0.0
        self._is_warned = False

    @property
    def retry_at(self) -> float | None:
        """When they are to be tried again, by the monotonic clock; None if there are none."""
        return self._retry_at if self._commands else None

    def add(self, command: StartWorker, error: Exception) -> None:
        """Take in a start that has failed for want of something."""
        if not self._is_warned:
            self._is_warned = True
            _log.warning(
                "trial %s cannot be started now: %s; trying again every second",
                command.trial_id,
                _described(error),
            )
        self._commands.append(command)
        self._retry_at = time.monotonic() + _RETRY_S

    def note_start(self) -> None:
        """Take note that a start has succeeded: the next one that fails is worth a warning."""
        if self._is_warned and not self._commands:
            self._is_warned = False
            _log.warning("trials can be started again")

    def take_due(self) -> list[StartWorker]:
        """Return those whose time has come; they are no longer kept."""
        if not self._commands or time.monotonic() < self._retry_at:
            return []
        due = list(self._commands)
        self._commands.clear()
        return due

    def withdraw(self, command: KillWorker) -> bool:
        """Keep no longer what is to be killed before it has begun; return whether it was kept."""
        found = [
            start
            for start in self._commands
            if (start.trial_id, start.attempt) == (command.trial_id, command.attempt)
        ]
        for start in found:
            self._commands.remove(start)
        return bool(found)


def _described(error: Exception) -> str:
    """Return what an error says, and for a file system that is full although it has space, of what it has no more."""
    if not (isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename):
        return str(error)
    with suppress(OSError, AttributeError):
        room = os.statvfs(os.path.dirname(os.fsdecode(error.filename)))  # noqa: PTH120  (as the system spells it)
        if room.f_files and not room.f_favail:
            return f"{error} (it has no inodes left for new files, see df -i; delete files)"
    return str(error)
