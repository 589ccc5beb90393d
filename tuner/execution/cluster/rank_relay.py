"""The ranks of a group that run on this node, where the group itself is on another machine.

What is said about them is passed on as it comes, and what the group decides is done here. The key
of a rank in such a record is its number in the group.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import final

from tuner.core.commands import StartWorker
from tuner.execution.assignment import Assignment, Rank
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import ProcessEvent, ProcessService


@final
class RankRelay:
    """The ranks of one attempt that run on this node.

    Args:
        service: Has started them.
        keys: Their keys, by rank.
    """

    def __init__(self, service: ProcessService, keys: dict[int, int]) -> None:
        self._service = service
        self._keys = keys

    def send(self, rank: int, line: bytes) -> None:
        """Send a rank a message of the group's."""
        self._service.send(self._keys[rank], line)

    def kill(self, rank: int, grace_s: float) -> None:
        """Kill a rank, see `ProcessService.kill`."""
        self._service.kill(self._keys[rank], grace_s)

    def dump_stack(self, rank: int) -> None:
        """Have a rank write its stack to its standard error."""
        self._service.dump_stack(self._keys[rank])

    def expect_exit(self, rank: int) -> None:
        """Kill a rank that does not end in time."""
        self._service.expect_exit(self._keys[rank])

    def kill_all(self) -> None:
        """Kill all ranks that are left."""
        for key in self._keys.values():
            self._service.kill(key)


@final
class NodeStarter:
    """Starts ranks on this node beside the node's own trials.

    Args:
        executor: The node's executor.
        lend: Gives a process the socket at which it is to listen, see `LocalProcesses.lend`.
        assign: Returns the assignment for a `StartWorker`.
    """

    def __init__(
        self,
        executor: ProcessExecutor,
        lend: Callable[[int, socket.socket], None],
        assign: Callable[[StartWorker], Assignment],
    ) -> None:
        self._executor = executor
        self._lend = lend
        self._assign = assign

    def start_ranks(
        self,
        command: StartWorker,
        ranks: Sequence[Rank],
        listener: socket.socket | None,
        report: Callable[[ProcessEvent], None],
    ) -> RankRelay:
        """Start the ranks of a group that run on this node.

        Args:
            command: The command that starts the attempt, with the devices of this node.
            ranks: The ranks.
            listener: The socket at which rank 0 is to listen, which is taken over; None where that
                runs on another node.
            report: Called with what the group has to know.

        Raises:
            OSError: If they cannot be started now.
            Exception: Raised by the configuration when it is pickled.
        """

        def prepare(key: int) -> None:
            if listener and not keys:
                self._lend(key, listener)

        assignment = self._assign(command)
        keys: dict[int, int] = {}
        try:
            for rank in ranks:
                keys[rank.world_rank] = self._executor.start_aside(
                    replace(assignment, rank=rank),
                    partial(_report, report, rank.world_rank),
                    prepare,
                )
        except BaseException:
            for key in keys.values():
                self._executor.kill_aside(key)
            raise
        return RankRelay(self._executor.service, keys)


def _report(report: Callable[[ProcessEvent], None], rank: int, event: ProcessEvent) -> None:
    report(replace(event, key=rank))
