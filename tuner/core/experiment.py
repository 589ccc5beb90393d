"""The experiment as a fold: events in, commands and notices out, nothing else.

`Experiment` holds every trial, the queue, the resources, the scheduler and the stopper, and changes only through `handle`. It performs
no I/O, reads no clock and draws no chance, so feeding the same stamped events to a fresh experiment rebuilds the same state and returns
the same commands: that is what a restore does, and a test, and a what-if.

The driver feeds whatever has happened, event by event, and closes each turn with `TurnEnded`, upon which the experiment says what is to
be done. Between the two, observers have been told the notices and may have added an event of their own, such as `CheckpointRequested`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import assert_never

from schedulers.decisions import Reason
from tuner.errors import InvalidTransition

from . import commands as cmd
from . import events as ev
from .lifecycle import WorkerMove, can_move_worker, move_worker
from .manual_control import SteeredLives
from .metric_watch import METRIC_NOT_REPORTED, error_for
from .policies import RecordedDecision, ending_for
from .result import CHECKPOINT_DIR_NAME, CONFIG, DONE, TRAINING_ITERATION, flatten
from .state import Report
from .trial import Failure, Intention, ReportReply, Status, TerminationReason, Trial, WorkerState


class Experiment(SteeredLives):
    """The fold over the state of an experiment; see `ExperimentState` for what it consists of, `TrialLives` for what becomes of trials."""

    def handle(
        self, event: ev.Event, at_s: float, recorded: Sequence[RecordedDecision] | None = None
    ) -> cmd.Effects:
        """Fold one event into the state.

        Args:
            event: What happened.
            at_s: When, in seconds of experiment time; never earlier than the event before.
            recorded: What was decided on it, if that has been decided already; None to ask.

        Returns:
            What follows from it.

        Raises:
            InvalidTransition: If the event cannot happen in this state.
        """
        self._now_s = at_s
        self._is_routine = False
        self.policies.begin(recorded)
        # What trials report frees no slot and makes none ready, unless something is decided on it.
        self._is_unsettled |= not isinstance(
            event, (ev.ResultReported, ev.CheckpointStarted, ev.TurnEnded)
        )
        self._dispatch(event)
        if self.exploits.has_released:
            for donor in self.exploits.take_released():
                self._out.delete(donor, self._checkpoints.drop_superseded(donor))
        out, self._out = self._out, cmd.Outbox()
        return cmd.Effects(
            out.commands, out.notices, self.policies.given, out.remarks, self._is_routine
        )

    def _dispatch(self, event: ev.Event) -> None:  # noqa: C901, PLR0912  (one case for each kind of event)
        match event:
            case ev.ResultReported():
                self._on_result(event)
            case ev.TurnEnded():
                self._settle()
            case ev.WorkerStarted():
                self._on_worker_started(event)
            case ev.WorkerExited():
                self._on_worker_exited(event)
            case ev.TrialSuggested():
                self._on_suggested(event)
            case ev.SuggestionPostponed():
                self.suggestion_budget.postpone()
            case ev.SearchEnded():
                self.suggestion_budget.close()
            case ev.CheckpointRequested():
                trial = self.trial_table[event.trial_id]
                trial.owes_save = trial.status is Status.RUNNING
            case ev.CheckpointStarted():
                self._on_saving(event)
            case ev.CheckpointSaved() | ev.CheckpointFailed():
                self._on_saved(event)
            case ev.CheckpointLost():
                owner = self.trial_table[event.trial_id]
                self._checkpoints.lose(owner, event.index)
                disappointed = self.exploits.lose(owner, event.index)
                self._go_on_as_they_were(
                    disappointed if owner.source or owner.exploit else [*disappointed, owner]
                )
            case ev.StopRequested():
                self._timeouts.interrupt(
                    self._now_s, self.settings.interrupt_grace_s, is_urgent=event.is_urgent
                )
                self._stop_all(TerminationReason.INTERRUPTED, Reason(event.rule))
            case (
                ev.TrialStopRequested()
                | ev.PauseRequested()
                | ev.ResumeRequested()
                | ev.TrialForked()
            ):
                self._steer(event)
            case ev.DriverRestarted():
                self._on_driver_restarted(event)
            case _:
                assert_never(event)

    def _on_suggested(self, event: ev.TrialSuggested) -> None:
        self.suggestion_budget.answer()
        trial = Trial(event.trial_id, event.config, event.resources, event.experiment_tag)
        self.trial_table.add(trial)
        self._out.notices.append(cmd.TrialAdded(trial))
        if self.settings.max_pending:
            trial.failures += [event.failure] if event.failure else []
            self.trial_table.make_ready(trial)
        else:
            self._admit(trial, event.failure)

    def _admit(self, trial: Trial, failure: Failure | None) -> None:
        """Let the scheduler learn of a trial, and the trial wait for its start, unless it can never be started."""
        self.trial_table.admit(trial)
        self._apply(self.policies.on_trial_add(trial))
        if trial.is_finished:
            return
        if failure := failure or self.trial_table.misfit(trial):
            trial.failures.append(failure)
            self._give_up(trial)
        elif self._stopping:
            self._end(trial, self._stopping.ending, self._stopping.reason)
        else:
            if trial.resources == self._typical_request:
                trial.resources = (
                    self._typical_request
                )  # nearly all ask for the same, and need no dictionary each
            self._typical_request = trial.resources
            self.trial_table.make_ready(trial)

    def _current(self, trial_id: str, attempt: int, move: WorkerMove) -> Trial | None:
        """Return the trial if this is its current attempt and the move is possible; what comes too late is dropped."""
        trial = self.trial_table.live.get(trial_id)
        return (
            trial
            if trial is not None and trial.attempt == attempt and can_move_worker(trial, move)
            else None
        )

    def _on_worker_started(self, event: ev.WorkerStarted) -> None:
        if trial := self._current(event.trial_id, event.attempt, WorkerMove.BEGIN):
            move_worker(trial, WorkerMove.BEGIN)
            self._timeouts.expect_report(trial.trial_id, self._now_s)

    def _on_result(self, event: ev.ResultReported) -> None:
        trial = self._current(event.trial_id, event.attempt, WorkerMove.REPORT)
        if trial is None:
            return
        move_worker(trial, WorkerMove.REPORT)
        self._timeouts.take_sign_of_life(trial.trial_id, self._now_s)
        flat = flatten(event.metrics)
        report = Report(trial, {**event.metrics, CONFIG: trial.config}, flat)
        self._waiting[trial.trial_id] = report
        self._is_unsettled |= self.suggestion_budget.hear()
        trial.summarise(flat)
        self._is_unsettled |= self._failure_tally.hear(trial.farthest_iteration)
        is_metric_missed = self._metric_watch.hear(flat, trial.num_rows)
        self.best.consider(trial, flat)
        self._out.notices.append(cmd.ResultRecorded(trial, report.result, flat, event.text))
        if event.replaced:
            self._out.notices.append(cmd.KeysReplaced(trial, event.replaced))
        if is_metric_missed:
            metric = self._metric_watch.missing[0]
            self._out.notices.append(
                cmd.MetricMissed(trial, metric, self._metric_watch.value_of(metric))
            )
        self._out.delete(trial, self._checkpoints.release(trial))
        if event.checkpoint:
            self._keep(trial, event.checkpoint, flat)
        self._judge(report)
        trial.last_result = report.result

    def _judge(self, report: Report) -> None:
        trial, flat = report.trial, report.flat
        if flat.get(DONE) is True:
            reason = Reason("trainable.done", {TRAINING_ITERATION: flat.get(TRAINING_ITERATION, 0)})
            self._intend(trial, Intention(ReportReply.STOP, TerminationReason.COMPLETED, reason))
        self._apply(self.policies.on_trial_result(trial, report.result, flat))

    def _on_saving(self, event: ev.CheckpointStarted) -> None:
        """Stop the clock of a worker that stores a checkpoint; that of one which was told to leave runs on."""
        if self._current(event.trial_id, event.attempt, WorkerMove.REPORT):
            self._timeouts.take_sign_of_life(event.trial_id, self._now_s)
        elif (
            trial := self._current(event.trial_id, event.attempt, WorkerMove.SAVED)
        ) and trial.worker is WorkerState.SAVING:
            self._timeouts.hold(event.trial_id)

    def _on_saved(self, event: ev.CheckpointSaved | ev.CheckpointFailed) -> None:
        trial = self._current(event.trial_id, event.attempt, WorkerMove.SAVED)
        if trial is None:
            if isinstance(event, ev.CheckpointFailed) and self._current(
                event.trial_id, event.attempt, WorkerMove.REPORT
            ):
                self._timeouts.expect_report(
                    event.trial_id, self._now_s
                )  # its `report` has raised, and the training code goes on
            return
        move_worker(trial, WorkerMove.SAVED)
        self._timeouts.expect_report(trial.trial_id, self._now_s)
        if isinstance(event, ev.CheckpointSaved):
            trial.last_result = {
                **trial.last_result,
                CHECKPOINT_DIR_NAME: event.checkpoint.directory,
            }
            self._keep(trial, event.checkpoint, flatten(trial.last_result))
        else:
            self._out.notices.append(cmd.CheckpointMissed(trial, event.failure))
            self._go_on_as_they_were(self.exploits.send_away(trial))

    def _on_worker_exited(self, event: ev.WorkerExited) -> None:
        if (trial := self._current(event.trial_id, event.attempt, WorkerMove.EXIT)) is None:
            return
        if event.outcome in (ev.Outcome.FAILED, ev.Outcome.UNSAVED) and not event.failure:
            raise InvalidTransition(
                f"the worker of trial {event.trial_id} has failed, and its executor does not say why"
            )
        if event.failure and event.outcome is not ev.Outcome.LOST:
            trial.failures.append(event.failure)
        self._leave(trial, event.outcome)

    def _on_driver_restarted(self, event: ev.DriverRestarted) -> None:
        for trial in list(self.trial_table.live.values()):
            self._leave(trial, ev.Outcome.LOST)
        self._begin_session(event.settings)
        self._let_all_go()
        never_tried = [
            trial
            for trial in self.trial_table.trials
            if not self.trial_table.is_admitted(trial)
            and trial.ending in {None, TerminationReason.INTERRUPTED}
        ]
        # Like those that have not been suggested: they are not left out, unless fewer trials are wanted now.
        treatments = dict.fromkeys(never_tried, ev.ResumeType.RESUME)
        treatments |= dict.fromkeys(
            never_tried[max(len(never_tried) - self._num_surplus, 0) :], ev.ResumeType.SKIP
        )
        for trial in self.trial_table.trials:
            treatment = treatments.get(trial) or event.treatment_of(trial)
            if treatment is ev.ResumeType.RESTART:
                self.best.forget(trial)
                self.exploits.settle(trial)
                self.exploits.forget(trial)
            dropped = self.trial_table.take_up(trial, treatment)
            for checkpoint in dropped:
                self._go_on_as_they_were(self.exploits.lose(trial, checkpoint.index))
            self._out.delete(trial, dropped)
            if treatment is ev.ResumeType.SKIP and not trial.is_finished:
                self._end(trial, TerminationReason.INTERRUPTED, Reason(ev.SKIPPED))
            if (
                self.trial_table.is_admitted(trial)
                and not trial.is_finished
                and (failure := self.trial_table.misfit(trial))
            ):
                trial.failures.append(failure)
                self._give_up(trial)
            if (
                trial.status is Status.PENDING
            ):  # it was interrupted, and goes on without waiting for anybody
                self._graft(trial)
                self.exploits.forget(trial)
                trial.resize, trial.is_to_resume = None, False

    @property
    def _num_surplus(self) -> int:
        """How many more trials have been suggested than are wanted."""
        max_trials = self.settings.max_trials
        return (
            0
            if max_trials is None
            else max(len(self.trial_table.trials) - self.trial_table.num_forked - max_trials, 0)
        )

    def _settle(self) -> None:
        """Answer whoever waits, and find work for what is free; mostly the former, which is why it is told apart."""
        was_stopping, was_unsettled, is_anybody_stirring = (
            self._stopping,
            self._is_unsettled,
            bool(self._stirring),
        )
        self._look_at_the_clock()
        goes_on = [self._answer(report) for report in list(self._waiting.values())]
        self._waiting.clear()
        if self._stopping:
            self._kill_overdue()  # whoever has been answered just now may have no time left to leave in
            self._end_waiting(self._stopping)
        elif (
            self.trial_table.ready.wake(self._now_s)
            or self._is_unsettled
            or self.trial_table.paused
        ):
            self._is_unsettled = False
            self._tend_paused()
            if not (self.trial_table.live and self._suspected_failure()):
                self._start_ready()
                self._wake_paused()
                self._admit_waiting()
                self._ask()
            self._conclude()
        self._out.remarks = self.policies.take_remarks()
        self._is_routine = (
            self._is_calm(goes_on, has_news=was_unsettled)
            and self._stopping is was_stopping
            and not is_anybody_stirring
        )

    def _is_calm(self, goes_on: Sequence[bool], *, has_news: bool) -> bool:
        """Return whether nothing followed from the turn but that trials go on, and that the searcher is asked, which nobody else sees.

        The latter only in a turn that has seen events: in an idle one, what the next record is to tell may be an earlier turn's end.
        """
        usual = (cmd.AnswerReport, cmd.AskSearcher) if has_news else cmd.AnswerReport
        is_usual = all(goes_on) and all(
            isinstance(command, usual) for command in self._out.commands
        )
        return is_usual and not (
            self._out.notices or self.policies.given or self._out.remarks or self.is_finished
        )

    def _look_at_the_clock(self) -> None:
        if not self._stopping and (
            said := self.policies.reason_to_end(self._now_s, self._own_reason_to_end())
        ):
            if said.rule == METRIC_NOT_REPORTED:
                self.fatal_error = error_for(said)
            self._stop_all(ending_for(said), said)
        if not self._timeouts.may_be_over(self._now_s):
            return
        self._kill_overdue()
        silent = self._timeouts.suspicious(self._now_s)
        self._out.notices += [
            cmd.TrialSilent(self.trial_table.live[one.trial_id], one.silent_s, one.usual_s)
            for one in silent
        ]

    def _own_reason_to_end(self) -> Reason | None:
        """Return why it makes no sense to go on, whatever scheduler and stop criterion say."""
        return self._metric_watch.reason_to_end or (
            None if self.trial_table.live else self._suspected_failure()
        )

    def _kill_overdue(self) -> None:
        for overdue in self._timeouts.exhausted(self._now_s):
            trial = self.trial_table.live[overdue.trial_id]
            move_worker(trial, WorkerMove.KILL)
            self._waiting.pop(trial.trial_id, None)
            self._out.commands.append(
                cmd.KillWorker(trial.trial_id, trial.attempt, overdue.reason, overdue.term_grace_s)
            )

    def _answer(self, report: Report) -> bool:
        """Answer a report and return whether its trial simply goes on."""
        trial = report.trial
        save = self._checkpoints.is_due(trial, report.flat)
        reply = trial.intention.reply if trial.intention else ReportReply.CONTINUE
        if reply is ReportReply.PAUSE and not (save or trial.source or self._stopping):
            reply = ReportReply.CONTINUE  # until the training code itself reports a checkpoint
        trial.owes_save = False
        if reply is ReportReply.CONTINUE:
            move_worker(trial, WorkerMove.SAVE if save else WorkerMove.GO_ON)
            self._timeouts.expect_report(trial.trial_id, self._now_s)
        else:
            move_worker(trial, WorkerMove.LEAVE)
            self._timeouts.expect_exit(trial.trial_id, self._now_s)
        stay = reply is ReportReply.EXPLOIT and self._goes_on_at_once(trial)
        self._out.commands.append(
            cmd.AnswerReport(trial.trial_id, trial.attempt, reply, save, stay)
        )
        return reply is ReportReply.CONTINUE and not save

    def _goes_on_at_once(self, trial: Trial) -> bool:
        """Return whether a trial that leaves for an exploit is the next to be started."""
        return (
            trial.is_to_resume
            and trial.exploit is not None
            and trial.exploit.checkpoint is not None
            and not self.trial_table.ready
        )

    def _start_ready(self) -> None:
        while trial := self.trial_table.pop_startable():
            is_resumed, is_retry = trial.status is Status.PAUSED, trial.num_failures > 0
            checkpoint = self._checkpoints.lease_start(trial)
            self.trial_table.start(trial, self._now_s)
            trial.owes_save = self.exploits.is_awaited(trial)
            self._timeouts.expect_report(trial.trial_id, self._now_s)
            self._out.commands.append(cmd.StartWorker.of(trial, checkpoint))
            self._out.notices.append(
                cmd.TrialStarted(trial, is_retry=is_retry and not is_resumed, is_resumed=is_resumed)
            )

    def _wake_paused(self) -> None:
        """Let the scheduler use free slots for paused trials, as long as it does."""
        trial_table = self.trial_table
        # To go through all that are paused is left to the turns in which there is room for one.
        while (
            trial_table.paused
            and not trial_table.ready
            and (num_free := trial_table.num_free_slots(self._typical_request)) > 0
            and (idle := trial_table.idle)
        ):
            num_before = len(trial_table.paused)
            self._apply(self.policies.on_idle(tuple(idle), num_free))
            self._tend_paused()
            self._start_ready()
            if len(trial_table.paused) == num_before:
                break

    def _admit_waiting(self) -> None:
        """Let the trials that have waited longest have the free slots."""
        if not self.trial_table.backlog:
            return
        for trial in list(islice(self.trial_table.backlog.values(), max(self._num_vacant, 0))):
            self._admit(trial, trial.failures.pop() if trial.failures else None)
            if self._stopping:
                self._end_waiting(self._stopping)
                return
        self._start_ready()
        # Some of them may have come to nothing. The next turn sees whether that is a reason to end before it admits others.
        self._is_unsettled |= bool(self.trial_table.backlog) and self._num_vacant > 0

    @property
    def _num_vacant(self) -> int:
        """How many slots nobody has or waits for; negative where too many wait."""
        return self.trial_table.num_free_slots(self._typical_request) - len(self.trial_table.ready)

    def _ask(self) -> None:
        if not self.suggestion_budget.is_open:
            return
        num_wanted = self._num_vacant
        if self.settings.max_pending:
            num_wanted = (
                max(num_wanted, 0) + self.settings.max_pending - len(self.trial_table.backlog)
            )
        self._out.commands.extend(
            cmd.AskSearcher(trial_id) for trial_id in self.suggestion_budget.take(num_wanted)
        )

    def _conclude(self) -> None:
        """Where nothing can happen any more, say so and end what is left, so that no experiment ever waits for nothing."""
        if self._has_prospects():
            return
        if self.trial_table.paused:
            self._go_on_as_they_were(self.exploits.send_all_away())
            self._tend_paused()
            self._start_ready()
            for trial in list(self.trial_table.paused.values()):
                if self._has_prospects():
                    return
                self._intend(
                    trial,
                    Intention(ReportReply.STOP, TerminationReason.STOPPED_EARLY, Reason("idle")),
                )
                self._start_ready()
            self._ask()
        if not (self._has_prospects() or self.suggestion_budget.is_over):
            self.suggestion_budget.suspend()
            self.stall_reason = (
                "the searcher postponed its next suggestion although no trial is left to report"
            )

    def _has_prospects(self) -> bool:
        return bool(
            self.trial_table.live
            or self.trial_table.ready
            or self.trial_table.backlog
            or self.trial_table.held
            or self.suggestion_budget.num_outstanding
        )
