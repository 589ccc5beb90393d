"""Copies of declaration, snapshots and trials' files in an object store, made by a thread.

Nothing depends on them but for the declaration: a restore needs that and the journal. Snapshots
make it faster, and the output of trials and what else is in their directories would be gone with
the machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, final

from tuner.background import BackgroundJobs
from tuner.errors import StorageError
from tuner.journal import snapshot_files
from tuner.storage import layout
from tuner.storage.disk import temporary_sibling

from .object_store import ObjectStore
from .remote_lock import RemoteLock

_FIRST_LOOK_S: Final = 2.0
_PERIOD_S: Final = 5.0
"""How often it is looked at what has changed, in seconds."""
_WRITTEN_S: Final = 60.0
"""How often a file is stored that is still being written, in seconds; others at the next look."""
_MAX_SHARE: Final = 0.05
"""Of the time that looking for it may take."""
_MAX_BYTES: Final = 1 << 30
_LARGE_BYTES: Final = 16 << 20
_GROWTH: Final = 1.25
"""By how much a large file has grown before it is stored again while it is written to: objects
cannot be appended to, so all of it is sent each time."""
_NUM_AT_ONCE: Final = 64

_log = logging.getLogger("tuner")


class _File(NamedTuple):
    path: str
    size_bytes: int
    changed_ns: int


@final
class FileMirror:
    """Stores declaration, snapshots and the files of trials of a running experiment.

    Of a trial's directory, the regular files in it are stored, not those in folders.

    Args:
        directory: The local directory of the experiment.
        store: Its directory in the object store.
        lock: Its lock there.
        mirrored: Returns the number of the last record that is stored.
        after: The same, before this session.
    """

    def __init__(
        self,
        directory: Path,
        store: ObjectStore,
        lock: RemoteLock,
        mirrored: Callable[[], int],
        after: int,
    ) -> None:
        self._directory = directory
        self._store = store
        self._lock = lock
        self._mirrored = mirrored
        self._snapshots = [after]
        """Numbers of the last records of the snapshots that are stored, the newest last."""
        self._began_ns = time.time_ns()
        self._earlier: dict[str, int] | None = None
        """Sizes of what earlier sessions have stored; None before that is known."""
        self._stored: dict[str, _File] = {}
        self._stored_s: dict[str, float] = {}
        """When each was stored, by the monotonic clock."""
        self._seen: dict[str, _File] = {}
        """Files that have changed since, as they were when last looked at."""
        self._too_large: set[str] = set()
        self._jobs = BackgroundJobs(
            "tuner-mirror-files",
            self._store_and_rest,
            _PERIOD_S,
            # If another driver has taken over, this one hears of it from the copy of the journal.
            on_error=lambda error: _log.debug("files of trials are not stored yet: %s", error),
        )

    def start(self) -> None:
        """Store the declaration, before any piece of the journal, and start the thread.

        Raises:
            StorageError: If the store cannot be written, or the declaration not be read.
        """
        path = self._directory / layout.DECLARATION
        try:
            self._store.put(layout.DECLARATION, path.read_bytes())
        except OSError as cause:
            raise StorageError(f"{path} cannot be read: {cause}") from cause
        self._jobs.wake(_FIRST_LOOK_S)

    def stop(self) -> None:
        """End the thread; does nothing the second time."""
        # It may be retrying a request; nothing depends on it any more.
        self._jobs.close(_FIRST_LOOK_S)

    def _store_and_rest(self) -> None:
        cpu_s = time.thread_time()
        self.store_new()
        self._jobs.period_s = max(_PERIOD_S, (time.thread_time() - cpu_s) / _MAX_SHARE)

    def store_all(self) -> None:
        """Store all that is new, at the end of a session, when nothing changes any more.

        Raises:
            StorageError: If it cannot be stored; it may be called again. `StorageLost` if another
                driver has taken the experiment over.
        """
        self.stop()
        try:
            self.store_new(is_last=True)
        except OSError as cause:
            raise StorageError(
                f"files of {self._directory} cannot be stored in {self._store.url}: {cause}"
            ) from cause

    def store_new(self, *, is_last: bool = False) -> None:
        """Store what is new, as the thread does.

        Args:
            is_last: Whether nothing writes to the files any more.

        Raises:
            StorageError: If something cannot be stored; it is stored by a later call.
            OSError: If there is no space for copies of files that are still being written.
        """
        # Files of trials without any record would look like those of an experiment whose journal
        # was deleted.
        if not (is_last or self._mirrored()):
            return
        self._store_snapshot()
        if self._earlier is None:
            self._earlier = self._store.list()
        due = (file for file in self._files() if self._is_due(file, is_last=is_last))
        while batch := list(itertools.islice(due, _NUM_AT_ONCE)):
            # So that a driver that was taken over from does not replace what the other one stores.
            self._lock.check()
            if is_last:
                self._store.upload({file.path: self._directory / file.path for file in batch})
            else:
                self._upload_copies(batch)
            self._stored.update((file.path, file) for file in batch)
            self._stored_s |= dict.fromkeys((file.path for file in batch), time.monotonic())

    def _store_snapshot(self) -> None:
        stored, mirrored = self._snapshots[-1], self._mirrored()
        for path in snapshot_files.paths(self._directory):
            if stored < int(path.stem) <= mirrored:
                self._lock.check()
                with suppress(FileNotFoundError):  # a newer one has taken its place
                    self._store.upload({self._snapshot_key(int(path.stem)): path})
                    self._snapshots.append(int(path.stem))
                break
        # Once this session has stored as many, those of earlier ones go as well.
        if len(self._snapshots) > snapshot_files.NUM_KEPT and self._snapshots[-1] > stored:
            kept = map(self._snapshot_key, self._snapshots[-snapshot_files.NUM_KEPT :])
            self._store.delete(set(self._store.list(f"{layout.SNAPSHOT}/")) - set(kept))

    def _snapshot_key(self, sequence: int) -> str:
        return f"{layout.SNAPSHOT}/{self._lock.epoch}/{sequence:020d}.json"

    def _files(self) -> Iterator[_File]:
        for entry in _entries(self._directory):
            if layout.is_trial(entry.name):
                with suppress(FileNotFoundError, NotADirectoryError):
                    for inner in _entries(entry.path):
                        if not inner.name.startswith("."):
                            yield from _file_of(inner, f"{entry.name}/{inner.name}")
            elif entry.name == layout.ENVIRONMENT or (
                entry.name.startswith("pbt_") and entry.name.endswith(".txt")
            ):
                yield from _file_of(entry, entry.name)

    def _is_due(self, file: _File, *, is_last: bool) -> bool:
        before = self._stored.get(file.path)
        if file == before or not self._is_small_enough(file):
            return False
        if before is None:
            earlier_bytes = (self._earlier or {}).get(file.path)
            return not (file.changed_ns < self._began_ns and file.size_bytes == earlier_bytes)
        if is_last or self._seen.pop(file.path, None) == file:
            return True
        self._seen[file.path] = file
        if time.monotonic() < self._stored_s[file.path] + _WRITTEN_S:
            return False
        is_large = file.size_bytes >= _LARGE_BYTES
        return not (is_large and before.size_bytes <= file.size_bytes < _GROWTH * before.size_bytes)

    def _upload_copies(self, batch: Sequence[_File]) -> None:
        """Store files that may be written to meanwhile."""
        folder = temporary_sibling(self._directory / "mirrored")
        folder.mkdir()
        try:
            copies = {file.path: folder / str(number) for number, file in enumerate(batch)}
            for path, copy in copies.items():
                with suppress(FileNotFoundError):  # a logger has replaced it meanwhile
                    shutil.copyfile(self._directory / path, copy, follow_symlinks=False)
            self._store.upload({path: copy for path, copy in copies.items() if copy.exists()})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _is_small_enough(self, file: _File) -> bool:
        if file.size_bytes <= _MAX_BYTES:
            return True
        if file.path not in self._too_large:
            self._too_large.add(file.path)
            _log.warning(
                "%s is larger than 1 GiB and is not copied to %s; it stays on this machine",
                self._directory / file.path,
                self._store.url,
            )
        return False


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _file_of(entry: os.DirEntry[str], path: str) -> Iterator[_File]:
    """Yield the file if it is a regular one."""
    with suppress(FileNotFoundError):
        if entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            yield _File(path, status.st_size, status.st_mtime_ns)
