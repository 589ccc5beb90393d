"""Start of a worker group: opens its sockets and gives each worker its rank."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from tuner.core.commands import StartWorker
from tuner.execution.assignment import Assignment, Rank

from .worker_connection import Bootstrap
from .zygote_protocol import blocking_pair

LOOPBACK: Final = "127.0.0.1"


@final
@dataclass(frozen=True, slots=True)
class GroupStart:
    """The opened sockets of a group, and its first messages.

    Attributes:
        listener: The socket at which rank 0 is to listen for the others; None where it runs on
            another machine.
        bootstraps: The first message for each rank.
        ends: For each rank, the driver's end of its connection, and its own.
    """

    listener: socket.socket | None
    bootstraps: list[Bootstrap]
    ends: list[tuple[socket.socket, socket.socket]]

    @classmethod
    def on_this_machine(
        cls,
        command: StartWorker,
        num_workers: int,
        assignment: Assignment,
        bootstrap_of: Callable[[Assignment], Bootstrap],
    ) -> GroupStart:
        """Open the sockets of a group that runs on this machine, which belong to the caller.

        Raises:
            OSError: If one cannot be opened; none is left open then.
            Exception: Raised by `bootstrap_of`.
        """
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        ranks = [_rank(command, rank, num_workers, port) for rank in range(num_workers)]
        return cls.of(ranks, listener, assignment, bootstrap_of)

    @classmethod
    def of(
        cls,
        ranks: Sequence[Rank],
        listener: socket.socket | None,
        assignment: Assignment,
        bootstrap_of: Callable[[Assignment], Bootstrap],
    ) -> GroupStart:
        """Open the connections of ranks that run on this machine, which belong to the caller.

        Args:
            ranks: The ranks.
            listener: The socket at which rank 0 is to listen; None where that runs elsewhere.
            assignment: What all of them are to do.
            bootstrap_of: Returns the first message that carries an assignment.

        Raises:
            OSError: If one cannot be opened; none is left open then, nor is the listener.
            Exception: Raised by `bootstrap_of`.
        """
        with contextlib.ExitStack() as opened:
            if listener:
                opened.enter_context(listener)
            bootstraps = [bootstrap_of(replace(assignment, rank=rank)) for rank in ranks]
            ends = []
            for _ in bootstraps:
                ours, theirs = blocking_pair()
                ends.append((opened.enter_context(ours), opened.enter_context(theirs)))
            opened.pop_all()
        return cls(listener, bootstraps, ends)


def _rank(command: StartWorker, rank: int, num_workers: int, port: int) -> Rank:
    return Rank(
        world_rank=rank,
        world_size=num_workers,
        local_rank=rank,
        local_world_size=num_workers,
        node_rank=0,
        master_addr=LOOPBACK,
        master_port=port,
        run_id=f"{command.trial_id}-{command.attempt}",
    )
