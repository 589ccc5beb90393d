"""Validations in the life of an experiment: what its trials and its end wait for.

`validation_queue` runs them, and `late_results` passes on what they find out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from schedulers.decisions import Reason
from tuner.core.events import (
    CheckpointsRequested,
    LeaseOwner,
    Outcome,
    ResultReported,
    ValidationEnded,
)
from tuner.core.part import Part
from tuner.core.resources import Demand
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import TRAINABLE_DONE, USER_PAUSE, Intention, Status, TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord, Failure

from .late_results import LateResults
from .queue import ValidationQueue
from .records import ValidationState
from .requests import CheckpointRequests

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment

_INTERRUPTED = "the experiment was interrupted; the checkpoint is validated when it is restored"


@final
class Validations(Part):
    """The validations of an experiment, and who waits for them.

    Args:
        core: The state machine.

    Attributes:
        queue: The open validations.
    """

    def __init__(self, core: Experiment) -> None:
        super().__init__(core)
        self.queue = ValidationQueue(core.trial_table)
        self._late_results = LateResults(core, self.queue)
        self._requests = CheckpointRequests(core.trial_table, self.queue, core.out)
        self._unannounced: dict[str, Trial] = {}
        """Trials that are TERMINATED, and of which a validation is open."""

    # ---------------------------------------------------------------- sessions

    def end_processes(self) -> None:
        """Queue again what ran."""
        self.queue.end_processes()
        self._requests.clear()

    def begin_session(self, settings: ExperimentSettings) -> None:
        """Apply the policy, and give up what asks for more than there is."""
        self.queue.begin_session(settings.validation, settings.max_validation_losses)

    def interrupt(self) -> None:
        """Start none any more, and kill those that run."""
        self._core.out.commands += self.queue.interrupt(_INTERRUPTED)

    def add_state(self, fields: dict[str, Any]) -> None:
        """Add what is open, and who waits for it."""
        if self.queue.num_open or self.queue.is_interrupted or self._requests:
            fields["validations"] = {
                "queue": self.queue.state_dict(),
                "unannounced": list(self._unannounced),
                "held": self._core.unanswered.state_dict(),
                "checkpoint_requests": self._requests.state_dict(),
            }

    def load_state(self, fields: Mapping[str, Any]) -> None:
        """Restore what is open, and who waits for it."""
        state, table = fields["validations"], self._core.trial_table
        self.queue.load_state_dict(state["queue"])
        self._unannounced = {trial_id: table[trial_id] for trial_id in state["unannounced"]}
        self._core.unanswered.load_state_dict(state["held"])
        self._requests.load_state_dict(state["checkpoint_requests"])

    def check(self) -> None:
        """Assert every invariant."""
        self.queue.check()
        assert all(
            trial.status is Status.TERMINATED and trial.has_open_validation
            for trial in self._unannounced.values()
        ), "the end of a trial is announced late for no reason"

    # ---------------------------------------------------------------- events and turns

    def handle(self, event: ValidationEnded | CheckpointsRequested) -> None:
        """Take the end of a validation, or queue a request until the turn ends."""
        if isinstance(event, CheckpointsRequested):
            self._requests.add(event)
            return
        for part in self._core.parts:
            part.end_process(LeaseOwner(event.trial_id, event.num_try, event.index))
        if validated := self.queue.on_ended(event):
            self._pass_on(validated)

    @property
    def is_over(self) -> bool:
        """Whether no outcome will come in this session."""
        return self.queue.is_over

    @property
    def next_s(self) -> float | None:
        """When the next one has taken too long; None for never."""
        return self.queue.next_s

    def claim(self) -> None:
        """Kill those that have taken too long, and start those for which there is room."""
        now_s, out = self._core.now_s, self._core.out
        out.commands += self.queue.kill_overdue(now_s)
        out.commands += self.queue.start(now_s)

    def answer(self) -> None:
        """Answer the requests for checkpoints that need not wait."""
        self._requests.answer()

    @property
    def shortage(self) -> str:
        """Why no node that is present could run what waits to be started."""
        return self.queue.shortage

    def give_up_waiting(self, why: str) -> None:
        """Fail what waits to be started, for lack of a node."""
        for trial in self.queue.give_up_waiting(why):
            self._pass_on(trial)

    def demand(self, limit: int) -> tuple[Demand, int]:
        """Return what a validation asks for, and how many would be started."""
        return Demand(self.queue.policy.resources), self.queue.num_startable(limit)

    def reason_to_end(self, own: Reason | None) -> Reason | None:
        """Return that no validation supplies the metric, or that none could and it is missing."""
        if own and not self.queue.num_open:  # one of which may supply the metric
            return own
        return self._core.metric_watch.reason_of_validations(
            self._core.trial_table.trials, is_over=self._core.is_finished
        )

    @property
    def progress(self) -> Mapping[str, Any]:
        """How many are validated, and how many wait."""
        return {
            "num_validating": self.queue.num_running,
            "num_to_validate": self.queue.num_waiting,
        }

    # ---------------------------------------------------------------- processes

    @property
    def processes(self) -> Sequence[LeaseOwner]:
        """The processes that validate."""
        table = self._core.trial_table
        return [
            LeaseOwner(trial_id, table[trial_id].validations[index].num_try, index)
            for trial_id, index in self.queue.running
        ]

    @property
    def unbooked(self) -> Mapping[str, float]:
        """The CPUs of those that run although trials hold all there are."""
        return self.queue.resources_apart

    @property
    def blocked(self) -> set[LeaseOwner]:
        """The workers that wait for nothing but validations."""
        return self._requests.blocked_by_validations

    def suspend_time_limit(self, owner: LeaseOwner) -> None:
        if owner.index is not None:
            self.queue.suspend_time_limit(owner.trial_id, owner.index, self._core.now_s)

    def resume_time_limit(self, owner: LeaseOwner) -> None:
        if owner.index is not None:
            self.queue.resume_time_limit(owner.trial_id, owner.index, self._core.now_s)

    def on_node_lost(self, name: str, failure: Failure) -> None:
        """End the validations on a node that is gone."""
        for trial_id, index in self.queue.on_node(name):
            num_try = self._core.trial_table[trial_id].validations[index].num_try
            self.handle(ValidationEnded(trial_id, index, num_try, Outcome.LOST, failure=failure))

    # ---------------------------------------------------------------- trials

    def on_result(self, trial: Trial, event: ResultReported, flat: Mapping[str, Any]) -> bool:
        """Note what is needed of a result once its checkpoint is stored and validated."""
        self._late_results.note_reported(trial, event, flat)
        return bool(event.validation or trial.open_validations)

    def may_be_judged(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Carry out a pause that was decided late, or else judge what was held back for it.

        A trial that the scheduler has leave on a late result would not have reported this one.
        """
        known = trial.validation_part
        if known is None:
            return True
        if known.late_pause:
            late_pause, known.late_pause = known.late_pause, None
            self._core.intend_pause(trial, late_pause)
        elif known.dismissed_row is not None and trial.intention is None:
            self._late_results.judge_held_back(trial, known)
        return known.dismissed_row is None or not self._late_results.lacks_metric(trial, flat)

    def holds_report(self, trial: Trial) -> bool:
        """Return whether fewer validations of the trial have to be open first."""
        stuck = [owner for part in self._core.parts for owner in part.stuck]
        return self.queue.is_holding(trial, sum(owner.index is not None for owner in stuck))

    def before_checkpoint(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        """Queue the validation that was asked for, so that retention keeps the checkpoint.

        Later ones may have been stored before it.
        """
        self._late_results.request_validation(trial, checkpoint)

    def on_checkpoint(self, trial: Trial, recorded: CheckpointRecord) -> None:
        """Validate the checkpoint as it has been recorded."""
        if validation := trial.open_validations.get(recorded.index):
            validation.checkpoint = recorded
            self._pass_on(trial)

    def on_checkpoint_lost(self, trial: Trial, index: int, why: str) -> None:
        """Give up the validation of a checkpoint that is damaged or gone."""
        if trial.validation_part:
            trial.validation_part.validation_requests.pop(index, None)
        self._core.out.commands += self.queue.on_checkpoint_lost(trial, index, why)
        self._pass_on(trial)

    def on_attempt_ended(self, trial: Trial) -> None:
        """Forget the requests for checkpoints that were not stored."""
        if trial.validation_part:
            trial.validation_part.drop_unstored(trial.checkpoints)

    def on_unpaused(self, trial: Trial, intention: Intention) -> None:
        """Repeat a pause that was decided on a late result: no report repeats the question."""
        known = trial.validation_part
        if known and known.dismissed_row is not None and intention.reason.rule != USER_PAUSE:
            known.late_pause = intention.reason

    def on_resumed(self, trial: Trial) -> None:
        """Forget a pause that was decided late."""
        if trial.validation_part:
            trial.validation_part.late_pause = None

    def holds_end(self, trial: Trial) -> bool:
        """Hold back the end of a trial until the last of its validations has ended."""
        if trial.open_validations:
            self._unannounced[trial.trial_id] = trial
        return bool(trial.open_validations)

    def on_ended(self, trial: Trial) -> bool:
        """Judge what was held back of a trial that was done, and forget it of another one."""
        known = trial.validation_part
        if known is None:
            return True
        if trial.reason is None or trial.reason.rule == TRAINABLE_DONE:
            self._late_results.judge_held_back(trial, known)
        elif trial.ending is not TerminationReason.INTERRUPTED:
            known.unjudged.clear()
        # A validation that has failed might have supplied the metric.
        states = {validation.state for validation in known.validations.values()}
        if (
            trial.ending is TerminationReason.COMPLETED
            and states
            and (ValidationState.VALIDATED not in states)
        ):
            self._core.metric_watch.on_unvalidated(trial)
        return states <= {ValidationState.VALIDATED}

    def on_restarted(self, trial: Trial) -> None:
        """Forget the trial's validations."""
        self.queue.drop(trial)

    def on_readmitted(self, trial: Trial) -> None:
        """Pass on what has ended of a trial, whose end is not to be announced if it goes on."""
        if trial.status is not Status.TERMINATED:
            self._unannounced.pop(trial.trial_id, None)
        self._pass_on(trial)

    def _pass_on(self, trial: Trial) -> None:
        """Pass on the outcomes that are due, and then the end of a trial that has waited for it."""
        if not trial.open_validations:
            return
        self._late_results.pass_on_ended(trial)
        if not trial.open_validations and trial.trial_id in self._unannounced:
            del self._unannounced[trial.trial_id]
            self._core.announce_end(trial)
