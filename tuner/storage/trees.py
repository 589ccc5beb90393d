"""Whole directories of a user's files: what is in them, and copies of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tuner.errors import CheckpointError

from .disk import DIRECTORY_MODE
from .folder import make_folder

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES: Final = 1 << 20
_COPY_AT_ONCE_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a directory tree; all names are relative to its root, with ``/`` between folders.

    Attributes:
        directories: Its folders, each after the one it lies in.
        files: The size in bytes of each regular file.
        links: Where each symbolic link leads, relative to the folder in which it lies.
    """

    directories: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


def contents_of(root: Path) -> Contents:
    """Return what is in the tree.

    Raises:
        CheckpointError: If a link leads out of the tree, or something in it is no file, folder or link.
        OSError: If the tree cannot be read.
    """
    contents = Contents()
    for entry in _entries(root):
        name = Path(entry.path).relative_to(root).as_posix()
        if entry.is_symlink():
            contents.links[name] = _target_inside(Path(entry.path), root)
        elif entry.is_dir():
            contents.directories.append(name)
        elif entry.is_file():
            contents.files[name] = entry.stat(follow_symlinks=False).st_size
        else:
            raise CheckpointError(f"{entry.path} is neither a file nor a directory nor a link; a checkpoint holds nothing else")
    return contents


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(Path(entry.path))


def _target_inside(link: Path, root: Path) -> str:
    """Return where the link leads, as a relative path that stays true when the tree is moved."""
    text = os.readlink(link)  # noqa: PTH115  (the text as it stands, not a Path made of it)
    target = os.path.realpath(link)
    if not Path(target).is_relative_to(os.path.realpath(root)):
        raise CheckpointError(f"link {link} leads out of the checkpoint, to {target}; put the file itself there")
    inside = os.path.normpath(os.path.join(link.parent.relative_to(root), text))  # noqa: PTH118  (lexically, to be normalised)
    if os.path.isabs(text) or Path(inside).parts[:1] == (os.pardir,):  # noqa: PTH117  (a string, see above)
        return os.path.relpath(target, os.path.realpath(link.parent))
    return text


def copy_tree(source: Path, target: Path) -> Contents:
    """Copy a tree, byte for byte; the source is only read.

    Where the file system can share blocks between files, as Btrfs and XFS do, no data is moved at all.

    Args:
        source: The directory to copy.
        target: Where its content goes; created if it is missing. Files already there are replaced, never written through a link.

    Returns:
        What was copied.

    Raises:
        CheckpointError: If a link leads out of the source, or something in it is no file, folder or link; nothing is copied then.
        ValueError: If the target lies in the source.
        OSError: If something could not be read or written.
    """
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(source)):
        raise ValueError(f"target must lie outside of the directory that is copied, got {target} in {source}")
    contents = contents_of(source)
    make_folder(target)
    for name in contents.directories:
        (target / name).mkdir(DIRECTORY_MODE, exist_ok=True)
    for name in contents.files:
        copy_file(source / name, target / name)
    for name, leads_to in contents.links.items():
        replace_link(target / name, leads_to)
    return contents


def replace_link(link: Path, leads_to: str) -> None:
    """Make `link` a symbolic link with this text, whatever file or link was there."""
    link.unlink(missing_ok=True)
    link.symlink_to(leads_to)


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file with its permissions, except those to write for group and others."""
    with suppress(FileNotFoundError):
        target.unlink()
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, _NEW_FILE, stat.S_IMODE(os.fstat(reader).st_mode) & DIRECTORY_MODE)
        try:
            _copy_content(reader, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_content(reader: int, writer: int) -> None:
    # The kernel shares blocks or copies without a detour through our memory. Not every pair of file systems can: whatever stops it,
    # the plain loop goes on where it stopped, and meets again what was a real error.
    with suppress(OSError, AttributeError):
        while os.copy_file_range(reader, writer, _COPY_AT_ONCE_BYTES):
            pass
    while chunk := os.read(reader, _CHUNK_BYTES):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(writer, rest) :]


def sync_file(path: Path) -> None:
    """Return when the file's, or the directory's, content is on the platter."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
