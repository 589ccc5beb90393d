"""What becomes of trials: how decisions about them are obeyed, and what the end of an attempt leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from tuner.errors import InvalidDecision

from . import commands as cmd
from . import events as ev
from .decision_validation import subject
from .lifecycle import TrialMove, exit_ending, exit_move
from .result import flatten
from .state import ExperimentState
from .trial import (
    CANNOT_PAUSE,
    CheckpointRecord,
    Intention,
    ReportReply,
    Status,
    TerminationReason,
    Trial,
    WorkerState,
)


class TrialLives(ExperimentState):
    """Leads trials through pauses, exploits, retries and to their end; `Experiment` says when."""

    def _apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            trial = subject(decision, self.trial_table, self.policies.scheduler)
            self._is_unsettled = True
            match decision:
                case Stop():
                    ending = (
                        TerminationReason.COMPLETED
                        if decision.is_complete
                        else TerminationReason.STOPPED_EARLY
                    )
                    self._intend(trial, Intention(ReportReply.STOP, ending, decision.reason))
                case Pause():
                    self._intend_pause(trial, decision.reason)
                case Resume():
                    self._resume(trial, decision.reason)
                case Save():
                    trial.owes_save = trial.status is Status.RUNNING
                case Exploit():
                    self._exploit(trial, decision)
                case Resize():
                    self._resize(trial, decision)
                case _:
                    assert_never(decision)

    def _intend(self, trial: Trial, intention: Intention) -> None:
        """Let the trial stop or pause as soon as it can be told to; see `Intention.outweighs` for what counts then."""
        if trial.status is Status.RUNNING:
            trial.intention = intention if intention.outweighs(trial.intention) else trial.intention
        elif intention.reply is ReportReply.STOP and not trial.is_finished:
            self._end(trial, intention.ending, intention.reason)

    def _intend_pause(self, trial: Trial, reason: Reason) -> None:
        if trial.status is Status.RUNNING and self._can_be_saved(trial, reason):
            self._intend(trial, Intention(ReportReply.PAUSE, TerminationReason.INTERRUPTED, reason))

    def _resume(self, trial: Trial, reason: Reason) -> None:
        if trial.status is Status.PAUSED:
            trial.reason = reason
        if trial.status is Status.PAUSED and trial.exploit is None:
            self.trial_table.make_ready(trial)
        elif trial.status is Status.PAUSED:
            self._stir(trial)
        elif trial.intention and trial.intention.reply in (ReportReply.PAUSE, ReportReply.EXPLOIT):
            trial.is_to_resume = True

    def _exploit(self, trial: Trial, decision: Exploit) -> None:
        donor = self.trial_table.find(decision.donor_id)
        if trial.is_finished or (donor and not self._can_be_saved(donor, decision.reason)):
            return
        if not self.exploits.accept(
            trial, decision, can_save_on_demand=self._checkpoints.can_save_on_demand
        ):
            return
        if trial.status is Status.PENDING:  # it has nothing yet that could be given up
            self.exploits.forget(trial)
        if trial.status is Status.PAUSED:
            self._stirring[trial.trial_id] = trial
            self.trial_table.put_off(trial)  # where it was about to go on from its own
        self._intend(
            trial, Intention(ReportReply.EXPLOIT, TerminationReason.INTERRUPTED, decision.reason)
        )

    def _resize(self, trial: Trial, decision: Resize) -> None:
        if why := self.trial_table.pool.misfit(decision.resources):
            raise InvalidDecision(
                f"Resize must ask for what there is, got {dict(decision.resources)} for trial {trial.trial_id}: {why}"
            )
        if trial.status in (Status.PENDING, Status.PAUSED):
            self.trial_table.resize(trial, decision.resources)
        elif trial.status is Status.RUNNING and self._can_be_saved(trial, decision.reason):
            trial.resize = decision.resources
            self._intend(
                trial, Intention(ReportReply.PAUSE, TerminationReason.INTERRUPTED, decision.reason)
            )

    def _can_be_saved(self, trial: Trial, reason: Reason) -> bool:
        """Return whether a trial has a checkpoint, or may yet have one; end the experiment if none of its trials ever will."""
        if (
            self._checkpoints.can_save_on_demand
            or trial.source
            or any(other.next_checkpoint for other in self.trial_table.trials)
        ):
            return True
        self.fatal_error = CANNOT_PAUSE.message
        self._stop_all(
            TerminationReason.INTERRUPTED,
            Reason("cannot_pause", {"trial_id": trial.trial_id, "asked_by": reason.rule}),
        )
        return False

    def _stop_all(self, ending: TerminationReason, reason: Reason) -> None:
        if self._stopping is None:
            self._stopping = Intention(ReportReply.STOP, ending, reason)
            self.suggestion_budget.suspend()
            for trial in list(self.trial_table.live.values()):
                self._intend(trial, self._stopping)
                self._timeouts.expect_exit(trial.trial_id, self._now_s)

    def _end_waiting(self, stopping: Intention) -> None:
        """End trials that have no worker; where all are interrupted, those that are paused stay as they are.

        Those that have never been admitted are interrupted whatever ends the others: a later session has them to try, as it would have
        those that have not been suggested.
        """
        for trial in [
            *self.trial_table.ready,
            *self.trial_table.held.values(),
            *self.trial_table.paused.values(),
            *self.trial_table.backlog.values(),
        ]:
            if not self.trial_table.is_admitted(trial):
                self._end(trial, TerminationReason.INTERRUPTED, stopping.reason)
            elif (
                stopping.ending is not TerminationReason.INTERRUPTED
                or trial.status is not Status.PAUSED
            ):
                self._intend(trial, stopping)

    def _keep(self, trial: Trial, checkpoint: CheckpointRecord, flat: Mapping[str, Any]) -> None:
        """Take in a checkpoint; those that wait for it may have it, and the one that the trial itself once went on from may go."""
        self._out.keep(trial, *self._checkpoints.add(trial, checkpoint, flat))
        self.exploits.settle(trial)
        self.exploits.serve(trial)
        self._is_unsettled = True

    def _leave(self, trial: Trial, outcome: ev.Outcome) -> None:
        move, intention = exit_move(trial, outcome), trial.intention
        self._retire(trial)
        if (
            intention
            and intention.reply is ReportReply.PAUSE
            and move in (TrialMove.REQUEUE, TrialMove.FAIL)
        ):
            if (
                trial.latest_checkpoint is not None
                and trial.latest_checkpoint.iteration == trial.iteration
            ):
                move = (
                    TrialMove.PAUSE
                )  # nothing is lost with a worker that has saved its latest result
            elif self._stopping and outcome is not ev.Outcome.UNSAVED:
                # What the end of all has done to it is not its fault; it goes on with the others, and is paused then.
                self._end(trial, self._stopping.ending, self._stopping.reason)
                return
        match move:
            case TrialMove.PAUSE if intention and (trial.source or trial.exploit):
                self._lay_aside(trial, intention)
            case TrialMove.PAUSE if intention and intention.reply is ReportReply.EXPLOIT:
                self.trial_table.requeue(trial, TrialMove.REQUEUE)
            case TrialMove.PAUSE if self._stopping:
                self._end(trial, self._stopping.ending, self._stopping.reason)
            case TrialMove.PAUSE:
                trial.failures.append(CANNOT_PAUSE)
                self._retry_or_give_up(trial)
            case TrialMove.END:
                self._end(trial, *exit_ending(intention, outcome))
            case TrialMove.FAIL:
                self._retry_or_give_up(trial, intention)
            case _:
                self.trial_table.requeue(trial, move)

    def _retire(self, trial: Trial) -> None:
        """Let go of all that the trial's worker held."""
        self._waiting.pop(trial.trial_id, None)
        self.trial_table.retire(trial)
        self._timeouts.forget(trial.trial_id)
        self._out.delete(trial, self._checkpoints.release(trial))
        self.suggestion_budget.hear()

    def _lay_aside(self, trial: Trial, intention: Intention) -> None:
        """Pause the trial; where that was for a while only, or the wait is over already, let it go on."""
        self.trial_table.pause(trial, intention.reason)
        self._out.notices.append(cmd.TrialPaused(trial))
        self.exploits.serve(trial)  # it will save nothing more for those that wait
        self._stirring[trial.trial_id] = trial
        if trial.resize is not None:
            self.trial_table.resize(trial, trial.resize)
            trial.resize, trial.is_to_resume = None, True
        if intention.reply is ReportReply.EXPLOIT and trial.exploit is None:
            trial.is_to_resume = True  # it was given up for a checkpoint that will never come

    def _stir(self, trial: Trial) -> None:
        """Let a paused trial go on as soon as nothing is waited for."""
        self._stirring[trial.trial_id] = trial
        trial.is_to_resume = True

    def _tend_paused(self) -> None:
        """Let exploits take effect whose checkpoint is there, and those go on that are to."""
        for trial in list(self._stirring.values()):
            if trial.status is Status.PAUSED:
                self._graft(trial)
            if trial.status is Status.PAUSED and trial.exploit:
                continue
            del self._stirring[trial.trial_id]
            if trial.status is Status.PAUSED and trial.is_to_resume:
                trial.is_to_resume = False
                self.trial_table.make_ready(trial)

    def _graft(self, trial: Trial) -> None:
        if graft := self.exploits.take_effect(trial):
            self._out.notices.append(cmd.ExploitApplied(trial, graft))

    def _go_on_as_they_were(self, trials: Sequence[Trial]) -> None:
        """Let those go on that have waited for a checkpoint which will never come."""
        self._is_unsettled |= bool(trials)
        for trial in trials:
            if trial.status is Status.PAUSED and trial.source is None:
                self.trial_table.requeue(trial, TrialMove.REQUEUE)
            elif trial.status is Status.PAUSED:
                self._stir(trial)
            elif (
                trial.intention
                and trial.intention.reply is ReportReply.EXPLOIT
                and trial.worker is not WorkerState.STOPPING
            ):
                trial.intention = None

    def _retry_or_give_up(self, trial: Trial, intention: Intention | None = None) -> None:
        is_ended_by_user = intention is not None and intention.reason.rule == ev.USER_STOP
        if is_ended_by_user or not self._retries.has_retries_left(trial):
            self._give_up(trial)
            return
        if objection := self._retries.objection(trial):
            self._give_up(trial, objection)
            return
        if intention is not None and intention.reply is ReportReply.STOP:
            self._drop_plans(
                trial
            )  # they were decided for a trial that was to go on before it was to stop
        self.trial_table.retry(trial, self._now_s)
        self._out.notices.append(cmd.AttemptFailed(trial, trial.failures[-1], will_retry=True))

    def _give_up(self, trial: Trial, objection: str = "") -> None:
        self.trial_table.fail(trial)
        is_frequent = self._failure_tally.add(trial)
        self.suggestion_budget.hear()
        self._out.notices.append(
            cmd.AttemptFailed(trial, trial.failures[-1], will_retry=False, objection=objection)
        )
        if is_frequent and self.trial_table.live and (reason := self._suspected_failure()):
            self._out.notices.append(cmd.StartsHeld(trial, reason))
        self._part_with(trial)
        self._apply(self.policies.on_trial_error(trial))
        if self.settings.fail_fast:
            self._stop_all(TerminationReason.INTERRUPTED, Reason("fail_fast"))

    def _suspected_failure(self) -> Reason | None:
        """Return the cause for which all trials seem to fail; None if there is none."""
        endings = self.trial_table.num_by_ending
        return self._failure_tally.suspected(
            endings[TerminationReason.COMPLETED] + endings[TerminationReason.STOPPED_EARLY]
        )

    def _end(self, trial: Trial, ending: TerminationReason, reason: Reason | None) -> None:
        self.trial_table.end(trial, ending, reason)
        if ending is TerminationReason.COMPLETED and self._metric_watch.complete(trial):
            self._out.notices.append(cmd.MetricMissed(trial, self._metric_watch.missing[0]))
        self.suggestion_budget.hear()
        self._out.notices.append(cmd.TrialEnded(trial))
        if ending is TerminationReason.INTERRUPTED and self._stopping:
            # Together with all others; it is not over, and the scheduler will hear of it again. It saves nothing more in this session.
            self.exploits.serve(trial)
            return
        self._part_with(trial)
        if not self.trial_table.is_admitted(trial):
            return  # the scheduler has never heard of it
        self._apply(
            self.policies.on_trial_complete(
                trial, flatten(trial.last_result) if trial.last_result else None
            )
        )

    def _part_with(self, trial: Trial) -> None:
        """Let nobody wait for a trial that is over, nor it for anybody."""
        self._drop_plans(trial)
        self._go_on_as_they_were(self.exploits.send_away(trial))

    def _drop_plans(self, trial: Trial) -> None:
        """Forget what was to become of the trial once its worker had left."""
        self.exploits.forget(trial)
        trial.resize, trial.is_to_resume = None, False
