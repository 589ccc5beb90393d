"""Late results: those whose metrics a validation completes after they were reported.

The metrics of a validation are attached to the result of its checkpoint: in the trial's summary, in
the ranking of trials, and in the checkpoint's score. If the result lacked the metric by which
scheduler and searcher decide, the scheduler judges it now, although the trial has trained on.
Results of a trial are judged in their order. Once the scheduler has decided that a trial leaves,
later results are held back until it is known whether the trial goes on: had the metric come with
the report, they would not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from schedulers.decisions import Decision, Exploit, Pause, Resize, Stop
from tuner.core.commands import CheckpointValidated, KeysReplaced
from tuner.core.events import ResultReported
from tuner.core.result import AUTO_FILLED, CONFIG, flatten, is_same_report, merged
from tuner.core.trial import Status, Trial
from tuner.core.worker_records import CheckpointRecord, ReportReply

from .queue import ValidationQueue
from .records import TrialValidations, Validation, ValidationState, validations_of

if TYPE_CHECKING:
    from tuner.core.experiment import Experiment


@final
class LateResults:
    """Corrects results by what validations return, and has them judged.

    Args:
        core: The state machine.
        validations: The validations.
    """

    def __init__(self, core: Experiment, validations: ValidationQueue) -> None:
        self._core = core
        self._validations = validations

    def lacks_metric(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Return whether a result lacks a metric by which scheduler and searcher decide.

        What a constraint bounds may have been reported once before, as a size is.
        """
        settings = self._core.settings
        return any(metric not in flat for metric in settings.objective_metrics) or any(
            each.metric not in flat and each.metric not in trial.summary
            for each in settings.constraints
        )

    def note_reported(self, trial: Trial, event: ResultReported, flat: Mapping[str, Any]) -> None:
        """Note what is needed of a result once its checkpoint is stored and validated."""
        known = trial.validation_part
        if known and known.judged_index is not None and not self.lacks_metric(trial, flat):
            known.judged_index = known.judged_result = None
            self._core.out.delete(trial, self._core.checkpoints.drop_superseded(trial))
        index = event.checkpoint.index if event.checkpoint else event.upload
        if index is None:
            return
        if event.validation or trial.group or self._core.settings.validation:
            validations_of(trial).checkpoint_results[index] = event.metrics
        if event.validation:
            validations_of(trial).validation_requests[index] = event.validation

    def request_validation(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        """Queue the validation of a checkpoint that has been stored, if one was asked for."""
        known = trial.validation_part
        request = known.validation_requests.pop(checkpoint.index, None) if known else None
        if known is None or request is None:
            return
        result = known.checkpoint_results[checkpoint.index]
        if known.judged_index is None and self.lacks_metric(trial, flatten(result)):
            # Until the next one is validated, schedulers see the one that is the latest now.
            latest = trial.latest_checkpoint
            known.judged_index = latest.index if latest else -1
        self._validations.add(trial, Validation(checkpoint, request, result=result, is_open=True))

    def pass_on_ended(self, trial: Trial) -> None:
        """Pass on the outcomes of a trial's validations that are due."""
        for validation in self._validations.take_ended(trial):
            self._pass_on(trial, validation)

    def judge_held_back(self, trial: Trial, known: TrialValidations) -> None:
        """Let the scheduler judge what was held back, since the trial continues or was done."""
        known.dismissed_row = None
        held_back, known.unjudged = known.unjudged, {}
        for index, result in held_back.items():
            record = known.validations[index].checkpoint
            if _is_given_up(trial, record):
                continue
            if known.dismissed_row is None:
                self._judge(trial, index, record.num_rows or 0, flatten(result))
            else:
                known.unjudged[index] = result

    def _pass_on(self, trial: Trial, validation: Validation) -> None:
        """Correct a result by the outcome of a validation, and tell who decides by it."""
        known, metrics = validations_of(trial), validation.metrics or {}
        reported, result = flatten(validation.result), merged(validation.result, metrics)
        flat = flatten(result)
        checkpoint = self._core.checkpoints.rescore(trial, validation.checkpoint, flat)
        added = flat.keys() - reported.keys()
        watched = self._core.settings.watched_metrics
        is_decisive = bool(added.intersection(watched) if watched else added)
        is_judged = not _is_given_up(trial, checkpoint)
        row = checkpoint.num_rows or 0
        if metrics:
            self._correct(trial, checkpoint, validation, result)
        if is_decisive and is_judged and known.judged_index is not None:
            known.judged_result = result
        full = {**result, CONFIG: trial.config_at(row)}
        self._core.out.notices.append(
            CheckpointValidated(
                trial,
                checkpoint,
                validation.status,
                metrics,
                full,
                flat,
                is_decisive and is_judged,
                None if validation.state is ValidationState.VALIDATED else validation.failure,
            )
        )
        if names := tuple(sorted(AUTO_FILLED & metrics.keys())):
            self._core.out.notices.append(KeysReplaced(trial, names))
        validation.result = {}
        self._core.suggestion_budget.on_progress()
        if added and is_judged:
            self._apply(self._core.policies.on_trial_validated(trial, full, added))
        if is_decisive and is_judged:
            if known.dismissed_row is not None and row > known.dismissed_row:
                known.unjudged[checkpoint.index] = result
            else:
                self._judge(trial, checkpoint.index, row, flat)
        self._core.out.delete(trial, self._core.checkpoints.drop_superseded(trial))

    def _correct(
        self,
        trial: Trial,
        checkpoint: CheckpointRecord,
        validation: Validation,
        result: Mapping[str, Any],
    ) -> None:
        """Correct all that was derived from a result when it was reported."""
        flat = flatten(result)
        self._core.metric_watch.on_result(flat, 0)
        trial.correct_summary(flatten(validation.result), flat)
        self._core.best.correct(trial, flat, checkpoint.num_rows or 0, checkpoint.index)
        results = validations_of(trial).checkpoint_results
        if checkpoint.index in results:
            results[checkpoint.index] = result
        if is_same_report(trial.last_result, result):
            trial.last_result = merged(trial.last_result, validation.metrics or {})

    def _judge(self, trial: Trial, index: int, row: int, flat: Mapping[str, Any]) -> None:
        """Let the scheduler judge a result by the metric that the validation has supplied.

        Had it known that when the trial reported, a trial that it has leave would not have reported
        again. So later results are held back until the trial continues.
        """
        known = validations_of(trial)
        if known.judged_index is not None:
            known.judged_index = index
        decisions = self._core.policies.on_late_result(trial, flat)
        self._apply(decisions)
        if any(
            isinstance(decision, (Stop, Pause, Exploit, Resize))
            and decision.trial_id == trial.trial_id
            for decision in decisions
        ):
            known.dismissed_row = row

    def _apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out decisions; a pause of a trial that has lost its worker comes with its next."""
        for decision in decisions:
            trial = self._core.trial_table.find(decision.trial_id)
            has_worker = trial is not None and trial.status is Status.RUNNING
            self._core.apply([decision])
            if (
                isinstance(decision, Pause)
                and trial
                and trial.attempt
                and not (has_worker or trial.is_finished)
            ):
                validations_of(trial).late_pause = decision.reason


def _is_given_up(trial: Trial, checkpoint: CheckpointRecord) -> bool:
    """Return whether the training that led to a checkpoint no longer counts for decisions.

    The trial has failed for good, or has exploited another one since, or is about to.
    """
    is_exploiting = trial.exploit is not None or (
        trial.intention is not None and trial.intention.reply is ReportReply.EXPLOIT
    )
    is_replaced = bool(trial.grafts) and checkpoint.index < trial.grafts[-1].first_checkpoint
    return trial.status is Status.ERROR or is_exploiting or is_replaced
