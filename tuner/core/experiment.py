"""The state machine of an experiment: events in, commands and notices out.

`Experiment` owns every trial, the queue, the resources, the scheduler and the stopper, and changes
only in `Experiment.handle`. It performs no I/O, reads no clock and draws no random numbers. Feeding
the same stamped events to a new experiment therefore rebuilds the same state and returns the same
commands, which is what a restore, a test and a what-if replay do.

The driver feeds events one by one and closes each turn with `TurnEnded`. Decisions are recorded as
*intentions* of trials while events arrive; commands that answer workers, start trials or ask the
searcher are issued when the turn ends. Between the two, observers have received the notices and may
have added an event of their own, such as `CheckpointRequested`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, assert_never, final

from schedulers.decisions import Decision, Exploit, Pause, Reason, Resize, Resume, Save, Stop
from schedulers.scheduler import Scheduler
from tuner.errors import InvalidDecision, InvalidTransition
from tuner.wire.declared import decode, encode

from . import commands as cmd
from . import events as ev
from .best_trials import BestTrials
from .checkpoints import CheckpointManager
from .exploits import ExploitTracker
from .failure_causes import CHECKPOINT_LOST, FailureTally, lost_too_often
from .lifecycle import (
    TrialMove,
    WorkerMove,
    can_move_worker,
    exit_move,
    exit_termination,
    move_worker,
)
from .metric_watch import METRIC_NOT_REPORTED, MetricWatch, error_for
from .part import Parts
from .paused_trials import PausedTrials
from .policies import (
    LiveExperimentView,
    Policies,
    subject,
    termination_reason_for,
)
from .recorded_decisions import RecordedDecision
from .resources import Demand
from .result import (
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DONE,
    NUM_EXPLOITS,
    TRAINING_ITERATION,
    flatten,
)
from .settings import ExperimentSettings
from .stoppers import Stopper
from .timeouts import Timeouts, earliest
from .trial import (
    CANNOT_PAUSE,
    NODE_DRAINING,
    TRAINABLE_DONE,
    Intention,
    Status,
    TerminationReason,
    Trial,
    WaitsFor,
    WorkerState,
)
from .trial_metrics import TrackedMetric
from .trial_starter import SuggestionBudget, TrialStarter
from .trial_table import TrialTable
from .unanswered_reports import UnansweredReport, UnansweredReports
from .worker_records import CheckpointRecord, Failure, ReportReply

_WITHOUT_ROOM = (ev.ResultReported, ev.CheckpointStarted, ev.CheckpointsRequested, ev.TurnEnded)
"""Events that free no slot and make no trial ready, unless something is decided on them."""


@final
class Experiment:
    """The state machine; see the module's docstring.

    Args:
        settings: What the user declared.
        scheduler: Decides about trials.
        stopper: The stop criterion.

    Attributes:
        settings: The settings of the current session.
        trial_table: All trials, by status, and the resources they hold; read-only to others.
        exploits: Exploits that wait for a donor's checkpoint, and leases of checkpoints.
        best: The trials ranked by their newest values.
        suggestion_budget: Configurations requested from the searcher; read-only to others.
        policies: Scheduler and stopper, and the decisions that they have made.
        paused: How paused trials continue.
        parts: What capabilities add, as far as they are used.
        checkpoints: When a checkpoint is due, and which are kept.
        metric_watch: Whether the metric is reported.
        timeouts: The deadlines of workers.
        unanswered: The reports that wait for an answer.
        out: The commands and notices of the event that is being handled.
        now_s: When that has happened, in seconds of experiment time.
        stall_reason: Why the experiment ended with trials left to run; empty where it did not.
        fatal_error: Why it cannot continue as it was declared; empty where it can.
    """

    def __init__(
        self, settings: ExperimentSettings, scheduler: Scheduler, stopper: Stopper
    ) -> None:
        self.settings = settings
        self.trial_table = TrialTable(settings.capacity, settings.max_concurrent)
        self.exploits = ExploitTracker(self.trial_table)
        self.best = BestTrials(settings.metric, settings.mode, settings.constraints)
        self.policies = Policies(scheduler, stopper)
        self.suggestion_budget = SuggestionBudget(settings.max_trials)
        scheduler.experiment = LiveExperimentView(
            self.trial_table, self.suggestion_budget, lambda: self.settings
        )
        self.now_s = 0.0
        self._is_noop_turn = False
        self.out = cmd.Outbox()
        self.paused = PausedTrials(self.trial_table, self.exploits, self._notify)
        self.parts = Parts(self)
        self.starter = TrialStarter(
            self.trial_table, self.exploits, self.suggestion_budget, self.out
        )
        self.unanswered = UnansweredReports(
            self.trial_table, self.exploits, self._holds_report, self.out
        )
        self._begin_session(settings)

    def _begin_session(self, settings: ExperimentSettings, declaration: str = "") -> None:
        """Apply the settings of a new driver; no worker is alive."""
        self._stopping: Intention | None = None
        before = self.settings
        if (settings.metric, settings.mode) != (before.metric, before.mode):
            self.best = BestTrials(settings.metric, settings.mode, settings.constraints)
            for trial in self.trials:
                trial.objective = TrackedMetric()
            self.best.rebuild(self.trials)
        elif settings.constraints != before.constraints:
            self.best = BestTrials(settings.metric, settings.mode, settings.constraints)
            self.best.load(self.trials)
        self.settings = settings
        for part in self.parts:
            part.end_processes()
        self._retries = settings.retries
        self.checkpoints = CheckpointManager(settings.checkpoints)
        self._watch_session(settings)
        self.stall_reason = self.fatal_error = ""
        self.trial_table.set_resources(
            settings.capacity if settings.node_wait_s is None else None,
            settings.max_concurrent,
            settings.max_overtaken_s,
        )
        self.parts.begin_session(settings)
        for trial in self.trials:
            trial.losses = ()
        self.suggestion_budget.begin_session(settings.max_trials, declaration)
        self.timeouts = Timeouts(settings.report_timeout_s, settings.stop_grace_s)
        self.unanswered.begin_session(self.checkpoints, self.timeouts)
        self.policies.time_budget_s = settings.time_budget_s
        self.starter.begin_session(settings, self.checkpoints, self.timeouts)
        self.needs_scheduling = True

    def _watch_session(self, settings: ExperimentSettings) -> None:
        """Watch for a missing metric and common failures; trials so far are of earlier sessions."""
        self.metric_watch = MetricWatch(
            settings.watched_metrics, is_required=settings.is_metric_required, trials=self.trials
        )
        self._failure_tally = FailureTally(settings.max_common_failures, self.trials)

    # ---------------------------------------------------------------- state

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials in the order of their suggestion; live, not to be modified."""
        return self.trial_table.trials

    @property
    def is_finished(self) -> bool:
        """Whether no trial will run again in this session; paused ones outlast an interruption."""
        if self.trial_table.live:  # mostly, and this is asked twice in each turn
            return False
        if not all(part.is_over for part in self.parts):
            return False
        if self._stopping is None:
            return self.trial_table.is_finished and self.suggestion_budget.is_closed
        # A searcher may take minutes to answer. Its suggestion is not going to run in this session.
        if self.is_interrupted:
            table = self.trial_table
            return table.num_by_status[Status.PENDING] == len(table.left)
        return self.trial_table.is_finished

    @property
    def is_stopping(self) -> bool:
        """Whether it stops before all its trials have run."""
        return self._stopping is not None

    @property
    def is_interrupted(self) -> bool:
        """Whether it stops now, and goes on in another session."""
        stopping = self._stopping
        return stopping is not None and stopping.ending is TerminationReason.INTERRUPTED

    @property
    def stop_reason(self) -> Reason | None:
        """Why the experiment stops before all its trials have run; None if it does not."""
        return self._stopping.reason if self._stopping else None

    @property
    def held_trials(self) -> list[Trial]:
        """Trials that have reported, and get an answer in a later turn only."""
        return self.unanswered.held_trials if self.parts else []

    def _holds_report(self, trial: Trial) -> bool:
        return bool(self.parts) and any(part.holds_report(trial) for part in self.parts)

    def next_deadline_s(self) -> float | None:
        """Return the experiment time at which a turn is due without any event; None for never."""
        # A trial that was admitted last and failed at once leaves its slot to the next in line.
        has_more_to_admit = self.needs_scheduling and self.trial_table.backlog
        policies_s = self.now_s if has_more_to_admit else self.policies.next_s
        return earliest(
            self.timeouts.next_s,
            *(part.next_s for part in self.parts),
            self.trial_table.ready.next_s if self.trial_table.ready.resting else None,
            None if self._stopping else policies_s,
        )

    def why_rejected(self, request: ev.ManualRequest) -> str:
        """Return why a user's request cannot be carried out; empty if it can."""
        from .manual_control import why_rejected  # noqa: PLC0415  (such requests are rare)

        return why_rejected(request, self.trial_table, self.stop_reason)

    def check(self) -> None:
        """Assert every invariant; for tests, since it looks at all trials."""
        self.trial_table.check()
        self.unanswered.check()
        assert self.suggestion_budget.num_outstanding >= 0, "more suggestions than were requested"
        for part in self.parts:
            part.check()

    # ---------------------------------------------------------------- events

    def handle(
        self, event: ev.Event, at_s: float, recorded: Sequence[RecordedDecision] | None = None
    ) -> cmd.Effects:
        """Apply one event to the state.

        Args:
            event: What happened.
            at_s: When, in seconds of experiment time; never earlier than the event before.
            recorded: The decisions that the journal holds for it; None to ask scheduler and
                stopper.

        Returns:
            What follows from it.

        Raises:
            InvalidTransition: If the event cannot happen in this state.
        """
        self.now_s = at_s
        self._is_noop_turn = False
        self.policies.begin(recorded)
        self.needs_scheduling |= not isinstance(event, _WITHOUT_ROOM)
        self._dispatch(event)
        if self.exploits.released:
            for donor in self.exploits.released.values():
                self.out.delete(donor, self.checkpoints.drop_superseded(donor))
            self.exploits.released.clear()
        return self.out.take(self.policies.given, is_noop=self._is_noop_turn)

    def _dispatch(self, event: ev.Event) -> None:  # noqa: C901, PLR0912  (one case for each event)
        match event:
            case ev.ResultReported():
                self._on_result(event)
            case ev.TurnEnded():
                self._on_turn_ended()
            case ev.WorkerStarted():
                self._on_worker_started(event)
            case ev.WorkerExited():
                self._on_worker_exited(event)
            case ev.TrialSuggested():
                self._on_suggested(event)
            case ev.SuggestionPostponed():
                self.suggestion_budget.on_postponed()
            case ev.SearchEnded():
                self.suggestion_budget.on_search_ended(event.declaration, event.why)
            case ev.CheckpointRequested():
                trial = self.trial_table[event.trial_id]
                trial.owes_save = trial.status is Status.RUNNING
            case ev.CheckpointStarted():
                self._on_checkpoint_started(event)
            case ev.CheckpointSaved() | ev.CheckpointFailed():
                self._on_checkpoint_saved(event)
            case ev.CheckpointLost():
                self._on_checkpoint_lost(event)
            case ev.CheckpointCommitted():
                self._on_checkpoint_committed(event)
            case (
                ev.ValidationEnded() | ev.CheckpointsRequested() | ev.LeaseRequested()
                | ev.LeaseReleased() | ev.NodeJoined() | ev.NodeDraining() | ev.NodeLeft()
            ):  # fmt: skip
                self.parts.of_event(event).handle(event)
            case ev.StopRequested():
                self.timeouts.interrupt(
                    self.now_s, self.settings.interrupt_grace_s, is_urgent=event.is_urgent
                )
                self.stop_all(TerminationReason.INTERRUPTED, Reason(event.rule))
                self.parts.interrupt()
            case (
                ev.TrialStopRequested() | ev.PauseRequested() | ev.ResumeRequested()
                | ev.TrialForked()
            ):  # fmt: skip
                self._on_manual_request(event)
            case ev.DriverRestarted():
                self._on_driver_restarted(event)
            case _:
                assert_never(event)

    def _notify(self, notice: cmd.Notice) -> None:
        self.out.notices.append(notice)

    def _on_suggested(self, event: ev.TrialSuggested) -> None:
        self.suggestion_budget.on_suggested()
        trial = Trial(event.trial_id, event.config, event.resources, event.experiment_tag)
        trial.group = event.group
        trial.labels = event.group.labels if event.group else event.labels
        self.trial_table.add(trial)
        self._notify(cmd.TrialAdded(trial))
        if self.settings.max_pending:
            trial.failures += [event.failure] if event.failure else []
            self.trial_table.make_ready(trial)
        else:
            self._admit(trial, event.failure)

    def _admit(self, trial: Trial, failure: Failure | None) -> None:
        """Show the trial to the scheduler, and queue it unless it can never be started."""
        self.trial_table.admit(trial)
        self.apply(self.policies.on_trial_add(trial))
        if trial.is_finished:
            return
        if failure := failure or self.trial_table.misfit(trial):
            trial.failures.append(failure)
            self.give_up(trial)
        elif self._stopping:
            self._end(trial, self._stopping.ending, self._stopping.reason)
        else:
            self.starter.note_admitted(trial)
            self.trial_table.make_ready(trial)

    def _current(self, trial_id: str, attempt: int, move: WorkerMove) -> Trial | None:
        """Return the trial if this is its current attempt and the move is possible.

        An event of an earlier attempt, or one that comes after its worker was asked to leave, is
        dropped by the caller.
        """
        trial = self.trial_table.live.get(trial_id)
        if trial is not None and trial.attempt == attempt and can_move_worker(trial, move):
            return trial
        return None

    def _on_worker_started(self, event: ev.WorkerStarted) -> None:
        if trial := self._current(event.trial_id, event.attempt, WorkerMove.BEGIN):
            move_worker(trial, WorkerMove.BEGIN)
            self.timeouts.expect_report(trial.trial_id, self.now_s)

    def _on_result(self, event: ev.ResultReported) -> None:
        trial = self._current(event.trial_id, event.attempt, WorkerMove.REPORT)
        if trial is None:
            return
        move_worker(trial, WorkerMove.REPORT)
        self.timeouts.on_report(trial.trial_id, self.now_s)
        # Flattened once; everything below that looks at metrics shares it.
        flat = flatten(event.metrics)
        more = {NUM_EXPLOITS: len(trial.grafts), CONFIG: trial.config}
        report = UnansweredReport(trial, {**event.metrics, **more}, flat)
        self.unanswered.add(report)
        if not self.suggestion_budget.has_news:
            self.needs_scheduling |= self.suggestion_budget.on_progress()
        trial.summarise(flat)
        self.needs_scheduling |= self._failure_tally.on_progress(trial.farthest_iteration)
        has_part = self.parts or event.validation or trial.group
        may_get_metric = bool(has_part) and self.parts.on_result(trial, event, flat)
        num_rows = 0 if may_get_metric else trial.num_rows
        watch = self.metric_watch
        is_metric_missed = bool(watch.missing) and watch.on_result(flat, num_rows)
        self.best.update(trial, flat)
        self._notify(cmd.ResultRecorded(trial, report.result, flat, event.rank_metrics))
        if event.replaced:
            self._notify(cmd.KeysReplaced(trial, event.replaced))
        if event.ignored_checkpoint:
            self._notify(cmd.CheckpointIgnored(trial, event.ignored_checkpoint))
        if is_metric_missed:
            metric = watch.missing[0]
            self._notify(cmd.MetricMissed(trial, metric, watch.value_of(metric)))
        if trial.leases:
            # The attempt has reported, so the checkpoint that it started from has been loaded.
            self.out.delete(trial, self.checkpoints.release(trial))
        if event.checkpoint:
            self._add_checkpoint(trial, event.checkpoint, flat)
        elif event.upload is not None:
            self.checkpoints.announce(trial, event.upload, flat)
        if flat.get(DONE) is True:
            reason = Reason(TRAINABLE_DONE, {TRAINING_ITERATION: flat.get(TRAINING_ITERATION, 0)})
            self._intend(trial, Intention(ReportReply.STOP, TerminationReason.COMPLETED, reason))
        is_judged = not self.parts or self.parts.may_be_judged(trial, flat)
        self.apply(
            self.policies.on_trial_result(trial, report.result, flat, asks_scheduler=is_judged)
        )
        # Only now: until here, schedulers and stoppers see the result before this one.
        trial.last_result = report.result

    def _on_checkpoint_started(self, event: ev.CheckpointStarted) -> None:
        """Suspend the report timeout; the time that a stopping worker has left runs on."""
        trial_id, attempt = event.trial_id, event.attempt
        if self._current(trial_id, attempt, WorkerMove.REPORT):
            self.timeouts.on_report(trial_id, self.now_s)
            return
        trial = self._current(trial_id, attempt, WorkerMove.SAVED)
        if trial is not None and trial.worker is WorkerState.SAVING:
            self.timeouts.suspend(trial_id)

    def _on_checkpoint_saved(self, event: ev.CheckpointSaved | ev.CheckpointFailed) -> None:
        trial = self._current(event.trial_id, event.attempt, WorkerMove.SAVED)
        if trial is None:
            # `report` has raised in the training code, which may catch that and go on.
            is_training = self._current(event.trial_id, event.attempt, WorkerMove.REPORT)
            if isinstance(event, ev.CheckpointFailed) and is_training:
                self.timeouts.expect_report(event.trial_id, self.now_s)
            return
        move_worker(trial, WorkerMove.SAVED)
        self.timeouts.expect_report(trial.trial_id, self.now_s)
        if isinstance(event, ev.CheckpointSaved):
            directory = event.checkpoint.directory
            trial.last_result = {**trial.last_result, CHECKPOINT_DIR_NAME: directory}
            self._add_checkpoint(trial, event.checkpoint, flatten(trial.last_result))
        else:
            self._notify(cmd.CheckpointMissed(trial, event.failure))
            self._continue_unchanged(self.exploits.dismiss_waiting(trial))

    def _on_checkpoint_committed(self, event: ev.CheckpointCommitted) -> None:
        trial, index = self.trial_table.live.get(event.trial_id), event.checkpoint.index
        if trial is None or trial.attempt != event.attempt or index not in trial.uploads:
            return
        if trial.uploads[index].num_rows == trial.num_rows:
            directory = event.checkpoint.directory
            trial.last_result = {**trial.last_result, CHECKPOINT_DIR_NAME: directory}
        self._add_announced(trial, event.checkpoint)

    def _on_checkpoint_lost(self, event: ev.CheckpointLost) -> None:
        owner = self.trial_table[event.trial_id]
        was_awaited = event.index in owner.uploads
        self._lose_checkpoint(owner, event.index, event.why)
        without_donor = [*self.exploits.on_checkpoint_lost(owner, event.index)]
        if was_awaited and not owner.uploads:
            without_donor += self.exploits.dismiss_waiting(owner)
        has_own = owner.source or owner.exploit
        self._continue_unchanged(without_donor if has_own else [*without_donor, owner])

    def _lose_checkpoint(self, trial: Trial, index: int, why: str) -> None:
        """Forget a checkpoint that is damaged or gone."""
        self.checkpoints.lose(trial, index)
        for part in self.parts:
            part.on_checkpoint_lost(trial, index, why)

    def _add_checkpoint(
        self, trial: Trial, checkpoint: CheckpointRecord, flat: Mapping[str, Any]
    ) -> None:
        """Record a checkpoint of the trial's newest result, flattened here."""
        self.checkpoints.announce(trial, checkpoint.index, flat)
        self._add_announced(trial, checkpoint)

    def _add_announced(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        """Record a checkpoint, supply trials that wait for it, and end the lease of a donor's."""
        for replaced in self.checkpoints.replaced_by(trial, checkpoint):
            self._lose_checkpoint(trial, replaced.index, "another one has taken its directory")
            self._continue_unchanged(self.exploits.on_checkpoint_lost(trial, replaced.index))
            if replaced.remote:  # the names of directories in a store are never used again
                self.out.delete(trial, [replaced])
        for part in self.parts:
            part.before_checkpoint(trial, checkpoint)
        recorded, superseded = self.checkpoints.add_announced(trial, checkpoint)
        self.out.keep(trial, recorded, superseded)
        for part in self.parts:
            part.on_checkpoint(trial, recorded)
        if not recorded.is_placeholder:  # nothing can continue from it
            self.exploits.release_origin(trial)
        self.exploits.supply(trial)
        self.needs_scheduling = True

    # ---------------------------------------------------------------- decisions

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out decisions, or let trials with a worker carry them out at their next report."""
        for decision in decisions:
            trial = subject(decision, self.trial_table, self.policies.scheduler)
            self.needs_scheduling = True
            match decision:
                case Stop():
                    ending = (
                        TerminationReason.COMPLETED
                        if decision.is_complete
                        else TerminationReason.STOPPED_EARLY
                    )
                    self._intend(trial, Intention(ReportReply.STOP, ending, decision.reason))
                case Pause():
                    if trial.status is Status.RUNNING and self._can_be_saved(
                        trial, decision.reason
                    ):
                        self.intend_pause(trial, decision.reason)
                case Resume():
                    for part in self.parts:
                        part.on_resumed(trial)
                    self.paused.resume(trial, decision.reason)
                case Save():
                    trial.owes_save = trial.status is Status.RUNNING
                case Exploit():
                    self._exploit(trial, decision)
                case Resize():
                    self._resize(trial, decision)
                case _:
                    assert_never(decision)

    def _intend(self, trial: Trial, intention: Intention) -> None:
        """Let the trial's next report be answered like this; see `Intention.outweighs`."""
        if trial.status is Status.RUNNING:
            if intention.outweighs(trial.intention):
                was_pausing, trial.intention = trial.is_pausing, intention
                if trial.is_pausing and not was_pausing:
                    trial.waits_for |= WaitsFor.DECISION
        elif intention.reply is ReportReply.STOP and not trial.is_finished:
            self._end(trial, intention.ending, intention.reason)

    def intend_pause(self, trial: Trial, reason: Reason) -> None:
        """Let the trial's next report be answered with a pause, if nothing outweighs it."""
        pause = Intention(ReportReply.PAUSE, TerminationReason.INTERRUPTED, reason)
        self._intend(trial, pause)

    def _exploit(self, trial: Trial, decision: Exploit) -> None:
        donor = self.trial_table.find(decision.donor_id)
        if trial.is_finished or (donor and not self._can_be_saved(donor, decision.reason)):
            return
        can_save_on_demand = self.checkpoints.can_save_on_demand
        if not self.exploits.accept(trial, decision, can_save_on_demand=can_save_on_demand):
            return
        if trial.status is Status.PENDING and trial.attempt:  # decided late, while it is retried
            self.paused.apply_exploit(trial)
        if trial.status is Status.PENDING:  # it has trained nothing yet that could be replaced
            self.exploits.cancel(trial)
        if trial.status is Status.PAUSED:
            self.paused.await_exploit(trial)
        exploit = Intention(ReportReply.EXPLOIT, TerminationReason.INTERRUPTED, decision.reason)
        self._intend(trial, exploit)

    def _resize(self, trial: Trial, decision: Resize) -> None:
        if why := self.trial_table.misfit_of_resize(trial, decision.resources):
            raise InvalidDecision(
                f"Resize must ask for resources that exist, got {dict(decision.resources)} for "
                f"trial {trial.trial_id}: {why}"
            )
        if not self.trial_table.has_node_for(trial, decision.resources):
            return  # it would wait for one; the node that the scheduler had in mind may have left
        if trial.status in (Status.PENDING, Status.PAUSED):
            self.trial_table.resize(trial, decision.resources)
        elif trial.status is Status.RUNNING and self._can_be_saved(trial, decision.reason):
            trial.resize = decision.resources
            self.intend_pause(trial, decision.reason)

    def _can_be_saved(self, trial: Trial, reason: Reason) -> bool:
        """Return whether a trial has a checkpoint or may yet have one.

        Where no trial of the experiment ever will, the experiment is stopped with a fatal error.
        """
        has_saved = trial.source or any(other.next_checkpoint for other in self.trials)
        if self.checkpoints.can_save_on_demand or has_saved:
            return True
        self.fatal_error = CANNOT_PAUSE.message
        numbers = {"trial_id": trial.trial_id, "asked_by": reason.rule}
        self.stop_all(TerminationReason.INTERRUPTED, Reason("cannot_pause", numbers))
        return False

    def stop_all(self, ending: TerminationReason, reason: Reason) -> None:
        """Stop the experiment, unless it is stopping already.

        Args:
            ending: How its trials end.
            reason: Why.
        """
        if self._stopping is None:
            self._stopping = Intention(ReportReply.STOP, ending, reason)
            self.suggestion_budget.suspend()
            if ending is TerminationReason.INTERRUPTED:
                self.parts.interrupt()
            for trial in list(self.trial_table.live.values()):
                self._intend(trial, self._stopping)
                self.timeouts.expect_exit(trial.trial_id, self.now_s)

    # ---------------------------------------------------------------- requests of the user

    def _on_manual_request(self, request: ev.ManualRequest) -> None:
        from .manual_control import carry_out  # noqa: PLC0415  (see `why_rejected`)

        if not self.why_rejected(request):  # else it was possible when made, and came too late
            carry_out(request, self)

    @property
    def typical_demand(self) -> Demand | None:
        """What a trial will ask for that is yet to be suggested or resumed; None if none is."""
        table, is_over = self.trial_table, self.suggestion_budget.is_closed
        wants_none = is_over and not (table.backlog or table.paused or table.held)
        return None if wants_none else self.starter.typical

    # ---------------------------------------------------------------- the end of an attempt

    def end_process(self, trial: Trial) -> None:
        """Let parts free what a trial's worker holds of them, since it is gone or being killed."""
        for part in self.parts:
            part.end_process(ev.LeaseOwner(trial.trial_id, trial.attempt))

    def note_loss(self, trial: Trial, why: str) -> None:
        """Count the loss of a worker, unless its node had announced that it would leave."""
        is_announced = self.trial_table.nodes.has_any_announced_end(trial.nodes)
        if self.settings.max_losses is not None and not is_announced:
            trial.losses += ((trial.attempt, why),)

    def _on_worker_exited(self, event: ev.WorkerExited) -> None:
        trial = self._current(event.trial_id, event.attempt, WorkerMove.EXIT)
        if trial is None:
            return
        if any(part.is_loss_known(trial, event.outcome) for part in self.parts):
            self.end_attempt(trial, ev.Outcome.LOST)
            return
        if event.outcome in (ev.Outcome.FAILED, ev.Outcome.UNSAVED) and not event.failure:
            raise InvalidTransition(
                f"the worker of trial {event.trial_id} failed, but its executor gave no reason"
            )
        if event.outcome is ev.Outcome.LOST:
            # One that finds its checkpoint damaged has not begun; the next begins further back.
            if not event.failure or event.failure.kind != CHECKPOINT_LOST:
                why = event.failure.message if event.failure else ""
                self.note_loss(trial, why or "its worker vanished")
        elif event.failure and exit_move(trial, event.outcome) is not TrialMove.REQUEUE:
            trial.failures.append(event.failure)
        self.end_attempt(trial, event.outcome)

    def end_attempt(self, trial: Trial, outcome: ev.Outcome) -> None:  # noqa: C901, PLR0912  (all ends)
        """Release what the worker held, and do what its exit means for the trial."""
        # Read first: with its worker, the trial loses its intention.
        move, intention = exit_move(trial, outcome), trial.intention
        self.unanswered.drop(trial)
        self.trial_table.release_worker(trial)
        self.timeouts.forget(trial.trial_id)
        self.end_process(trial)
        self.checkpoints.forget_uploads(trial)
        self.out.delete(trial, self.checkpoints.release(trial))
        self.suggestion_budget.on_progress()
        for part in self.parts:
            part.on_attempt_ended(trial)
        has_failed_to_pause = (
            intention is not None
            and intention.reply is ReportReply.PAUSE
            and intention.reason.rule != NODE_DRAINING
            and move in (TrialMove.REQUEUE, TrialMove.FAIL)
        )
        if has_failed_to_pause:
            latest = trial.latest_checkpoint
            if latest is not None and latest.iteration == trial.iteration:
                move = TrialMove.PAUSE  # the latest result is saved, so nothing is lost
            elif self._stopping and outcome is not ev.Outcome.UNSAVED:
                # The worker was killed since the experiment stops. That is no failure of the trial.
                self._end(trial, self._stopping.ending, self._stopping.reason)
                return
            elif intention:
                for part in self.parts:
                    part.on_unpaused(trial, intention)
        match move:
            case TrialMove.PAUSE | TrialMove.REQUEUE if self._is_lost_too_often(trial, intention):
                trial.failures.append(lost_too_often(trial.losses))
                self.give_up(trial)
            case TrialMove.PAUSE if intention and (trial.source or trial.exploit):
                self.paused.pause(trial, intention)
            case TrialMove.PAUSE if intention and intention.reply is ReportReply.EXPLOIT:
                self.trial_table.requeue(trial, TrialMove.REQUEUE)
            case TrialMove.PAUSE if self._stopping:
                self._end(trial, self._stopping.ending, self._stopping.reason)
            case TrialMove.PAUSE:
                trial.failures.append(CANNOT_PAUSE)
                self._retry_or_give_up(trial)
            case TrialMove.END:
                self._end(trial, *exit_termination(intention, outcome))
            case TrialMove.FAIL:
                self._retry_or_give_up(trial, intention)
            case _:
                self.trial_table.requeue(trial, move)

    def _is_lost_too_often(self, trial: Trial, intention: Intention | None) -> bool:
        """Return whether a trial, whose attempt has just ended, is to be given up as lost."""
        if intention is not None and intention.reply is ReportReply.EXPLOIT:
            return False  # it begins anew, with the training of another one
        limit, is_counted = self.settings.max_losses, trial.attempt in dict(trial.losses)
        return limit is not None and is_counted and len(trial.losses) >= limit

    def _retry_or_give_up(self, trial: Trial, intention: Intention | None = None) -> None:
        is_ended_by_user = intention is not None and intention.reason.rule == ev.USER_STOP
        is_excused = self._retries.is_excused(trial)
        if is_ended_by_user or not (is_excused or self._retries.has_retries_left(trial)):
            self.give_up(trial)
            return
        if why_no_retry := "" if is_excused else self._retries.objection(trial):
            self.give_up(trial, why_no_retry)
            return
        if intention is not None and intention.reply is ReportReply.STOP:
            # These were decided for a trial that was going to continue; since then it was stopped.
            self._drop_pending_changes(trial)
        self.trial_table.retry(trial, self.now_s, is_counted=not is_excused)
        self._notify(cmd.AttemptFailed(trial, trial.failures[-1], will_retry=True))

    def give_up(self, trial: Trial, why_no_retry: str = "") -> None:
        """End a trial with the latest of its failures.

        Args:
            trial: The trial.
            why_no_retry: Why it is not tried again, although it has retries left; else empty.
        """
        # The order is that of what observers see: the failure, then what follows for the trials
        # that waited for this one, then the scheduler's decisions.
        self.trial_table.fail(trial)
        is_frequent = self._failure_tally.add(trial)
        self.suggestion_budget.on_progress()
        failure = trial.failures[-1]
        self._notify(cmd.AttemptFailed(trial, failure, will_retry=False, objection=why_no_retry))
        if is_frequent and self.trial_table.live and (reason := self.suspected_failure):
            self._notify(cmd.StartsHeld(trial, reason))
        self._release_dependents(trial)
        self.apply(self.policies.on_trial_error(trial))
        if self.settings.fail_fast and self._stopping is None:
            self.stop_all(TerminationReason.INTERRUPTED, Reason("fail_fast"))
            self._kill_all(f"trial {trial.trial_id} has failed, and fail_fast ends the experiment")

    def _kill_all(self, why: str) -> None:
        """Kill all workers at once: what they report from now on does not count."""
        for trial in self.trial_table.live.values():
            if not any(part.is_being_killed(trial) for part in self.parts):
                move_worker(trial, WorkerMove.KILL)
                self.unanswered.drop(trial)
                self.out.commands.append(cmd.KillWorker(trial.trial_id, trial.attempt, why))

    @property
    def suspected_failure(self) -> Reason | None:
        """Return the cause for which all trials seem to fail; None if there is none."""
        endings = self.trial_table.num_by_ending
        num_successful = (
            endings[TerminationReason.COMPLETED] + endings[TerminationReason.STOPPED_EARLY]
        )
        return self._failure_tally.suspected(num_successful)

    def _end(self, trial: Trial, ending: TerminationReason, reason: Reason | None) -> None:
        if self._stopping and reason == self._stopping.reason and _is_pending(trial, ending):
            self._drop_pending_changes(trial)
            self.trial_table.leave(trial)
            self.suggestion_budget.on_progress()
            self.exploits.supply(trial)  # in this session it saves nothing
            return
        self.trial_table.end(trial, ending, reason)
        is_interrupted = ending is TerminationReason.INTERRUPTED and self._stopping is not None
        # One that is interrupted is not over, so nothing is to be settled first.
        if not is_interrupted and self.parts.holds_end(trial):
            self._release_dependents(trial)
        else:
            self.announce_end(trial)

    def announce_end(self, trial: Trial) -> None:
        """Let everyone know that a trial is over."""
        is_settled = self.parts.on_ended(trial)
        is_completed = is_settled and trial.ending is TerminationReason.COMPLETED
        if is_completed and self.metric_watch.on_completed(trial):
            self._notify(cmd.MetricMissed(trial, self.metric_watch.missing[0]))
        self.suggestion_budget.on_progress()
        self._notify(cmd.TrialEnded(trial))
        if trial.ending is TerminationReason.INTERRUPTED and self._stopping:
            # It is not over: the scheduler sees it again after a restore. In this session it
            # saves nothing more.
            self.exploits.supply(trial)
            return
        self._release_dependents(trial)
        if self.trial_table.is_admitted(trial):  # else the scheduler has never seen it
            flat = flatten(trial.judged) if trial.judged else None
            self.apply(self.policies.on_trial_complete(trial, flat))

    def _release_dependents(self, trial: Trial) -> None:
        """Let a trial that is over wait for no other trial, nor any other for it."""
        self._drop_pending_changes(trial)
        self._continue_unchanged(self.exploits.dismiss_waiting(trial))

    def _drop_pending_changes(self, trial: Trial) -> None:
        """Forget what was decided to happen once the trial's worker has left."""
        self.exploits.cancel(trial)
        trial.resize = None
        trial.waits_for &= ~WaitsFor.DECISION

    def _continue_unchanged(self, trials: Sequence[Trial]) -> None:
        """Continue trials that waited for a checkpoint which will never come."""
        self.needs_scheduling |= bool(trials)
        self.paused.continue_unchanged(trials)

    # ---------------------------------------------------------------- a restart of the driver

    def _on_driver_restarted(self, event: ev.DriverRestarted) -> None:  # noqa: C901
        # Workers of the last driver are lost before the new settings count, so that the attempts
        # end by the rules under which they ran.
        for trial in list(self.trial_table.live.values()):
            self.end_attempt(trial, ev.Outcome.LOST)
        self._begin_session(event.settings, event.declaration)
        self.paused.unhold_all()
        treatments = self.trial_table.treatments_of_never_admitted(
            event.settings.max_trials, event.left_out
        )
        for trial in self.trials:
            treatment = treatments.get(trial) or event.treatment_of(trial)
            if treatment is ev.ResumeType.RESTART:
                self.best.forget(trial)
                self.exploits.release_origin(trial)
                self.exploits.cancel(trial)
                for part in self.parts:
                    part.on_restarted(trial)
            dropped = self.trial_table.readmit(trial, treatment)
            for checkpoint in dropped:
                readers = self.exploits.on_checkpoint_lost(trial, checkpoint.index)
                self._continue_unchanged(readers)
            self.out.delete(trial, dropped)
            if treatment is ev.ResumeType.SKIP and not trial.is_finished:
                self._end(trial, TerminationReason.INTERRUPTED, Reason(ev.SKIPPED))
            if trial.trial_id in event.groups and not trial.is_finished:
                self.trial_table.redeclare(trial, event.groups[trial.trial_id])
            if failure := self.trial_table.misfit_of_admitted(trial):
                trial.failures.append(failure)
                self.give_up(trial)
            if trial.status is Status.PENDING:  # it was interrupted, and starts without a decision
                self.paused.apply_exploit(trial)
                self._drop_pending_changes(trial)
            for part in self.parts:
                part.on_readmitted(trial)

    # ---------------------------------------------------------------- the end of a turn

    def _on_turn_ended(self) -> None:
        """Check the time, answer the workers that wait, and find work for free slots.

        Mostly all that happens is that trials continue. Such turns are marked as no-ops, since
        the journal writes them in a few bytes.
        """
        was_stopping, has_events = self._stopping, self.needs_scheduling
        had_pending_resumes = bool(self.paused.pending)
        num_admitted = len(self.trial_table.admitted)
        # First the time: what it decides is part of the answers that follow.
        self._check_time()
        if self.parts:
            self.parts.claim()
        all_continue = self.unanswered.answer(self.now_s, is_stopping=self._stopping is not None)
        for part in self.parts:
            part.answer()
        if self._stopping:
            self._kill_overdue()  # a worker answered just now may have no time left to leave
            self._end_trials_without_worker(self._stopping)
        elif (
            (self.trial_table.ready.resting and self.trial_table.ready.wake(self.now_s))
            or self.needs_scheduling
            or self.trial_table.paused
        ):
            self.needs_scheduling = False
            self._schedule()
        for part in self.parts:
            part.resolve_deadlock()
        self.out.remarks = list(self.policies.take_remarks())
        for part in self.parts:
            part.on_turn_ended()
            self.out.remarks += part.take_remarks()
        self._is_noop_turn = (
            all_continue
            and self._has_no_effect(has_events=has_events)
            and self._stopping is was_stopping
            and not had_pending_resumes
            # One that cannot start yet has come nearer to its start all the same.
            and len(self.trial_table.admitted) == num_admitted
        )

    # ---------------------------------------------------------------- time and answers

    def _has_no_effect(self, *, has_events: bool) -> bool:
        """Return whether the turn only answers reports and asks the searcher.

        Asking the searcher counts only in a turn that has seen events: in an idle one it may belong
        to what the next record of the journal tells.
        """
        usual = (cmd.AnswerReport, cmd.AskSearcher) if has_events else cmd.AnswerReport
        return all(isinstance(command, usual) for command in self.out.commands) and not (
            self.out.notices or self.policies.given or self.out.remarks or self.is_finished
        )

    def _check_time(self) -> None:
        """Stop the experiment if there is a reason to; kill overdue workers, report silent ones."""
        if not self._stopping and (
            reason := self.policies.reason_to_end(self.now_s, self._own_reason_to_end())
        ):
            if reason.rule == METRIC_NOT_REPORTED:
                self.fatal_error = error_for(reason)
            self.stop_all(termination_reason_for(reason), reason)
        for part in self.parts:
            part.on_time()
        if self.timeouts.may_be_due(self.now_s):
            self._kill_overdue()
            self.out.notices += [
                cmd.TrialSilent(self.trial_table.live[hang.trial_id], hang.silent_s, hang.usual_s)
                for hang in self.timeouts.take_suspected_hangs(self.now_s)
            ]

    def _own_reason_to_end(self) -> Reason | None:
        """Return why continuing makes no sense, whatever scheduler and stop criterion decide."""
        reason = self.metric_watch.reason_to_end if self.metric_watch.missing else None
        for part in self.parts:
            reason = part.reason_to_end(reason)
        if reason:
            return reason
        return None if self.trial_table.live else self.suspected_failure

    def _kill_overdue(self) -> None:
        for overdue in self.timeouts.take_overdue(self.now_s):
            trial = self.trial_table.live[overdue.trial_id]
            move_worker(trial, WorkerMove.KILL)
            self.unanswered.drop(trial)
            self.out.commands.append(
                cmd.KillWorker(
                    trial.trial_id,
                    trial.attempt,
                    overdue.reason,
                    overdue.term_grace_s,
                    overdue.is_silent,
                )
            )

    def _end_trials_without_worker(self, stopping: Intention) -> None:
        """End trials that have no worker, since the experiment stops.

        An interruption leaves paused trials as they are. Trials that were never admitted are
        interrupted whatever ends the others: a later session has them to try, as it would have
        those that have not been suggested.
        """
        table = self.trial_table
        waiting = [*table.ready, *table.held.values(), *table.paused.values()]
        is_interrupted = stopping.ending is TerminationReason.INTERRUPTED
        for trial in [*waiting, *table.backlog.values()]:
            if not table.is_admitted(trial):
                self._end(trial, TerminationReason.INTERRUPTED, stopping.reason)
            elif not (is_interrupted and trial.status is Status.PAUSED):
                self._intend(trial, stopping)

    def _schedule(self) -> None:
        """Fill free slots with ready trials, then paused ones, the backlog, and suggestions."""
        self.paused.resume_pending()
        if not (self.trial_table.live and self.suspected_failure):
            self.starter.start_ready(self.now_s)
            self._offer_slots_to_paused()
            self._admit_backlog()
            self.starter.ask_searcher()
        self.parts.on_scheduled()
        self._end_if_stalled()
        # What waited for another trial until now may be ready, and no node have what it asks for.
        if self.needs_scheduling:
            self.parts.on_scheduled()

    def _offer_slots_to_paused(self) -> None:
        """Let the scheduler resume paused trials, as long as it uses free slots for them."""
        table = self.trial_table
        while table.paused and not table.ready:
            # Listing the paused trials is left to the turns in which there is room for one.
            num_free = self.starter.num_free
            if num_free <= 0 or not (idle := table.idle):
                break
            # A scheduler that leaves all trials paused is not asked again in this turn.
            num_before = len(table.paused)
            self.apply(self.policies.on_idle(tuple(idle), num_free))
            self.paused.resume_pending()
            self.starter.start_ready(self.now_s)
            if len(table.paused) == num_before:
                break

    def _admit_backlog(self) -> None:
        """Give free slots to the trials that were suggested first."""
        if not self.trial_table.backlog:
            return
        num_admitted = max(self.starter.num_vacant, 0)
        for trial in list(islice(self.trial_table.backlog.values(), num_admitted)):
            self._admit(trial, trial.failures.pop() if trial.failures else None)
            if self._stopping:
                self._end_trials_without_worker(self._stopping)
                return
        self.starter.start_ready(self.now_s)
        # Some may have failed at once. The next turn checks whether that ends the experiment before
        # it admits others.
        self.needs_scheduling |= bool(self.trial_table.backlog) and self.starter.num_vacant > 0

    def _end_if_stalled(self) -> None:
        """Where nothing can happen any more, end what is left, so that no experiment hangs."""
        if self._can_progress():
            return
        if self.trial_table.paused:
            self._continue_unchanged(self.exploits.dismiss_all_waiting())
            self.paused.resume_pending()
            self.starter.start_ready(self.now_s)
            for trial in list(self.trial_table.paused.values()):
                if self._can_progress():
                    return
                idle = Intention(ReportReply.STOP, TerminationReason.STOPPED_EARLY, Reason("idle"))
                self._intend(trial, idle)
                self.starter.start_ready(self.now_s)
            self.starter.ask_searcher()
        if not (self._can_progress() or self.suggestion_budget.is_over):
            self.suggestion_budget.suspend()
            self.stall_reason = (
                "the searcher postponed its next suggestion although no trial is left to report"
            )

    def _can_progress(self) -> bool:
        table = self.trial_table
        return bool(
            table.live
            or table.ready
            or table.backlog
            or table.held
            or self.suggestion_budget.num_outstanding
            or any(part.is_stuck or not part.is_over for part in self.parts)
        )

    # ---------------------------------------------------------------- snapshots

    def state_dict(self) -> dict[str, Any]:
        """Return the state after a turn as JSON values, without trials, scheduler and stopper."""
        self.unanswered.check_held()
        fields = {
            "settings": self.settings.as_fields(),
            "roster": self.trial_table.state_dict(),
            "metric_watch": self.metric_watch.state_dict(),
            "failure_tally": self._failure_tally.state_dict(),
            "desk": self.suggestion_budget.state_dict(),
            "patience": self.timeouts.state_dict(),
            **self.starter.state_dict(),
            "stopping": encode(self._stopping) if self._stopping else None,
            "is_unsettled": self.needs_scheduling,
            "stall": self.stall_reason,
            "misuse": self.fatal_error,
        }
        self.parts.add_state(fields)
        return fields

    def load_state_dict(self, state: Mapping[str, Any], trials: Iterable[Trial]) -> None:
        """Restore all trials, in order, and what `state_dict` returned, in a new experiment."""
        self._begin_session(ExperimentSettings.from_fields(state["settings"]))
        self.trial_table.load_state_dict(state["roster"], trials)
        self.exploits.load(self.trials)
        self.paused.load()
        self.best.load(self.trials)
        self._watch_session(self.settings)  # by the trials that are there now
        self._failure_tally.load_state_dict(state["failure_tally"])
        self.metric_watch.load_state_dict(state["metric_watch"], self.trial_table.__getitem__)
        self.suggestion_budget.load_state_dict(state["desk"])
        self.timeouts.load_state_dict(state["patience"])
        self.starter.load_state_dict(state)
        self._stopping = decode(Intention, state["stopping"]) if state["stopping"] else None
        self.needs_scheduling = state["is_unsettled"]
        self.stall_reason = state["stall"]
        self.fatal_error = state["misuse"]
        self.parts.load_state(state)


def _is_pending(trial: Trial, ending: TerminationReason) -> bool:
    """Return whether a trial that is to end with the experiment is left for the next session.

    Without a result there is nothing to show of it. One that never started is left even where
    others end for good.
    """
    may_run_later = ending is TerminationReason.INTERRUPTED or not trial.attempt
    is_new = not trial.last_result and trial.status in (Status.PENDING, Status.RUNNING)
    return may_run_later and is_new
