"""Checkpoints of a group of workers: each stages its part, then the parts are merged.

Each worker places its files in a staging directory of its own, measures and syncs them, and writes
them down in a *part manifest*: all that takes long is done in parallel. Once all parts are there,
`commit_parts` moves their files together by renaming, writes the manifest last and gives the result
its final name. A directory that the workers have in common needs no part manifest; its files are
measured by the commit.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final, final

from tuner.core.worker_records import checkpoint_directory_name
from tuner.errors import CheckpointError
from tuner.wire.record import record

from .checkpoint_directories import discarded_on_error, is_staged, publish, settle, stage
from .checkpoint_names import check_directory_name
from .layout import (
    CHECKPOINT_PREFIX,
    PART_MANIFEST,
)
from .manifest import (
    FileEntry,
    PartContents,
    Provenance,
    part_contents,
    read_part_manifest,
    write_group_manifest,
    write_manifest,
    write_part_manifest,
)
from .tree_state import TreeState, check_unchanged
from .trees import contents_of, copy_tree, replace_link, sync_file, sync_files

_NUMBERED: Final = re.compile(CHECKPOINT_PREFIX + r"\d{6,18}")


def check_chosen_name(name: str, index: int) -> str:
    """Return the name that training code has chosen for its checkpoint's directory.

    Args:
        name: The name.
        index: Index of the checkpoint.

    Raises:
        ValueError: If it is none, see `check_directory_name`, if it has several parts, or if it is
            the numbered name of another checkpoint.
    """
    if "/" in name:
        raise ValueError(
            "the name of a checkpoint's directory must be that of a directory directly inside the "
            f"trial's, got {name!r}; leave out slashes"
        )
    _check_number(check_directory_name(name), index)
    return name


def _check_number(name: str, index: int) -> None:
    """Raise ValueError if a directory is, or lies in, one with another checkpoint's number."""
    first = PurePosixPath(name).parts[0]
    if _NUMBERED.fullmatch(first) and first != checkpoint_directory_name(index):
        raise ValueError(
            f"the name of this checkpoint's directory must not be the numbered name of another "
            f"one, got {name!r} where the number is {index}; use one like 'epoch_3'"
        )


def stage_part(
    source: str | os.PathLike[str],
    trial_dir: str | os.PathLike[str],
    provenance: Provenance,
    *,
    rank: int,
    sync: bool = True,
    is_moved: bool = False,
    seen: TreeState | None = None,
) -> str:
    """Place what a worker reports in a staging directory, measured and synced; return its name.

    A directory that the workers have in common stays as it is: others may still write to it.

    Args:
        source: The worker's directory.
        trial_dir: The trial's directory.
        provenance: Of which result the checkpoint is.
        rank: The worker's rank.
        sync: Return only when all of it is on disk.
        is_moved: Whether `source` is a staging directory that the worker alone has.
        seen: State of the directory in which it still has to be; None for any.

    Raises:
        CheckpointError: If it could not be written, or has changed; no copy is left then.
    """
    if is_staged(source, trial_dir) and not is_moved:
        check_unchanged(os.fspath(source), seen)
        return Path(os.path.realpath(source)).name
    staging = Path(source) if is_moved else stage(trial_dir, provenance.index, provenance.attempt)
    with discarded_on_error(staging, source, trial_dir):
        if not is_moved:
            copy_tree(Path(source), staging)
            check_unchanged(os.fspath(source), seen)
        contents = settle(staging, sync=sync)
        write_part_manifest(staging, contents, rank=rank, sync=sync)
    return staging.name


