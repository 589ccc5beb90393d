"""How a directory becomes a checkpoint, and what is left of those that did not.

A checkpoint is an immutable directory ``<experiment>/<trial>/checkpoint_<index>``. A worker fills a
*staging* directory beside it, `commit` writes the manifest last, flushes everything, and renames.
So a directory with a final name is complete, whenever the power fails; it *counts* from the moment
the journal names it. A directory that was renamed but never named there is an orphan: the next
commit of its index, or the next `remove_unfinished`, removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tuner.core.worker_records import CheckpointRecord, checkpoint_directory_name
from tuner.errors import CheckpointError

from .disk import DIRECTORY_MODE, temporary_sibling
from .layout import CHECKPOINT_PREFIX, MANIFEST, STAGING_PREFIX, TRIAL_FILES, VALIDATION_PREFIX
from .manifest import Provenance, read_manifest, verify, write_manifest
from .tree_state import TreeState, check_unchanged
from .trees import Contents, contents_of, copy_tree, replace_link, sync_file, sync_files

_UNFINISHED_MODE: Final = 0o700
_NAME: Final = re.compile(CHECKPOINT_PREFIX + r"(\d{6,18})")
# What a validation was given is of no use to any other driver than the one that has died.
_UNFINISHED: Final = (STAGING_PREFIX, VALIDATION_PREFIX)


def stage(
    trial_dir: str | os.PathLike[str], index: int, attempt: int, token: str | None = None
) -> Path:
    """Create an empty directory on the trial's file system, to be filled and then committed.

    Args:
        trial_dir: The trial's directory.
        index: Index of the checkpoint to come.
        attempt: The attempt that writes it.
        token: Last part of its name. The workers of a group that choose the same one share the
            directory, which may exist then; None for a random one.

    Raises:
        CheckpointError: If it cannot be created.
    """
    # The random part: the user may still hold one directory of this attempt open while a copy is
    # made in another.
    name = f"{STAGING_PREFIX}{index:06d}-{attempt}-{token or secrets.token_hex(4)}"
    staging = Path(trial_dir) / name
    try:
        staging.mkdir(_UNFINISHED_MODE, exist_ok=token is not None)
    except OSError as cause:
        raise CheckpointError(f"no checkpoint can be written in {trial_dir}: {cause}") from cause
    return staging


def commit(
    staging: str | os.PathLike[str],
    trial_dir: str | os.PathLike[str],
    provenance: Provenance,
    *,
    sync: bool = True,
    name: str = "",
) -> Path:
    """Turn a staging directory into a checkpoint.

    Args:
        staging: The directory, made by `stage`; it is gone afterwards.
        trial_dir: The trial's directory.
        provenance: Of which result the checkpoint is; its `index` gives the name. A directory that
            already has this name is an orphan of an earlier attempt and is removed.
        sync: Return only when all of it is on disk.
        name: Name of the checkpoint's directory; empty for the numbered one.

    Returns:
        The checkpoint's directory.

    Raises:
        CheckpointError: If it could not be written, or a link leads out of it. Nothing has the
            final name then.
    """
    directory, final_path = (
        Path(staging),
        Path(trial_dir) / (name or checkpoint_directory_name(provenance.index)),
    )
    try:
        contents = settle(directory, sync=sync)
        # After the files: where the manifest is on disk, all that it lists is, too.
        write_manifest(directory, contents, replace(provenance, name=name), sync=sync)
        publish(directory, final_path, sync=sync)
    except OSError as cause:
        raise CheckpointError(f"checkpoint {final_path} could not be written: {cause}") from cause
    return final_path


def settle(directory: Path, *, sync: bool) -> Contents:
    """Make a staged tree fit to be renamed, and return what is in it.

    Its links stay true when it is renamed, others can write to nothing in it, and with `sync` its
    files and folders are on disk.

    Raises:
        CheckpointError: If a link leads out of it.
        OSError: If something could not be read or written.
    """
    contents = contents_of(directory)
    for name, leads_to in contents.links.items():
        _settle_link(directory / name, leads_to)
    _keep_others_from_writing(directory, contents)
    if sync:
        sync_files(f"{directory}/{name}" for name in (*contents.files, *contents.directories))
    return contents


def _keep_others_from_writing(directory: Path, contents: Contents) -> None:
    for name in (*contents.files, *contents.directories):
        path = f"{directory}/{name}"
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        if mode & ~DIRECTORY_MODE:
            os.chmod(path, mode & DIRECTORY_MODE)  # noqa: PTH101  (20,000 Paths are slow)


def _settle_link(link: Path, leads_to: str) -> None:
    if os.readlink(link) != leads_to:  # noqa: PTH115  (the text as it stands)
        replace_link(link, leads_to)


def publish(staging: Path, final_path: Path, *, sync: bool) -> None:
    """Give a staged directory with a manifest its final name, and its parent's permissions.

    Raises:
        OSError: If that fails. Nothing has the final name then.
    """
    staging.chmod(stat.S_IMODE(staging.parent.stat().st_mode) & DIRECTORY_MODE)
    # Only now: a rename does not replace a directory with content, as an orphan of an earlier
    # attempt is.
    delete(final_path)
    staging.rename(final_path)
    if not sync:
        return
    try:
        sync_file(final_path.parent)
        sync_file(final_path.parent.parent)  # the trial's directory may be as new as the checkpoint
    except OSError:
        # The name may or may not survive a power cut, and the journal will never name it.
        with suppress(OSError):
            delete(final_path)
        raise


def commit_from(
    source: str | os.PathLike[str],
    trial_dir: str | os.PathLike[str],
    provenance: Provenance,
    *,
    sync: bool = True,
    name: str = "",
    seen: TreeState | None = None,
) -> Path:
    """Make a checkpoint of a directory of the user's.

    A staging directory of this very trial is renamed. Any other is copied and left as it is, byte
    for byte.

    Args:
        source: The directory.
        trial_dir: The trial's directory.
        provenance: Of which result the checkpoint is.
        sync: Return only when all of it is on disk.
        name: Name of the checkpoint's directory; empty for the numbered one.
        seen: State of the directory in which it still has to be; None for any.

    Returns:
        The checkpoint's directory.

    Raises:
        CheckpointError: If it could not be written, or has changed. Nothing has the final name
            then, and no copy is left.
    """
    if is_staged(source, trial_dir):
        check_unchanged(os.fspath(source), seen)
        return commit(source, trial_dir, provenance, sync=sync, name=name)
    staging = stage(trial_dir, provenance.index, provenance.attempt)
    with discarded_on_error(staging, source, trial_dir):
        copy_tree(Path(source), staging)
        check_unchanged(os.fspath(source), seen)
        return commit(staging, trial_dir, provenance, sync=sync, name=name)


@contextmanager
def discarded_on_error(
    staging: Path, source: str | os.PathLike[str], trial_dir: str | os.PathLike[str]
) -> Iterator[None]:
    """Delete a staging directory if it cannot be filled from `source`.

    Raises:
        CheckpointError: In place of an error of the storage, or of a link that leads out.
    """
    try:
        yield
    except BaseException as cause:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(cause, OSError | ValueError):
            raise CheckpointError(
                f"checkpoint {source} could not be copied to {trial_dir}: {cause}"
            ) from cause
        raise


def unfinished(trial_dir: str | os.PathLike[str], attempt: int) -> list[Path]:
    """Return the staging directories of an attempt; when it is over, they can be removed."""
    return sorted(Path(trial_dir).glob(f"{STAGING_PREFIX}{'[0-9]' * 6}-{attempt}-*"))


def is_staged(directory: str | os.PathLike[str], trial_dir: str | os.PathLike[str]) -> bool:
    """Return whether the directory was made by `stage` for this trial."""
    path = Path(os.path.realpath(directory))
    return path.name.startswith(STAGING_PREFIX) and path.parent == Path(os.path.realpath(trial_dir))


def delete(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint; one that is not there is no error.

    Raises:
        OSError: If it cannot be deleted.
    """
    # Renamed first, so that a checkpoint of which half is deleted never looks complete.
    doomed = temporary_sibling(Path(path))
    try:
        Path(path).rename(doomed)
    except FileNotFoundError:
        return
    _remove(doomed)


