"""Messages about the ranks of a group that runs on several nodes.

The group itself is in the driver, see `spread_group`; each node runs its ranks, see `node_ranks`.
All messages have ``trial_id`` and ``attempt``. The driver sends::

    {"kind": "rank_listen"}                              to the node of rank 0: open a socket
    {"kind": "rank_start", "ranks": [[world_rank, local_rank], ...], "world_size", "node_rank",
     "local_world_size", "address", "port", ...}         start these, with the fields of a start
    {"kind": "rank_send", "rank", "data": text}          pass on a message
    {"kind": "rank_kill", "rank", "grace_s"}
    {"kind": "rank_dump", "rank"}                        write its stack to its standard error
    {"kind": "rank_expect_exit", "rank"}                 kill it if it does not end by itself
    {"kind": "rank_abandon"}                             kill all that there is of the attempt

and a node::

    {"kind": "rank_listening", "address", "port"}
    {"kind": "rank_refused", "failure": {...}, "is_shortage": bool}   it cannot listen
    {"kind": "rank_said", "rank", "messages": [...]}
    {"kind": "rank_violated", "rank", "failure": {...}}
    {"kind": "rank_hung_up", "rank"}
    {"kind": "rank_gone", "rank", "failure": null | {...}, "is_observed": bool, "peak_bytes"}
    {"kind": "rank_unstarted", "rank"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.trial import Failure
from tuner.execution.failures import as_message
from tuner.execution.local.rank_relay import (
    RankGone,
    RankHungUp,
    RankNews,
    RankSaid,
    RankUnstarted,
    RankViolated,
)
from tuner.execution.worker_protocol import Rank, failure_of

_MAX_PORT = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Listening:
    """The node of rank 0 has opened the socket at which that is to listen."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The node of rank 0 cannot listen.

    Attributes:
        failure: Why.
        is_shortage: Whether it may be possible later.
    """

    failure: Failure
    is_shortage: bool


def news_message(
    trial_id: str, attempt: int, news: RankNews | Listening | Refused
) -> dict[str, Any]:
    """Return the message in which a node tells the group something."""
    fields: dict[str, Any]
    match news:
        case Listening(address, port):
            fields = {"kind": "rank_listening", "address": address, "port": port}
        case Refused(failure, is_shortage):
            fields = {
                "kind": "rank_refused",
                "failure": as_message(failure),
                "is_shortage": is_shortage,
            }
        case RankSaid(rank, messages):
            fields = {"kind": "rank_said", "rank": rank, "messages": list(messages)}
        case RankViolated(rank, failure):
            fields = {"kind": "rank_violated", "rank": rank, "failure": as_message(failure)}
        case RankHungUp(rank):
            fields = {"kind": "rank_hung_up", "rank": rank}
        case RankUnstarted(rank):
            fields = {"kind": "rank_unstarted", "rank": rank}
        case RankGone(rank, reason):
            fields = {
                "kind": "rank_gone",
                "rank": rank,
                "failure": as_message(reason) if reason else None,
                "is_observed": news.is_observed,
                "peak_bytes": news.peak_bytes,
            }
    return {**fields, "trial_id": trial_id, "attempt": attempt}


def read_news(message: Mapping[str, Any]) -> RankNews | Listening | Refused:
    """Return what a node has told.

    Raises:
        ValueError: If the message is malformed.
    """
    news: RankNews | Listening | Refused | None = None
    match message:
        case {"kind": "rank_listening", "address": str(address), "port": int(port)}:
            news = Listening(address, port) if address and 0 < port <= _MAX_PORT else None
        case {"kind": "rank_refused", "is_shortage": bool(is_shortage)}:
            news = Refused(failure_of(message), is_shortage)
        case {"kind": "rank_said", "rank": int(rank), "messages": [*messages]}:
            news = RankSaid(rank, tuple(messages))
        case {"kind": "rank_violated", "rank": int(rank)}:
            news = RankViolated(rank, failure_of(message))
        case {"kind": "rank_hung_up", "rank": int(rank)}:
            news = RankHungUp(rank)
        case {"kind": "rank_unstarted", "rank": int(rank)}:
            news = RankUnstarted(rank)
        case {
            "kind": "rank_gone",
            "rank": int(rank),
            "is_observed": bool(is_observed),
            "peak_bytes": int(peak_bytes),
        }:
            failure = None if message.get("failure") is None else failure_of(message)
            news = RankGone(rank, failure, is_observed, peak_bytes)
    if news is None:
        raise ValueError(f"a node must tell of the ranks that it runs, got {message!r:.200}")
    return news


def start_fields(ranks: list[Rank]) -> dict[str, Any]:
    """Return the fields that tell a node which ranks of one group it is to start."""
    first = ranks[0]
    return {
        "ranks": [[rank.world_rank, rank.local_rank] for rank in ranks],
        "world_size": first.world_size,
        "local_world_size": first.local_world_size,
        "node_rank": first.node_rank,
        "address": first.master_addr,
        "port": first.master_port,
    }


def read_start(message: Mapping[str, Any]) -> list[Rank]:
    """Return which ranks a node is to start.

    Raises:
        KeyError: If a field is missing.
    """
    return [
        Rank(
            world_rank=world_rank,
            world_size=message["world_size"],
            local_rank=local_rank,
            local_world_size=message["local_world_size"],
            node_rank=message["node_rank"],
            master_addr=message["address"],
            master_port=message["port"],
            run_id=f"{message['trial_id']}-{message['attempt']}",
        )
        for world_rank, local_rank in message["ranks"]
    ]
