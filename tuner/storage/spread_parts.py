"""Checkpoints of which each of several machines has a part, put together in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from tuner.errors import CheckpointError
from tuner.wire.record import record

from .manifest import FileEntry, PartContents, check_names


@final
@record
class Combined:
    """What a checkpoint consists of, and which machine uploads what.

    Attributes:
        contents: All of it.
        left_out: By machine, the files that it has and another one uploads.
        metadata_of: The machine that uploads the user's metadata; empty for none.
        conflicts: A sentence for each file that machines have with different content.
    """

    contents: PartContents
    left_out: dict[str, list[str]]
    metadata_of: str
    conflicts: list[str]


def combine(parts: Sequence[tuple[str, PartContents]]) -> Combined:
    """Decide which machine uploads which files of a checkpoint.

    Of files with the same name, that of the highest rank counts, and where ranks have not measured
    them, that of the last machine.

    Args:
        parts: Machines, and what they have.

    Raises:
        CheckpointError: If one has a file where another has a folder.

    Example:
        >>> both, own = FileEntry(1, "a1", 0), FileEntry(2, "b2", 1)
        >>> found = combine(
        ...     [
        ...         ("x", PartContents({"all": both}, {}, [])),
        ...         ("y", PartContents({"all": replace(both, rank=1), "own": own}, {}, [])),
        ...     ]
        ... )
        >>> sorted(found.contents.files), found.left_out
        (['all', 'own'], {'x': ['all'], 'y': []})
    """
    files: dict[str, tuple[str, FileEntry]] = {}
    links: dict[str, str] = {}
    left_out: dict[str, list[str]] = {machine: [] for machine, _ in parts}
    conflicts: list[str] = []
    metadata_of = ""
    for machine, part in parts:
        for name, entry in part.files.items():
            owner, before = files.get(name, ("", None))
            if before and replace(before, rank=None) != replace(entry, rank=None):
                conflicts.append(
                    f"file {name} of a checkpoint differs between the nodes {owner} and {machine}, "
                    "and that of the highest rank counts; give each rank's file its own name"
                )
            if before and (before.rank or 0) > (entry.rank or 0):
                left_out[machine].append(name)
                continue
            if before:
                left_out[owner].append(name)
            files[name] = machine, entry
        links.update(part.links)
        metadata_of = machine if part.has_metadata else metadata_of
    contents = PartContents(
        {name: entry for name, (_, entry) in sorted(files.items())},
        links,
        sorted({name for _, part in parts for name in part.directories}),
    )
    try:
        check_names(contents)
    except ValueError as cause:
        raise CheckpointError(
            f"the parts of a checkpoint do not fit together: {cause}; have all ranks store files, "
            "folders and links of the same name alike"
        ) from cause
    return Combined(contents, left_out, metadata_of, conflicts)
