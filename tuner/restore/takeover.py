"""Takeover of an experiment by a new driver: check the journal, restore, and repair its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.journal import completeness
from tuner.journal.mark import Mark
from tuner.journal.reader import recover
from tuner.journal.salvage import set_aside_unrecorded
from tuner.journal.segments import JournalPosition
from tuner.storage.disk import LOCAL_DISK, Disk

from .snapshot_state import Restored

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
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
        set_aside_unrecorded(directory, restored.state.experiment.trials)
    elif missing:
        _log.warning("%s", completeness.power_cut_warning(missing, mark))
    # Last, since it cuts a torn record off: an experiment that is refused stays as it was found.
    end = recover(directory, disk=disk)
    # Where segments of a driver are missing, its epoch is not used again: the mark would no longer
    # show that they are missing.
    epoch = max(end.epoch, mark.epoch)
    return Takeover(restored, end._replace(epoch=epoch), missing)
