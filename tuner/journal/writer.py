"""Append-only journal of events: each fact and decision is written before it takes effect.

The driver appends the records of one turn, flushes them with a single write, and only then answers
workers. What is written survives the death of processes; what is *synced* survives a power cut,
too. A thread syncs in the background, at most every 50 ms. Another thread (`mirror`) may copy the
journal to an object store; what is there survives the loss of the machine.
"""

from __future__ import annotations

import enum
import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, final
from zlib import crc32

from tuner.background import BackgroundJobs
from tuner.errors import StorageError, StorageLost
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import journal_directory
from tuner.storage.strict_json import opaque, to_bytes

from .saving_cost import SavingCost
from .segments import START, JournalPosition, Segment, header_line, line_of

if TYPE_CHECKING:
    from tuner.stores.journal_mirror import JournalMirror

SEGMENT_BYTES: Final = 32 << 20
SYNC_WINDOW_S: Final = 0.05
"""How old a record may become, under ``"group"``, before it is synced."""
_MAX_SYNC_SHARE: Final = 0.05
_WEIGHT: Final = 0.1
"""Of the last sync in what one usually takes."""
_SLACK_S: Final = 0.008
"""What the thread that syncs may take to wake up while the driver has the interpreter, and a sync
longer than the one before it."""


class SyncPolicy(enum.StrEnum):
    """What a power cut may cost; the death of processes never costs a record that was flushed."""

    PROCESS = "process"
    """Nothing is synced: for scratch disks."""
    GROUP = "group"
    """A thread syncs at most every 50 ms: that much may be lost."""
    STRICT = "strict"
    """`Journal.flush` waits for the disk: nothing is lost."""
    STORAGE = "storage"
    """Like ``"group"``, and `Journal.flush` waits for the copy in the object store: not even the
    loss of the machine costs a record."""


_SYNCED_BY_THREAD: Final = (SyncPolicy.GROUP, SyncPolicy.STORAGE)


