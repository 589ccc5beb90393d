"""Starts for which the system was short of something, which is no fault of the trial's: they are tried again every second."""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from typing import Final, final

from tuner.core.commands import KillWorker, StartWorker

_SCARCITIES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)
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

    @property
    def retry_at(self) -> float | None:
        """When they are to be tried again, by the monotonic clock; None if there are none."""
        return self._retry_at if self._commands else None

    def add(self, command: StartWorker, error: Exception) -> None:
        """Take in a start that has failed for want of something."""
        if not self._commands:
            _log.warning("trial %s cannot be started now: %s; trying again every second", command.trial_id, error)
        self._commands.append(command)
        self._retry_at = time.monotonic() + _RETRY_S

    def take_due(self) -> list[StartWorker]:
        """Return those whose time has come; they are no longer kept."""
        if not self._commands or time.monotonic() < self._retry_at:
            return []
        due = list(self._commands)
        self._commands.clear()
        return due

    def withdraw(self, command: KillWorker) -> bool:
        """Keep no longer what is to be killed before it has begun; return whether it was kept."""
        found = [start for start in self._commands if (start.trial_id, start.attempt) == (command.trial_id, command.attempt)]
        for start in found:
            self._commands.remove(start)
        return bool(found)
