"""What it has cost to keep an experiment safe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Persistence:
    """Cost of saving in one session of an experiment, without checkpoints.

    Attributes:
        share: Part of the session's time that went to saving: for which the driver was kept from
            serving trials, and CPU time of the threads that sync and write. Meant to stay below
            0.05.
        worst_share: The same in the worst minute; in a session without a whole minute, `share`.
        longest_pause_s: The longest time in seconds for which the driver was kept in one piece.
        num_bytes: Bytes written into journal, snapshots and log files.
        num_syncs: How often data were forced to the disk.
        num_snapshots: How many snapshots were taken.
    """

    share: float
    worst_share: float
    longest_pause_s: float
    num_bytes: int
    num_syncs: int
    num_snapshots: int

    def __str__(self) -> str:
        """Return the account as one line."""
        return (
            f"saving took {100 * self.share:.1f} % of the time (worst minute "
            f"{100 * self.worst_share:.1f} %), at most "
            f"{1000 * self.longest_pause_s:.0f} ms at once; {self.num_bytes / 1e6:.1f} MB, "
            f"{self.num_syncs} syncs, "
            f"{self.num_snapshots} snapshots"
        )