def commit_parts(
    parts: Sequence[tuple[int, str]],
    trial_dir: str | os.PathLike[str],
    provenance: Provenance,
    *,
    world_size: int,
    sync: bool = True,
    name: str = "",
) -> tuple[Path, list[str]]:
    """Merge the parts of a group's checkpoint and commit it.

    Of files with the same name, that of the highest rank counts.

    Args:
        parts: Rank and name of the staging directory of each worker that has reported one, lowest
            rank first. Several may name the same directory, which they have in common.
        trial_dir: The trial's directory.
        provenance: Of which result the checkpoint is.
        world_size: How many workers the group has.
        sync: Return only when all of it is on disk.
        name: Name of the checkpoint's directory; empty for the numbered one.

    Returns:
        The checkpoint's directory, and for each file that ranks have stored with different content
        a sentence that says so.

    Raises:
        CheckpointError: If it could not be written. Nothing has the final name then.
    """
    final_path = Path(trial_dir) / (name or checkpoint_directory_name(provenance.index))
    try:
        base, measured, conflicts = _merge_all(parts, Path(trial_dir))
        # Its files are synced below, where their workers have not done that.
        contents = settle(base, sync=False)
        if sync:
            unsynced = [each for each in contents.files if each not in measured]
            sync_files(f"{base}/{each}" for each in (*unsynced, *contents.directories))
        named = replace(provenance, name=name)
        write_group_manifest(
            base, contents, named, world_size=world_size, parts=measured, sync=sync
        )
        publish(base, final_path, sync=sync)
    except OSError as cause:
        raise CheckpointError(f"checkpoint {final_path} could not be written: {cause}") from cause
    return final_path, conflicts


@final
@record
class LocalParts:
    """What the ranks on one machine have stored of a checkpoint that others have parts of, too.

    Attributes:
        path: The directory in which it is.
        contents: What is there.
        conflicts: A sentence for each file that ranks have stored with different content.
        is_staged: Whether it is to be deleted once it is stored elsewhere.
    """

    path: Path
    contents: PartContents
    conflicts: Sequence[str] = ()
    is_staged: bool = True


def measure_parts(parts: Sequence[tuple[int, str]], trial_dir: Path) -> LocalParts:
    """Merge the parts of the ranks on one machine, for a checkpoint in an object store.

    Args:
        parts: See `commit_parts`.
        trial_dir: The trial's directory.

    Raises:
        CheckpointError: If a link leads out of it, or it could not be read or written.
    """
    try:
        base, measured, conflicts = _merge_all(parts, trial_dir)
        contents = part_contents(base, settle(base, sync=False), measured)
    except OSError as cause:
        raise CheckpointError(f"a part of a checkpoint could not be read: {cause}") from cause
    return LocalParts(base, contents, conflicts)


def measure_in_place(name: str, trial_dir: Path) -> LocalParts | None:
    """Return what there is of a checkpoint that the training code has placed itself, if anything.

    Raises:
        CheckpointError: If a link leads out of it, or it could not be read.
    """
    path = trial_dir / check_directory_name(name)
    if not path.is_dir():
        return None
    try:
        contents = part_contents(path, contents_of(path), {})
    except OSError as cause:
        raise CheckpointError(f"checkpoint {path} could not be read: {cause}") from cause
    return LocalParts(path, contents, is_staged=False)


def _merge_all(
    parts: Sequence[tuple[int, str]], trial_dir: Path
) -> tuple[Path, dict[str, FileEntry], list[str]]:
    """Merge staged parts; return where, the files that workers have measured, and conflicts."""
    staged: dict[str, int] = {}
    for rank, part in parts:
        staged.setdefault(part, rank)
    first, *others = staged
    base = trial_dir / first
    measured = _take_measured(base)
    conflicts: list[str] = []
    for part in others:
        conflicts += _merge(trial_dir / part, staged[part], base, measured)
    return base, measured, conflicts


def _take_measured(part: Path) -> dict[str, FileEntry]:
    """Return what a worker has measured, and remove its part manifest; empty if there is none."""
    if not (part / PART_MANIFEST).is_file():
        return {}
    entries = read_part_manifest(part)
    (part / PART_MANIFEST).unlink()
    return entries