@final
class Journal:
    """Writes an experiment's journal; to be used by one thread, that of the driver.

    Each opening begins a new segment and a new epoch. If a write fails, no record is lost and none
    half written: the records stay in memory, `flush` raises, and may be called again. After a
    failed sync, which may have lost what it was to save, the file is no longer trusted: all records
    since the last good sync are written again, into a new segment.

    Args:
        experiment: Directory of the experiment, whose lock the caller holds.
        tail: Where the journal ends, from `recover`; `START` for a new one.
        sync: See `SyncPolicy`.
        segment_bytes: Size from which on a new segment is begun.
        has_syncer: Whether, under ``"group"``, a thread syncs; without it the caller calls
            `sync_in_background` in time.
        disk: Where it lies.
        is_ours: Returns whether the experiment's lock is still held; None not to check.
        look_period_s: How often, in seconds at most, `flush` looks whether the segment and the lock
            are still in their places.
        on_segment: Called with epoch and first record of each segment that has been begun, and
            synced unless `sync` is ``"process"``; None for no call.
        mirror: Copies it to an object store, see `mirrorable_sequence`; None for no copy.

    Raises:
        StorageError: If the first segment cannot be written.

    Example:
        >>> import tempfile
        >>> from tuner.journal.reader import read
        >>> experiment = tempfile.mkdtemp()
        >>> with Journal(experiment) as journal:
        ...     journal.append({"t": 0.0, "k": "turn"})
        ...     journal.flush()
        >>> list(read(experiment))
        [{'q': 1, 'e': 1, 't': 0.0, 'k': 'turn'}]
    """

    def __init__(
        self,
        experiment: str | os.PathLike[str],
        tail: JournalPosition = START,
        *,
        sync: SyncPolicy | str = SyncPolicy.GROUP,
        segment_bytes: int = SEGMENT_BYTES,
        has_syncer: bool = True,
        disk: Disk = LOCAL_DISK,
        on_segment: Callable[[int, int], None] | None = None,
        is_ours: Callable[[], bool] | None = None,
        look_period_s: float = SYNC_WINDOW_S,
        mirror: JournalMirror | None = None,
    ) -> None:
        self.policy = SyncPolicy(sync)
        self.epoch = tail.epoch + 1
        self.cost = SavingCost()
        self.mirror = mirror
        self._disk = disk
        self._directory = journal_directory(experiment)
        self._segment_bytes = segment_bytes
        self._on_segment = on_segment
        self._is_ours = is_ours
        self._look_period_s = look_period_s
        self._looked_s = -math.inf
        self._loss: StorageLost | None = None
        self._pid = os.getpid()
        self._staged: list[bytes] = []
        self._sequence, self._crc = tail.sequence, tail.crc
        """Of the last record that was appended."""
        self._written = self._synced = (tail.sequence, tail.crc)
        self._unsynced: deque[tuple[tuple[int, int], bytes]] = deque()
        """Lines that were written together, with number and CRC of the last of their records."""
        self._sync_failed = self._is_rotation_due = False
        # Held while the file is synced or exchanged, so that the thread never syncs a descriptor
        # that means another file by now.
        self._file_lock = threading.Lock()
        try:
            disk.make_directory(self._directory)
            if self.policy is not SyncPolicy.PROCESS:
                disk.sync_directory(self._directory.parent)
            self._segment = self._new_segment(self._written)
        except OSError as cause:
            raise StorageError(
                f"no journal can be written in {self._directory}: {cause}"
            ) from cause
        # After the segment is on disk: the mark that the lock file gets must not be ahead of the
        # journal, or a restore would miss a segment that never was.
        self._announce_segment()
        self._syncs = BackgroundJobs(
            "tuner-journal-sync", self._sync_and_rest, num_threads=1 if has_syncer else 0
        )
        self._usual_sync_s = 0.0
        self.cost.threads += [self._syncs, mirror] if mirror else [self._syncs]

    @property
    def last_sequence(self) -> int:
        """Number of the last record that was appended."""
        return self._sequence

    @property
    def segment_bytes(self) -> int:
        """Size of the segment that is being written."""
        return self._segment.size_bytes

    @property
    def written_sequence(self) -> int:
        """Number of the last record that survives the death of this process."""
        return self._written[0]

    @property
    def synced_sequence(self) -> int:
        """Number of the last record that survives a power cut.

        Under ``"process"`` that is not known, and it is `written_sequence`.
        """
        return self._synced[0]

    @property
    def mirrorable_sequence(self) -> int:
        """Number of the last record that may be copied to an object store.

        That is the last one that survives what the policy lets survive on this machine. Under
        ``"storage"`` it is the last one that was written: where a power cut takes it from the local
        journal, a restore continues from the copy.
        """
        return self._written[0] if self.policy is SyncPolicy.STORAGE else self._synced[0]

    def append(self, *bodies: Mapping[str, Any], since_s: float | None = None) -> None:
        """Add records to those that the next `flush` writes.

        Args:
            *bodies: Records as `records.encode` makes them; sequence and epoch are put in front.
                What JSON cannot hold is written as its ``repr``.
            since_s: The time (`time.perf_counter`) since which they have been prepared, which
                is charged as well; None for now.
        """
        started_s = perf_counter() if since_s is None else since_s
        for text in [to_bytes(body, opaque) for body in bodies]:
            self._sequence += 1
            body = b'{"q":%d,"e":%d,%b' % (self._sequence, self.epoch, text[1:])
            self._crc = crc32(body)
            self._staged.append(line_of(body, self._crc))
        self.cost.loop_s += perf_counter() - started_s

    def flush(self) -> None:
        """Write what was appended, with one system call.

        Under ``"strict"``, return when it is on disk, and under ``"storage"``, when it is in the
        object store.

        Raises:
            StorageError: If the disk refuses. The records stay in memory and the file as it was, so
                `flush` may be called again; no worker may be answered before it has succeeded. Also
                if an object store refuses for which it waits; what was written is copied later.
            StorageLost: If the segment or the lock is not in its place any more, or another driver
                has taken over the copy in the object store; nothing is written from then on.
        """
        self._write()
        if self.policy is SyncPolicy.STORAGE:
            self.push()

    def _write(self) -> None:
        started_s = perf_counter()
        # Before anything is written: a driver that writes on into a deleted file would acknowledge
        # results that are lost when it ends.
        if started_s - self._looked_s >= self._look_period_s or self._loss:
            self._looked_s = started_s
            self._check_in_place()
        if self._syncs.error:
            raise self._syncs.error
        try:
            # First what is older, so that the records on disk are a prefix at any time.
            if self._sync_failed:
                self._rewrite_unsynced()
            if self._staged:
                self._write_staged()
            if self.policy in _SYNCED_BY_THREAD:
                if self._unsynced:
                    self._syncs.wake()
            elif self.policy is SyncPolicy.STRICT:
                self._sync_or_replace()
            elif self.policy is SyncPolicy.PROCESS:
                self._settle(self._written)
        except OSError as cause:
            limit = "; ulimit -f limits the size of files" if cause.errno == errno.EFBIG else ""
            raise StorageError(
                f"journal {self._segment.path} cannot be written: {cause}{limit}; its records are "
                "kept in memory until it can"
            ) from cause
        finally:
            self.cost.loop_s += perf_counter() - started_s

    def push(self) -> None:
        """Return when all that may be copied is in the object store; at once without one.

        Raises:
            StorageError: If the store does not take it, see `JournalMirror.push`.
            StorageLost: If another driver has taken over the copy.
        """
        started_s, mirror = perf_counter(), self.mirror
        try:
            if mirror:
                self._unless_fenced(lambda: mirror.push(self.mirrorable_sequence))
        finally:
            self.cost.loop_s += perf_counter() - started_s

    def _unless_fenced(self, call: Callable[[], None]) -> None:
        try:
            call()
        except StorageLost as loss:
            self._loss = loss
            raise

    def _check_in_place(self) -> None:
        if self._loss is None:
            if self.mirror:
                self._unless_fenced(self.mirror.check)
            found = self._segment.whereabouts()
            if not found.is_in_place:
                what = (
                    "was deleted"
                    if found.is_deleted
                    else f"was moved to {found.path}"
                    if found.path
                    else "cannot be reached any more"
                )
                text = (
                    f"journal {self._segment.path} {what} while the experiment was running; "
                    "nothing is acknowledged from now on"
                )
                self._loss = StorageLost(text, is_deleted=found.is_deleted, moved_to=found.path)
            elif self._is_ours and not self._is_ours():
                text = (
                    "was deleted or replaced while the experiment was running, and no longer "
                    "keeps other drivers out"
                )
                self._loss = StorageLost(
                    f"the lock file of {self._directory.parent} {text}; nothing is acknowledged "
                    "from now on"
                )
        if self._loss:
            raise self._loss

    def _write_staged(self) -> None:
        segment = self._segment
        if self._is_rotation_due or segment.size_bytes >= self._segment_bytes:
            self._begin_segment()
            segment = self._segment
        lines, last, size_bytes = (
            b"".join(self._staged),
            (self._sequence, self._crc),
            segment.size_bytes,
        )
        # Noted before `_written` moves on, which the thread takes for "there is a batch up to
        # here".
        self._unsynced.append((last, lines))
        try:
            segment.write(lines)
        finally:
            # Also where an interrupt comes just behind the write: nothing may be written twice, or
            # be forgotten.
            if segment.size_bytes == size_bytes:
                self._unsynced.pop()
            else:
                self._staged, self._written = [], last
                self.cost.num_bytes += len(lines)
                if self.mirror:
                    self.mirror.wrote(len(lines))

    def sync(self) -> None:
        """Return when all that was flushed is on disk; at once under ``"process"``.

        Called before anything is destroyed.

        Raises:
            StorageError: If the disk refuses, see `flush`.
        """
        started_s = perf_counter()
        try:
            self._sync_or_replace()
        except OSError as cause:
            raise StorageError(f"journal {self._segment.path} cannot be synced: {cause}") from cause
        finally:
            self.cost.loop_s += perf_counter() - started_s

    def rotate(self) -> None:
        """Begin a new segment, as after a snapshot, so that what the snapshot covers is sealed.

        Raises:
            StorageError: If the disk refuses; the next `flush` tries again.
        """
        started_s = perf_counter()
        try:
            self._begin_segment()
        except OSError as cause:
            raise StorageError(
                f"no new segment can be begun in {self._directory}: {cause}"
            ) from cause
        finally:
            self.cost.loop_s += perf_counter() - started_s

    def close(self) -> None:
        """Write and sync what is left, and close the file; does not wait for a copy of it.

        Does nothing the second time, or in a forked child.

        Raises:
            StorageError: If the disk refuses; the file is given back all the same.
        """
        if self._pid != os.getpid():
            return
        self._pid = 0
        self._syncs.close()
        try:
            if self._loss:
                with suppress(OSError):  # wherever the file is now, what was acknowledged is in it
                    self._segment.sync()
                return
            self._write()
            self.sync()
        finally:
            self._segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except StorageError as refusal:
            if error is None:
                raise
            # What made the user leave counts, not what followed from it.
            error.add_note(str(refusal))

    def _new_segment(self, previous: tuple[int, int], lines: bytes = b"") -> Segment:
        first = previous[0] + 1
        header = header_line(first, JournalPosition(*previous), self.epoch)
        return Segment(
            self._directory,
            first,
            header + lines,
            self._disk,
            sync=self.policy is not SyncPolicy.PROCESS,
        )

    def _begin_segment(self) -> None:
        # A segment that was begun in vain may lie there; what is written before another takes its
        # place would not be read.
        self._is_rotation_due = True
        # The old segment is synced before anything is written to the new one, so that a power cut
        # leaves a prefix of the journal.
        self._sync_or_replace()
        segment = self._new_segment(self._written)
        with self._file_lock:
            self._segment.close()
            self._segment = segment
        self._is_rotation_due = False
        self._announce_segment()

    def _announce_segment(self) -> None:
        if self._on_segment:
            self._on_segment(self.epoch, self._segment.first)

    def _sync_or_replace(self) -> None:
        self._rewrite_unsynced()
        try:
            self._sync_unsynced()
        except OSError:
            self._rewrite_unsynced()

    def _sync_unsynced(self) -> None:
        with self._file_lock:
            if self.policy is SyncPolicy.PROCESS or not self._unsynced:
                return
            if self._sync_failed:  # by the thread, since the driver has looked
                raise OSError(errno.EIO, "an earlier sync has failed")
            target = self._written
            try:
                self._segment.sync()
            except OSError:
                self._sync_failed = True
                raise
            self.cost.num_syncs += 1
            self._settle(target)

    def _settle(self, target: tuple[int, int]) -> None:
        while self._unsynced and self._unsynced[0][0] <= target:
            self._unsynced.popleft()
        self._synced = target

    def _rewrite_unsynced(self) -> None:
        """Write what a failed sync has put in doubt into a new segment."""
        # Another sync of the old file would prove nothing: after an error the kernel marks the
        # pages clean that it could not write, and the next sync succeeds without them. Reference:
        # Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
        if not self._sync_failed:
            return
        with self._file_lock:
            segment = self._new_segment(
                self._synced, b"".join(lines for _, lines in self._unsynced)
            )
            self._segment.close()
            self._segment = segment
            self._settle(self._written)
            self._sync_failed = False
        self._announce_segment()

    def sync_in_background(self) -> None:
        """Sync what was flushed, as the thread does; without a syncer, called in its place.

        The next `flush` handles failures.
        """
        # The driver sees `_sync_failed` at its next flush.
        with suppress(OSError):
            self._sync_unsynced()

    def _sync_and_rest(self) -> None:
        started_s = time.monotonic()
        self.sync_in_background()
        duration_s = time.monotonic() - started_s
        self._usual_sync_s += _WEIGHT * (duration_s - self._usual_sync_s)
        self._syncs.pause(rest_after(duration_s, self._usual_sync_s))


def rest_after(duration_s: float, usual_s: float) -> float:
    """Return how long to rest after a sync, in seconds.

    A record that has just missed the sync has to be on disk at the end of the next one, within the
    window; and where syncs are slow, they may take at most a twentieth of the time. For the latter
    the average counts, so that one sync that waited for another process's changes little.

    Args:
        duration_s: What the sync has taken.
        usual_s: What syncs take on the average.

    Example:
        >>> [round(rest_after(*each), 6) for each in ((0.001, 0.001), (0.01, 0.001), (0.01, 0.01))]
        [0.04, 0.022, 0.19]
    """
    return max(
        SYNC_WINDOW_S - _SLACK_S - 2 * duration_s, usual_s / _MAX_SYNC_SHARE - duration_s, 0.0
    )
