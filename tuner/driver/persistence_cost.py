"""Measurement of what saving the state of an experiment costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from tuner.analysis.persistence import Persistence

_WINDOW_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PersistenceCosts:
    """Totals of one part of the engine that saves state.

    Attributes:
        loop_s: Seconds for which it has kept the driver's loop.
        thread_s: CPU seconds of its threads.
        num_bytes: Bytes written.
        num_syncs: Number of syncs that were waited for.
    """

    loop_s: float = 0.0
    thread_s: float = 0.0
    num_bytes: int = 0
    num_syncs: int = 0

    @property
    def spent_s(self) -> float:
        """Seconds of the loop and CPU seconds of the threads together."""
        return self.loop_s + self.thread_s

    def __add__(self, other: PersistenceCosts) -> PersistenceCosts:
        """Return the sum."""
        return PersistenceCosts(
            self.loop_s + other.loop_s,
            self.thread_s + other.thread_s,
            self.num_bytes + other.num_bytes,
            self.num_syncs + other.num_syncs,
        )


@final
class PersistenceAccount:
    """Sums up the time for which saving keeps the driver from serving trials, and its threads' CPU.

    A share is ``(seconds of the loop + CPU seconds of the threads) / seconds since the start``.
    That of the state covers records of the journal, syncs that are waited for, snapshots (those at
    an interrupt and at the end as well) and the deletion of checkpoints. That of log files is kept
    apart, since these can be derived from the journal.

    Args:
        clock: Monotonic, in seconds.

    Attributes:
        log_files: Returns the totals of the log files.
        num_snapshots: How many snapshots have been taken.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.log_files: Callable[[], PersistenceCosts] = PersistenceCosts
        self._start_s = self._window_start_s = clock()
        self._sources: list[Callable[[], PersistenceCosts]] = []
        self._spent_before_s = 0.0
        self._worst_share = 0.0
        self._longest_pause_s = 0.0
        self.num_snapshots = 0

    def add_source(self, costs: Callable[[], PersistenceCosts]) -> None:
        """Add a function that returns the totals of one part of the state, called for each sum."""
        self._sources.append(costs)

    def take_pause(self, duration_s: float) -> None:
        """Note for how long saving has kept the loop at once; a source counts the time itself.

        A window that has been open for a minute is closed. The journal pauses the loop often enough
        for that.
        """
        self._longest_pause_s = max(self._longest_pause_s, duration_s)
        now_s = self._clock()
        if now_s - self._window_start_s >= _WINDOW_S:
            self._close_window(now_s)

    def report(self) -> Persistence:
        """Return the totals so far."""
        total, log_files = self._total(), self.log_files()
        elapsed_s = max(self._clock() - self._start_s, 1e-9)
        share = total.spent_s / elapsed_s
        return Persistence(
            share=share,
            worst_share=max(self._worst_share, share),
            log_files_share=log_files.spent_s / elapsed_s,
            longest_pause_s=self._longest_pause_s,
            num_bytes=total.num_bytes + log_files.num_bytes,
            num_syncs=total.num_syncs,
            num_snapshots=self.num_snapshots,
        )

    def _total(self) -> PersistenceCosts:
        return sum((source() for source in self._sources), PersistenceCosts())

    def _close_window(self, now_s: float) -> None:
        spent_s = self._total().spent_s
        self._worst_share = max(
            self._worst_share, (spent_s - self._spent_before_s) / (now_s - self._window_start_s)
        )
        self._window_start_s, self._spent_before_s = now_s, spent_s
