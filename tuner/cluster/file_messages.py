"""What driver and node say to each other about files: a file service in messages.

The driver asks for what `FileService` offers, and for what the ranks of a group need whose
checkpoint no node has whole, see `stored_parts`. A request with an ``id`` is answered by one record
with the same. All are JSON objects with the key ``kind``, which a `Link` carries; a node passes on
the output of trials in the same way.

A node has run the user's code, so all that it says is checked as it is read. It trusts its driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.storage import layout
from tuner.storage.manifest import PartContents, check_names
from tuner.wire.declared import Malformed, Tagged, tag_of, tagged

_STREAM: Final = re.compile(
    rf"({layout.STDOUT}|{layout.STDERR})(\.rank[1-9]\d{{0,8}})?|validation_\d{{6,18}}\.log"
)


# What the driver asks for.


@final
@tagged("fetch")
@dataclass(frozen=True, slots=True)
class Fetch:
    """See `FileService.fetch`."""

    id: int
    trial_id: str
    record: CheckpointRecord
    holder: str
    for_trial: str


@final
@tagged("pin")
@dataclass(frozen=True, slots=True)
class Pin:
    """Keep the local copy of a checkpoint that is there, instead of the holder's former one."""

    trial_id: str
    remote: str
    holder: str


@final
@tagged("release")
@dataclass(frozen=True, slots=True)
class Release:
    """See `FileService.release`."""

    holders: list[str]


@final
@tagged("upload")
@dataclass(frozen=True, slots=True)
class Upload:
    """See `FileService.upload`."""

    id: int
    trial_id: str
    record: CheckpointRecord
    holder: str


@final
@tagged("measure")
@dataclass(frozen=True, slots=True)
class Measure:
    """Say what is there of a checkpoint that ranks have reported.

    Attributes:
        id: Identifies the request.
        trial_id: Their trial.
        attempt: Their attempt.
        parts: Names of the directories in which the ranks here have staged it, by rank.
        place: Name of the directory in which training code has placed it; empty if it has not.
    """

    id: int
    trial_id: str
    attempt: int
    parts: Mapping[int, str]
    place: str = ""


@final
@tagged("upload_part")
@dataclass(frozen=True, slots=True)
class UploadPart:
    """Upload what is there of a checkpoint.

    Attributes:
        id: Identifies the request.
        measured: The `Measure` that has found it.
        trial_id: The trial.
        remote: Name of the checkpoint in the store.
        left_out: Files that other nodes upload.
        with_metadata: Whether the user's metadata is to be uploaded.
    """

    id: int
    measured: int
    trial_id: str
    remote: str
    left_out: list[str]
    with_metadata: bool


@final
@tagged("discard")
@dataclass(frozen=True, slots=True)
class Discard:
    """Delete what ranks have staged for a checkpoint that does not come about."""

    trial_id: str
    attempt: int
    names: list[str]


@final
@tagged("put_payload")
@dataclass(frozen=True, slots=True)
class PutPayload:
    """See `FileService.put_payload`."""

    id: int
    trial_id: str
    name: str


@final
@tagged("get_payload")
@dataclass(frozen=True, slots=True)
class GetPayload:
    """See `FileService.get_payload`."""

    id: int
    trial_id: str
    name: str


@final
@tagged("drop_payload")
@dataclass(frozen=True, slots=True)
class DropPayload:
    """See `FileService.drop_payload`."""

    trial_id: str
    name: str


@final
@tagged("put_files")
@dataclass(frozen=True, slots=True)
class PutFiles:
    """See `FileService.put_files`."""

    id: int
    trial_id: str


@final
@tagged("give_up")
@dataclass(frozen=True, slots=True)
class GiveUp:
    """End a transfer for which nobody waits; it is not answered."""

    id: int


Transferring = Fetch | Upload | Measure | UploadPart | PutPayload | GetPayload | PutFiles
"""What is answered."""
FileRequest = Transferring | Pin | Release | Discard | DropPayload | GiveUp

FILE_REQUESTS: Final = Tagged[FileRequest](
    "kind",
    (
        Fetch,
        Upload,
        Measure,
        UploadPart,
        PutPayload,
        GetPayload,
        PutFiles,
        Pin,
        Release,
        Discard,
        DropPayload,
        GiveUp,
    ),
)
"""What the driver asks for."""


# What a node says.


@final
@tagged("transferred")
@dataclass(frozen=True, slots=True)
class Transferred:
    """What was asked for is done, or has failed.

    Attributes:
        id: The request.
        failure: Why it has failed; None if it has not.
        is_storage: Whether the node's disk or the store is at fault, so that it may work later.
    """

    id: int
    failure: Failure | None = None
    is_storage: bool = False


@final
@tagged("measured")
@dataclass(frozen=True, slots=True)
class Measured:
    """A node has measured its part of a checkpoint.

    Attributes:
        id: The request.
        contents: What is there; None for nothing.
        conflicts: A sentence for each file that its ranks have stored with different content.
    """

    id: int
    contents: PartContents | None
    conflicts: list[str]


@final
@tagged("output")
@dataclass(frozen=True, slots=True)
class Output:
    """A worker or a validator has written something.

    Attributes:
        trial_id: The trial.
        stream: Name of the file in the trial's directory.
        data: What is to be added to it, or to take its place, see `is_whole`.
    """

    trial_id: str
    stream: str
    data: str

    @property
    def is_whole(self) -> bool:
        """Whether it takes the place of what there is."""
        return self.stream == layout.RETURN_VALUE


FileRecord = Transferred | Measured | Output
"""What a node says about files."""

_CLASSES: Final = (Transferred, Measured, Output)
FILE_RECORDS: Final = Tagged[FileRecord]("kind", _CLASSES)
"""What a node says about files, see `read_file_record`."""

FILE_KINDS: Final = frozenset(map(tag_of, _CLASSES))
"""The kinds of these messages."""


def read_file_record(message: Mapping[str, Any]) -> FileRecord:
    """Return what a node says about files, which need not be what it was asked.

    Raises:
        ValueError: If the message is malformed.
    """
    record = FILE_RECORDS.decode(message)
    match record:
        case Measured(_, contents) if contents:
            check_names(contents)
        case Output(_, stream) if not (is_output(stream) or record.is_whole):
            raise Malformed(f"must be the name of a file with output, got {stream!r:.80}", "stream")
    return record


def is_output(name: str) -> bool:
    """Return whether a file of this name in a trial's directory has output of its processes."""
    return _STREAM.fullmatch(name) is not None
