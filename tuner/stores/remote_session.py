"""The object store's side of a run: its lock, the working copy, and what is copied back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, final

from tuner.driver.control import Source
from tuner.driver.storage_session import StorageSession
from tuner.errors import StorageError, StorageLost
from tuner.execution.executor import Executor
from tuner.journal.writer import Journal
from tuner.spec.config import RunConfig
from tuner.storage import layout
from tuner.storage.control_requests import RequestInbox
from tuner.storage.directories import make_folder
from tuner.storage.lock import ExperimentLock, current_owner
from tuner.storage.origin import note_origin

from .file_mirror import FileMirror
from .file_service import FileService, StoreFiles
from .journal_mirror import JournalMirror
from .object_checkpoints import ObjectCheckpoints
from .remote_lock import RemoteLock, requests_in_store
from .stored_location import StoredLocation
from .uploading import UploadingExecutor
from .working_copy import note_epoch, prepare_working_copy

_START: Final = (0, 0)
_COPY_RETRY_S: Final = 10.0
"""How long a request of the threads that copy journal and files is retried at a time."""
_LAST_TRY_S: Final = 1.0
"""How long requests are retried at the end of a run that has failed since storage has."""

_log = logging.getLogger("tuner")


@final
class RemoteSession(StorageSession):
    """Holds the lock of an experiment in an object store, and keeps the copy there up to date.

    The order is what makes a second driver harmless: the local lock, the lock in the store, the
    working copy, the start of this driver's epoch, and only then the first record.

    Args:
        location: Where the experiment is.
        run: The run's settings.
        steal: Whether to take over from a driver that runs.

    Attributes:
        store: Its directory in the object store.
        epoch: Number of this driver among all that have driven the experiment; 0 without the lock.
        checkpoints: The checkpoints in the store; None before `open_checkpoints`.
    """

    def __init__(self, location: StoredLocation, run: RunConfig, *, steal: bool) -> None:
        super().__init__(location.directory)
        self.url = location.url
        self.store = store = location.store
        self.epoch = 0
        self._location = location
        self._run = run
        self._is_checked = run.storage_lock == "epochs"
        self._lock = RemoteLock(store, steal=steal, is_checked=self._is_checked)
        # The driver itself retries what it waits for, and tells the user.
        self._copies = store.with_retry_s(_COPY_RETRY_S)
        self._after = _START
        self._mirror: JournalMirror | None = None
        self._files: FileMirror | None = None
        self._has_begun = False

    def prepare(self) -> None:
        """Check that the store can be reached and can hold a lock, and make the local directory."""
        self.store.retry_s = self._run.storage_retry_s
        self.store.probe(is_checked=self._is_checked)
        try:
            make_folder(self._directory)
        except OSError as cause:
            raise StorageError(
                f"{str(self._directory)!r} cannot be made: {cause}; give another local_dir"
            ) from cause

    def __enter__(self) -> Self:
        """Take the lock in the store."""
        self.epoch = self._lock.acquire()
        return self

    def replace(self) -> None:
        """Remove the experiment that the store holds."""
        # Locks and starts of epochs stay: another driver may look for one at any time, and the
        # start of this one makes the pieces of all others count for nothing.
        own = [
            key
            for key in self.store.list()
            if layout.is_own(top := key.partition("/")[0]) and top != layout.LOCK
        ]
        self.store.delete(key for key in own if key != layout.DECLARATION)
        # Last: an experiment of which a part was removed is still one, and can be removed again.
        self.store.delete([layout.DECLARATION])

    def begin(self) -> None:
        """Begin a new experiment, of which the store has none."""
        self._location.check_unused()
        note_epoch(self._directory, self.epoch)
        self._note_origin()
        self._lock.start_after(*_START)
        self._has_begun = True

    def resume(self, lock: ExperimentLock, *, is_salvage: bool) -> None:
        """Bring the local directory up to date; see `prepare_working_copy`."""
        try:
            self._after = prepare_working_copy(
                self.store, lock, self._directory, self.epoch, is_salvage=is_salvage
            )
        except StorageError:
            # What another driver stores meanwhile looks like damage.
            self._lock.check()
            raise
        self._note_origin()
        self._lock.start_after(*self._after)

    @property
    def is_async(self) -> bool:
        """Whether results are passed on before their checkpoints are stored."""
        config = self._run.checkpoint_config
        return config is not None and config.upload == "async"

    def storing(
        self,
        executor: Executor,
        files_for: Callable[[ObjectCheckpoints], FileService] | None = None,
    ) -> Executor:
        """See `StorageSession`.

        Args:
            executor: The executor.
            files_for: Returns what moves files between the store and the machines of trials; None
                for this machine.
        """
        checkpoints = self.checkpoints = ObjectCheckpoints(
            self.store,
            self._directory,
            self.epoch,
            sync=self._run.durability != "process",
            cache_bytes=self._run.cache_bytes,
            await_journal=self.await_beginning,
        )
        in_background = self._run.executor != "inline"
        files = (
            files_for(checkpoints)
            if files_for
            else StoreFiles(checkpoints, executor.wake, in_background=in_background)
        )
        return UploadingExecutor(executor, files, is_async=self.is_async)

    def await_beginning(self) -> None:
        """Return once the store has the first record of the journal.

        Raises:
            ExperimentFenced: If another driver has taken over.
            StorageUnreachable: If the store does not take it.
        """
        if self._mirror:
            self._mirror.push(1, self._run.storage_retry_s)

    def open_mirror(self) -> JournalMirror:
        """Return what copies the journal to the store."""
        self._mirror = mirror = JournalMirror(
            self._directory, self._copies, self._lock, self._after, period_s=self._run.mirror_s
        )
        self._files = FileMirror(
            self._directory,
            self._copies,
            self._lock,
            lambda: mirror.mirrored_sequence,
            self._after[0],
        )
        return mirror

    def start(self, journal: Journal, wake: Callable[[], None]) -> None:
        """Begin to copy journal and files."""
        if self._mirror and self._files:
            self._files.start()
            self._mirror.follow(lambda: journal.mirrorable_sequence, wake)

    def request_sources(self, wake: Callable[[], None]) -> Sequence[Source]:
        """Return the source of requests from commands on any machine."""
        owner = replace(current_owner(), epoch=self.epoch)
        return [RequestInbox(requests_in_store(self.store), owner, wake)]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Store what is left, and give the lock back if all is stored.

        Otherwise the lock is kept, so that a driver on another machine waits before it goes on
        without what is here only. A driver of this process need not wait.
        """
        try:
            self._end(error)
        finally:
            self._lock.give_up()

    def _end(self, error: BaseException | None) -> None:
        try:
            if not isinstance(error, StorageLost):
                self._store_rest(error)
        finally:
            for part in (self._files, self._mirror):
                if part:
                    part.stop()

    def _store_rest(self, error: BaseException | None) -> None:
        # An interrupt while storage fails ends a script with SystemExit.
        is_failing = isinstance(error, (StorageError, SystemExit, KeyboardInterrupt))
        rest_s = _LAST_TRY_S if is_failing else self._run.storage_retry_s
        self.store.retry_s = self._copies.retry_s = rest_s
        try:
            if self._mirror:
                self._mirror.close(rest_s)
            if self._files:
                self._files.store_all()
            if self._has_begun and not (self._mirror and self._mirror.mirrored_sequence):
                # Of a new experiment that could not start there is nothing to restore.
                self._lock.check()
                self.store.delete([layout.ENVIRONMENT, layout.DECLARATION])
            self._lock.release(self._mirror.mirrored_sequence if self._mirror else None)
        except StorageError as failure:
            _log.warning(
                "%s; what is not in the store yet is in %s, and a restore on this machine uses it",
                failure,
                self._directory,
            )

    def _note_origin(self) -> None:
        note_origin(self._directory, self._location.origin)
