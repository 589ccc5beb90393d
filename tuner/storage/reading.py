"""Safe reading of files that others may have placed: regular files up to a size, no links.

A directory may come from a stranger, and lie where others can write. A FIFO would make its reader
wait for ever, a link may lead to ``/dev/zero`` or to another user's file, and a sparse file of a
terabyte fills the memory. What is read back of an experiment is opened here.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import Final

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
