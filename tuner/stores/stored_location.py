"""Locations of experiments whose originals are in object stores."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final, Self, final

from tuner.errors import ExperimentExists, StorageError
from tuner.spec.config import RunConfig
from tuner.spec.experiment_location import (
    ExperimentLocation,
    default_root_for,
    local_root,
    named_directory,
    new_directory,
    storage_root,
)
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.record import Record, read_record
from tuner.storage import layout
from tuner.storage.declaration import is_experiment
from tuner.storage.disk import SMALL_BYTES
from tuner.storage.origin import Origin, origin_of
from tuner.storage.urls import join_url, split_options

from .checked_url import checked_url
from .object_store import ObjectStore

_LEFT_WITHOUT_EXPERIMENT: Final = ("lock/", "start/", "probe/", f"{layout.REQUESTS}/")
"""Keys of drivers whose experiment has been removed, or that have not begun it."""


@final
class StoredLocation(ExperimentLocation):
    """Where an experiment is whose original is in an object store.

    Args:
        directory: The directory of this machine in which its driver works.
        store: The directory in an object store that holds the original.
        filesystem: The file system that was given for the store; None for that of its URL.

    Attributes:
        store: As given.
    """

    def __init__(self, directory: Path, store: ObjectStore, filesystem: Any = None) -> None:
        super().__init__(directory)
        self.store = store
        self.url = store.url
        self.filesystem = filesystem

    @classmethod
    def named(cls, run: RunConfig) -> Self:
        return cls._of(run, named_directory(run))

    @classmethod
    def new(cls, spec: ExperimentSpec) -> Self:
        run = spec.run
        if run.name is not None and run.if_exists != "new":
            # Before anything is made here; checked again with the lock held.
            cls.named(run).check_free(can_replace=run.if_exists == "replace")
        passed_over: list[Path] = []
        try:
            while True:
                location = cls._of(run, new_directory(spec))
                if run.if_exists != "new" or not location.is_in_store():
                    return location
                # On another machine, the name that is free here has been taken.
                passed_over.append(location.directory)
        finally:
            for directory in passed_over:
                directory.rmdir()

    @classmethod
    def at(cls, url: str, filesystem: Any, local_dir: str | os.PathLike[str] | None) -> Self:
        store = ObjectStore(checked_url("path", url, filesystem), filesystem)
        name = _local_name(store)
        root = default_root_for(store.url, name) if local_dir is None else local_root(local_dir)
        return cls(root / name, store, filesystem)

    @classmethod
    def noted(cls, directory: Path, origin: Origin) -> Self:
        """Return that of an experiment by what its directory on this machine notes of the store.

        Raises:
            StorageError: If it needs its file system again.
        """
        if origin.has_filesystem:
            raise StorageError(
                f"the experiment in {str(directory)!r} is in {origin.url}, on a file system that "
                f"was passed as an object; pass {origin.url!r} with storage_filesystem="
            )
        return cls(directory, ObjectStore(origin.url))

    @classmethod
    def _of(cls, run: RunConfig, directory: Path) -> Self:
        name = directory.relative_to(storage_root(run)).as_posix()
        url, filesystem = join_url(run.storage_url or "", name), run.storage_filesystem
        store = ObjectStore(url, filesystem, retry_s=run.storage_retry_s)
        return cls(directory, store, filesystem)

    @property
    def origin(self) -> Origin:
        """The note of the store for the local directory."""
        return Origin(self.url, self.filesystem is not None)

    def has_experiment(self) -> bool:
        return self.is_in_store() or self._has_local()

    def is_in_store(self) -> bool:
        """Return whether the store has an experiment."""
        return self.store.get_if_exists(layout.DECLARATION) is not None

    def read_record(self) -> Record:
        content = self.store.get_if_exists(layout.DECLARATION, SMALL_BYTES)
        if content is None:
            if not self._has_local():
                raise StorageError(
                    f"{self.url} holds no experiment; give the URL of an experiment, which "
                    "is that of storage_path with the experiment's name behind it"
                )
            return read_record(self.directory)
        record = _record_from(content, self.url)
        if self._has_local() and not self._is_same(record):
            raise ExperimentExists(
                f"{str(self.directory)!r} holds another experiment than {record.text['name']!r} "
                "in the store, though one of the same URL; move it away, or give another local_dir"
            )
        return record

    def _is_same(self, record: Record) -> bool:
        try:
            return read_record(self.directory).experiment_id == record.experiment_id
        except StorageError:
            return True  # what the store has is complete, and will replace it

    def check_unused(self) -> None:
        """Check that the store has no experiment here; the directory is checked elsewhere.

        Raises:
            ExperimentExists: If it has one, or the remains of one.
        """
        if self.is_in_store():
            raise ExperimentExists(
                f"{self.url} already holds an experiment; continue it with "
                f"Tuner.restore({self.url!r}, trainable) or "
                'Tuner(..., resume="auto"), keep it and run this one beside it with '
                'RunConfig(if_exists="new"), remove it for this one with '
                'RunConfig(if_exists="replace"), or choose another name'
            )
        left = next(
            (key for key in self.store.list() if not key.startswith(_LEFT_WITHOUT_EXPERIMENT)), ""
        )
        if left:
            raise ExperimentExists(
                f"{self.url} holds objects, such as {left!r}, and no experiment; delete "
                "them, or choose another name"
            )

    def check_free(self, *, can_replace: bool) -> None:
        """Check that a new experiment may be made here, which may replace that in the store.

        Raises:
            ExperimentExists: If it may not.
        """
        self._has_local()
        if not can_replace:
            self.check_unused()

    def _has_local(self) -> bool:
        """Return whether the directory holds the experiment.

        Raises:
            ExperimentExists: If it holds another one.
        """
        if not is_experiment(self.directory):
            return False
        origin = origin_of(self.directory)
        if origin is None or origin.url != self.url:
            belongs = f"that of {origin.url}" if origin else "one that is not in an object store"
            raise ExperimentExists(
                f"{str(self.directory)!r} holds another experiment than {self.url}, "
                f"{belongs}; give another local_dir, or another name"
            )
        return True


def _local_name(store: ObjectStore) -> str:
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
