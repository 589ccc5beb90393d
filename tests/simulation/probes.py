"""Probes at the engine's boundaries: its log, its deletions and its notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from schedulers.decisions import Exploit, Reason
from tuner.callbacks.callback import Callback
from tuner.core.events import (
    USER_FORK,
    CheckpointRequested,
    DriverRestarted,
    Event,
    ResultReported,
    TrialForked,
    TurnEnded,
)
from tuner.core.recorded_decisions import RecordedDecision
from tuner.core.trial import Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import JournalLog
from tuner.journal.writer import Journal

from . import cross_trial_invariants, invariants, validation_invariants
from .environment import Environment


@final
class LogProbe:
    """Passes everything on to the journal's log, and checks the state after a restore."""

    def __init__(self, log: JournalLog, env: Environment, on_restart: Callable[[], None]) -> None:
        self._log = log
        self._env = env
        self._on_restart = on_restart

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """See `EventLog.append`."""
        if isinstance(event, DriverRestarted):
            self._on_restart()
        if isinstance(event, ResultReported):
            invariants.results_come_from_live_attempts(self._env, event)
        if isinstance(event, TrialForked):
            why = Reason(USER_FORK, {"checkpoint": event.checkpoint})
            self._env.ack_log.has_forks = True
            self._env.ack_log.note_exploit(
                Exploit(event.trial_id, event.donor_id, event.changes, why, event.checkpoint)
            )
        for said in recorded:
            if isinstance(said.decision, Exploit):
                self._env.ack_log.note_exploit(said.decision)
        # A request for a checkpoint that cannot be saved, and a routine turn, have no effects.
        if not (
            isinstance(event, CheckpointRequested)
            or (isinstance(event, TurnEnded) and event.is_noop)
        ):
            self._env.is_dirty = True
        self._log.append(event, at_s, recorded)

    def flush(self) -> None:
        """See `EventLog.flush`."""
        self._log.flush()
        self._env.is_dirty = False


@final
class DeletionProbe:
    """Hands checkpoints to the deleter, and checks that it deletes them only when that is safe.

    Attributes:
        cleaner: The cleaner.
    """

    cleaner: CheckpointDeleter

    def __init__(self, env: Environment, journal: Journal) -> None:
        self._env = env
        self._journal = journal
        self._dispensable_by: dict[Path, int] = {}

    def delete(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        """Have a checkpoint deleted as soon as that is safe."""
        self._env.step()
        invariants.written_before_acted(self._env, checkpoint)
        validation_invariants.pending_checkpoints_are_kept(self._env, trial_id, checkpoint.index)
        path = self._env.directory.joinpath(trial_id, checkpoint.directory)
        self._dispensable_by[path] = self._journal.last_sequence
        self.cleaner.delete(path)

    def find_damage(self, trial_id: str, checkpoint: CheckpointRecord) -> str:
        """Return what is wrong with a checkpoint."""
        invariants.require(
            "I5", not checkpoint.is_placeholder, "%s is verified as if it were there", checkpoint
        )
        return self._env.checkpoints.find_damage(trial_id, checkpoint)

    def discard_unfinished(self, trial_id: str, attempt: int) -> None:
        """Do nothing: simulated workers leave no unfinished checkpoints."""

    def discard(self, path: Path) -> None:
        """Accept a checkpoint that the deleter releases."""
        sequence = self._dispensable_by[path]
        if self._env.scenario.durability != "process" and sequence % self._env.check_every == 0:
            invariants.synced_before_destroyed(self._env, sequence)
        self._env.checkpoints.to_delete.append(path)


@final
class NoticeProbe(Callback):
    """Logs the notices that callbacks get, and checks them."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Check and log a result."""
        ack_log = self._env.ack_log
        with self._noting_violations():
            invariants.stale_results_are_dropped(trial, result)
        ack_log.told[trial.trial_id] = max(
            result["training_iteration"], ack_log.told.get(trial.trial_id, 0)
        )

    def on_checkpoint_validated(
        self,
        iteration: int,
        trials: Any,
        trial: Trial,
        *,
        checkpoint: Any,
        status: str,
        metrics: Mapping[str, Any],
        result: Mapping[str, Any],
        **info: Any,
    ) -> None:
        """Check the outcome of a validation."""
        index = int(checkpoint.path.rpartition("_")[2])
        record = trial.validations[index].checkpoint
        with self._noting_violations():
            validation_invariants.metrics_belong_to_their_checkpoint(
                self._env, trial, record, metrics, result
            )

    def on_trial_complete(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        """Check and log a trial's end."""
        with self._noting_violations():
            cross_trial_invariants.paused_trials_survive_an_interruption(self._env, trial)
        if trial.is_finished:  # unless it is resumed at once, as after an interruption
            self._env.ack_log.over[trial.trial_id] = str(trial.ending)

    def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        """Log a trial's failure."""
        self._env.ack_log.over[trial.trial_id] = str(trial.ending)

    @contextmanager
    def _noting_violations(self) -> Iterator[None]:
        """Note violations for later: a callback that raises is switched off."""
        try:
            yield
        except invariants.Violation as violation:
            self._env.violations.append(violation)
