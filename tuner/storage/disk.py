"""The few calls by which journal and snapshots touch the disk.

They are passed in, so that tests can let the k-th write fail, lose unsynced bytes, or run a whole experiment on a disk that is
nothing but a dictionary. What users' code writes (checkpoints) goes to the real disk by other ways.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol, final

from .reading import LARGE_BYTES, read_file

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755
"""Nothing of ours is writable for others, not even under an empty umask."""


class Disk(Protocol):
    """Files and folders, as far as the journal and the snapshots need them. Every method may raise OSError."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in the directory, in any order; none where there is no such directory."""

    def read(self, path: Path) -> bytes:
        """Return the content of the file."""

    def create(self, path: Path) -> int:
        """Create a file that must not exist yet and return a descriptor that writes at its end."""

    def open(self, path: Path) -> int:
        """Return a descriptor of an existing file for `truncate` and `sync`."""

    def write(self, descriptor: int, data: bytes) -> int:
        """Write at the file's end and return how many bytes were taken, fewer where there is no more room."""

    def sync(self, descriptor: int) -> None:
        """Return when the file's content and size are on the platter."""

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Cut the file."""

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target in one step."""

    def remove(self, path: Path) -> None:
        """Delete a file."""

    def make_directory(self, path: Path) -> None:
        """Create the directory unless it exists."""

    def sync_directory(self, path: Path) -> None:
        """Return when the directory's entries are on the platter."""


@final
class LocalDisk:
    """The file systems of this machine. No descriptor survives an ``exec`` and no link is followed at the place written to."""

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
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)

    def open(self, path: Path) -> int:
        """See `Disk.open`."""
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def write(self, descriptor: int, data: bytes) -> int:
        """See `Disk.write`."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """See `Disk.sync`."""
        # macOS has no fdatasync.
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """See `Disk.truncate`."""
        os.ftruncate(descriptor, size_bytes)

    def close(self, descriptor: int) -> None:
        """See `Disk.close`."""
        os.close(descriptor)

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


LOCAL_DISK: Final[Disk] = LocalDisk()
