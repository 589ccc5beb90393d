"""Copies of snapshots and of trials' files in an object store, kept up to date by a thread.

Nothing depends on them: a restore needs the declaration and the journal. Snapshots make it faster,
and the output of trials and what else is in their directories would be gone with the machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from tuner.background import BackgroundJobs
from tuner.callbacks import Callback
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal import snapshot_files
from tuner.journal.mirror import JournalMirror
from tuner.storage import atomic, layout
from tuner.storage.object_store import ObjectStore
from tuner.storage.remote_lock import RemoteLock

LOG_PERIOD_S: Final = 60.0
"""How often the files of running trials are stored, in seconds."""
_PERIOD_S: Final = 2.0
_SETTLE_S: Final = (_PERIOD_S, LOG_PERIOD_S)
"""How long after its end a trial's files are stored, in seconds: loggers write in the background,
rarely for longer than the first."""
_MAX_BYTES: Final = 1 << 30
_LARGE_BYTES: Final = 16 << 20
_GROWTH: Final = 1.25
"""By how much a large file has grown before it is stored again while its trial runs: objects cannot
be appended to, so all of it is sent each time."""
_NUM_AT_ONCE: Final = 64

_log = logging.getLogger("tuner")


class _File(NamedTuple):
    path: str
    size_bytes: int
    changed_ns: int


@final
class FileMirror(Callback):
    """Stores declaration, snapshots and the files of trials of a running experiment.

    Of a trial's directory, the regular files in it are stored, not those in folders.

    Args:
        directory: The local directory of the experiment.
        store: Its directory in the object store.
        lock: Its lock there.
        journal: The copy of its journal, which a snapshot must not be ahead of.
        after: Number of the last record that was stored before this session.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        directory: Path,
        store: ObjectStore,
        lock: RemoteLock,
        journal: JournalMirror,
        after: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._store = store
        self._lock = lock
        self._journal = journal
        self._snapshots = [after]
        """Numbers of the last records of the snapshots that are stored, the newest last."""
        self._clock = clock
        self._began_ns = time.time_ns()
        self._next_scan_s = clock() + _PERIOD_S
        self._stored: dict[str, _File] = {}
        self._too_large: set[str] = set()
        self._moves: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        """Trials that have started (True) or ended (False)."""
        self._running: set[str] = set()
        self._ended: dict[str, list[float]] = {}
        """When the files of trials that have ended are to be stored."""
        self._jobs = BackgroundJobs(
            "tuner-mirror-files",
            self.store_due,
            _PERIOD_S,
            # If another driver has taken over, this one hears of it from the copy of the journal.
            on_error=lambda error: _log.debug("files of trials are not stored yet: %s", error),
        )

    # ---------------------------------------------------------------------------------------------
    # Hooks

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """See `Callback.on_trial_start`."""
        self._moves.put((trial.trial_id, True))

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """See `Callback.on_trial_complete`."""
        self._moves.put((trial.trial_id, False))

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """See `Callback.on_trial_error`."""
        self._moves.put((trial.trial_id, False))

    # ---------------------------------------------------------------------------------------------
    # The session

    def start(self, *, has_thread: bool = True) -> None:
        """Store the declaration, before any piece of the journal, and start the thread.

        Args:
            has_thread: Whether there is one; without it the caller calls `store_due`.

        Raises:
            StorageError: If the store cannot be written, or the declaration not be read.
        """
        path = self._directory / layout.DECLARATION
        try:
            self._store.put(layout.DECLARATION, path.read_bytes())
        except OSError as cause:
            raise StorageError(f"{path} cannot be read: {cause}") from cause
        if has_thread:
            self._jobs.wake(_PERIOD_S)

    def stop(self) -> None:
        """End the thread; does nothing the second time."""
        # It may be retrying a request; nothing depends on it any more.
        self._jobs.close(_PERIOD_S)

    def store_all(self) -> None:
        """Store all that is new, at the end of a session, when nothing changes any more.

        Raises:
            StorageLost: If another driver has taken the experiment over.
            StorageError: If it cannot be stored; it may be called again.
        """
        self.stop()
        try:
            self._store_snapshots()
            self._upload(self._changed_files(), is_stable=True)
        except OSError as cause:
            raise StorageError(
                f"files of {self._directory} cannot be stored in {self._store.url}: {cause}"
            ) from cause

    def _changed_files(self) -> Iterator[_File]:
        """Yield the files that were not stored by an earlier session, or have changed since."""
        sizes = self._store.list()
        with os.scandir(self._directory) as entries:
            trials = sorted(entry.name for entry in entries if layout.is_trial(entry.name))
        for file in itertools.chain(self._top_files(), *map(self._files_of, trials)):
            is_unchanged = file.changed_ns < self._began_ns
            if not (is_unchanged and sizes.get(file.path) == file.size_bytes):
                yield file

    def store_due(self) -> None:
        """Store what is due; done by the thread, if there is one.

        Raises:
            StorageLost: If another driver has taken the experiment over.
            StorageError: If something cannot be stored; it is stored by a later call.
            OSError: If there is no space for copies of files that are still being written.
        """
        self._take_moves()
        # Files of trials without any record would look like those of an experiment whose journal
        # was deleted.
        if not self._journal.mirrored_sequence:
            return
        self._store_snapshots()
        now_s = self._clock()
        for trial_id, due_s in list(self._ended.items()):
            if due_s[0] <= now_s:
                self._upload(self._files_of(trial_id), is_stable=False)
                del due_s[0]
                if not due_s:
                    del self._ended[trial_id]
        if now_s >= self._next_scan_s:
            self._next_scan_s = now_s + LOG_PERIOD_S
            files = [self._top_files(), *map(self._files_of, sorted(self._running))]
            self._upload(filter(self._has_grown, itertools.chain(*files)), is_stable=False)

    def _take_moves(self) -> None:
        now_s = self._clock()
        while not self._moves.empty():
            trial_id, has_started = self._moves.get()
            if has_started:
                self._running.add(trial_id)
                self._ended.pop(trial_id, None)
            else:
                self._running.discard(trial_id)
                self._ended[trial_id] = [now_s + settle_s for settle_s in _SETTLE_S]

    # ---------------------------------------------------------------------------------------------
    # Snapshots

    def _store_snapshots(self) -> None:
        mirrored = self._journal.mirrored_sequence
        for path in reversed(snapshot_files.paths(self._directory)):
            sequence = int(path.stem)
            if self._snapshots[-1] < sequence <= mirrored:
                self._lock.check()
                try:
                    self._store.upload({self._snapshot_key(sequence): path})
                except FileNotFoundError:
                    continue  # a newer one has taken its place
                self._snapshots.append(sequence)
                self._remove_snapshots()

    def _remove_snapshots(self) -> None:
        """Remove all but the newest two snapshots, once this session has stored as many."""
        kept = {self._snapshot_key(each) for each in self._snapshots[-snapshot_files.NUM_KEPT :]}
        if len(self._snapshots) > snapshot_files.NUM_KEPT:
            self._store.delete(set(self._store.list(f"{layout.SNAPSHOT}/")) - kept)

    def _snapshot_key(self, sequence: int) -> str:
        return f"{layout.SNAPSHOT}/{self._lock.epoch}/{sequence:020d}.json"

    # ---------------------------------------------------------------------------------------------
    # Files

    def _top_files(self) -> Iterator[_File]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name == layout.ENVIRONMENT or (
                    entry.name.startswith("pbt_") and entry.name.endswith(".txt")
                ):
                    yield from _file_of(entry, entry.name)

    def _files_of(self, trial_id: str) -> Iterator[_File]:
        try:
            with os.scandir(layout.trial_path(self._directory, trial_id)) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        yield from _file_of(entry, f"{trial_id}/{entry.name}")
        except (FileNotFoundError, NotADirectoryError):
            return

    def _has_grown(self, file: _File) -> bool:
        before = self._stored.get(file.path)
        return (
            before is None
            or file.size_bytes < _LARGE_BYTES
            or not before.size_bytes <= file.size_bytes < _GROWTH * before.size_bytes
        )

    def _upload(self, files: Iterable[_File], *, is_stable: bool) -> None:
        """Store those of the files that have changed.

        Args:
            files: The files.
            is_stable: Whether nothing can write to them any more.
        """
        changed = (
            file
            for file in files
            if self._stored.get(file.path) != file and self._is_small_enough(file)
        )
        while batch := list(itertools.islice(changed, _NUM_AT_ONCE)):
            # So that a driver that was taken over from does not replace what the other one stores.
            self._lock.check()
            if is_stable:
                self._store.upload({file.path: self._directory / file.path for file in batch})
            else:
                self._upload_copies(batch)
            self._stored.update((file.path, file) for file in batch)

    def _upload_copies(self, batch: Sequence[_File]) -> None:
        """Store files that may be written to meanwhile."""
        folder = atomic.temporary_sibling(self._directory / "mirrored")
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


def _file_of(entry: os.DirEntry[str], path: str) -> Iterator[_File]:
    """Yield the file if it is a regular one."""
    try:
        if entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            yield _File(path, status.st_size, status.st_mtime_ns)
    except FileNotFoundError:
        return
