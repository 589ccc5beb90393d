"""Repair of a damaged journal, where the user has no backup and asks for it.

Where a single bit was flipped, the line's checksum shows which: it is flipped back, and nothing is
lost. Where more is damaged, the journal is cut there. The records before the cut are exact. Those
after it depend on records that are unknown, so they are kept in another file and their work is done
again. Nothing is deleted.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner.errors import DamagedJournal, StorageError
from tuner.storage import atomic
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import journal_directory, segments_in

from .reader import Walk, verified
from .records import RESULT
from .rows import RESULT_OF
from .segments import body_of

ASIDE_PREFIX: Final = "damaged-"
_REPAIRABLE_BYTES: Final = 4096
"""A longer stretch is not searched for the flipped bit: it would take long, and the checksum might
be met by chance."""

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was repaired in a damaged journal.

    Attributes:
        repaired: Where a flipped bit was turned back: file and byte at which its line begins.
        cut_at: File and byte at which the journal was cut, None if it did not have to be.
        lost: How many results of each trial lay behind the cut.
    """

    repaired: tuple[tuple[Path, int], ...] = ()
    cut_at: tuple[Path, int] | None = None
    lost: Mapping[str, int] = field(default_factory=dict)


def repair_journal(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> RepairReport:
    """Repair a journal so that the experiment can be continued; one that is sound is left as it is.

    Every file that is changed is kept beside it, as ``damaged-<name>``.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        disk: Where it lies.

    Returns:
        What was done, which is also logged as warnings.

    Raises:
        DamagedJournal: If nothing of the journal could be kept; it is left as it was.
        StorageError: If it cannot be read or written.
    """
    repaired: list[tuple[Path, int]] = []
    while damage := _find_damage(experiment, disk):
        path, offset = damage
        try:
            if not _flip_bit_back(path, offset, disk):
                return RepairReport(tuple(repaired), damage, _cut(experiment, path, offset, disk))
        except OSError as cause:
            raise StorageError(
                f"the damage in journal {path} cannot be repaired: {cause}"
            ) from cause
        _log.warning(
            "journal %s: a flipped bit in the line at byte %d was turned back, nothing of it is "
            "lost",
            path,
            offset,
        )
        repaired.append(damage)
    return RepairReport(tuple(repaired))


def _find_damage(experiment: str | os.PathLike[str], disk: Disk) -> tuple[Path, int] | None:
    try:
        for _ in verified(experiment, 0, disk):
            pass
    except DamagedJournal as damage:
        if damage.path is None:
            raise
        return Path(damage.path), damage.offset
    return None


def _flip_bit_back(path: Path, offset: int, disk: Disk) -> bool:
    """Flip back the bit that explains the damage at this byte; return whether there is one."""
    data = disk.read(path)
    line_end = data.find(b"\n", offset)
    # A line break may have come into the line, or have gone from it.
    stretch_end = data.find(b"\n", line_end + 1) + 1 or len(data)
    if (
        line_end < 0
        or stretch_end - offset > _REPAIRABLE_BYTES
        or body_of(data[offset:line_end]) is not None
    ):
        return False
    stretch = bytearray(data[offset:stretch_end])
    for position in range(len(stretch)):
        for bit in range(8):
            stretch[position] ^= 1 << bit
            if body_of(bytes(stretch[: max(stretch.find(b"\n"), 0)])) is not None:
                whole = data[:offset] + bytes(stretch) + data[stretch_end:]
                if _is_next_record(path, whole, offset):
                    _replace(path, data, whole, disk)
                    return True
            stretch[position] ^= 1 << bit
    return False


def _is_next_record(path: Path, data: bytes, offset: int) -> bool:
    """Return whether the line at this byte is the record that follows the one before it."""
    # A changed bit may make the checksum match by chance, or restore another record.
    walk = Walk()
    try:
        for at, _ in walk.through(path, data, None):
            if at >= offset:
                return True
    except (DamagedJournal, ValueError):
        return offset == 0 and walk.tail is not None
    return walk.torn_at is None


def _replace(path: Path, before: bytes, after: bytes, disk: Disk) -> None:
    aside = unused_name(path, disk)
    atomic.write_bytes(aside, before, disk=disk)
    atomic.write_bytes(path, after, disk=disk)


def _cut(experiment: str | os.PathLike[str], path: Path, offset: int, disk: Disk) -> dict[str, int]:
    segments = [segment for _, segment in segments_in(journal_directory(experiment), disk)]
    behind = segments[segments.index(path) + 1 :]
    data = disk.read(path)
    kept = data[:offset]
    if not (kept.count(b"\n") > 1 or segments.index(path)):
        raise DamagedJournal(
            f"journal {path} is damaged at byte {offset}, and no record stands before that; "
            "restore it from a backup"
        )
    lost = Counter(_trials_of(data[offset:]))
    for segment in behind:
        lost.update(_trials_of(disk.read(segment)))
    # The last first, so that what a crash leaves is cut again at the same place.
    for segment in reversed(behind):
        disk.rename(segment, unused_name(segment, disk))
    if kept:
        _replace(path, data, kept, disk)
    else:
        disk.rename(path, unused_name(path, disk))
    disk.sync_directory(path.parent)
    _log.warning(
        "journal %s is damaged at byte %d and was cut there; what lay behind it is kept beside it "
        "and done again: %s",
        path,
        offset,
        ", ".join(
            f"{number} results of trial {trial_id}" for trial_id, number in sorted(lost.items())
        )
        or "no results",
    )
    return dict(lost)


def _trials_of(data: bytes) -> list[str]:
    """Return the trial of each result in the data."""
    bodies = (body_of(line) for line in data.split(b"\n"))
    found = (RESULT_OF.match(body) for body in bodies if body and RESULT.encode() in body)
    return [match[1].decode() for match in found if match]


def unused_name(path: Path, disk: Disk = LOCAL_DISK) -> Path:
    """Return an unused name beside a file: ``damaged-<name>``, ``damaged-<name>.1``, ..."""
    taken = set(disk.names(path.parent))
    name = f"{ASIDE_PREFIX}{path.name}"
    names = (f"{name}.{number}" if number else name for number in itertools.count())
    return path.with_name(next(name for name in names if name not in taken))
