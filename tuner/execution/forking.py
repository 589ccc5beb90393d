"""Workers that are forked from the zygote, one of them ahead of its time."""

from __future__ import annotations

import os
import socket
from collections.abc import Set as AbstractSet
from typing import final

from .hatches import Hatches


@final
class ForkedWorkers:
    """Keeps one forked worker ready, so that the next trial does not wait for the fork.

    Forking and all that follows from it, mostly copying pages that are written to for the first time, costs more than all else in the
    life of an empty trial. The spare does it while other trials run.
    """

    def __init__(self) -> None:
        """Fork none yet."""
        self._hatches = Hatches()

    @property
    def spares(self) -> AbstractSet[int]:
        """Process ids of those that wait for a trial."""
        return self._hatches.pids

    def start(self, descriptor: int) -> int | None:
        """See `Starter`."""
        return self._hatches.hand_over(descriptor)

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
        self._hatches.add(pid, ours)
        return None

    def bury(self, pid: int) -> None:
        """See `Starter`."""
        self._hatches.close(pid)
