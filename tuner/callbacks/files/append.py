"""Append to and replace log files, all or nothing.

Log files are never synced to the disk: they can be written again from the journal.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tuner.storage.atomic import write_bytes
from tuner.storage.disk import DIRECTORY_MODE, FILE_MODE

# Without O_NONBLOCK, to open a FIFO waits for its reader.
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_APPENDING |= (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


def append(path: str | Path, data: bytes) -> int:
    """Append to the file, making it and its folder if need be, and return its new size; after an `OSError` it is as long as before.

    A link in its place is not followed, and a FIFO not waited for.
    """
    return _write_all(_opened(path, _APPENDING), data)


def replace_file(path: str | Path, data: bytes) -> None:
    """Give the file new contents at one stroke, making it and its folder if need be.

    One that is new may be seen empty for a moment, as after a death in this very moment.
    """
    try:
        descriptor = _opened(path, _APPENDING | os.O_EXCL)
    except FileExistsError:
        # Not synced to the disk: what is derived can be derived again.
        write_bytes(Path(path), data, sync=False)
    else:
        _write_all(descriptor, data)


def remove(path: str) -> None:
    """Delete the file if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108  (a `Path` takes longer than the call)


def _opened(path: str | Path, flags: int) -> int:
    try:
        return os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))  # noqa: PTH120  (a `Path` takes longer than the call)
        return os.open(path, flags, FILE_MODE)


def _make_folder(path: str) -> None:
    """Make the folder of a file, and none above it: where the experiment's directory is gone, no other is made in its place."""
    with suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102  (a `Path` takes longer than the call)


def _write_all(descriptor: int, data: bytes) -> int:
    """Write all of it, or leave the file as long as it was, close it, and return its size."""
    try:
        start = os.lseek(descriptor, 0, os.SEEK_END)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, start)
            raise
        return start + len(data)
    finally:
        os.close(descriptor)
