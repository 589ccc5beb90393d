"""Checkpoints and files of trials on their way to an object store and back: the file service.

A file service moves what is asked for between the store and the machine of a trial, this one or a
node, beside what its caller does. `StoreFiles` does so on the machine where it is.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, final

from tuner.background import BackgroundJobs
from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.failures import describe

from .object_checkpoints import ObjectCheckpoints

_AT_ONCE: Final = 4
PAUSE_S: Final = 5.0
"""Before a download is tried again that the store, or the local disk, has refused."""

_log = logging.getLogger("tuner")

Then = Callable[[Failure | None], None]
"""Takes why something was not moved, None if it was; may be called from any thread."""


@final
@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint that something is to start from.

    Attributes:
        trial_id: Whose checkpoint.
        record: The checkpoint, which is in the store.
        holder: Who needs its local copy, until `FileService.release`.
        for_trial: The trial that waits for it.
    """

    trial_id: str
    record: CheckpointRecord
    holder: str
    for_trial: str

    @property
    def key(self) -> tuple[str, str]:
        """Its name in the store, and before it that of its trial."""
        return self.trial_id, self.record.remote


class Transfer(Protocol):
    """Something that is being moved."""

    def give_up(self) -> None:
        """Have it ended, as nobody waits for it."""


class FileService(Protocol):
    """Moves files between the machines of trials and an object store.

    What is begun returns a `Transfer`, or None if there is nothing to wait for; `then` is not
    called in that case. Nodes are named; this machine has the empty name. Whoever waits is woken
    after `then`.
    """

    @property
    def checkpoints(self) -> ObjectCheckpoints:
        """The checkpoints in the store."""

    def fetch(self, node: str, source: Source, then: Then) -> Transfer | None:
        """Make sure that there is an intact local copy of a checkpoint, and keep it.

        While the store does not answer, it is tried again: a failure says that the checkpoint is
        damaged.
        """

    def upload(
        self, node: str, trial_id: str, record: CheckpointRecord, holder: str, then: Then
    ) -> Transfer | None:
        """Upload a checkpoint, to the name in its record, and keep the local copy.

        Args:
            node: Where it is.
            trial_id: Whose it is.
            record: The checkpoint.
            holder: Who needs the local copy then, instead of the one that it needed before.
            then: See `Then`.
        """

    def release(self, node: str, holders: Iterable[str]) -> None:
        """Note that some holders need no local copies any more."""

    def put_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        """Have the payload of a validation stored, which may run on another machine."""

    def get_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        """Make sure that the payload of a validation is there."""

    def drop_payload(self, node: str, trial_id: str, name: str) -> None:
        """Delete the payload of a validation that has ended."""

    def put_files(self, node: str, trial_id: str, then: Then) -> Transfer | None:
        """Have the other files stored that a trial has left, and its output told."""

    def close(self) -> None:
        """Give up all that is being moved."""


@final
class Job:
    """A transfer in a thread.

    Attributes:
        is_given_up: Whether it is to end.
    """

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


