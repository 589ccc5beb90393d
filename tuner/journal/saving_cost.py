"""What saving the state of an experiment costs."""

from __future__ import annotations

from time import perf_counter
from typing import Final, Protocol, final

from tuner.wire.record import record

_WINDOW_S: Final = 60.0


class _Thread(Protocol):
    @property
    def cpu_s(self) -> float: ...


@final
class SavingCost:
    """Sums up the time for which saving keeps the driver from serving trials, and its threads' CPU.

    It belongs to the journal, and whatever saves adds to it. A share is ``(seconds of the loop +
    CPU seconds of the threads) / seconds since the start``. It covers records of the journal, syncs
    that are waited for, snapshots (those at an interrupt and at the end as well) and the deletion
    of checkpoints.

    Attributes:
        loop_s: Seconds for which the driver's loop was kept.
        threads: Those whose CPU time counts.
        longest_pause_s: For how long the loop was kept at once, at most.
        num_bytes: Bytes written.
        num_syncs: Syncs of the journal, the thread's included.
        num_snapshots: How many snapshots have been taken.
    """

    def __init__(self) -> None:
        self.loop_s = 0.0
        self.threads: list[_Thread] = []
        self.longest_pause_s = 0.0
        self.num_bytes = self.num_syncs = self.num_snapshots = 0
        self._start_s = self._window_start_s = perf_counter()
        self._spent_before_s = self._worst_share = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return max(perf_counter() - self._start_s, 1e-9)

    @property
    def share(self) -> float:
        """The share so far."""
        return self._spent_s() / self.elapsed_s

    @property
    def worst_share(self) -> float:
        """The share in the worst minute."""
        return max(self._worst_share, self.share)

    def take_pause(self, duration_s: float) -> None:
        """Note for how long saving has kept the loop at once; `loop_s` is counted apart.

        A window that has been open for a minute is closed. The journal pauses the loop often enough
        for that.
        """
        self.longest_pause_s = max(self.longest_pause_s, duration_s)
        now_s = perf_counter()
        if now_s - self._window_start_s >= _WINDOW_S:
            spent_s = self._spent_s()
            share = (spent_s - self._spent_before_s) / (now_s - self._window_start_s)
            self._worst_share = max(self._worst_share, share)
            self._window_start_s, self._spent_before_s = now_s, spent_s

    def _spent_s(self) -> float:
        return self.loop_s + sum(thread.cpu_s for thread in self.threads)


@record
class Persistence:
    """Cost of saving in one session of an experiment, without the writing of checkpoints.

    Attributes:
        share: Share of the session's time spent on saving the experiment's state, in journal and
            snapshots: time in which the driver did not serve trials, and CPU time of the threads
            that sync, write and delete. The goal is at most 0.05 for trials that run for a second
            or longer.
        worst_share: The same share in the worst minute; `share` in a session of less than a minute.
        log_files_share: The same share for log files (CSV, JSON, TensorBoard), which can be derived
            from the journal and can be switched off.
        longest_pause_s: The longest time in seconds for which saving blocked the driver.
        num_bytes: Bytes written to journal, snapshots and log files.
        num_syncs: How often data were forced to the disk.
        num_snapshots: How many snapshots were taken.
    """

    share: float
    worst_share: float
    log_files_share: float
    longest_pause_s: float
    num_bytes: int
    num_syncs: int
    num_snapshots: int

    def __str__(self) -> str:
        """Return the cost as one line."""
        return (
            f"saving the state took {100 * self.share:.1f} % of the time (worst minute "
            f"{100 * self.worst_share:.1f} %), at most {1000 * self.longest_pause_s:.0f} ms at "
            f"once, and log files {100 * self.log_files_share:.1f} %; "
            f"{self.num_bytes / 1e6:.1f} MB, {self.num_syncs} syncs, "
            f"{self.num_snapshots} snapshots"
        )
