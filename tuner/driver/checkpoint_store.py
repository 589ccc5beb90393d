"""Verification of checkpoints, and deletion of superseded ones, never before that is safe."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, final

from tuner.background import BackgroundJobs
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError
from tuner.journal.writer import Journal, SyncPolicy
from tuner.storage.layout import trial_directory

if TYPE_CHECKING:
    from tuner.stores.object_checkpoints import ObjectCheckpoints

_LAST_WAIT_S: Final = 5.0
"""How long deletions are waited for at the end of a run that has failed, in seconds."""

_log = logging.getLogger("tuner")


@final
class CheckpointStore:
    """Finds damage in checkpoints before they are used, and deletes those that are superseded.

    Args:
        experiment: The experiment's directory.
        deleter: Deletes them once that is safe.
        earlier: Trial and index of each checkpoint that an earlier session has written. Times of
            files would not do, since clocks are set back.
        in_store: The checkpoints in the object store of the experiment; None where it is local.
    """

    def __init__(
        self,
        experiment: Path,
        deleter: CheckpointDeleter,
        earlier: Iterable[tuple[str, int]] = (),
        in_store: ObjectCheckpoints | None = None,
    ) -> None:
        self._experiment = experiment
        self._deleter = deleter
        self._earlier = frozenset(earlier)
        self._in_store = in_store

    def path(self, trial_id: str, checkpoint: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint."""
        return trial_directory(self._experiment, trial_id) / checkpoint.directory

    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        """Delete a checkpoint as soon as that is safe.

        One with a name of its own is deleted only if no later one has taken its directory by then.
        """
        index = checkpoint.index if checkpoint.name else None
        self._deleter.delete(self.path(trial_id, checkpoint), index)
        if self._in_store and checkpoint.remote:
            self._in_store.cache.forget((trial_id, checkpoint.remote))
            self._deleter.call(partial(self._in_store.delete, trial_id, checkpoint.remote))

    def clean_up(self, trials: Iterable[Trial]) -> None:
        """Have what earlier drivers have left in the object store deleted, and limit its copies.

        That takes a while, and happens in the deleter's thread once it is safe: what the records of
        this machine supersede is needed as long as the store does not hold them.

        Args:
            trials: All trials, as they were restored.
        """
        if not self._in_store:
            return
        records = [(trial.trial_id, kept) for trial in trials for kept in trial.checkpoints]
        self._deleter.call(
            partial(self._in_store.sweep, {(owner, kept.remote) for owner, kept in records})
        )
        self._deleter.call(partial(self._in_store.adopt, records))

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        """Delete what an attempt that has ended left unfinished in its staging directories."""
        from tuner.storage.checkpoint_directories import unfinished  # noqa: PLC0415  (after failures)

        for path in unfinished(trial_directory(self._experiment, trial_id), attempt):
            self._deleter.delete(path)

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing.

        The contents of a checkpoint of an earlier session are read and compared with the manifest;
        of one of this session only names and sizes are, so that resuming a trial stays cheap.

        One in an object store is not looked at: the executor downloads it where that is needed,
        without holding the driver up, and reports its loss.
        """
        if self._in_store and checkpoint.remote:
            return ""
        from tuner.storage.manifest import verify  # noqa: PLC0415  (where trials go on)

        path = self.path(trial_id, checkpoint)
        try:
            manifest = verify(path, with_hashes=(trial_id, checkpoint.index) in self._earlier)
        except (CheckpointError, OSError) as error:
            damage = str(error)
        else:
            # A later one with the same name was stored, and the driver died before it was told.
            is_replaced = bool(checkpoint.name) and manifest.index != checkpoint.index
            damage = f"{path} holds a later checkpoint, {manifest.index}" if is_replaced else ""
        if damage:
            _log.warning(
                "trial %s cannot go on from its latest checkpoint and takes the one before it: %s",
                trial_id,
                damage,
            )
        return damage


@final
class CheckpointDeleter:
    """Deletes checkpoints in a thread, once the record that superseded them has been synced.

    If a checkpoint were deleted before that, a power cut could bring back a state in which it is
    still needed. Where the journal is copied to an object store, the record has to be there, too.

    Args:
        journal: The journal whose records supersede checkpoints.
        discard: Called at once with what has become safe to delete; None deletes it in a thread.
    """

    def __init__(self, journal: Journal, discard: Callable[[Path], None] | None = None) -> None:
        self._journal = journal
        self._held: deque[tuple[int, Callable[[], object]]] = deque()
        self._discard = discard
        self._jobs = BackgroundJobs(
            "tuner-deleter",
            num_threads=0 if discard else 1,
            on_error=lambda error: _log.warning("a checkpoint could not be deleted: %s", error),
        )
        journal.cost.threads.append(self._jobs)

    def __enter__(self) -> Self:
        """Return the deleter."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete what is left if that is safe, and end the thread."""
        # After an error the journal may be unusable; the next session's cleanup deletes the rest.
        if error is None:
            self._journal.sync()
            self.release()
        # Where storage has failed, each job may retry for as long as storage is waited for.
        self._jobs.close(None if error is None else _LAST_WAIT_S)

    def delete(self, path: Path, index: int | None = None) -> None:
        """Delete a checkpoint's directory once that is safe.

        Args:
            path: The directory.
            index: Index of the checkpoint that has to be in it then; None for any.
        """
        discard = self._discard
        self.call(partial(_delete, path, index) if discard is None else partial(discard, path))

    def call(self, job: Callable[[], object]) -> None:
        """Call a function that deletes something once that is safe."""
        # The record that superseded it has been appended, so it is at most the last one.
        self._held.append((self._journal.last_sequence, job))

    def release(self) -> None:
        """Have the thread delete what has become safe to delete; called after each flush."""
        if not self._held:
            return
        # Where nothing is synced, a power cut may cost the experiment anyway.
        is_synced = self._journal.policy is not SyncPolicy.PROCESS
        safe = self._journal.synced_sequence if is_synced else self._journal.written_sequence
        if self._journal.mirror:
            # A restore on another machine begins where the copy ends.
            safe = min(safe, self._journal.mirror.mirrored_sequence)
        while self._held and self._held[0][0] <= safe:
            _, job = self._held.popleft()
            self._jobs.submit(job)


def _delete(path: Path, index: int | None) -> None:
    """Delete the checkpoint in a directory, if it has this index; None for any."""
    from tuner.storage.checkpoint_directories import delete, has_index  # noqa: PLC0415  (once saved)

    if index is None or has_index(path, index):
        try:
            delete(path)
        except OSError as error:
            _log.warning("checkpoint %s could not be deleted: %s", path, error)
