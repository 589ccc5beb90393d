"""Completeness check of a journal against its mark and the snapshots.

A journal that lost its newest segment, or all of them, verifies: what is missing at the end leaves
no gap. Two things show it, since they are written after the journal, whenever a process dies:

- the mark that a driver leaves, see `mark`, when a segment and its name have been synced;
- a snapshot, which is written when its last record has been synced.

What only the files of trials would show is not looked for: a restore continues from the journal,
and does again what it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.errors import DamagedJournal, StorageError
from tuner.storage import layout
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import journal_directory

from . import snapshot_files
from .mark import Mark, file_of_trial, read_mark
from .reader import End, find_end, verified
from .segments import JournalPosition


def find_missing(experiment: Path, mark: Mark, end: End, disk: Disk = LOCAL_DISK) -> list[str]:
    """Return what a journal lacks at its end, and what shows it.

    Args:
        experiment: Directory of the experiment.
        mark: What was noted of the journal.
        end: Its end.
        disk: Where it lies.
    """
    missing, tail = [], end.tail
    if tail.epoch < mark.epoch:
        ends = f"it ends with driver {tail.epoch}" if tail.epoch else "it has no segment"
        missing.append(f"driver {mark.epoch} has written to it ({ends})")
    elif end.last is not None and int(end.last[0].stem) < mark.segment:
        missing.append(f"the segment that began with record {mark.segment} is missing")
    elif not tail.epoch and (path := file_of_trial(experiment)):
        # Early releases left no mark.
        name = path.relative_to(experiment).as_posix()
        missing.append(f"{name} is there, and no record of it")
    for path in snapshot_files.paths(experiment, disk):
        if int(path.stem) <= tail.sequence:
            break
        # A damaged snapshot proves nothing: its name may be all that a power cut left of it.
        with suppress(OSError, ValueError, KeyError, TypeError, StorageError):
            snapshot_files.load(path, disk)
            missing.append(
                f"{layout.SNAPSHOT}/{path.name} was taken behind record {int(path.stem)}"
            )
            break
    return missing


def check_end(
    experiment: Path,
    mark: Mark,
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    current_boot: str | None = None,
) -> tuple[JournalPosition, list[str]]:
    """Return where a journal ends, and what it lacks.

    Snapshots that contain records which it lacks are removed.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        mark: What was noted of the journal.
        is_salvage: Whether to accept a journal that lacks records.
        disk: Where it lies.
        current_boot: See `Mark.explains_loss`.

    Raises:
        DamagedJournal: If its last segment is damaged, or it lacks what no power cut can have
            taken; nothing is changed then.
        StorageError: If it cannot be read, or a snapshot not be removed.
    """
    end = find_end(experiment, disk=disk)
    missing = find_missing(experiment, mark, end, disk)
    if missing and not is_salvage and not mark.explains_loss(current_boot):
        raise incomplete_error(experiment, missing, end.tail)
    if missing:
        snapshot_files.discard_after(experiment, end.tail.sequence, disk)
    return end.tail, missing


def check(experiment: Path) -> None:
    """Raise if the journal of an experiment is damaged or lacks records.

    Raises:
        DamagedJournal: If it lacks what no power cut can have taken, or does not verify.
        StorageError: If it cannot be read.
    """
    for _ in verified(experiment, 0, LOCAL_DISK):
        pass
    mark, end = read_mark(experiment), find_end(experiment)
    missing = find_missing(experiment, mark, end)
    if missing and not mark.explains_loss():
        raise incomplete_error(experiment, missing, end.tail)


def power_cut_warning(missing: Sequence[str], mark: Mark) -> str:
    """Return the warning about a loss that a power cut explains."""
    return (
        "the machine has been started anew since the experiment was last driven, and what "
        f"durability={mark.durability!r} lets a power cut take is gone: {', '.join(missing)}; it "
        "is trained again"
    )


def incomplete_error(
    experiment: Path, missing: Sequence[str], tail: JournalPosition
) -> DamagedJournal:
    """Return the error for a journal that lacks something and ends at `tail`."""
    holds = f"records 1 to {tail.sequence} are" if tail.sequence else "no record is"
    return DamagedJournal(
        f"journal {journal_directory(experiment)} is incomplete, {holds} there: "
        f"{', '.join(missing)}; put its files back from a backup, or have "
        f"Tuner.restore({str(experiment)!r}, trainable, salvage=True) go on from what is there and "
        "keep aside what contradicts it"
    )
