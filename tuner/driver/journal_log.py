"""Writes the driver's events to the journal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Final, final

from tuner.core.events import Event, StopRequested, TurnEnded
from tuner.core.recorded_decisions import RecordedDecision
from tuner.core.settings import ExperimentSettings
from tuner.journal import records
from tuner.journal.writer import Journal
from tuner.storage.config_codec import ConfigCodec

from .checkpoint_store import CheckpointDeleter
from .storage_retry import StorageRetry

BEAT_S: Final = 10.0


def beat_for(settings: ExperimentSettings) -> float:
    """Return how long the journal may be silent, in seconds of experiment time.

    What a killed driver has spent is known until its last record. Without budgets, records only of
    what happens show best when an experiment has last come further.
    """
    is_limited = settings.budget or settings.time_budget_s is not None
    return BEAT_S if is_limited else math.inf


@final
class JournalLog:
    """Writes events to the journal, and has checkpoints deleted whose records have been synced.

    Args:
        journal: The journal.
        deleter: Deletes checkpoints once the record that superseded them has been synced.
        configs: Codec of configurations; None where they are JSON values already.
        storage_retry: Retries writes; None to retry for `STORAGE_RETRY_S`.
        beat_s: How long, in seconds of experiment time, turns that change nothing are not recorded.

    Attributes:
        journal: The journal.
    """

    def __init__(
        self,
        journal: Journal,
        deleter: CheckpointDeleter,
        configs: ConfigCodec | None = None,
        storage_retry: StorageRetry | None = None,
        *,
        beat_s: float = math.inf,
    ) -> None:
        self.journal = journal
        self._translate = configs.encode if configs else dict
        self._storage_retry = storage_retry or StorageRetry()
        self._deleter = deleter
        self._beat_s = beat_s
        self._recorded_s = 0.0
        self._routine_end_s: float | None = None

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Add an event, to be written with the next `flush`.

        The end of a turn that changed nothing is noted in the next record, which saves half of the
        records, unless the last one was written long ago.
        """
        is_noop = isinstance(event, TurnEnded) and event.is_noop
        if is_noop and at_s - self._recorded_s < self._beat_s:
            # Of several in a row the first is the one that answered a report.
            if self._routine_end_s is None:
                self._routine_end_s = at_s
            return
        started_s = perf_counter()
        self._recorded_s = at_s
        routine_end_s, self._routine_end_s = self._routine_end_s, None
        body = records.encode(event, at_s, recorded, self._translate)
        if routine_end_s is not None:
            body[records.ROUTINE_END] = routine_end_s
        self.journal.append(body, since_s=started_s)

    def settle(self) -> None:
        """Write everything added, the end of a turn that changed nothing included."""
        if self._routine_end_s is not None:
            at_s, self._routine_end_s = self._routine_end_s, None
            self.journal.append(records.encode(TurnEnded(is_noop=True), at_s))
        self.flush()

    def flush(self) -> None:
        """Write everything added, in one piece; while storage fails, retry.

        Raises:
            StorageError: If it is no longer retried, see `retry_limit_s`; what was added stays in
                memory, and no report may be answered.
        """
        cost = self.journal.cost
        spent_s = cost.loop_s
        self._storage_retry.on(self.journal.flush)
        # Only now may a checkpoint go whose successor is in these records.
        self._deleter.release()
        cost.take_pause(cost.loop_s - spent_s)

    def ask_to_stop(self, request: StopRequested) -> None:
        """Stop retrying soon; may be called from signal handlers and other threads."""
        self._storage_retry.ask_to_stop(request)

    def close(self, at_s: float) -> None:
        """Write and sync everything, followed by a record that the driver has ended normally.

        Where the journal is copied to an object store, return when all of it is there.

        Raises:
            StorageError: As `flush` does.
        """
        self.settle()
        self.journal.append(records.mark(records.CLOSE, at_s))
        self._storage_retry.on(self.journal.flush)
        self._storage_retry.on(self.journal.sync)
        self._storage_retry.on(self.journal.push)
