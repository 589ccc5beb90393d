"""Messages that the workers of a group send beyond those of a single process.

The workers of a group store no checkpoint themselves: each prepares its *part*, and the executor
commits the parts together (see `storage.checkpoint_parts`). So a ``result`` has, in the place of
``checkpoint`` and ``upload``::

    {"kind": "result", ..., "part": null | PART, "name": "" | "epoch_3", "source": "0-2049-131"}

``source`` is there if the reported directory is to be deleted once it is stored. It identifies the
directory, since several workers may report the same one: then one of them stores and deletes it.
Where the part is ``pending``, a message follows once a thread of the worker has prepared it, in
the order of the reports and before ``exited``::

    {"kind": "part", "index": 3, "part": PART}

PART is one of::

    {"kind": "staged", "name": ".tmp-000003-1-0a1b2c3d"}   files that wait to be merged
    {"kind": "placed", "name": "epoch_3"}                  files that stay where they are
    {"kind": "placeholder", "name": "epoch_3"}             nothing need be there
    {"kind": "pending", "name": ""}                        a thread prepares it
    {"kind": "dropped", "name": "", "why": "..."}          it could not be prepared

The executor answers all workers alike. Its answer has, besides ``verdict``, the index of the next
checkpoint (``next_checkpoint``), the directory of the latest one (``latest``, null for none), and
its name in an object store where no worker has all of it (``latest_remote``, empty elsewhere). If
workers have reported the same ``source``, it also has the ranks that leave it to another one
(``duplicates``). A worker that has sent ``exited`` waits for ``{"leave": true}`` before it ends,
since others may still need what it hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tuner.core.events import CheckpointCommitted, CheckpointSaved, Event, ResultReported
from tuner.core.result import CHECKPOINT_DIR_NAME, SHOULD_CHECKPOINT
from tuner.storage.checkpoint_names import check_directory_name, is_staging_name
from tuner.wire.record import record

from .checkpoint_part import Part, PartKind
from .worker_protocol import directory_name, record_in, to_event

_MAX_SOURCE_LENGTH: Final = 100


@record
class RankReported:
    """A worker of a group has reported and waits for the others.

    Attributes:
        result: What it reported; its checkpoint, if any, is `part`.
        part: Its part of the checkpoint, None if it reported none.
        name: Name that it has given to the checkpoint's directory, empty for the numbered one.
        source: Identifies the directory that it has reported and that is to be deleted once it is
            stored; empty if there is none.
    """

    result: ResultReported
    part: Part | None
    name: str
    source: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether a thread of the worker is to prepare its part."""
        return self.part is not None and self.part.kind is PartKind.PENDING


@record
class PartStored:
    """A thread of a worker has prepared a part that was pending."""

    index: int
    part: Part


def to_group_event(
    trial_id: str, attempt: int, message: Mapping[str, Any]
) -> Event | RankReported | PartStored:
    """Return the meaning of a message of a worker of a group.

    Raises:
        ValueError: If the message is malformed.
    """
    kind = message.get("kind") if isinstance(message, Mapping) else None
    if kind == "part":
        index, part = message.get("index"), _part(attempt, message)
        if type(index) is not int or index < 0 or part is None or part.kind is PartKind.PENDING:
            raise ValueError(
                f"a part must have an index and say what was stored, got {message!r:.200}"
            )
        return PartStored(index, part)
    event = to_event(trial_id, attempt, message)
    has_whole = (
        isinstance(event, ResultReported) and (event.checkpoint, event.upload) != (None,) * 2
    )
    if has_whole or isinstance(event, (CheckpointSaved, CheckpointCommitted)):
        raise ValueError("a worker of a group must report its part, not a whole checkpoint")
    if not isinstance(event, ResultReported):
        return event
    source = message.get("source", "")
    if not isinstance(source, str) or len(source) > _MAX_SOURCE_LENGTH:
        raise ValueError(f"source must be a short text, got {source!r:.200}")
    return RankReported(event, _part(attempt, message), directory_name(message), source)


def duplicates_among(reports: Sequence[RankReported]) -> list[int]:
    """Return the ranks whose reported directory another one stores and deletes.

    Of several that have reported the same, the lowest one does that whose part is pending: what the
    others have prepared is a copy.
    """
    by_duty = sorted(range(len(reports)), key=lambda rank: (not reports[rank].is_pending, rank))
    owners: dict[str, int] = {}
    for rank in by_duty:
        if source := reports[rank].source:
            owners.setdefault(source, rank)
    return [
        rank
        for rank, report in enumerate(reports)
        if report.source and owners[report.source] != rank
    ]


def _part(attempt: int, message: Mapping[str, Any]) -> Part | None:
    if message.get("part") is None:
        return None
    part = record_in(message, "part", Part)
    match part.kind:
        case PartKind.STAGED if not is_staging_name(part.name, attempt):
            raise ValueError(f"a staged part must have the name that was staged, got {part.name!r}")
        case PartKind.PLACED | PartKind.PLACEHOLDER:
            check_directory_name(part.name)
    return part


def with_directory(result: ResultReported, directory: str | None) -> ResultReported:
    """Return rank 0's result with the directory of the checkpoint that all have reported.

    Rank 0 knows only of its own part, which need not be there.
    """
    if result.metrics.get(CHECKPOINT_DIR_NAME) == directory:
        return result
    fields = {CHECKPOINT_DIR_NAME: directory, SHOULD_CHECKPOINT: directory is not None}
    return replace(result, metrics={**result.metrics, **fields})
