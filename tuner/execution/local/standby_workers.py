"""How a worker that was made ahead of its time gets its trial."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Set as AbstractSet
from typing import final

from .zygote_protocol import receive_with_descriptor


@final
class Hatches:
    """The zygote's ends of the sockets through which waiting workers get the descriptor of their trial's connection."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._by_pid: dict[int, socket.socket] = {}

    def __len__(self) -> int:
        """Return how many workers wait."""
        return len(self._by_pid)

    @property
    def pids(self) -> AbstractSet[int]:
        """Process ids of the workers that wait."""
        return self._by_pid.keys()

    def add(self, pid: int, hatch: socket.socket) -> None:
        """Take note of a worker that waits."""
        self._by_pid[pid] = hatch

    def hand_over(self, descriptor: int) -> int | None:
        """Give the oldest that is alive a trial's descriptor and return its process id; None if nobody waits."""
        while self._by_pid:
            pid = next(iter(self._by_pid))
            with self._by_pid.pop(pid) as hatch, contextlib.suppress(BrokenPipeError):
                socket.send_fds(hatch, [b"."], [descriptor])
                return pid
        return None

    def close(self, pid: int) -> None:
        """Forget a worker that has died, if it was one of these."""
        if hatch := self._by_pid.pop(pid, None):
            hatch.close()

    def close_all(self) -> None:
        """Let go of all of them, in a process that has inherited them."""
        while self._by_pid:
            self._by_pid.popitem()[1].close()


def await_trial(hatch: socket.socket) -> int | None:
    """Return the descriptor of a trial's connection, once it comes through the hatch; None if the zygote is gone."""
    with hatch:
        return receive_with_descriptor(hatch, 1)[1]
