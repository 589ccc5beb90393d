"""Cost of saving an experiment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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
