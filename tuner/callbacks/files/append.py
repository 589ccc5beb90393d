"""Append to and replace log files, all or nothing.

Log files are never synced to the disk: they can be written again from the journal.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tuner.storage.disk import DIRECTORY_MODE, FILE_MODE, LOCAL_DISK, Disk, write_bytes

# O_NONBLOCK, since opening a FIFO waits for its reader otherwise.
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_APPENDING |= (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


def append(path: str | Path, data: bytes, disk: Disk = LOCAL_DISK) -> None:
    """Append to a file, creating it and its folder if necessary.

    After an `OSError` it is as long as before. A link in its place is not followed, and a FIFO not
    waited for.
    """
    _write_all(_opened(path, _APPENDING), data, disk)


def replace_file(path: str | Path, data: bytes, disk: Disk = LOCAL_DISK) -> None:
    """Replace the content of a file in one step, creating it and its folder if necessary.

    A new file may be seen empty for a moment, and stays so if the driver dies in that moment.
    """
    try:
        descriptor = _opened(path, _APPENDING | os.O_EXCL)
    except FileExistsError:
        # Not synced: log files are derived from the journal.
        write_bytes(Path(path), data, sync=False, disk=disk)
    else:
        _write_all(descriptor, data, disk)


def remove(path: str) -> None:
    """Delete a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108  (creating a `Path` takes longer than the call)


def _opened(path: str | Path, flags: int) -> int:
    # Not by the disk: it would have to know modes of opening that only log files need.
    try:
        return os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))  # noqa: PTH120  (as above)
        return os.open(path, flags, FILE_MODE)


def _make_folder(path: str) -> None:
    # The folder only: if the experiment's directory has been deleted, it is not created again.
    with suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102  (as above)


def _write_all(descriptor: int, data: bytes, disk: Disk) -> None:
    """Write all of the data, or leave the file as long as it was; close it."""
    try:
        start = os.lseek(descriptor, 0, os.SEEK_END)
        written = 0
        try:
            # A disk that is about to be full takes a part, and refuses the rest.
            while written < len(data):
                written += disk.write(descriptor, data[written:])
        except OSError:
            os.ftruncate(descriptor, start)
            raise
    finally:
        os.close(descriptor)
