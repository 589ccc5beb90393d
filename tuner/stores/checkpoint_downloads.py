"""Checkpoints in object stores, through fsspec, an optional dependency.

Processes of one machine that read the same checkpoint at the same time share one download. Two
file locks, which the kernel releases when a process dies, count the readers: each holds `readers`
shared while it reads, and `guard` exclusively while it enters or leaves. A process that enters and
gets `readers` exclusively is the first: it removes what dead processes have left, and downloads. A
process that leaves and gets it exclusively is the last: it removes everything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.errors import CheckpointError
from tuner.storage.disk import temporary_sibling
from tuner.storage.layout import MANIFEST
from tuner.storage.lock import Lock
from tuner.storage.manifest import make_folders, make_links, read_manifest, verify

from .object_backends import resolve
from .object_store import ObjectStore


def download(path: str, filesystem: Any, target: Path) -> None:
    """Download a directory, with the empty folders and the links that its manifest lists.

    Args:
        path: The directory.
        filesystem: Where it lies, see `resolve`.
        target: Where its content goes; created if it is missing.

    Raises:
        FileNotFoundError: If there is no such directory, or nothing in it.
        CheckpointError: If its manifest is damaged.
        StorageError: If a name in it would lead out of the target, or the store does not answer.
    """
    store = ObjectStore(path, filesystem)
    keys = store.list()
    if not keys:
        raise FileNotFoundError(f"checkpoint {path} does not exist, or is empty")
    store.download({key: target / key for key in keys})
    if MANIFEST in keys:
        manifest = read_manifest(target)
        try:
            make_folders(target, manifest)
        except ValueError as cause:
            raise CheckpointError(f"checkpoint {path} cannot be used: {cause}") from cause
        make_links(target, manifest)


@contextmanager
def shared_download(path: str, filesystem: Any) -> Iterator[Path]:
    """Yield a local directory with the content, downloaded once for all its concurrent readers."""
    found, root = resolve(path, filesystem)
    key = hashlib.sha256(f"{_identity(found)}\0{root}".encode()).hexdigest()[:32]
    place = _downloads_directory() / key
    readers = _enter(place, path, filesystem)
    try:
        yield place / "checkpoint"
    finally:
        _leave(place, readers)


def _identity(filesystem: Any) -> str:
    # Two processes that mean the same store have different objects of it, so what counts is how
    # they were made.
    try:
        return str(filesystem.to_json())
    except (TypeError, ValueError):
        return f"{type(filesystem).__module__}.{type(filesystem).__qualname__}"


def _enter(place: Path, path: str, filesystem: Any) -> Lock:
    guard = _guard(place)
    readers = Lock(place / "readers")
    try:
        if readers.acquire(is_shared=False, is_blocking=False):
            _fill(place, path, filesystem)
        # Between giving up the exclusive lock and having the shared one no other process can come:
        # we hold the guard.
        readers.acquire(is_shared=True)
    except BaseException:
        readers.release()
        raise
    finally:
        guard.release()
    return readers


def _fill(place: Path, path: str, filesystem: Any) -> None:
    target = place / "checkpoint"
    shutil.rmtree(target, ignore_errors=True)
    try:
        download(path, filesystem, target)
        if (target / MANIFEST).exists():
            verify(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _leave(place: Path, readers: Lock) -> None:
    guard = _guard(place)
    try:
        readers.release()
        if readers.acquire(is_shared=False, is_blocking=False):
            # Renamed first: a process that enters meanwhile starts with a new directory, and its
            # files cannot be removed with these.
            doomed = temporary_sibling(place)
            place.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
    finally:
        readers.release()
        guard.release()


def _guard(place: Path) -> Lock:
    """Return the held guard, made anew where the last reader has removed its file."""
    while True:
        place.mkdir(mode=0o700, exist_ok=True)
        guard = Lock(place / "guard")
        try:
            guard.acquire()
        except FileNotFoundError:
            continue
        if guard.is_current():
            return guard
        guard.release()


def _downloads_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"tuner-downloads-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise CheckpointError(
            f"{directory} must be a directory that only this user can enter; remove it, or set "
            "TMPDIR"
        )
    return directory
