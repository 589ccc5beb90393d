"""`CheckpointEvery`: when the next checkpoint is due, equal on all workers of a group."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from tuner.execution.attempt import Attempt, current_attempt

from .collective import broadcast_from_rank_zero


@final
class CheckpointEvery:
    """Says when the next checkpoint is due: after some minutes, and never at too high a cost.

    Rank 0 decides by its clock and tells the others, so all workers have to call `is_due` equally
    often, and all get the same answer. A checkpoint stays due until any of them has reported one.

    Args:
        minutes: Minutes between checkpoints; None, the default, for as often as `max_overhead`
            allows.
        max_overhead: Share of the time that saving may take, 0.05 by default. What saving costs is
            measured, from `is_due` to the end of the report with the checkpoint.
        clock: Returns the time in seconds, from any beginning.

    Raises:
        ValueError: If `minutes` is negative, or `max_overhead` is not between 0 and 1.

    Example:
        >>> every = CheckpointEvery(minutes=10)
        >>> every.is_due()
        False
    """

    def __init__(
        self,
        minutes: float | None = None,
        max_overhead: float = 0.05,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if minutes is not None and not minutes >= 0:
            raise ValueError(f"minutes must be at least 0, or None, got {minutes!r}")
        if not 0 < max_overhead <= 1:
            raise ValueError(f"max_overhead must be above 0 and at most 1, got {max_overhead!r}")
        self._period_s = 0.0 if minutes is None else 60.0 * minutes
        self._max_overhead = max_overhead
        self._clock = clock
        self._saved_s = clock() if minutes else -float("inf")
        self._said_due_s: float | None = None
        self._cost_s = 0.0
        self._attempt: Attempt | None = None

    def is_due(self) -> bool:
        """Return whether to report a checkpoint now, the same on all workers."""
        attempt = current_attempt()
        if attempt is not None and attempt is not self._attempt:
            self._attempt = attempt
            attempt.checkpoint_observers.append(self._note_saved)
        rank = attempt.assignment.rank if attempt else None
        if rank is None or rank.world_size == 1:
            return self._decide()
        decided = self._decide() if rank.world_rank == 0 else None
        return bool(broadcast_from_rank_zero(decided))

    def _decide(self) -> bool:
        now_s = self._clock()
        # With the share s for saving, saving of c seconds needs c * (1 - s) / s between.
        pause_s = self._cost_s * (1 - self._max_overhead) / self._max_overhead
        is_due = now_s - self._saved_s >= max(self._period_s, pause_s)
        if is_due and self._said_due_s is None:
            self._said_due_s = now_s
        return is_due

    def _note_saved(self) -> None:
        self._saved_s = self._clock()
        if self._said_due_s is not None:  # else it was saved for a reason of its own
            self._cost_s = self._saved_s - self._said_due_s
            self._said_due_s = None
