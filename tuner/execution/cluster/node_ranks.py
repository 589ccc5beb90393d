"""The ranks of groups over several nodes, on one of these nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

from tuner.core.commands import StartWorker
from tuner.core.trial import Failure
from tuner.execution.assignment import Rank
from tuner.execution.process_service import Gone, ProcessEvent, Unstarted
from tuner.execution.start_retry import describe_shortage, is_shortage

from .rank_messages import Listening, Refused, SourceDamaged, news_message, read_start
from .rank_relay import RankRelay
from .stored_ranks import KINDS, StoredRanks

_Key = tuple[str, int]


class RankStarter(Protocol):
    """What starts processes on the node, see `NodeStarter`."""

    def start_ranks(
        self,
        command: StartWorker,
        ranks: list[Rank],
        listener: socket.socket | None,
        report: Callable[[ProcessEvent], None],
        /,
    ) -> RankRelay:
        """Start the ranks of a group that run on this node."""


@final
class _Starting:
    """Ranks of one attempt, from the message that has them started."""

    def __init__(self, key: _Key, ranks: list[Rank], listener: socket.socket | None) -> None:
        self.key = key
        self.ranks = ranks
        self.listener = listener
        self.numbers = [rank.world_rank for rank in ranks]
        self.present = set(self.numbers)

    def close(self) -> None:
        """Close the socket that rank 0 will not be given."""
        if self.listener:
            self.listener.close()


@final
class NodeRanks:
    """Does on a node what the driver asks for the ranks that run there.

    Args:
        starter: The node's executor.
        tell: Sends the driver a message.
        read_command: Returns the command of a message that starts ranks.
        address: The address under which the other nodes reach this one.
        stored: The object store's side; None where the experiment is in a shared directory.
    """

    def __init__(
        self,
        starter: RankStarter,
        tell: Callable[[Mapping[str, Any]], None],
        read_command: Callable[[Mapping[str, Any]], StartWorker],
        address: str,
        stored: StoredRanks | None = None,
    ) -> None:
        self._stored = stored
        self._starter = starter
        self._tell = tell
        self._read_command = read_command
        self._address = address
        self._listeners: dict[_Key, socket.socket] = {}
        self._relays: dict[_Key, RankRelay] = {}
        self._waiting: dict[_Key, Callable[[], None]] = {}
        """Of ranks whose checkpoint is being downloaded, what ends them."""

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Do what a message of the driver asks for, whose ``kind`` begins with ``rank_``."""
        key = message["trial_id"], message["attempt"]
        match message["kind"]:
            case "rank_listen":
                self._listen(key)
            case "rank_start":
                self._start(key, message)
            case "rank_abandon":
                self._abandon(key)
            case kind if kind in KINDS:
                if self._stored:
                    self._stored.on_message(message)
            case "rank_kill" if give_up := self._waiting.pop(key, None):
                give_up()
            case kind:
                if relay := self._relays.get(key):
                    _ask(relay, kind, message)

    def close(self) -> None:
        """Close the sockets that no rank has been given."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def _listen(self, key: _Key) -> None:
        try:
            family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
            listener = socket.create_server((self._address, 0), family=family)
        except OSError as error:
            why = f"rank 0 cannot listen at {self._address}: {error}"
            failure = Failure(type(error).__name__, why)
            self._tell(news_message(*key, Refused(failure, is_shortage(error))))
            return
        self._close_listener(key)
        self._listeners[key] = listener
        port = listener.getsockname()[1]
        self._tell(news_message(*key, Listening(self._address, port)))

    def _start(self, key: _Key, message: Mapping[str, Any]) -> None:
        starting = _Starting(key, read_start(message), self._listeners.pop(key, None))
        if self._stored:
            self._stored.begin(key)
        try:
            command = self._read_command(message)
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            self._on_unstartable(starting, error)
            return
        if self._stored is None:
            self._launch(starting, command)
            return
        self._waiting[key] = lambda: self._give_up(starting)
        self._stored.prepare(command, lambda damage: self._on_prepared(starting, command, damage))

    def _on_prepared(self, starting: _Starting, command: StartWorker, damage: str) -> None:
        if self._waiting.pop(starting.key, None) is None:
            return  # killed meanwhile
        if damage:
            self._tell(news_message(*starting.key, SourceDamaged(damage)))
            self._give_up(starting)
        else:
            self._launch(starting, command)

    def _give_up(self, starting: _Starting) -> None:
        """Note that ranks are gone that were not started."""
        starting.close()
        for rank in starting.numbers:
            self._report(starting, Gone(rank, None))

    def _launch(self, starting: _Starting, command: StartWorker) -> None:
        def report(news: ProcessEvent) -> None:
            self._report(starting, news)

        try:
            self._relays[starting.key] = self._starter.start_ranks(
                command, starting.ranks, starting.listener, report
            )
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            self._on_unstartable(starting, error)

    def _on_unstartable(self, starting: _Starting, error: Exception) -> None:
        starting.close()
        is_short = is_shortage(error)
        why = describe_shortage(error) if is_short else f"the worker could not be started: {error}"
        failure = Failure(type(error).__name__, why)
        for rank in starting.numbers:
            self._report(starting, Unstarted(rank, failure, is_shortage=is_short))

    def _report(self, starting: _Starting, news: ProcessEvent) -> None:
        """Tell the driver what a rank has done; of the last one only when nothing is left here."""

        def tell() -> None:
            self._tell(news_message(*starting.key, news))

        if isinstance(news, (Gone, Unstarted)):
            starting.present.discard(news.key)
            if not starting.present:
                self._relays.pop(starting.key, None)
                if self._stored:
                    self._stored.end(starting.key, tell)
                    return
        tell()

    def _abandon(self, key: _Key) -> None:
        self._close_listener(key)
        if give_up := self._waiting.pop(key, None):
            give_up()
        if relay := self._relays.get(key):
            relay.kill_all()

    def _close_listener(self, key: _Key) -> None:
        if listener := self._listeners.pop(key, None):
            listener.close()


def _ask(relay: RankRelay, kind: str, message: Mapping[str, Any]) -> None:
    rank: int = message["rank"]
    match kind:
        case "rank_send":
            relay.send(rank, message["data"].encode())
        case "rank_kill":
            relay.kill(rank, message["grace_s"])
        case "rank_dump":
            relay.dump_stack(rank)
        case "rank_expect_exit":
            relay.expect_exit(rank)
        case _:
            raise ValueError(f"the driver must ask for what a rank can do, got kind {kind!r}")
