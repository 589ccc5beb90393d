"""Copy of a journal in an object store, kept up to date by a thread.

The thread reads what the driver has written from the local segments, and stores it in pieces (see
`tuner.stores.pieces`). After each piece it asks whether another driver has taken over: only what
was stored before that counts as mirrored.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from tuner.background import BackgroundJobs
from tuner.errors import ExperimentFenced, StorageError, StorageLost, StorageUnreachable
from tuner.storage import layout

from .object_store import ObjectStore
from .pieces import Piece, RecordId, joined, piece_key
from .remote_lock import BEAT_S, RemoteLock
from .segment_tail import SegmentTail

MIRROR_S: Final = 2.0
"""How often what is new is stored, in seconds."""
_PIECE_BYTES: Final = 1 << 20
_NUM_PACKED: Final = 256
"""How many small pieces are stored once more in one object, from which they are read faster."""
_SMALL_BYTES: Final = 1 << 16
_LAG_S: Final = 10.0
"""How far the copy may be behind before that is printed."""
_PUSH_S: Final = 5.0
"""How long `push` waits at a time."""

_log = logging.getLogger("tuner")


@final
class JournalMirror:
    """Stores an experiment's journal as it grows, under an epoch.

    Args:
        experiment: The local directory of the experiment.
        store: Its directory in the object store.
        lock: Its lock there; its epoch has begun after `after`.
        after: The last record that is stored and counts.
        period_s: How often what is new is stored, in seconds.
        piece_bytes: From this size on it is stored before that.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        experiment: Path,
        store: ObjectStore,
        lock: RemoteLock,
        after: RecordId,
        *,
        period_s: float = MIRROR_S,
        piece_bytes: int = _PIECE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = store.url
        self._store = store
        self._lock = lock
        self._objects = experiment / layout.OBJECTS
        self._known_objects: set[str] = set()
        self._tail = SegmentTail(experiment, after, piece_bytes)
        self._piece: Piece | None = None
        """Read and not yet counted: it is stored again as it is, since pieces never change."""
        self._packed: list[Piece] = []
        """Small pieces that follow each other, for the next pack."""
        self._period_s = period_s
        self._piece_bytes = piece_bytes
        self._clock = clock
        self._safe_sequence: Callable[[], int] = lambda: after[0]
        self._on_loss: Callable[[], None] | None = None
        self._mirrored = after[0]
        self._waiting_bytes = 0
        self._behind_since_s: float | None = None
        self._is_lag_told = False
        self._error: StorageError | None = None
        """What has kept the thread from storing since the last piece, or the last `push`."""
        self._loss: StorageLost | None = None
        self._changed = threading.Condition()
        self._copies = BackgroundJobs(
            "tuner-mirror", self.store_new, period_s, on_error=self._note_failure
        )
        # Signs of life in a thread of their own: where storing takes long, another driver would
        # take this one for dead.
        self._beats = BackgroundJobs("tuner-beat", self._beat, BEAT_S, on_error=self._note_no_beat)

    @property
    def cpu_s(self) -> float:
        """CPU time of the thread that copies, in seconds."""
        return self._copies.cpu_s

    @property
    def mirrored_sequence(self) -> int:
        """Number of the last record that survives the loss of this machine."""
        return self._mirrored

    def follow(
        self,
        safe_sequence: Callable[[], int],
        on_loss: Callable[[], None] | None = None,
        *,
        has_thread: bool = True,
    ) -> None:
        """Begin to store a journal.

        Args:
            safe_sequence: Returns the number of the last record that may be stored; called in the
                thread.
            on_loss: Called in the thread when another driver has taken over, to wake this one up;
                None for no call.
            has_thread: Whether a thread does it; without it the caller calls `store_new`.
        """
        self._safe_sequence = safe_sequence
        self._on_loss = on_loss
        if has_thread:
            self._copies.wake(self._period_s)
            self._beats.wake()

    def wrote(self, num_bytes: int) -> None:
        """Take note of lines that were written."""
        if self._behind_since_s is None:
            self._behind_since_s = self._clock()
        self._waiting_bytes += num_bytes
        if self._waiting_bytes >= self._piece_bytes:
            self._copies.wake()

    def check(self) -> None:
        """Print if the copy is far behind; called by the driver before it acknowledges anything.

        Raises:
            ExperimentFenced: If another driver has taken the experiment over.
        """
        if self._loss:
            raise self._loss
        since_s = self._behind_since_s
        if since_s is None:
            if self._is_lag_told:
                self._is_lag_told = False
                _log.info("the copy of the journal in %s is up to date again", self.url)
        elif not self._is_lag_told and self._clock() - since_s > self._period_s + _LAG_S:
            self._is_lag_told = True
            _log.warning(
                "the copy of the journal in %s is more than %.0f s behind%s; were this machine "
                "lost now, the results since then would be, too",
                self.url,
                self._clock() - since_s,
                f": {self._error}" if self._error else "",
            )

    def push(self, sequence: int, timeout_s: float = _PUSH_S) -> None:
        """Return when all records up to one are stored.

        Args:
            sequence: Number of the record, which has been written.
            timeout_s: After this time in seconds it raises; it may be called again.

        Raises:
            ExperimentFenced: If another driver has taken the experiment over.
            StorageError: If the store does not take it; what was written stays in the local
                journal, and is stored as soon as it can be.
        """
        until_s = self._clock() + timeout_s
        with self._changed:
            self._error = None
            while self._mirrored < sequence:
                if error := self._loss or self._error:
                    raise error
                rest_s = until_s - self._clock()
                if rest_s <= 0.0:
                    raise StorageUnreachable(
                        f"the journal could not be stored in {self.url} for {timeout_s:g} s; check "
                        "the network and the store"
                    )
                self._copies.wake()
                self._changed.wait(rest_s)

    def close(self, timeout_s: float) -> None:
        """Store what is left and end the thread.

        Args:
            timeout_s: How long to retry, in seconds.

        Raises:
            ExperimentFenced: If another driver has taken the experiment over.
            StorageError: If it cannot be stored; a restore on this machine stores it.
        """
        try:
            self.push(self._safe_sequence(), timeout_s)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the threads, and leave what is not stored yet; does nothing the second time."""
        for jobs in (self._copies, self._beats):
            # It may be retrying a request; nothing depends on it any more.
            jobs.close(self._period_s)

    def _beat(self) -> None:
        if not self._loss:
            self._lock.beat()

    def _note_no_beat(self, error: BaseException) -> None:
        if isinstance(error, StorageLost):
            self._note_failure(error)

    def _note_failure(self, error: BaseException) -> None:
        with self._changed:
            if isinstance(error, StorageLost):
                self._loss = self._loss or error
            elif isinstance(error, StorageError):
                self._error = error
            else:
                self._error = StorageError(f"the copy of the journal cannot go on: {error!r}")
                self._error.__cause__ = error
            self._changed.notify_all()
        if self._loss and self._on_loss:
            self._on_loss()

    def store_new(self) -> None:
        """Store what is new; done by the thread, if there is one.

        Raises:
            ExperimentFenced: If another driver has taken the experiment over.
            StorageError: If it cannot be stored; it is stored by the next call.
        """
        if self._loss:
            raise self._loss
        started_s = self._clock()
        self._waiting_bytes = 0
        while piece := self._piece or self._tail.next_piece(self._safe_sequence()):
            self._piece = piece
            self._store_objects()
            if not self._store.create(piece_key(self._lock.epoch, piece.first), piece.content):
                raise ExperimentFenced(
                    f"{self.url}/{piece_key(self._lock.epoch, piece.first)} was stored by another "
                    "driver, which works in the same experiment; nothing is acknowledged from now "
                    "on"
                )
            # Before it counts: a driver that has taken over in between may not have seen it.
            self._lock.check()
            with self._changed:
                self._mirrored, self._piece, self._error = piece.last[0], None, None
                self._changed.notify_all()
            self._pack(piece)
        is_behind = self._mirrored < self._safe_sequence()
        self._behind_since_s = started_s if is_behind else None

    def _pack(self, piece: Piece) -> None:
        if len(piece.lines) > _SMALL_BYTES:
            self._packed = []
            return
        self._packed.append(piece)
        if len(self._packed) >= _NUM_PACKED:
            pack, self._packed = joined(self._packed), []
            # It may be missing: what is in it is stored.
            self._store.create(piece_key(self._lock.epoch, pack.first, pack.last[0]), pack.content)

    def _store_objects(self) -> None:
        """Store the arrays that records may refer to; they were written before those."""
        try:
            names = {
                path.name
                for path in self._objects.iterdir()
                if not path.name.startswith(layout.STAGING_PREFIX)
            }
        except FileNotFoundError:
            return
        if new := sorted(names - self._known_objects):
            self._store.upload({f"{layout.OBJECTS}/{name}": self._objects / name for name in new})
            self._known_objects |= names
