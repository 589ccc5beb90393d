"""Disk operations of journal and snapshots, which tests replace.

They are passed in, so that tests can let the k-th write fail, lose unsynced bytes, or run a whole
experiment on a disk that is only a dictionary. Checkpoints, which users' code writes, do not pass
through here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

from .reading import LARGE_BYTES, open_regular, read_file

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755
"""Nothing that the engine creates is writable for others, even under an empty umask."""


class Whereabouts(NamedTuple):
    """Where an open file is now.

    Attributes:
        is_in_place: Whether its path still names it.
        is_deleted: Whether no path names it any more.
        path: Where it is now, None if that is not known.
    """

    is_in_place: bool = True
    is_deleted: bool = False
    path: str | None = None


class Disk(Protocol):
    """Files and directories of the journal and the snapshots. Every method may raise OSError."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in the directory in any order; none if it does not exist."""

    def read(self, path: Path) -> bytes:
        """Return the content of the file."""

    def create(self, path: Path) -> int:
        """Create a file that must not exist yet and return a descriptor that writes at its end."""

    def write(self, descriptor: int, data: bytes) -> int:
        """Write at the file's end; return how many bytes were taken, fewer on a full disk."""

    def sync(self, descriptor: int) -> None:
        """Return when the file's content and size are on disk."""

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Cut the file."""

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""

    def hold(self, descriptor: int) -> None:
        """Lock the file until the descriptor is closed or the process ends; see `is_held`.

        Does nothing where the file system has no locks.
        """

    def whereabouts(self, descriptor: int, path: Path) -> Whereabouts:
        """Return whether a path still names an open file; never raises."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target in one step."""

    def remove(self, path: Path) -> None:
        """Delete a file."""

    def make_directory(self, path: Path) -> None:
        """Create the directory unless it exists."""

    def sync_directory(self, path: Path) -> None:
        """Return when the directory's entries are on disk."""


@final
class LocalDisk:
    """The file systems of this machine.

    No descriptor survives an ``exec``, and no link is followed where a file is written.
    """

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        try:
            return [entry.name for entry in directory.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        """See `Disk.read`."""
        return read_file(path, LARGE_BYTES)

    def create(self, path: Path) -> int:
        """See `Disk.create`."""
        return os.open(
            path,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            FILE_MODE,
        )

    def write(self, descriptor: int, data: bytes) -> int:
        """See `Disk.write`."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """See `Disk.sync`."""
        # fdatasync also writes the size, which is all the metadata that an append changes. macOS
        # has none.
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """See `Disk.truncate`."""
        os.ftruncate(descriptor, size_bytes)

    def close(self, descriptor: int) -> None:
        """See `Disk.close`."""
        # First: between the two calls a fork would close the number in the child, which may mean
        # another file by then.
        _held.discard(descriptor)
        os.close(descriptor)

    def hold(self, descriptor: int) -> None:
        """See `Disk.hold`."""
        # On a file system without locks the experiment's own lock has warned.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _held.add(descriptor)

    def whereabouts(self, descriptor: int, path: Path) -> Whereabouts:
        """See `Disk.whereabouts`.

        A missing path and a link count of zero are conclusive. Different device and inode numbers
        are not, since some file systems renumber: the file at the path has to differ in size, too.
        """
        try:
            ours = os.fstat(descriptor)
            there = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            there = None
        except OSError:
            return Whereabouts()  # inconclusive; the next write will fail if the file is lost
        if ours.st_nlink == 0:
            return Whereabouts(is_in_place=False, is_deleted=True)
        if there and (
            os.path.samestat(ours, there)
            or (stat.S_ISREG(there.st_mode) and there.st_size == ours.st_size)
        ):
            return Whereabouts()
        return Whereabouts(is_in_place=False, path=_path_of(descriptor))

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk.rename`."""
        os.rename(source, target)  # noqa: PTH104  (one system call, without Path's detours)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        path.unlink()

    def make_directory(self, path: Path) -> None:
        """See `Disk.make_directory`."""
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        """See `Disk.sync_directory`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether another process holds a file, see `Disk.hold`."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as refusal:
        return refusal.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    finally:
        os.close(descriptor)
    return False


def _path_of(descriptor: int) -> str | None:
    """Return the present path of an open file, None if it is unknown or does not lead to it."""
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  (the text as it stands)
        return path if os.path.samestat(os.fstat(descriptor), os.lstat(path)) else None
    except OSError:
        return None


_held: Final[set[int]] = set()


def _close_in_child() -> None:
    # A forked child shares the lock: if it kept the descriptor, the lock would outlive its owner.
    for descriptor in list(_held):
        _held.discard(descriptor)
        with suppress(OSError):
            os.close(descriptor)


os.register_at_fork(after_in_child=_close_in_child)

LOCAL_DISK: Final[Disk] = LocalDisk()