def has_index(path: str | os.PathLike[str], index: int) -> bool:
    """Return whether a directory holds the checkpoint with this index."""
    try:
        return read_manifest(path).index == index
    except CheckpointError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def remove_unfinished(
    trial_dir: str | os.PathLike[str], recorded: Collection[str] | None = None
) -> list[str]:
    """Remove unfinished and unrecorded checkpoints from a trial's directory.

    No worker of the trial may be alive.

    Args:
        trial_dir: The trial's directory; one that is not there holds nothing.
        recorded: Names of the checkpoint directories that the journal knows; other checkpoints are
            orphans and are removed. None keeps them all.

    Returns:
        The names that were removed.

    Raises:
        OSError: If something cannot be removed.
    """
    found = leftovers(trial_dir, recorded)
    for name in found:
        (_remove if name.startswith(_UNFINISHED) else delete)(Path(trial_dir, name))
    return found


def leftovers(
    trial_dir: str | os.PathLike[str], recorded: Collection[str] | None = None
) -> list[str]:
    """Return what `remove_unfinished` would remove, in order, the unfinished first.

    Unrecorded checkpoints in folders, which training code can name like ``"runs/best"``, are left:
    to find them, all that the training code has written would have to be searched.
    """
    try:
        names = sorted(os.listdir(trial_dir))  # noqa: PTH208  (10,000 Paths are slow)
    except FileNotFoundError:
        return []
    unfinished = [name for name in names if name.startswith(_UNFINISHED)]
    unrecorded = (
        []
        if recorded is None
        else [name for name in names if name not in recorded and name not in TRIAL_FILES]
    )
    # A directory of the user's may have a similar name, but has no manifest.
    return unfinished + [name for name in unrecorded if _is_made_here(Path(trial_dir, name))]


def _is_made_here(directory: Path) -> bool:
    """Return whether the engine has made a checkpoint's directory, and no copy was renamed to it.

    One with a name that the training code has chosen says so in its manifest.
    """
    if not (directory / MANIFEST).is_file():
        return False
    if _NAME.fullmatch(directory.name):
        return True
    with suppress(CheckpointError):
        return read_manifest(directory).name == directory.name
    return False


def numbered(trial_dir: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """Return name and index of each directory named like a committed checkpoint, by name.

    Raises:
        OSError: If the directory cannot be listed.
    """
    found = map(_NAME.fullmatch, sorted(os.listdir(trial_dir)))  # noqa: PTH208  (names are enough)
    return [(name[0], int(name[1])) for name in found if name]


def latest_valid(
    trial_dir: str | os.PathLike[str], candidates: Iterable[CheckpointRecord]
) -> CheckpointRecord | None:
    """Return the newest of the checkpoints that is intact.

    Args:
        trial_dir: The trial's directory.
        candidates: Recorded checkpoints, oldest first. A damaged one is passed over with a warning.
    """
    for record in reversed(tuple(candidates)):
        try:
            verify(Path(trial_dir) / record.directory)
        except CheckpointError as damage:
            warnings.warn(f"{damage}; trying the one before it", RuntimeWarning, stacklevel=2)
        else:
            return record
    return None
