"""Temporary local copies of experiments in object stores, to read them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, final

from tuner.errors import StorageUnreachable
from tuner.storage import layout
from tuner.storage.disk import LARGE_BYTES
from tuner.storage.origin import Origin, note_origin, origin_of
from tuner.storage.urls import join_url, split_url

from .checked_url import checked_url
from .object_backends import resolve
from .object_errors import describe
from .object_store import ObjectStore
from .remote_lock import present_driver
from .working_copy import fetch_experiment

_MAX_DEPTH: Final = 4
_OUTPUT: Final = re.compile(
    rf"[^/]+/(?:{layout.STDOUT}|{layout.STDERR}|{re.escape(layout.ERROR)})(?:\.rank\d+)?"
)


def experiments_in_store(url: str, max_depth: int = _MAX_DEPTH) -> Iterator[str]:
    """Yield the URLs of the experiments at or below a URL, without looking inside them.

    Raises:
        StorageUnreachable: If the store cannot be listed.
    """
    try:
        filesystem, root = resolve(url, None)
        filesystem.invalidate_cache()
        found = filesystem.ls(root, detail=True)
    except FileNotFoundError:
        return
    except Exception as cause:
        raise StorageUnreachable(f"{url} cannot be listed: {describe(cause)}") from cause
    names = {str(entry["name"]).rstrip("/").rpartition("/")[2]: entry["type"] for entry in found}
    if names.get(layout.DECLARATION) == "file":
        yield url
    elif max_depth:
        for name in sorted(names):
            if names[name] == "directory" and not name.startswith("."):
                yield from experiments_in_store(join_url(url, name), max_depth - 1)


def changed_at(url: str) -> float:
    """Return when an experiment's journal was last copied to a store, in seconds since 1970.

    Raises:
        StorageUnreachable: If the store cannot be read.
    """
    try:
        filesystem, root = resolve(join_url(url, layout.JOURNAL), None)
        filesystem.invalidate_cache()
        pieces = filesystem.find(root)
        newest = max(pieces, key=lambda path: (len(path), path), default=None)
        return filesystem.modified(newest).timestamp() if newest else 0.0
    except FileNotFoundError:
        return 0.0
    except Exception as cause:
        raise StorageUnreachable(f"{url} cannot be read: {describe(cause)}") from cause


def refresh(copy: Path, trial_id: str) -> None:
    """Download the output of a trial anew into a copy, and note whether the experiment still runs.

    Args:
        copy: The directory of a `ReadableCopy`.
        trial_id: The trial.

    Raises:
        StorageUnreachable: If the store does not answer, or refuses.
    """
    origin = origin_of(copy)
    if origin is None:
        return
    store = ObjectStore(origin.url)
    # First, so that what a driver stores at its end is downloaded.
    driver = present_driver(store)
    outputs = [
        key
        for key, size_bytes in store.list(f"{trial_id}/").items()
        if _OUTPUT.fullmatch(key) and size_bytes <= LARGE_BYTES
    ]
    store.download({key: copy / key for key in outputs})
    note_origin(copy, replace(origin, driver=asdict(driver) if driver else None))


@final
class ReadableCopy(os.PathLike[str]):
    """Copy of an experiment's journal and logs in a temporary directory, made when it is needed.

    The directory is removed when no object refers to the copy any more, and at the end of the
    process. A pickled copy is made anew where it is unpickled. The store is not changed and no lock
    is taken.

    Args:
        url: The experiment's URL.
        filesystem: The fsspec file system it is on; None for that of the URL.
        with_logs: Whether to copy the files of trials, such as their output.

    Raises:
        ValueError: If the URL is none, or the package for it is not installed.
    """

    def __init__(self, url: str, filesystem: Any = None, *, with_logs: bool = True) -> None:
        self.url = checked_url("path", url, filesystem)
        self.filesystem = filesystem
        self._with_logs = with_logs
        self._folder = ""
        self._remove: Callable[[], object] = lambda: None

    @property
    def directory(self) -> Path:
        """The directory with the copy.

        Raises:
            StorageError: If there is no experiment, or it cannot be read.
            DamagedJournal: If its journal does not verify.
        """
        name = split_url(self.url)[1]
        if not self._folder:
            folder = tempfile.mkdtemp(prefix="tuner-copy-")
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            store = ObjectStore(self.url, self.filesystem)
            directory = Path(folder, name)
            # Before the journal is copied, so that a driver that ends meanwhile is not taken for
            # one that has left the trials running.
            driver = present_driver(store)
            fetch_experiment(store, directory, with_logs=self._with_logs)
            note_origin(
                directory,
                Origin(
                    self.url,
                    self.filesystem is not None,
                    is_copy=True,
                    driver=asdict(driver) if driver else None,
                ),
            )
            self._folder = folder
        return Path(self._folder, name)

    def close(self) -> None:
        """Remove the directory."""
        self._remove()
        self._folder = ""

    def __fspath__(self) -> str:
        return str(self.directory)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return ReadableCopy, (self.url, self.filesystem)