@final
class StoreFiles:
    """Moves checkpoints between this machine and an object store, in threads.

    All other files, which are those of the driver's own machine, are mirrored by the driver.

    Args:
        checkpoints: The store.
        wake: Called after each transfer.
        in_background: Whether threads are used; if not, everything is over when it returns, in an
            order that does not depend on time.

    Attributes:
        checkpoints: As given.
    """

    def __init__(
        self,
        checkpoints: ObjectCheckpoints,
        wake: Callable[[], None],
        *,
        in_background: bool = True,
    ) -> None:
        self.checkpoints = checkpoints
        self._wake = wake
        self._in_background = in_background
        num_threads = _AT_ONCE if in_background else 0
        self._uploads = BackgroundJobs("tuner-upload", num_threads=num_threads)
        self._downloads = BackgroundJobs("tuner-download", num_threads=num_threads)
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
        """Of checkpoints, each of which is downloaded once for all that start from it."""
        self._intact: set[tuple[str, str]] = set()
        """Checkpoints whose contents were compared with their manifest, or written, since this
        process began."""

    def fetch(self, node: str, source: Source, then: Then) -> Transfer | None:
        self.checkpoints.cache.pin(source.holder, source.key)
        # What this process has seen intact only needs a look, as cheap as for local experiments: a
        # worker that is kept for another start is lost if that does not come at once.
        if source.key in self._intact and not self.checkpoints.find_local_damage(
            source.trial_id, source.record, with_hashes=False
        ):
            return None
        job = Job()
        self._submit(self._downloads, partial(self._fetch, source, job, then))
        return job

    def upload(
        self, node: str, trial_id: str, record: CheckpointRecord, holder: str, then: Then
    ) -> Transfer | None:
        job = Job()
        self._submit(self._uploads, partial(self._upload, trial_id, record, holder, job, then))
        return job

    def pin(self, holder: str, key: tuple[str, str]) -> None:
        """Keep the local copy of a checkpoint that is there, instead of the holder's former one."""
        self.checkpoints.cache.pin(holder, key)

    def release(self, node: str, holders: Iterable[str]) -> None:
        for holder in holders:
            self.checkpoints.cache.unpin(holder)
        self._submit(self._uploads, self.checkpoints.cache.trim)

    def put_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        """See `FileService`; validations run on this machine."""

    def get_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        """See `FileService`; it was written on this machine."""

    def drop_payload(self, node: str, trial_id: str, name: str) -> None:
        """See `FileService`; the executor deletes it."""

    def put_files(self, node: str, trial_id: str, then: Then) -> Transfer | None:
        """See `FileService`; the driver mirrors them."""

    def close(self) -> None:
        for jobs in (self._uploads, self._downloads):
            jobs.close(0.0, drops_queued=True)
        self.checkpoints.cache.trim()

    def _submit(self, jobs: BackgroundJobs, job: Callable[[], None]) -> None:
        def run() -> None:
            try:
                job()
            finally:
                self._wake()

        jobs.submit(run if self._in_background else job)

    def _fetch(self, source: Source, job: Job, then: Then) -> None:
        checkpoints, owner_id, record = self.checkpoints, source.trial_id, source.record
        with self._locks[source.key]:
            while not job.is_given_up:
                try:
                    if checkpoints.find_local_damage(owner_id, record, with_hashes=True):
                        size_bytes = checkpoints.download(owner_id, record)
                        checkpoints.add_copy(owner_id, record, size_bytes)
                    self._intact.add(source.key)
                    then(None)
                    break
                except CheckpointError as damage:
                    then(Failure(type(damage).__name__, str(damage)))
                    break
                except (StorageUnreachable, OSError) as error:
                    if not self._in_background:
                        raise
                    # No damage: an older checkpoint would be no nearer. If the store stays away,
                    # the experiment ends since its journal cannot be mirrored either.
                    _log.warning(
                        "trial %s waits for a checkpoint that cannot be downloaded, and tries "
                        "again: %s",
                        source.for_trial,
                        error,
                    )
                    if self._downloads.pause(PAUSE_S):
                        break
                except Exception as error:  # noqa: BLE001  (a trial must not wait for ever)
                    then(describe(error))
                    break
        checkpoints.cache.trim()

    def _upload(
        self, trial_id: str, record: CheckpointRecord, holder: str, job: Job, then: Then
    ) -> None:
        checkpoints = self.checkpoints
        failure = None
        try:
            if not job.is_given_up:
                size_bytes = checkpoints.upload(
                    trial_id, record, record.remote, lambda: not job.is_given_up
                )
                if not job.is_given_up:
                    checkpoints.cache.pin(holder, (trial_id, record.remote))
                    checkpoints.add_copy(trial_id, record, size_bytes)
                    self._intact.add((trial_id, record.remote))
        except Exception as error:  # noqa: BLE001  (a trial must not wait for ever)
            failure = describe(error)
        then(failure)
        checkpoints.cache.trim()
