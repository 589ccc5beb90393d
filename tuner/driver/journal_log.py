"""How the driver's events become records of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import final

from tuner.core.events import Event, StopRequested, TurnEnded
from tuner.core.policies import RecordedDecision
from tuner.journal import records
from tuner.journal.writer import Journal
from tuner.storage.config_codec import ConfigCodec

from .checkpoint_deleter import CheckpointCleaner
from .persistence_cost import Accountant, Costs
from .storage_retry import Insistence


@final
class JournalLog:
    """Writes events to the journal, and lets the cleaner know how far it has been synced.

    Args:
        journal: The journal.
        cleaner: Deletes checkpoints once the record that made them dispensable has been synced.
        accountant: Hears what it costs; None for nobody.
        configs: How configurations are written down; None where they are JSON values.
        insistence: Tries again where the storage refuses; None for the usual patience.

    Attributes:
        journal: The journal.
    """

    def __init__(
        self,
        journal: Journal,
        cleaner: CheckpointCleaner,
        accountant: Accountant | None = None,
        configs: ConfigCodec | None = None,
        insistence: Insistence | None = None,
    ) -> None:
        self.journal = journal
        self._translate = configs.encode if configs else dict
        self._insistence = insistence or Insistence()
        self._cleaner = cleaner
        self._accountant = accountant
        self._routine_end_s: float | None = None
        if accountant:
            accountant.add_source(self._costs)

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Take in an event, to be written with the next `flush`.

        Of a turn that ended in routine only the next record tells, which saves half of the records.
        """
        if isinstance(event, TurnEnded) and event.is_routine:
            if (
                self._routine_end_s is None
            ):  # of several in a row the first is the one that answered
                self._routine_end_s = at_s
            return
        started_s = perf_counter()
        routine_end_s, self._routine_end_s = self._routine_end_s, None
        spelled = None if recorded else records.spelled(event, at_s, routine_end_s)
        if spelled:
            self.journal.append_spelled(*spelled, started_s)
        else:
            self.journal.append(
                self._body_of(event, at_s, recorded, routine_end_s), since_s=started_s
            )

    def _body_of(
        self,
        event: Event,
        at_s: float,
        recorded: Sequence[RecordedDecision],
        routine_end_s: float | None,
    ) -> records.Body:
        body = records.encode(event, at_s, recorded, self._translate)
        if routine_end_s is not None:
            body[records.ROUTINE_END] = routine_end_s
        return body

    def settle(self) -> None:
        """Write down everything that was folded, the end of a routine turn included."""
        if self._routine_end_s is not None:
            at_s, self._routine_end_s = self._routine_end_s, None
            self.journal.append(records.encode(TurnEnded(is_routine=True), at_s))
        self.flush()

    def flush(self) -> None:
        """Write everything taken in, in one piece; while the storage refuses, wait.

        Raises:
            StorageError: If waiting is over, see `patience_s`; what was taken in stays in memory, and nobody may be answered.
        """
        spent_s = self.journal.statistics.driver_s
        self._insistence.on(self.journal.flush)
        self._cleaner.release()
        if self._accountant:
            self._accountant.take_pause(self.journal.statistics.driver_s - spent_s)

    def ask_to_stop(self, request: StopRequested) -> None:
        """Let waiting for the storage end soon; may be called from signal handlers and other threads."""
        self._insistence.ask_to_stop(request)

    def close(self, at_s: float) -> None:
        """Write and sync everything, and that the driver has come to its end: whatever changes in the records before that shows.

        Raises:
            StorageError: As `flush` does.
        """
        self.settle()
        self.journal.append(records.mark(records.CLOSE, at_s))
        self._insistence.on(self.journal.flush)
        self._insistence.on(self.journal.sync)

    def _costs(self) -> Costs:
        spent = self.journal.statistics
        return Costs(spent.driver_s, spent.syncer_cpu_s, spent.num_bytes, spent.num_syncs)