def _merge(part: Path, rank: int, base: Path, measured: dict[str, FileEntry]) -> list[str]:
    """Move the files of a part into the directory that the checkpoint is made of."""
    entries = _take_measured(part)
    contents = contents_of(part)
    for name in contents.directories:
        (base / name).mkdir(exist_ok=True)
    conflicts = []
    for name in contents.files:
        before, now = measured.get(name), entries.get(name)
        if before and now and replace(before, rank=rank) != replace(now, rank=rank):
            conflicts.append(
                f"file {name} of a checkpoint differs between ranks {before.rank} and "
                f"{rank}, and that of rank {rank} counts; give each rank's file its own name"
            )
        os.replace(part / name, base / name)  # noqa: PTH105  (the twin of Path.rename)
        measured.pop(name, None)
        if now:
            measured[name] = now
    for name, leads_to in contents.links.items():
        replace_link(base / name, leads_to)
    shutil.rmtree(part)
    return conflicts


def commit_in_place(
    name: str,
    trial_dir: str | os.PathLike[str],
    provenance: Provenance,
    *,
    world_size: int | None = None,
    sync: bool = True,
) -> Path:
    """Write the manifest of a checkpoint that the training code has placed itself.

    Args:
        name: Name of its directory inside the trial's.
        trial_dir: The trial's directory.
        provenance: Of which result it is.
        world_size: How many workers have written it; None for a single process.
        sync: Return only when all of it is on disk.

    Raises:
        CheckpointError: If it could not be read or written, or a link leads out of it.
    """
    directory = Path(trial_dir, name)
    try:
        contents = contents_of(directory)
        if sync:
            sync_files(f"{directory}/{each}" for each in (*contents.files, *contents.directories))
        if world_size is None:
            write_manifest(directory, contents, provenance, sync=sync)
        else:
            write_group_manifest(
                directory, contents, provenance, world_size=world_size, parts={}, sync=sync
            )
        if sync:
            sync_file(directory.parent)
    except OSError as cause:
        raise CheckpointError(f"checkpoint {directory} could not be written: {cause}") from cause
    return directory


def name_inside(path: str | os.PathLike[str], trial_dir: str | os.PathLike[str], index: int) -> str:
    """Return the name of a checkpoint's directory relative to the trial's, in which it lies.

    Args:
        path: The directory.
        trial_dir: The trial's directory.
        index: Index of the checkpoint.

    Raises:
        ValueError: If it lies elsewhere; names both directories. If its name belongs to the engine
            or is the numbered name of another checkpoint, which would replace it.
    """
    place, root = Path(os.path.realpath(path)), Path(os.path.realpath(trial_dir))
    if not place.is_relative_to(root) or place == root:
        raise ValueError(
            "a checkpoint that is not uploaded by the engine must lie inside the trial's directory "
            f"{os.fspath(trial_dir)!r}, got {os.fspath(path)!r}; build its path with "
            "get_context().get_storage().build_checkpoint_path_from_name(name)"
        )
    name = check_directory_name(place.relative_to(root).as_posix())
    _check_number(name, index)
    return name


def can_be_moved(directory: str | os.PathLike[str]) -> bool:
    """Return whether a directory of the user's keeps its meaning when it is renamed."""
    path = Path(directory)
    if not path.is_dir() or path.is_symlink():
        return False
    try:
        links = contents_of(path).links
    except CheckpointError:  # a copy fails with the same error
        return False
    return all(os.readlink(path / name) == leads_to for name, leads_to in links.items())  # noqa: PTH115  (the text as it stands)


def take_over(source: str | os.PathLike[str], staging: Path) -> bool:
    """Move a directory of the user's into an empty staging directory; return whether that worked.

    It does not work between file systems.
    """
    if can_be_moved(source):
        with suppress(OSError):
            os.rename(source, staging)  # noqa: PTH104  (replaces an empty directory)
            return True
    return False
