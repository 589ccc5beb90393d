"""Deletion of superseded checkpoints, in a thread and never before it is safe."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, final

from tuner.journal.writer import Journal, SyncPolicy
from tuner.storage import checkpoints

_log = logging.getLogger("tuner")


@final
class CheckpointDeleter:
    """Deletes checkpoints in a thread, once the record that superseded them has been synced.

    If a checkpoint were deleted before that, a power cut could bring back a state in which it is
    still needed.

    Args:
        journal: The journal whose records supersede checkpoints.
        discard: Takes what has become safe to delete; None deletes it in a thread.

    Attributes:
        thread_cpu_s: CPU time of the thread, in seconds.
    """

    def __init__(self, journal: Journal, discard: Callable[[Path], None] | None = None) -> None:
        self._journal = journal
        self._held: deque[tuple[int, Path]] = deque()
        self._released: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._discard = discard or self._hand_to_thread
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

    def delete(self, path: Path) -> None:
        """Delete a checkpoint's directory once that is safe."""
        # The record that superseded it has been appended, so it is at most the last one.
        self._held.append((self._journal.last_sequence, path))

    def release(self) -> None:
        """Have the thread delete what has become safe to delete; called after each flush."""
        if not self._held:
            return
        # Where nothing is synced, a power cut may cost the experiment anyway.
        is_synced = self._journal.policy is not SyncPolicy.PROCESS
        safe = self._journal.synced_sequence if is_synced else self._journal.written_sequence
        while self._held and self._held[0][0] <= safe:
            self._discard(self._held.popleft()[1])

    def _hand_to_thread(self, path: Path) -> None:
        self._released.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tuner-deleter", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (path := self._released.get()) is not None:
            try:
                checkpoints.delete(path)
            except OSError as error:
                _log.warning("checkpoint %s could not be deleted: %s", path, error)
            self.thread_cpu_s = time.thread_time()
