"""Location of an experiment: a local directory, and that in an object store if it has one."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tuner import capabilities
from tuner.errors import ExperimentExists, StorageError
from tuner.storage import layout
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import absolute_path
from tuner.storage.origin import Origin, origin_of
from tuner.storage.reading import SMALL_BYTES
from tuner.storage.urls import is_like_url, join_url, split_options

from .config import RunConfig
from .experiment_directory import (
    Record,
    default_root_for,
    local_root,
    named_directory,
    new_directory,
    read_record,
    storage_root,
)
from .experiment_spec import ExperimentSpec

_LEFT_WITHOUT_EXPERIMENT: Final = ("lock/", "start/", "probe/", f"{layout.REQUESTS}/")
"""Keys of drivers whose experiment has been removed, or that have not begun it."""


@final
@dataclass(frozen=True, slots=True)
class ExperimentLocation:
    """Where an experiment is.

    Attributes:
        directory: The directory of this machine in which its driver works.
        store: The directory in an object store that holds the original; None if `directory` does.
        filesystem: The file system that was given for the store; None for that of its URL.
    """

    directory: Path
    store: capabilities.ObjectStore | None = None
    filesystem: Any = None

    @property
    def address(self) -> str:
        """What `Tuner.restore` accepts: the URL, or the path of the directory."""
        return self.store.url if self.store else os.fspath(self.directory)

    @property
    def origin(self) -> Origin | None:
        """The note of the store for the local directory; None without a store."""
        return Origin(self.store.url, self.filesystem is not None) if self.store else None

    def has_experiment(self) -> bool:
        """Return whether there is an experiment.

        Raises:
            StorageError: If the store cannot be read, or the directory holds another experiment
                than it.
        """
        return self.is_in_store() or self._has_local()

    def is_in_store(self) -> bool:
        """Return whether the store has an experiment."""
        return bool(self.store and self.store.get_if_exists(layout.DECLARATION) is not None)

    def read_record(self) -> Record:
        """Return the declaration of the experiment.

        Raises:
            StorageError: If there is no experiment, its declaration cannot be read, or the
                directory holds another one than the store.
        """
        content = self.store.get_if_exists(layout.DECLARATION, SMALL_BYTES) if self.store else None
        if self.store is None or content is None:
            if self.store and not self._has_local():
                raise StorageError(
                    f"{self.store.url} holds no experiment; give the URL of an experiment, which "
                    "is that of storage_path with the experiment's name behind it"
                )
            return read_record(self.directory)
        record = _record_from(content, self.store.url)
        self._check_same(record)
        return record

    def check_unused(self) -> None:
        """Check that the store has no experiment here; the directory is checked elsewhere.

        Raises:
            ExperimentExists: If it has one, or the remains of one.
        """
        if self.store is None:
            return
        if self.is_in_store():
            raise ExperimentExists(
                f"{self.store.url} already holds an experiment; continue it with "
                f"Tuner.restore({self.store.url!r}, trainable) or "
                'Tuner(..., resume="auto"), keep it and run this one beside it with '
                'RunConfig(if_exists="new"), remove it for this one with '
                'RunConfig(if_exists="replace"), or choose another name'
            )
        left = next(
            (key for key in self.store.list() if not key.startswith(_LEFT_WITHOUT_EXPERIMENT)), ""
        )
        if left:
            raise ExperimentExists(
                f"{self.store.url} holds objects, such as {left!r}, and no experiment; delete "
                "them, or choose another name"
            )

    def _has_local(self) -> bool:
        if not is_experiment(self.directory):
            return False
        self.check_directory()
        return True

    def check_directory(self) -> None:
        """Check that the directory holds no other experiment than the store.

        Raises:
            ExperimentExists: If it does.
        """
        if self.store is None or not is_experiment(self.directory):
            return
        origin = origin_of(self.directory)
        if origin is None or origin.url != self.store.url:
            belongs = f"that of {origin.url}" if origin else "one that is not in an object store"
            raise ExperimentExists(
                f"{str(self.directory)!r} holds another experiment than {self.store.url}, "
                f"{belongs}; give another local_dir, or another name"
            )

    def _check_same(self, record: Record) -> None:
        if not self._has_local():
            return
        try:
            local = read_record(self.directory).experiment_id
        except StorageError:
            return  # what the store has is complete, and will replace it
        if local != record.experiment_id:
            raise ExperimentExists(
                f"{str(self.directory)!r} holds another experiment than {record.text['name']!r} "
                "in the store, though one of the same URL; move it away, or give another local_dir"
            )


def named_location(run: RunConfig) -> ExperimentLocation:
    """Return where the experiment of this name and storage path is, or will be."""
    directory = named_directory(run)
    url = run.storage_url
    if url is None:
        return ExperimentLocation(directory)
    return _in_store(run, url, directory)


def new_location(spec: ExperimentSpec) -> ExperimentLocation:
    """Create the local directory of a new experiment, and return where the experiment will be.

    Raises:
        ExperimentExists: If the name is taken, with ``RunConfig(if_exists="error")``.
        StorageError: If the storage path cannot be written to.
    """
    run, url = spec.run, spec.run.storage_url
    if url is None:
        return ExperimentLocation(new_directory(spec))
    if run.name is not None and run.if_exists != "new":
        # Before anything is made here; checked again with the lock held.
        _check_free(named_location(run), can_replace=run.if_exists == "replace")
    passed_over: list[Path] = []
    try:
        while True:
            location = _in_store(run, url, new_directory(spec))
            if run.if_exists != "new" or not location.is_in_store():
                return location
            # On another machine, the name that is free here has been taken.
            passed_over.append(location.directory)
    finally:
        for directory in passed_over:
            directory.rmdir()


def location_of(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    local_dir: str | os.PathLike[str] | None = None,
) -> ExperimentLocation:
    """Return where an experiment is that exists.

    Args:
        path: Its URL, or its directory on this machine.
        filesystem: The fsspec file system on which the path is; None for that of the URL.
        local_dir: For a URL: where its local directory is, or will be made; None for the default.

    Raises:
        ValueError: If the URL is none, or `local_dir` is given with a path of this machine.
        StorageError: If the store cannot be read, or the local directory belongs to an experiment
            that needs its file system again.
    """
    text = os.fspath(path)
    if filesystem is None and not is_like_url(text):
        return _from_directory(absolute_path(path), local_dir)
    store = capabilities.ObjectStore(capabilities.checked_url("path", text, filesystem), filesystem)
    name = _local_name(store)
    root = default_root_for(store.url, name) if local_dir is None else local_root(local_dir)
    return ExperimentLocation(root / name, store, filesystem)


def _from_directory(directory: Path, local_dir: Any) -> ExperimentLocation:
    if local_dir is not None:
        raise ValueError(
            f"local_dir must be None for a directory of this machine, got {local_dir!r} for "
            f"{str(directory)!r}; pass the URL of the experiment with it"
        )
    origin = origin_of(directory)
    if origin is None:
        return ExperimentLocation(directory)
    if origin.has_filesystem:
        raise StorageError(
            f"the experiment in {str(directory)!r} is in {origin.url}, on a file system that was "
            f"passed as an object; pass {origin.url!r} with storage_filesystem="
        )
    return ExperimentLocation(directory, capabilities.ObjectStore(origin.url))


def _in_store(run: RunConfig, url: str, directory: Path) -> ExperimentLocation:
    name = directory.relative_to(storage_root(run)).as_posix()
    filesystem = run.storage_filesystem
    store = capabilities.ObjectStore(join_url(url, name), filesystem, retry_s=run.storage_retry_s)
    return ExperimentLocation(directory, store, filesystem)


def _check_free(location: ExperimentLocation, *, can_replace: bool) -> None:
    location.check_directory()
    if not can_replace:
        location.check_unused()


def _local_name(store: capabilities.ObjectStore) -> str:
    """Return the path of an experiment's local directory below the root: its name, if that fits."""
    parts = split_options(store.url)[0].split("://")[-1].split("/")
    content = store.get_if_exists(layout.DECLARATION, SMALL_BYTES)
    declared = _record_from(content, store.url).text.get("declared_name") if content else None
    depth = declared.count("/") + 1 if isinstance(declared, str) else 1
    return layout.check_name("/".join(parts[-depth:]))


def _record_from(content: bytes, url: str) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / layout.DECLARATION).write_bytes(content)
        try:
            return read_record(directory)
        except StorageError as cause:
            raise StorageError(str(cause).replace(folder, url)) from cause
