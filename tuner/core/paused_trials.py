"""Pauses: why a trial is paused, what it waits for, and when it resumes.

A paused trial resumes when the scheduler or the user decides so, or without a further decision
where the pause was only a means: to change its resources, or to apply an exploit. In either case it
may have to wait, for its donor's checkpoint or for the user who holds it. `Trial.waits_for` names
everything that it waits for (`WaitsFor` has the table), and `PausedTrials.resume_pending` is where
a trial is found to wait for nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from schedulers.decisions import Reason

from .commands import ExploitApplied, Notice, TrialPaused
from .events import USER_RESUME
from .exploits import ExploitTracker
from .lifecycle import TrialMove
from .trial import (
    NODE_DRAINING,
    USER_PAUSE,
    Intention,
    Status,
    TerminationReason,
    Trial,
    WaitsFor,
    WorkerState,
)
from .trial_table import TrialTable
from .worker_records import ReportReply


@final
class PausedTrials:
    """Pauses and resumes trials.

    Args:
        trial_table: All trials.
        exploits: Exploits that wait for a checkpoint.
        notify: Receives the notices.

    Attributes:
        pending: Trials that may resume without a further decision, by id, some once a checkpoint
            is there.
    """

    def __init__(
        self,
        trial_table: TrialTable,
        exploits: ExploitTracker,
        notify: Callable[[Notice], None],
    ) -> None:
        self._trial_table = trial_table
        self._exploits = exploits
        self._notify = notify
        self.pending: dict[str, Trial] = {}

    def load(self) -> None:
        """Find the trials that may resume, in a restored trial table."""
        self.pending = {
            trial_id: trial
            for trial_id, trial in self._trial_table.paused.items()
            if trial.exploit or self._resumes_next(trial)
        }

    def pause(self, trial: Trial, intention: Intention) -> None:
        """Pause a trial whose worker has left for this intention."""
        self._trial_table.pause(trial, intention.reason)
        self._notify(TrialPaused(trial))
        self._exploits.supply(trial)  # it will save nothing more for those that wait
        self.pending[trial.trial_id] = trial
        if trial.resize is not None:
            self._trial_table.resize(trial, trial.resize)
            trial.resize = None
            trial.waits_for &= ~WaitsFor.DECISION
        if intention.reply is ReportReply.EXPLOIT and trial.exploit is None:
            # The checkpoint that it left for will never come.
            trial.waits_for &= ~WaitsFor.DECISION

    def resume(self, trial: Trial, reason: Reason) -> None:
        """Resume a trial that is paused or about to be, as soon as it waits for nothing else."""
        if trial.status is Status.PAUSED:
            trial.reason = reason
            trial.waits_for &= ~WaitsFor.DECISION
            if trial.exploit is None:
                self._trial_table.make_ready(trial)
            else:
                self.pending[trial.trial_id] = trial
        elif trial.is_pausing:
            trial.waits_for &= ~WaitsFor.DECISION

    def resume_by_user(self, trial: Trial) -> None:
        """Resume a trial for the user, or withdraw the user's pause before it takes effect."""
        self._trial_table.unhold(trial)
        if trial.status is Status.PAUSED:
            self.resume(trial, Reason(USER_RESUME))
        elif trial.intention and trial.intention.reason.rule == USER_PAUSE:
            if trial.worker is WorkerState.STOPPING:  # it has been asked to leave already
                trial.waits_for &= ~WaitsFor.DECISION
            else:
                self._withdraw(trial)

    def unhold_all(self) -> None:
        """Hold no trial in a new session; resume those that the user had paused."""
        for trial in list(self._trial_table.held.values()):
            self._trial_table.unhold(trial)
            is_paused_by_user = trial.reason is not None and trial.reason.rule == USER_PAUSE
            if trial.status is Status.PAUSED and (
                is_paused_by_user or WaitsFor.DECISION not in trial.waits_for
            ):
                self.resume(trial, Reason(USER_RESUME))

    def await_exploit(self, trial: Trial) -> None:
        """Let a paused trial resume from its donor's checkpoint instead of its own."""
        self.pending[trial.trial_id] = trial
        self._trial_table.dequeue(trial)

    def apply_exploit(self, trial: Trial) -> None:
        """Apply the trial's exploit, if it has one and the donor's checkpoint is there."""
        if applied := self._exploits.apply(trial):
            self._notify(ExploitApplied(trial, applied))

    def continue_unchanged(self, trials: Iterable[Trial]) -> None:
        """Continue trials that waited for a checkpoint which will never come."""
        for trial in trials:
            if trial.status is Status.PAUSED and trial.source is None:
                self._trial_table.requeue(trial, TrialMove.REQUEUE)
            elif trial.status is Status.PAUSED:
                trial.waits_for &= ~WaitsFor.DECISION
                self.pending[trial.trial_id] = trial
            elif _is_to_exploit(trial) and trial.worker is not WorkerState.STOPPING:
                self._withdraw(trial)

    def resume_pending(self) -> None:
        """Apply exploits whose checkpoint is there, and queue the paused trials that resume."""
        for trial in list(self.pending.values()):
            if trial.status is Status.PAUSED:
                self.apply_exploit(trial)
                if WaitsFor.DONOR in trial.waits_for:
                    continue
            del self.pending[trial.trial_id]
            if self._resumes_next(trial):
                self._trial_table.make_ready(trial)

    def _resumes_next(self, trial: Trial) -> bool:
        """Return whether a trial is paused, and needs no decision to be queued for its start."""
        return (
            trial.status is Status.PAUSED
            and WaitsFor.DECISION not in trial.waits_for
            and trial not in self._trial_table.ready
        )

    def _withdraw(self, trial: Trial) -> None:
        """Let a trial train on whose worker has not yet been asked to leave.

        On a node that is about to leave, it is still to move to another one.
        """
        # A resume that was decided for this pause must not undo the next one.
        trial.waits_for &= ~WaitsFor.DECISION
        trial.intention = None
        for node in self._trial_table.nodes:
            if node.is_draining and node.name in trial.nodes:
                reason = Reason(NODE_DRAINING, {"node": node.name})
                trial.intention = Intention(
                    ReportReply.PAUSE, TerminationReason.INTERRUPTED, reason
                )
                trial.waits_for |= WaitsFor.DECISION  # as long as it is to leave


def _is_to_exploit(trial: Trial) -> bool:
    return trial.intention is not None and trial.intention.reply is ReportReply.EXPLOIT
