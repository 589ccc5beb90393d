"""Proofs of a journal that are outside of it.

A driver leaves a *mark* in ``experiment.json`` and in the lock file. Where the declaration is gone
with the journal, files of trials and snapshots prove that there was one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuner.storage import layout
from tuner.storage.declaration import read_declaration
from tuner.storage.lock import boot_id, read_note
from tuner.wire.record import record

from . import snapshot_files

MARK: Final = "journal"
"""Key of the mark in ``experiment.json``."""


@record
class Mark:
    """A note outside of the journal, made when its newest segment had been begun.

    Attributes:
        epoch: How many drivers have begun a segment; 0 where that was not noted.
        segment: Number of the first record of the newest segment; 0 where that was not noted.
        boot_id: Which start of which machine the driver belonged to; empty where that is not known.
        durability: The durability setting of the driver.
    """

    epoch: int = 0
    segment: int = 0
    boot_id: str = ""
    durability: str = "group"

    def explains_loss(self, current_boot: str | None = None) -> bool:
        """Return whether a power cut since then may have taken segments, which were not synced.

        Args:
            current_boot: The present start of this machine; None to ask the system.
        """
        # The same start of the machine: there was no power cut since. Without a note there may have
        # been one.
        is_same = self.boot_id and self.boot_id == (
            boot_id() if current_boot is None else current_boot
        )
        return self.durability == "process" and not is_same


def mark_fields(epoch: int, durability: str) -> dict[str, Any]:
    """Return the fields of the mark in ``experiment.json``."""
    return {"epoch": epoch, "boot_id": boot_id(), "durability": durability}


def read_mark(experiment: Path) -> Mark:
    """Return what was noted of the journal in ``experiment.json`` and in the lock file.

    Earlier releases noted nothing.

    Raises:
        StorageError: If there is no declaration that can be read.
    """
    declaration = read_declaration(experiment)
    noted, note = declaration.get(MARK), read_note(experiment)
    noted = noted if isinstance(noted, Mapping) else {}
    settings = declaration.get("run_config")
    durability = noted.get("durability") or (
        settings.get("durability") if isinstance(settings, Mapping) else None
    )
    return Mark(
        max(_as_int(noted.get("epoch")), _as_int(note.get("epoch"))),
        _as_int(note.get("segment")),
        str(noted.get("boot_id") or note.get("boot_id") or ""),
        str(durability or "group"),
    )


def _as_int(number: Any) -> int:
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def remains_in(experiment: Path) -> str:
    """Return a file that proves an experiment without declaration and journal; empty if none."""
    path = file_of_trial(experiment) or next(iter(snapshot_files.paths(experiment)), None)
    return path.relative_to(experiment).as_posix() if path else ""


def file_of_trial(experiment: Path) -> Path | None:
    """Return a file that a trial has left; None if there is none."""
    found = (
        path
        for name in (layout.RESULTS, f"{layout.CHECKPOINT_PREFIX}*")
        for path in sorted(experiment.glob(f"*/{name}"))
        if layout.is_trial(path.parent.name) and not path.is_symlink()
    )
    return next(found, None)
