"""What has happened to an experiment, as its journal tells it: events with what was decided on them, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.core.events import Event, TurnEnded
from tuner.core.policies import RecordedDecision
from tuner.errors import StorageError
from tuner.storage.declaration import THIS_RELEASE, writer_of
from tuner.storage.disk import LOCAL_DISK, Disk

from . import records
from .reader import read


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that has happened.

    Attributes:
        event: What; None for the beginning or the end of a driver's life, by which time has passed and nothing else happened.
        at_s: When, in seconds of experiment time, which never goes back.
        recorded: What was decided on it.
    """

    event: Event | None
    at_s: float
    recorded: Sequence[RecordedDecision] = ()


def happened(
    directory: Path, after: int = 0, elapsed_s: float = 0.0, disk: Disk = LOCAL_DISK
) -> Iterator[Happened]:
    """Yield all that has happened to an experiment, in a form that `Experiment.handle` takes.

    Args:
        directory: The experiment's directory; a driver may be writing in it.
        after: Number of the last record not to be read, e.g. that of a snapshot.
        elapsed_s: The experiment's running time at that record.
        disk: Where the journal lies.

    Raises:
        StorageError: If a record is of a kind that this release does not know.
        DamagedJournal: If the journal does not verify; a torn end does.
    """
    for body in read(directory, after, disk):
        try:
            if not records.is_event(body):
                elapsed_s = max(
                    elapsed_s, records.stamp_of(body)
                )  # not even behind the mark of an end does time go back
                yield Happened(None, elapsed_s)
                continue
            if records.ROUTINE_END in body:
                yield Happened(TurnEnded(), records.stamp_of(body, records.ROUTINE_END))
            event, elapsed_s, recorded = records.decode(body)
        except StorageError as cause:
            told = f"{str(directory)!r} was written by {writer_of(directory)}, this is version {THIS_RELEASE}"
            raise StorageError(f"{cause}; {told}") from cause
        yield Happened(event, elapsed_s, recorded)
