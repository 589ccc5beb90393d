"""The ranks of a group that run on this node, where the group itself is on another machine.

What a `RemoteGroup` would take of them is passed on as it comes, and what it decides is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

from tuner.core.trial import Failure

from .exit_diagnosis import ExitInfo
from .remote_worker import RemoteWorker


@dataclass(frozen=True, slots=True)
class RankSaid:
    """A rank has sent messages, see `worker_protocol` and `group_protocol`."""

    rank: int
    messages: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RankViolated:
    """A rank has violated the protocol, and is being killed."""

    rank: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class RankHungUp:
    """A rank's connection has ended; mostly since its process is dead."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankGone:
    """A rank's process group is gone.

    Attributes:
        rank: The rank.
        failure: Why it ended, if it has not said so itself and that could be found out.
        is_observed: Whether the end was observed; otherwise the process that started it is dead.
        peak_bytes: Its peak memory; 0 if unknown.
    """

    rank: int
    failure: Failure | None = None
    is_observed: bool = True
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RankUnstarted:
    """A rank could not be started now; it may be possible later."""

    rank: int


RankNews = RankSaid | RankViolated | RankHungUp | RankGone | RankUnstarted
"""What a group is told of its ranks."""


class RelayHost(Protocol):
    """What the ranks of a node need of its executor."""

    def send(self, worker: RemoteWorker, data: bytes, /) -> None:
        """Begin to send a message to a worker."""

    def end(self, worker: RemoteWorker, grace_s: float, /) -> None:
        """Kill a worker's process group, if it is not gone."""

    def dump_stack(self, worker: RemoteWorker, /) -> None:
        """Have a worker write its stack to its standard error."""

    def expect_exit(self, worker: RemoteWorker, /) -> None:
        """Kill a worker that does not end in time."""

    def forget_ranks(self, trial_id: str, attempt: int, /) -> None:
        """Note that all ranks of an attempt on this node are gone."""


@final
class RankRelay:
    """The ranks of one attempt that run on this node.

    Args:
        members: Their workers.
        host: The executor.
        report: Called with what the group has to know.
    """

    def __init__(
        self, members: Sequence[RemoteWorker], host: RelayHost, report: Callable[[RankNews], None]
    ) -> None:
        self._members = {worker.rank: worker for worker in members}
        self._host = host
        self._report = report
        self._present = set(self._members)

    # What the executor tells, as to a `RemoteGroup`.

    def on_messages(self, worker: RemoteWorker, _messages: Sequence[object]) -> None:
        """Pass on what a rank has sent."""
        if said := worker.take_relayed():
            self._report(RankSaid(worker.rank, tuple(said)))

    def on_violation(self, worker: RemoteWorker) -> None:
        """Pass on that a rank has violated the protocol, and is killed."""
        # What came before the violation has not been passed on by `on_messages`.
        self.on_messages(worker, ())
        if failure := worker.exit_event(None).failure:
            self._report(RankViolated(worker.rank, failure))

    def on_hangup(self, worker: RemoteWorker) -> None:
        """Pass on that a rank's connection has ended."""
        self._report(RankHungUp(worker.rank))

    def on_gone(self, worker: RemoteWorker, exit_info: ExitInfo | None) -> None:
        """Pass on that a rank's process group is gone."""
        has_failed = exit_info is not None and not worker.exit_message
        self._report(
            RankGone(
                worker.rank,
                worker.exit_event(exit_info).failure if has_failed else None,
                is_observed=exit_info is not None,
                peak_bytes=exit_info.peak_bytes if exit_info else 0,
            )
        )
        self._leave(worker)

    def on_unstarted(self, worker: RemoteWorker) -> None:
        """Pass on that a rank could not be started now."""
        self._report(RankUnstarted(worker.rank))
        self._leave(worker)

    def _leave(self, worker: RemoteWorker) -> None:
        self._present.discard(worker.rank)
        if not self._present:
            self._host.forget_ranks(worker.trial_id, worker.attempt)

    # What the group asks for; ranks that are gone are left out.

    def send(self, rank: int, data: bytes) -> None:
        """Send a rank a message of the group's."""
        if rank in self._present:
            worker = self._members[rank]
            worker.note_answer()
            self._host.send(worker, data)

    def kill(self, rank: int, grace_s: float) -> None:
        """Kill a rank.

        Args:
            rank: The rank.
            grace_s: How long it may take to end when it is asked to; 0 for not at all.
        """
        if rank in self._present:
            self._host.end(self._members[rank], grace_s)

    def dump_stack(self, rank: int) -> None:
        """Have a rank write its stack to its standard error."""
        if rank in self._present:
            self._host.dump_stack(self._members[rank])

    def expect_exit(self, rank: int) -> None:
        """Kill a rank that does not end in time."""
        if rank in self._present:
            self._host.expect_exit(self._members[rank])

    def kill_all(self) -> None:
        """Kill all ranks that are left."""
        for rank in list(self._present):
            self.kill(rank, 0.0)
