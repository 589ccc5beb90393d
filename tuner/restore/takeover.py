"""Takeover of an experiment by a new driver: check journal, restore, repair its end, clean up."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tuner.journal import completeness
from tuner.journal.mark import Mark
from tuner.journal.reader import recover
from tuner.journal.segments import JournalPosition
from tuner.storage import checkpoint_directories, layout
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.wire.record import record

from .snapshot_state import Restored

_log = logging.getLogger("tuner")


@record
class Takeover:
    """An experiment that a new driver has taken over.

    Attributes:
        restored: The experiment.
        end: Where the new driver continues the journal.
        missing: What the journal lacks at its end.
    """

    restored: Restored
    end: JournalPosition
    missing: list[str]


def take_over(
    directory: Path,
    mark: Mark,
    restore: Callable[[], Restored],
    *,
    is_salvage: bool = False,
    disk: Disk = LOCAL_DISK,
    current_boot: str | None = None,
) -> Takeover:
    """Restore an experiment and prepare its journal for a new driver.

    Args:
        directory: The experiment's directory, whose lock the caller holds.
        mark: What the drivers before have noted of the journal.
        restore: Restores the experiment from its newest snapshot and the journal.
        is_salvage: Whether to accept a journal that lacks records, and keep aside what trials have
            written and it does not know.
        disk: Where the journal lies.
        current_boot: The start of this machine; None to ask the system.

    Raises:
        DamagedJournal: If the journal does not verify, or lacks what no power cut can have taken.
        StorageError: If the experiment cannot be restored, or a file not be repaired.
    """
    # Before the restore, since this removes snapshots that contain more than the journal does.
    _, missing = completeness.check_end(
        directory, mark, is_salvage=is_salvage, disk=disk, current_boot=current_boot
    )
    restored = restore()
    if is_salvage:
        from tuner.journal.salvage import set_aside_unrecorded  # noqa: PLC0415  (seldom)

        set_aside_unrecorded(directory, restored.state.experiment.trials)
    elif missing:
        _log.warning("%s", completeness.power_cut_warning(missing, mark))
    # Last, since it cuts a torn record off: an experiment that is refused stays as it was found.
    end = recover(directory, disk=disk)
    # Where segments of a driver are missing, its epoch is not used again: the mark would no longer
    # show that they are missing.
    epoch = max(end.epoch, mark.epoch)
    return Takeover(restored, end._replace(epoch=epoch), missing)


def remove_unfinished(
    experiment: str | os.PathLike[str], recorded: Mapping[str, Collection[str] | None]
) -> list[Path]:
    """Remove files that a driver or worker has left unfinished or unrecorded.

    These are staging directories and temporary files, and checkpoints that were renamed but never
    recorded, or superseded but not yet deleted. What cannot be removed is logged and left.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        recorded: For each trial the names of its checkpoints, None to keep all of them. Other
            directories are not looked at.

    Returns:
        What was removed.
    """
    directory = Path(experiment)
    removed = [
        path
        for name in ("", *layout.FOLDERS_WITH_STAGING)
        for path in _removed_in(os.fspath(directory / name), None)
    ]
    with os.scandir(directory) as entries:
        trials = sorted(
            entry.name
            for entry in entries
            if entry.name in recorded and entry.is_dir(follow_symlinks=False)
        )
    for trial_id in trials:
        removed += _removed_in(layout.trial_path(directory, trial_id), recorded[trial_id])
    return removed


def _removed_in(folder: str, recorded: Collection[str] | None) -> list[Path]:
    try:
        removed = checkpoint_directories.remove_unfinished(folder, recorded)
        return [Path(folder, name) for name in removed]
    except OSError as refusal:
        _log.warning("unfinished files in %s cannot be removed: %s", folder, refusal)
        return []
