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
    {"kind": "rank_violated", "rank", "why": text}
    {"kind": "rank_hung_up", "rank"}
    {"kind": "rank_stack", "rank", "stack": text}
    {"kind": "rank_gone", "rank", "exit": null | {"code", "peak_bytes", "is_oom"}, "stderr": text}
    {"kind": "rank_unstarted", "rank", "failure": {...}, "is_shortage": bool}

Where the experiment is in an object store, no node has all of a checkpoint. The driver asks each of
those that have a part of it what they have, decides which uploads what, and creates the manifest
once all is there::

    {"kind": "rank_measure", "index", "parts": [[rank, name], ...] | null, "place": "" | name,
     "payload": "" | name}                            what is there of a checkpoint
    {"kind": "rank_upload", "index", "remote", "left_out": [name, ...], "with_metadata": bool}
    {"kind": "rank_discard", "names": [...]}          delete what ranks have staged

and a node answers::

    {"kind": "rank_measured", "index", "contents": {...} | null, "conflicts": [...]}
    {"kind": "rank_uploaded", "index"}
    {"kind": "rank_unstored", "index", "why", "is_storage": bool}   one of the two has failed
    {"kind": "rank_damaged", "why"}                   the checkpoint to start from is damaged
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner.core.trial import Failure
from tuner.execution.assignment import Rank
from tuner.execution.exit_diagnosis import ExitInfo
from tuner.execution.failures import as_message
from tuner.execution.process_service import (
    Gone,
    HungUp,
    ProcessEvent,
    Said,
    StackDumped,
    Unstarted,
    Violated,
)
from tuner.execution.worker_protocol import failure_of
from tuner.storage.manifest import FileEntry, PartContents, check_names

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


@dataclass(frozen=True, slots=True)
class PartMeasured:
    """A node has measured its part of a checkpoint.

    Attributes:
        index: Index of the checkpoint.
        contents: What is there; None for nothing.
        conflicts: A sentence for each file that its ranks have stored with different content.
    """

    index: int
    contents: PartContents | None
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartUploaded:
    """A node has uploaded its part of the checkpoint of an index."""

    index: int


@dataclass(frozen=True, slots=True)
class PartUnstored:
    """A node could not measure or upload its part of a checkpoint.

    Attributes:
        index: Index of the checkpoint.
        why: Why.
        is_storage: Whether its disk or the store is at fault, so that a later one may succeed.
    """

    index: int
    why: str
    is_storage: bool


@dataclass(frozen=True, slots=True)
class SourceDamaged:
    """The checkpoint that ranks were to start from is damaged in the store."""

    why: str


PartNews = PartMeasured | PartUploaded | PartUnstored
GroupNews = ProcessEvent | Listening | Refused | PartNews | SourceDamaged
"""What a node tells of the ranks of one group."""


