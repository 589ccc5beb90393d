"""Atomic writes: a file has its old content or its new one, never half of each."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from .disk import LOCAL_DISK, Disk
from .layout import STAGING_PREFIX


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
