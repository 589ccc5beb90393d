"""Journals that lose files between two drivers: none of them may be taken for one that is whole."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast, final

from tuner.errors import DamagedJournal
from tuner.journal.completeness import checked_end
from tuner.storage.disk import Disk
from tuner.storage.layout import JOURNAL

from .environment import World
from .invariants import require

_RATE = 0.2


@final
class _Found:
    """The journal's directory as the next driver finds it, to be read only.

    Args:
        files: Its files by their names.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        return list(self._files) if directory.name == JOURNAL else []

    def read(self, path: Path) -> bytes:
        """See `Disk.read`."""
        return self._files[path.name]


def a_lost_segment_is_missed(world: World, chance: Random) -> None:
    """I14: whoever finds the journal without its newest segment, or without any, refuses it.

    Args:
        world: The world, in which no driver lives.
        chance: The generator of what is lost.
    """
    mark, files = world.mark(), world.journal_files()
    segments = sorted(name for name in files if name.endswith(".log"))
    may_be_lost = world.scenario.durability == "process" and mark.boot_id != world.boot_id
    if not segments or not mark.epoch or chance.random() >= _RATE or may_be_lost:
        return
    newest = segments[-1]
    header, *earlier = (
        world.ledger.reader.record(files[name].partition(b"\n")[0]) for name in segments[:-3:-1]
    )
    is_first = not (header and earlier and earlier[0]) or earlier[0]["e"] < header["e"]
    # Before it was noted nothing had been written to it that stands nowhere else.
    is_noted = header is not None and (
        mark.segment == header["first"] or (mark.epoch == header["e"] and is_first)
    )
    how = chance.choice(("removed", "emptied", "zeroed")) if is_noted else "all removed"
    if how == "all removed":
        files = {}
    elif how == "removed":
        del files[newest]
    else:
        files[newest] = bytes(len(files[newest])) if how == "zeroed" else b""
    try:
        checked_end(world.directory, mark, disk=cast("Disk", _Found(files)), now=world.boot_id)
    except DamagedJournal:
        world.seen["journal without a segment refused"] += 1
    else:
        require("I14", False, f"{newest} was {how}, and that is not missed")
