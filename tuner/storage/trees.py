"""Copy, list and flush directories with all that is in them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from tuner.background import BackgroundJobs
from tuner.errors import CheckpointError
from tuner.wire.record import record

from .directories import make_folder
from .disk import DIRECTORY_MODE

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES: Final = 1 << 20
_COPY_AT_ONCE_BYTES: Final = 1 << 30
_BLOCK_BYTES: Final = 512
"""Unit of ``st_blocks`` on every file system."""
_NUM_SYNC_THREADS: Final = 16
_FILES_PER_THREAD: Final = 4


@record
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
        CheckpointError: If a link leads out of the tree, or something in it is no file, folder or
            link.
        OSError: If the tree cannot be read.
    """
    contents = Contents()
    begin = len(os.path.join(root, ""))  # noqa: PTH118  (20,000 Paths are slow)
    for entry in _entries(root):
        name = entry.path[begin:].replace(os.sep, "/")
        if entry.is_symlink():
            contents.links[name] = target_inside(Path(entry.path), root)
        elif entry.is_dir():
            contents.directories.append(name)
        elif entry.is_file():
            contents.files[name] = entry.stat(follow_symlinks=False).st_size
        else:
            raise CheckpointError(
                f"{entry.path} is neither a file nor a directory nor a link; a checkpoint holds "
                "nothing else"
            )
    return contents


def _entries(directory: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)


def target_inside(link: Path, root: Path) -> str:
    """Return where the link leads, as a relative path that stays true when the tree is moved."""
    text = os.readlink(link)  # noqa: PTH115  (the text as it stands, not a Path made of it)
    target = os.path.realpath(link)
    if not Path(target).is_relative_to(os.path.realpath(root)):
        raise CheckpointError(
            f"link {link} leads out of the checkpoint, to {target}; put the file itself there"
        )
    place = link.parent.relative_to(root)
    inside = os.path.normpath(os.path.join(place, text))  # noqa: PTH118  (lexically)
    if os.path.isabs(text) or Path(inside).parts[:1] == (os.pardir,):  # noqa: PTH117  (a text)
        return os.path.relpath(target, os.path.realpath(link.parent))
    return text


def copy_tree(source: Path, target: Path) -> Contents:
    """Copy a tree, byte for byte; the source is only read.

    Where the file system can share blocks between files, as Btrfs and XFS do, no data is moved at
    all.

    Args:
        source: The directory to copy.
        target: Where its content goes; created if it is missing. Files already there are replaced,
            never written through a link.

    Returns:
        What was copied.

    Raises:
        CheckpointError: If a link leads out of the source, or something in it is no file, folder or
            link; nothing is copied then.
        ValueError: If the target lies in the source.
        OSError: If something could not be read or written.
    """
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(source)):
        raise ValueError(
            f"target must lie outside of the directory that is copied, got {target} in {source}"
        )
    contents = contents_of(source)
    make_folder(target)
    for name in contents.directories:
        (target / name).mkdir(DIRECTORY_MODE, exist_ok=True)
    for name in contents.files:
        copy_file(f"{source}/{name}", f"{target}/{name}")
    for name, leads_to in contents.links.items():
        replace_link(target / name, leads_to)
    return contents


def replace_link(link: Path, leads_to: str) -> None:
    """Make `link` a symbolic link with this text, in place of any file or link."""
    link.unlink(missing_ok=True)
    link.symlink_to(leads_to)


def copy_file(source: Path | str, target: Path | str) -> None:
    """Copy a regular file with its permissions, except those to write for group and others."""
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = _create(target, stat.S_IMODE(os.fstat(reader).st_mode) & DIRECTORY_MODE)
        try:
            _copy_content(reader, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _create(path: Path | str, mode: int) -> int:
    """Return a descriptor of a new file in the place of what was there."""
    try:
        return os.open(path, _NEW_FILE, mode)
    except FileExistsError:
        os.unlink(path)  # noqa: PTH108  (see `contents_of`)
        return os.open(path, _NEW_FILE, mode)


def _copy_content(reader: int, writer: int) -> None:
    status = os.fstat(reader)
    if status.st_blocks * _BLOCK_BYTES < status.st_size and hasattr(os, "SEEK_DATA"):
        _copy_data(reader, writer)
    else:
        _copy_range(reader, writer, None)


def _copy_data(reader: int, writer: int) -> None:
    """Copy a file with holes, which stay holes."""
    end = 0
    try:
        while True:
            start = os.lseek(reader, end, os.SEEK_DATA)
            end = os.lseek(reader, start, os.SEEK_HOLE)
            os.lseek(reader, start, os.SEEK_SET)
            os.lseek(writer, start, os.SEEK_SET)
            _copy_range(reader, writer, end - start)
    except OSError as error:
        if error.errno == errno.EINVAL and end == 0:  # this file system cannot tell
            _copy_range(reader, writer, None)
            return
        if error.errno != errno.ENXIO:  # there is no more data
            raise
    os.ftruncate(writer, os.fstat(reader).st_size)


def _copy_range(reader: int, writer: int, size_bytes: int | None) -> None:
    """Copy so many bytes, or all, from where both descriptors stand."""
    rest = _COPY_AT_ONCE_BYTES if size_bytes is None else size_bytes
    # The kernel shares blocks, or copies without a detour through this process's memory. Not every
    # pair of file systems supports that. After any error the plain loop continues where it stopped,
    # and runs into the same error if it was a real one.
    with suppress(OSError, AttributeError):
        while num := os.copy_file_range(reader, writer, min(rest, _COPY_AT_ONCE_BYTES)):
            rest -= num if size_bytes is not None else 0
    while chunk := os.read(reader, min(rest, _CHUNK_BYTES)):
        rest -= len(chunk) if size_bytes is not None else 0
        unwritten = memoryview(chunk)
        while unwritten:
            unwritten = unwritten[os.write(writer, unwritten) :]


def sync_files(paths: Iterable[Path | str]) -> None:
    """Return when the content of all these files and directories is on disk.

    Each is flushed by itself, so that each error is seen, but many at once, which file systems then
    write in one go: 20,000 files take seconds instead of a minute.

    Raises:
        OSError: If one could not be flushed.
    """
    every = list(paths)
    rest = iter(every)  # of a list: several threads may take from it
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for path in rest:
                if errors:
                    return
                sync_file(path)
        except BaseException as error:  # noqa: BLE001  (raised below)
            errors.append(error)

    num_threads = max(0, min(_NUM_SYNC_THREADS, len(every) // _FILES_PER_THREAD) - 1)
    helpers = BackgroundJobs("tuner-sync", num_threads=num_threads)
    try:
        with suppress(RuntimeError):  # there may be no more threads for this user
            for _ in range(num_threads):
                helpers.submit(work)
        work()
    finally:
        helpers.close()
    if errors:
        raise errors[0]


def sync_file(path: Path | str) -> None:
    """Return when the file's, or the directory's, content is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
