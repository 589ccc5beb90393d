"""Files: safe reading, atomic writes, and the disk operations of the journal, which tests replace.

A directory may come from a stranger, and lie where others can write. A FIFO would make its reader
wait for ever, a link may lead to ``/dev/zero`` or to another user's file, and a sparse file of a
terabyte fills the memory. So what is read back of an experiment are regular files up to a size, and
no links.

An atomic write leaves a file with its old content or its new one, never half of each.

Disk operations are passed in, so that tests can let the k-th write fail, lose unsynced bytes, or
run a whole experiment on a disk that is only a dictionary. Checkpoints, which users' code writes,
do not pass through here.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, final

from .layout import STAGING_PREFIX

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755
"""Nothing that the engine creates is writable for others, even under an empty umask."""
SMALL_BYTES: Final = 64 << 20
"""Limit for files that hold one declaration, manifest or configuration."""
LARGE_BYTES: Final = 8 << 30
"""Limit for files that grow with an experiment: segments of the journal, snapshots, log files."""

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


# Reading.


def open_regular(path: str | os.PathLike[str]) -> int:
    """Return a descriptor that reads a regular file, without following a link and without waiting.

    Raises:
        OSError: If it cannot be opened, or is a link or another kind of file.
    """
    try:
        # Without O_NONBLOCK, to open a FIFO waits for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as cause:
        if cause.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP,
                "it is a symbolic link, and links are not followed here",
                os.fspath(path),
            ) from cause
        if cause.errno == errno.ENXIO:
            raise OSError(
                errno.ENXIO, "it is a socket, not a regular file", os.fspath(path)
            ) from cause
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise OSError(
            errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL,
            f"it is {kind}, not a regular file",
            os.fspath(path),
        )
    return descriptor


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Return a regular file, open for reading; see `open_regular`."""
    return open(open_regular(path), "rb")


def read_file(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        limit_bytes: The largest size in bytes that is read.

    Raises:
        OSError: If it cannot be read, is larger, or is a link or another kind of file.
    """
    with open_file(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > limit_bytes:
            raise OSError(
                errno.EFBIG,
                f"it has {size_bytes} bytes, and at most {limit_bytes} are read",
                os.fspath(path),
            )
        # Room for as much as is asked for is taken at once, so not for all that is allowed.
        return file.read(size_bytes)


def has_content(path: str | os.PathLike[str], data: bytes) -> bool:
    """Return whether there is a regular file that can be read and holds exactly this."""
    try:
        return read_file(path, len(data)) == data
    except OSError:
        return False


# Disk operations.


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
        try:
            return [entry.name for entry in directory.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        return read_file(path, LARGE_BYTES)

    def create(self, path: Path) -> int:
        return os.open(
            path,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            FILE_MODE,
        )

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        # fdatasync also writes the size, which is all the metadata that an append changes. macOS
        # has none.
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        os.ftruncate(descriptor, size_bytes)

    def close(self, descriptor: int) -> None:
        # First: between the two calls a fork would close the number in the child, which may mean
        # another file by then.
        _held.discard(descriptor)
        os.close(descriptor)

    def hold(self, descriptor: int) -> None:
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
        os.rename(source, target)  # noqa: PTH104  (one system call, without Path's detours)

    def remove(self, path: Path) -> None:
        path.unlink()

    def make_directory(self, path: Path) -> None:
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
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


# Atomic writes.


def write_bytes(path: Path, *data: bytes, sync: bool = True, disk: Disk = LOCAL_DISK) -> None:
    """Write a file so that a reader sees its old content or its new one, also after a crash.

    Args:
        path: The file, replaced if it exists; its directory must exist.
        *data: The whole content, in one part or several.
        sync: Return only when file and name are on disk. Without it the file is safe from
            the death of processes, not from a power cut.
        disk: Where to write.

    Raises:
        OSError: If it could not be written; names the file. The old one is untouched and no
            temporary one is left.
    """
    temporary = temporary_sibling(path)
    try:
        # In this order: renamed before it is synced, a power cut could leave the new name with an
        # empty file. Atomicity is that of rename(2), within one directory.
        _write_new(temporary, *data, sync=sync, disk=disk)
        disk.rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            disk.remove(temporary)
        if isinstance(error, OSError) and error.filename is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    # A rename is on disk when its directory is. An error here is raised although the new content is
    # in place: it may not survive a power cut.
    if sync:
        disk.sync_directory(path.parent)


def require_parent(path: Path) -> None:
    """Check that the directory exists in which a file is to be written.

    Raises:
        FileNotFoundError: If it does not.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"folder {str(path.parent)!r} does not exist; make it, or choose another path"
        )


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a UTF-8 file like `write_bytes`."""
    write_bytes(path, text.encode(), sync=sync)


def temporary_sibling(path: Path) -> Path:
    """Return an unused name in the same directory, which cleanup recognises as unfinished."""
    return path.with_name(f"{STAGING_PREFIX}{path.name}-{secrets.token_hex(6)}")


def _write_new(path: Path, *data: bytes, sync: bool, disk: Disk) -> None:
    descriptor = disk.create(path)
    try:
        for part in data:
            rest = part
            while rest:
                rest = rest[disk.write(descriptor, rest) :]
        if sync:
            disk.sync(descriptor)
    finally:
        disk.close(descriptor)
