"""Workers that are forked from the zygote, some of them ahead of their time."""

from __future__ import annotations

import os
import socket
from collections.abc import Set as AbstractSet
from typing import Final, final

from tuner.execution import preload

from .standby_workers import Hatches

_SPARES_PER_WORKER: Final = 3
_MAX_SPARES: Final = 8


@final
class ForkedWorkers:
    """Keeps forked workers ready, so that the next trial does not wait for the fork.

    Forking and all that follows from it, mostly copying pages that are written to for the first time, costs more than all else in the
    life of an empty trial. The spares do it while other trials run. They are forked several at a time, once the last has been used:
    after each fork the zygote, too, has to get the pages back that it writes to.
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
        for _ in range(min(_SPARES_PER_WORKER * num_running - 2, _MAX_SPARES)):
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._hatches.close_all()
                return theirs
            theirs.close()
            self._hatches.add(pid, ours)
        return None

    def learn(self, module: str) -> None:
        """See `Starter`."""
        preload.catch_up(module)

    def bury(self, pid: int) -> None:
        """See `Starter`."""
        self._hatches.close(pid)
