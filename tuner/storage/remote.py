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
from pathlib import Path, PurePosixPath
from typing import Any

from tuner.errors import CheckpointError

from .arrow_filesystem import as_fsspec
from .atomic import temporary_sibling
from .directories import make_folder
from .layout import MANIFEST
from .lock import Lock
from .manifest import make_folders, make_links, read_manifest, verify
from .s3_options import CLIENT_CONFIG, client_options, is_s3


def resolve(path: str, filesystem: Any) -> tuple[Any, str]:
    """Return the fsspec file system and the path on it.

    Args:
        path: A URL or a path.
        filesystem: Where it lies; None for what the URL says, or this machine.

    Raises:
        ImportError: If fsspec, or the package for this kind of URL, is not installed.
    """
    if filesystem is not None:
        filesystem = as_fsspec(filesystem)
        # As fsspec documents, although the name is private.
        return filesystem, str(filesystem._strip_protocol(path))  # noqa: SLF001
    try:
        import fsspec.core  # noqa: PLC0415  (optional)
    except ImportError as cause:
        raise ImportError(
            f'reading {path} needs fsspec; run: pip install "tuner-hpo[remote]"'
        ) from cause
    bare, options = client_options(path)
    if is_s3(bare):
        options["config_kwargs"] = CLIENT_CONFIG
    found, root = fsspec.core.url_to_fs(bare, **options)
    if is_s3(bare):
        # Where the store does not answer, minutes would pass with the library's own.
        found.retries = 1
    return found, str(root)


def filesystem_of(path: str, filesystem: Any) -> Any:
    """Return the fsspec file system on which a path is; see `resolve`."""
    return resolve(path, filesystem)[0]


def read(path: str, filesystem: Any, name: str) -> bytes:
    """Return the content of a file of a remote directory."""
    found, root = resolve(path, filesystem)
    content: bytes = found.cat_file(f"{root.rstrip('/')}/{name}")
    return content


def write(path: str, filesystem: Any, name: str, content: bytes) -> None:
    """Write a file of a remote directory; object stores do that in one step."""
    found, root = resolve(path, filesystem)
    found.pipe_file(f"{root.rstrip('/')}/{name}", content)


def download(path: str, filesystem: Any, target: Path) -> None:
    """Download a directory, with the empty folders and the links that its manifest lists.

    Args:
        path: The directory.
        filesystem: Where it lies, see `resolve`.
        target: Where its content goes; created if it is missing.

    Raises:
        FileNotFoundError: If there is no such directory, or nothing in it.
        CheckpointError: If a name in it would lead out of the target, or its manifest is damaged.
    """
    found, root = resolve(path, filesystem)
    remote_files = sorted(found.find(root))
    if not remote_files:
        raise FileNotFoundError(f"checkpoint {path} does not exist, or is empty")
    local_files = [target / _inner_name(name, root) for name in remote_files]
    for directory in sorted({file.parent for file in local_files}):
        make_folder(directory)
    found.get(remote_files, [str(file) for file in local_files])
    if target / MANIFEST in local_files:
        manifest = read_manifest(target)
        try:
            make_folders(target, manifest)
        except ValueError as cause:
            raise CheckpointError(f"checkpoint {path} cannot be used: {cause}") from cause
        make_links(target, manifest)


def _inner_name(name: str, root: str) -> PurePosixPath:
    inner = PurePosixPath(name).relative_to(root)
    if not inner.parts or os.pardir in inner.parts:
        raise CheckpointError(f"remote file {name} leads out of the checkpoint {root}")
    return inner


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
