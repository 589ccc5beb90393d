"""Verification of checkpoints, and deletion of superseded ones, never before that is safe."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, final

from tuner.core.trial import CheckpointRecord
from tuner.errors import CheckpointError
from tuner.journal.writer import Journal, SyncPolicy
from tuner.storage import checkpoints
from tuner.storage.layout import trial_directory
from tuner.storage.manifest import read_manifest, verify

_log = logging.getLogger("tuner")


@final
class CheckpointStore:
    """Finds damage in checkpoints before they are used, and deletes those that are superseded.

    Args:
        experiment: The experiment's directory.
        deleter: Deletes them once that is safe.
        earlier: Trial and index of each checkpoint that an earlier session has written. Times of
            files would not do, since clocks are set back.
    """

    def __init__(
        self, experiment: Path, deleter: CheckpointDeleter, earlier: Iterable[tuple[str, int]] = ()
    ) -> None:
        self._experiment = experiment
        self._deleter = deleter
        self._earlier = frozenset(earlier)

    def path(self, trial_id: str, checkpoint: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint."""
        return trial_directory(self._experiment, trial_id) / checkpoint.directory

    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        """Delete a checkpoint as soon as that is safe.

        One with a name of its own is deleted only if no later one has taken its directory by then.
        """
        index = checkpoint.index if checkpoint.name else None
        self._deleter.delete(self.path(trial_id, checkpoint), index)

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        """Delete what an attempt that has ended left unfinished in its staging directories."""
        for path in checkpoints.unfinished(trial_directory(self._experiment, trial_id), attempt):
            self._deleter.delete(path)

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint, empty for nothing.

        The contents of a checkpoint of an earlier session are read and compared with the manifest;
        of one of this session only names and sizes are, so that resuming a trial stays cheap.
        """
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
        discard: Takes what has become safe to delete; None deletes it in a thread.

    Attributes:
        thread_cpu_s: CPU time of the thread, in seconds.
    """

    def __init__(self, journal: Journal, discard: Callable[[Path], None] | None = None) -> None:
        self._journal = journal
        self._held: deque[tuple[int, Path, int | None]] = deque()
        self._released: queue.SimpleQueue[tuple[Path, int | None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._discard = discard
        self.thread_cpu_s = 0.0

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
        if self._thread:
            self._released.put(None)
            self._thread.join()

    def delete(self, path: Path, index: int | None = None) -> None:
        """Delete a checkpoint's directory once that is safe.

        Args:
            path: The directory.
            index: Index of the checkpoint that has to be in it then; None for any.
        """
        # The record that superseded it has been appended, so it is at most the last one.
        self._held.append((self._journal.last_sequence, path, index))

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
            _, path, index = self._held.popleft()
            if self._discard:
                self._discard(path)
            else:
                self._hand_to_thread(path, index)

    def _hand_to_thread(self, path: Path, index: int | None) -> None:
        self._released.put((path, index))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tuner-deleter", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (released := self._released.get()) is not None:
            path, index = released
            try:
                if index is None or _index_in(path) == index:
                    checkpoints.delete(path)
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", path, error)
            self.thread_cpu_s = time.thread_time()


def _index_in(path: Path) -> int | None:
    """Return the index of the checkpoint in a directory, None if there is none."""
    try:
        return read_manifest(path).index
    except CheckpointError:
        return None
