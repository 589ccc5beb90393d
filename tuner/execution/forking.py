"""Workers that are forked from the zygote, one of them ahead of its time."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Set as AbstractSet
from typing import final

from .control import receive_with_descriptor


@final
class ForkedWorkers:
    """Keeps one forked worker ready, so that the next trial does not wait for the fork.

    Forking and all that follows from it, mostly copying pages that are written to for the first time, costs more than all else in the
    life of an empty trial. The spare does it while other trials run.
    """

    def __init__(self) -> None:
        """Fork none yet."""
        self._hatches: dict[int, socket.socket] = {}

    @property
    def spares(self) -> AbstractSet[int]:
        """Process ids of those that wait for a trial."""
        return self._hatches.keys()

    def start(self, descriptor: int) -> int | None:
        """Give a spare that is alive a trial's descriptor and return its process id; None if there is no spare."""
        while self._hatches:
            pid = next(iter(self._hatches))
            with self._hatches.pop(pid) as hatch, contextlib.suppress(BrokenPipeError):
                socket.send_fds(hatch, [b"."], [descriptor])
                return pid
        return None

    def prepare(self, num_running: int) -> socket.socket | None:
        """See `Starter`."""
        if self._hatches:
            return None
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            return theirs
        theirs.close()
        self._hatches[pid] = ours
        return None

    def bury(self, pid: int) -> None:
        """See `Starter`."""
        if hatch := self._hatches.pop(pid, None):
            hatch.close()


def await_trial(hatch: socket.socket) -> int | None:
    """Return the descriptor of a trial's connection, once it comes through the hatch; None if the zygote is gone."""
    with hatch:
        return receive_with_descriptor(hatch, 1)[1]
