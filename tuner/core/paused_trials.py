"""Pauses: why a trial is paused, what it waits for, and when it resumes.

A paused trial resumes when the scheduler or the user decides so, or without a further decision
where the pause was only a means: to change its resources, or to apply an exploit. In either case it
may have to wait, for its donor's checkpoint (`Trial.exploit`) or for the user who holds it
(`TrialTable.held`); `Trial.is_to_resume` notes that it resumes then. `PausedTrials.resume_pending`
is the place where it is decided whether it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from schedulers.decisions import Reason

from .commands import ExploitApplied, Notice, TrialPaused
from .exploits import ExploitTracker
from .lifecycle import TrialMove
from .manual_control import USER_RESUME
from .trial import USER_PAUSE, Intention, ReportReply, Status, Trial, WorkerState
from .trial_table import TrialTable


@final
class PausedTrials:
    """Pauses and resumes trials.

    Args:
        trial_table: All trials.
        exploits: Exploits that wait for a checkpoint.
        notify: Receives the notices.
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
        self._pending: dict[str, Trial] = {}
        """Trials that may resume without a further decision, some once a checkpoint is there."""

    @property
    def has_pending(self) -> bool:
        """Whether `resume_pending` has trials to look at."""
        return bool(self._pending)

    def load(self) -> None:
        """Find the trials that may resume, in a restored trial table."""
        self._pending = {
            trial_id: trial
            for trial_id, trial in self._trial_table.paused.items()
            if trial.exploit or trial.is_to_resume
        }

    def pause(self, trial: Trial, intention: Intention) -> None:
        """Pause a trial whose worker has left for this intention."""
        self._trial_table.pause(trial, intention.reason)
        self._notify(TrialPaused(trial))
        self._exploits.supply(trial)  # it will save nothing more for those that wait
        self._pending[trial.trial_id] = trial
        if trial.resize is not None:
            self._trial_table.resize(trial, trial.resize)
            trial.resize, trial.is_to_resume = None, True
        if intention.reply is ReportReply.EXPLOIT and trial.exploit is None:
            trial.is_to_resume = True  # the checkpoint that it left for will never come

    def resume(self, trial: Trial, reason: Reason) -> None:
        """Resume a trial that is paused or about to be, as soon as it waits for no checkpoint."""
        if trial.status is Status.PAUSED:
            trial.reason = reason
            if trial.exploit is None:
                self._trial_table.make_ready(trial)
            else:
                self._resume_when_possible(trial)
        elif trial.intention and trial.intention.reply in (ReportReply.PAUSE, ReportReply.EXPLOIT):
            trial.is_to_resume = True

    def resume_by_user(self, trial: Trial) -> None:
        """Resume a trial for the user, or withdraw the user's pause before it takes effect."""
        self._trial_table.unhold(trial)
        if trial.status is Status.PAUSED:
            self.resume(trial, Reason(USER_RESUME))
        elif trial.intention and trial.intention.reason.rule == USER_PAUSE:
            if trial.worker is WorkerState.STOPPING:
                trial.is_to_resume = True  # its worker has been told to leave already
            else:
                trial.intention = None

    def unhold_all(self) -> None:
        """Hold no trial in a new session; resume those that the user had paused."""
        for trial in list(self._trial_table.held.values()):
            self._trial_table.unhold(trial)
            is_paused_by_user = trial.reason is not None and trial.reason.rule == USER_PAUSE
            if trial.status is Status.PAUSED and (is_paused_by_user or trial.is_to_resume):
                self.resume(trial, Reason(USER_RESUME))

    def await_exploit(self, trial: Trial) -> None:
        """Let a paused trial resume from its donor's checkpoint instead of its own."""
        self._pending[trial.trial_id] = trial
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
                self._resume_when_possible(trial)
            elif _is_to_exploit(trial) and trial.worker is not WorkerState.STOPPING:
                trial.intention = None

    def resume_pending(self) -> None:
        """Apply exploits whose checkpoint is there, and queue the paused trials that resume."""
        for trial in list(self._pending.values()):
            if trial.status is Status.PAUSED:
                self.apply_exploit(trial)
                if trial.exploit:
                    continue  # it still waits for its donor
            del self._pending[trial.trial_id]
            if trial.status is Status.PAUSED and trial.is_to_resume:
                trial.is_to_resume = False
                self._trial_table.make_ready(trial)

    def _resume_when_possible(self, trial: Trial) -> None:
        self._pending[trial.trial_id] = trial
        trial.is_to_resume = True


def _is_to_exploit(trial: Trial) -> bool:
    return trial.intention is not None and trial.intention.reply is ReportReply.EXPLOIT
