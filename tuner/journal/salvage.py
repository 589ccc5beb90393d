"""Salvage of a damaged or incomplete journal, where the user has no backup and asks for it.

A journal is cut at its first damage. The records before the cut are exact. Those after it depend on
records that are unknown, so they are kept in other files and their work is done again, as is what
trials have written after that. Nothing is deleted.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuner.core.trial import Trial
from tuner.errors import DamagedJournal, StorageError
from tuner.storage import layout
from tuner.storage.checkpoint_directories import numbered
from tuner.storage.disk import LOCAL_DISK, Disk, open_file, write_bytes
from tuner.storage.layout import journal_directory, segments_in

from .reader import verified
from .records import RESULT
from .result_records import RESULT_OF
from .segments import body_of

ASIDE_PREFIX: Final = "damaged-"

_log = logging.getLogger("tuner")


def cut_at_damage(experiment: str | os.PathLike[str], disk: Disk = LOCAL_DISK) -> None:
    """Cut a journal at its first damage, with a warning; one that is sound is left as it is.

    Every file that is changed is kept beside it, as ``damaged-<name>``.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        disk: Where it lies.

    Raises:
        DamagedJournal: If nothing of the journal could be kept; it is left as it was.
        StorageError: If it cannot be read or written.
    """
    try:
        for _ in verified(experiment, 0, disk):
            pass
    except DamagedJournal as damage:
        if damage.path is None:
            raise
        path, offset = Path(damage.path), damage.offset
        try:
            lost = _cut(experiment, path, offset, disk)
        except OSError as cause:
            raise StorageError(f"damaged journal {path} cannot be cut: {cause}") from cause
        _log.warning(
            "journal %s is damaged at byte %d and was cut there; what lay behind it is kept beside "
            "it and done again: %s",
            path,
            offset,
            ", ".join(f"{lost[trial_id]} results of trial {trial_id}" for trial_id in sorted(lost))
            or "no results",
        )


def _cut(experiment: str | os.PathLike[str], path: Path, offset: int, disk: Disk) -> Counter[str]:
    """Cut the journal at a byte, and return how many results of each trial lay behind it."""
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
        disk.rename(segment, _unused_name(segment, disk))
    if kept:
        write_bytes(_unused_name(path, disk), data, disk=disk)
        write_bytes(path, kept, disk=disk)
    else:
        disk.rename(path, _unused_name(path, disk))
    disk.sync_directory(path.parent)
    return lost


def _trials_of(data: bytes) -> list[str]:
    """Return the trial of each result in the data."""
    bodies = (body_of(line) for line in data.split(b"\n"))
    found = (RESULT_OF.match(body) for body in bodies if body and RESULT.encode() in body)
    return [match[1].decode() for match in found if match]


def set_aside_unrecorded(experiment: Path, trials: Iterable[Trial]) -> None:
    """Rename what trials have written and the journal lost, so that nothing overwrites it.

    These are directories of trials that it does not know, later checkpoints than it knows, and
    copies of log files with more rows.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        trials: All trials, as the journal leaves them.

    Raises:
        StorageError: If something cannot be renamed or copied.
    """
    known = {trial.trial_id: trial for trial in trials}
    kept: list[Path] = []
    try:
        for folder in sorted(experiment.iterdir()):
            if not layout.is_trial(folder.name) or folder.is_symlink() or not folder.is_dir():
                continue
            if (trial := known.get(folder.name)) is None:
                kept.append(folder.rename(_unused_name(folder)))
                continue
            later = [name for name, i in numbered(folder) if i >= trial.next_checkpoint]
            kept += [(folder / name).rename(_unused_name(folder / name)) for name in later]
            if _num_lines(folder / layout.RESULTS) > trial.num_rows:
                kept += map(_copied, (folder / layout.RESULTS, folder / layout.PROGRESS))
    except OSError as cause:
        raise StorageError(
            f"what contradicts the journal of {experiment} cannot be kept aside: {cause}"
        ) from cause
    if kept:
        names = ", ".join(path.relative_to(experiment).as_posix() for path in kept)
        _log.warning(
            "kept aside, since the journal of %s knows nothing of it: %s", experiment, names
        )


def _num_lines(path: Path) -> int:
    with suppress(OSError), open_file(path) as file:
        return sum(1 for _ in file)
    return 0


def _copied(path: Path) -> Path:
    aside = _unused_name(path)
    with suppress(FileNotFoundError):
        shutil.copyfile(path, aside, follow_symlinks=False)
    return aside


def _unused_name(path: Path, disk: Disk = LOCAL_DISK) -> Path:
    """Return an unused name beside a file: ``damaged-<name>``, ``damaged-<name>.1``, ..."""
    taken = set(disk.names(path.parent))
    name = f"{ASIDE_PREFIX}{path.name}"
    names = (f"{name}.{number}" if number else name for number in itertools.count())
    return path.with_name(next(name for name in names if name not in taken))