def news_message(  # noqa: C901  (a case each)
    trial_id: str, attempt: int, news: GroupNews
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
        case Said(rank, messages):
            fields = {"kind": "rank_said", "rank": rank, "messages": list(messages)}
        case Violated(rank, why):
            fields = {"kind": "rank_violated", "rank": rank, "why": why}
        case HungUp(rank):
            fields = {"kind": "rank_hung_up", "rank": rank}
        case StackDumped(rank, stack):
            fields = {"kind": "rank_stack", "rank": rank, "stack": stack}
        case Unstarted(rank, failure, is_shortage):
            fields = {
                "kind": "rank_unstarted",
                "rank": rank,
                "failure": as_message(failure),
                "is_shortage": is_shortage,
            }
        case Gone(rank, exit_info, stderr):
            ended = asdict(exit_info) if exit_info else None
            fields = {"kind": "rank_gone", "rank": rank, "exit": ended, "stderr": stderr}
        case PartMeasured(index, contents):
            fields = {
                "kind": "rank_measured",
                "index": index,
                "contents": asdict(contents) if contents else None,
                "conflicts": list(news.conflicts),
            }
        case PartUploaded(index):
            fields = {"kind": "rank_uploaded", "index": index}
        case PartUnstored(index, why, is_storage):
            fields = {"kind": "rank_unstored", "index": index, "why": why, "is_storage": is_storage}
        case SourceDamaged(why):
            fields = {"kind": "rank_damaged", "why": why}
    return {**fields, "trial_id": trial_id, "attempt": attempt}


def read_news(message: Mapping[str, Any]) -> GroupNews:  # noqa: C901, PLR0912  (a case each)
    """Return what a node has told.

    Raises:
        ValueError: If the message is malformed.
    """
    news: GroupNews | None = None
    match message:
        case {"kind": "rank_listening", "address": str(address), "port": int(port)}:
            news = Listening(address, port) if address and 0 < port <= _MAX_PORT else None
        case {"kind": "rank_refused", "is_shortage": bool(is_shortage)}:
            news = Refused(failure_of(message), is_shortage)
        case {"kind": "rank_said", "rank": int(rank), "messages": [*messages]}:
            news = Said(rank, messages) if messages else None
        case {"kind": "rank_violated", "rank": int(rank), "why": str(why)}:
            news = Violated(rank, why)
        case {"kind": "rank_hung_up", "rank": int(rank)}:
            news = HungUp(rank)
        case {"kind": "rank_stack", "rank": int(rank), "stack": str(stack)}:
            news = StackDumped(rank, stack)
        case {"kind": "rank_unstarted", "rank": int(rank), "is_shortage": bool(is_shortage)}:
            news = Unstarted(rank, failure_of(message), is_shortage)
        case {"kind": "rank_gone", "rank": int(rank), "exit": None, "stderr": str(stderr)}:
            news = Gone(rank, None, stderr)
        case {
            "kind": "rank_gone",
            "rank": int(rank),
            "exit": {"code": int(code), "peak_bytes": int(peak_bytes), "is_oom": is_oom},
            "stderr": str(stderr),
        }:
            is_known = isinstance(is_oom, bool)
            news = Gone(rank, ExitInfo(code, peak_bytes, is_oom if is_known else None), stderr)
        case {"kind": "rank_measured", "index": int(index), "conflicts": [*conflicts]}:
            contents = message.get("contents")
            part = None if contents is None else _contents(contents)
            news = PartMeasured(index, part, tuple(map(str, conflicts)))
        case {"kind": "rank_uploaded", "index": int(index)}:
            news = PartUploaded(index)
        case {
            "kind": "rank_unstored",
            "index": int(index),
            "why": str(why),
            "is_storage": bool(is_storage),
        }:
            news = PartUnstored(index, why, is_storage)
        case {"kind": "rank_damaged", "why": str(why)}:
            news = SourceDamaged(why)
    if news is None:
        raise ValueError(f"a node must tell of the ranks that it runs, got {message!r:.200}")
    return news


def _contents(fields: Any) -> PartContents:
    try:
        contents = PartContents(
            {str(name): _entry(**entry) for name, entry in fields["files"].items()},
            {str(name): str(leads_to) for name, leads_to in fields["links"].items()},
            [str(name) for name in fields["directories"]],
            has_metadata=bool(fields["has_metadata"]),
        )
        check_names(contents)
    except (KeyError, TypeError, AttributeError, ValueError) as cause:
        raise ValueError(f"the parts of a checkpoint must be listed, got {cause!r:.200}") from None
    return contents


def _entry(size_bytes: int, sha256: str | None, rank: int | None) -> FileEntry:
    is_right = (
        type(size_bytes) is int and isinstance(sha256, str | None) and isinstance(rank, int | None)
    )
    if not is_right:
        raise TypeError(f"a file with size {size_bytes!r}, hash {sha256!r} and rank {rank!r}")
    return FileEntry(size_bytes, sha256, rank)


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
