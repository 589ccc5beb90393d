"""Dispatches the experiment's notices to searcher and callbacks, in the order of Ray Tune."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import (
    AttemptFailed,
    CheckpointIgnored,
    CheckpointMissed,
    CheckpointRecorded,
    CheckpointValidated,
    ExploitApplied,
    KeysReplaced,
    MetricMissed,
    Notice,
    ResultRecorded,
    StartsHeld,
    TrialAdded,
    TrialEnded,
    TrialPaused,
    TrialSilent,
    TrialStarted,
)
from tuner.core.failure_causes import possible_common_failure
from tuner.core.metric_watch import own_keys, warning_for
from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION, flatten
from tuner.core.stoppers import warning_of_direction
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import CheckpointRecord
from tuner.execution.group_trainable import GroupTrainable
from tuner.execution.trainable import trainable_name, why_unsavable
from tuner.storage.checkpoints import Checkpoint, locate
from tuner.storage.layout import trial_directory, trial_path

from .suggestion_queue import SuggestionQueue

_ENOUGH_RESULTS = 10
"""After so many results, a metric that no trial has reported is presumably misspelt."""

_log = logging.getLogger("tuner")


class EventDispatch:
    """Passes notices to callbacks at once, in their order; the searcher gets them after the turn.

    Args:
        suggestions: Passes notices on to the searcher.
        callbacks: The user's callbacks and the loggers.
        trials: The live list of all trials, passed to every hook.
        experiment_path: The experiment's directory, in which trials have theirs.
        metric: The metric to optimise, by its flattened name.
        score_attribute: The metric by which checkpoints are ranked; one without it is warned of
            once.
        trainable: The trainable, named in log files and warnings; None where curves replace it.
        has_scheduler: Whether trials are stopped or paused before their end.
        print_notice: Shows the user a sentence on the console; None for no console.
    """

    def __init__(
        self,
        suggestions: SuggestionQueue,
        callbacks: CallbackList,
        trials: Sequence[Trial],
        experiment_path: Path,
        metric: str | None,
        *,
        score_attribute: str | None = None,
        trainable: Any = None,
        has_scheduler: bool = True,
        print_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._suggestions = suggestions
        self._callbacks = callbacks
        self._trials = trials
        self._experiment_path = experiment_path
        self._metric = metric
        self._score_attribute = score_attribute
        self._why_unsavable = "" if trainable is None else why_unsavable(trainable)
        self._trainable_name = "" if trainable is None else trainable_name(trainable)
        for trial in trials:  # of earlier sessions
            trial.trainable_name = self._trainable_name
        self._warned_of: set[tuple[str, str]] = set()
        """See `_warn_once`."""
        self._thresholds: Mapping[str, Any] = {}
        """The flattened thresholds of the stop criterion, where the metric is minimised."""
        self._print_notice = print_notice
        self._missing_metrics: set[str] = set()
        """Metrics of the stop criterion that no trial has reported yet."""
        self._loads_by = "tuner.train" if isinstance(trainable, GroupTrainable) else "tune"
        """The module whose ``get_checkpoint`` the training code calls."""
        self._has_scheduler = has_scheduler
        self.turn = 0

    def begin_experiment(self, **info: Any) -> None:
        """Call `Callback.setup`."""
        stop = info.get("stop")
        self._missing_metrics = set(flatten(stop)) if isinstance(stop, Mapping) else set()
        self._thresholds = (
            flatten(stop) if isinstance(stop, Mapping) and info.get("mode") == "min" else {}
        )
        self._callbacks.call(
            "setup", experiment_path=self._experiment_path, metric=self._metric, **info
        )

    def begin_turn(self) -> None:
        """Call `Callback.on_step_begin`."""
        self.turn += 1
        if self._callbacks.has("on_step_begin"):
            self._callbacks.call("on_step_begin", iteration=self.turn, trials=self._trials)

    def end_turn(self) -> None:
        """Call `Callback.on_step_end`."""
        if self._callbacks.has("on_step_end"):
            self._callbacks.call("on_step_end", iteration=self.turn, trials=self._trials)

    def end_experiment(self) -> None:
        """Call `Callback.on_experiment_end`."""
        self._callbacks.call("on_experiment_end", trials=self._trials)

    def remark(self, text: str) -> None:
        """Log a remark of the scheduler, and show it on the console."""
        _log.info("%s", text)
        if self._print_notice:
            self._print_notice(text)

    def notify(self, notice: Notice) -> bool:
        """Dispatch a notice; return whether a callback asks for a checkpoint of the trial."""
        if isinstance(notice, TrialAdded):
            locate(
                notice.trial,
                trial_path(self._experiment_path, notice.trial.trial_id),
                self._trainable_name,
            )
        self._suggestions.notify(notice)
        info: dict[str, Any] = {
            "iteration": self.turn,
            "trials": self._trials,
            "trial": notice.trial,
        }
        if isinstance(notice, ResultRecorded):
            if self._missing_metrics:
                self._check_missing_metrics(notice)
            if notice.rank_metrics:
                info["rank_metrics"] = notice.rank_metrics
            asker = self._callbacks.on_trial_result(notice.result, **info)
            if asker and self._why_unsavable:
                self._warn_of_refused_checkpoint(asker)
                return False
            return bool(asker)
        self._call_callbacks(notice, info)
        return False

    def _call_callbacks(  # noqa: C901, PLR0912  (one case for each notice)
        self, notice: Notice, info: Mapping[str, Any]
    ) -> None:
        call = self._callbacks.call
        match notice:
            case TrialStarted(trial):
                call("on_trial_start", **info)
                if trial.source:
                    call("on_trial_restore", **info)
            case CheckpointRecorded(trial, checkpoint):
                if checkpoint.index not in trial.open_validations:
                    self._check_score(trial, checkpoint)
                self._call_on_checkpoint(checkpoint, info)
                call("on_trial_save", **info)
            case CheckpointMissed(trial, failure):
                _log.warning(
                    "trial %s continues without a checkpoint that could not be saved: %s",
                    trial.trial_id,
                    failure,
                )
            case KeysReplaced(trial, names):
                self._warn_of_replaced(trial, names)
            case CheckpointIgnored(trial, path):
                self._warn_of_ignored(trial, path)
            case MetricMissed(trial, metric, value):
                _log.warning("%s", warning_for(metric, trial, value))
            case StartsHeld(_, reason):
                _log.warning("%s", possible_common_failure(reason))
            case TrialSilent():
                _warn_of_silence(notice)
            case AttemptFailed(_, _, True):
                call("on_trial_recover", **info)
            case AttemptFailed(trial, failure, _, objection):
                call("on_trial_error", **info)
                if objection:
                    text = "trial %s is not retried: %s"
                    self._warn_once(text, trial.trial_id, objection, about=failure.kind)
            case TrialEnded(trial):
                self._check_direction(trial)
                if self._missing_metrics and trial.ending is TerminationReason.COMPLETED:
                    self._warn_of_missing_metrics(trial)
                call("on_trial_complete", **info)
            case ExploitApplied(trial, graft):
                call("on_trial_exploit", graft=graft, **info)
            case CheckpointValidated():
                self._on_validated(notice, info)
            case TrialAdded() | TrialPaused() | ResultRecorded():
                pass
            case _:
                assert_never(notice)

    def _call_on_checkpoint(self, checkpoint: CheckpointRecord, info: Mapping[str, Any]) -> None:
        if self._callbacks.has("on_checkpoint"):
            handle = self._handle_of(info["trial"], checkpoint)
            self._callbacks.call("on_checkpoint", checkpoint=handle, **info)

    def _handle_of(self, trial: Trial, checkpoint: CheckpointRecord) -> Checkpoint:
        directory = trial_directory(self._experiment_path, trial.trial_id)
        return Checkpoint(directory / checkpoint.directory)

    def _on_validated(self, notice: CheckpointValidated, info: Mapping[str, Any]) -> None:
        trial, checkpoint = notice.trial, notice.checkpoint
        self._missing_metrics.difference_update(notice.flat)
        if notice.failure is None:
            self._check_score(trial, checkpoint)
            self._warn_of_overruled_metric(notice)
        else:
            _log.warning(
                "the validation of %s of trial %s %s, and its reported metrics stay: %s",
                checkpoint.directory,
                trial.trial_id,
                "took too long" if notice.status.endswith("TIMEOUT") else "failed",
                notice.failure,
            )
        if self._callbacks.has("on_checkpoint_validated"):
            self._callbacks.call(
                "on_checkpoint_validated",
                checkpoint=self._handle_of(trial, checkpoint),
                status=notice.status,
                metrics=notice.metrics,
                result=notice.result,
                failure=notice.failure,
                **info,
            )

    def _warn_of_overruled_metric(self, notice: CheckpointValidated) -> None:
        """Warn once that decisions were made by a value that a validation has changed since."""
        was_reported = not notice.is_delivered and notice.trial.judged_index is None
        if not was_reported or self._metric not in flatten(notice.metrics):
            return
        self._warn_once(
            "the validation of %s of trial %s returned %r, which the trial had reported itself: "
            "the value is corrected in the results, but scheduler and searcher have decided by the "
            "reported one; leave %r out of the report to have them wait for the validation",
            notice.checkpoint.directory,
            notice.trial.trial_id,
            self._metric,
            self._metric,
        )

    def _warn_once(self, text: str, *arguments: object, about: str = "") -> None:
        """Log a warning, unless one with this text has been logged about the same thing."""
        if self._is_first(text, about):
            _log.warning(text, *arguments)

    def _is_first(self, text: str, about: str) -> bool:
        is_first = (text, about) not in self._warned_of
        self._warned_of.add((text, about))
        return is_first

    def _check_missing_metrics(self, notice: ResultRecorded) -> None:
        self._missing_metrics.difference_update(notice.flat)
        if notice.trial.open_validations:
            return  # which may supply them
        if self._missing_metrics and notice.trial.num_rows >= _ENOUGH_RESULTS:
            self._warn_of_missing_metrics(notice.trial)

    def _warn_of_missing_metrics(self, trial: Trial) -> None:
        _log.warning(
            "trial %s has never reported %s, and so cannot meet this criterion; it has "
            "reported: %s",
            trial.trial_id,
            ", ".join(f"stop[{name!r}]" for name in sorted(self._missing_metrics)),
            ", ".join(sorted({*own_keys(trial), TRAINING_ITERATION, TIME_TOTAL_S}))
            if trial.last_result
            else "nothing",
        )
        self._missing_metrics.clear()

    def _warn_of_refused_checkpoint(self, asker: str) -> None:
        self._warn_once(
            "callback %s sets should_checkpoint in on_trial_result, which has no effect: %s",
            asker,
            self._why_unsavable,
            about=asker,
        )

    def _warn_of_replaced(self, trial: Trial, names: Iterable[str]) -> None:
        news = [name for name in names if self._is_first("replaced", name)]
        if TRAINING_ITERATION in news:
            _log.warning(
                "trial %s has reported a training_iteration that is not a whole number above "
                "the one before; such results are numbered by "
                "the engine, one above the one before; report your own count under another "
                "name to keep it",
                trial.trial_id,
            )
        if others := [name for name in news if name != TRAINING_ITERATION]:
            _log.warning(
                "trial %s has reported %s, which the engine fills in, and the reported values "
                "are dropped; report them under other names, "
                "e.g. %r, to keep them",
                trial.trial_id,
                ", ".join(map(repr, others)),
                f"my_{others[0].rpartition('/')[-1]}",
            )

    def _warn_of_ignored(self, trial: Trial, path: str) -> None:
        self._warn_once(
            "%s has not asked for the checkpoint from which trial %s continues, %s, before its "
            "first report; unless it loads it in another way, it trains from the beginning, and "
            "training_iteration, by which schedulers decide, counts what was not trained; "
            "write at its beginning:\n"
            "    checkpoint = %s.get_checkpoint()\n"
            "    if checkpoint:\n"
            "        with checkpoint.as_directory() as directory:\n"
            "            ...  # load what was saved there, and the epoch to go on with%s",
            self._trainable_name,
            trial.trial_id,
            path,
            self._loads_by,
            "\nor use a scheduler that pauses no trials, such as ASHAScheduler(type='stopping')"
            if self._has_scheduler
            else "",
        )

    def _check_direction(self, trial: Trial) -> None:
        if (
            self._metric
            and self._thresholds
            and (warning := warning_of_direction(trial, self._metric, self._thresholds))
        ):
            self._warn_once("%s", warning)

    def _check_score(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        if self._score_attribute is None or checkpoint.score is not None:
            return
        self._warn_once(
            "%s of trial %s has no number %r, by which checkpoints are ranked, and ranks "
            "lowest; the trial has reported: %s",
            checkpoint.directory,
            trial.trial_id,
            self._score_attribute,
            ", ".join(sorted(trial.summary)) or "none",
        )


def _warn_of_silence(notice: TrialSilent) -> None:
    usual = (
        "it has not reported at all yet"
        if notice.usual_s is None
        else f"its reports usually come {notice.usual_s:.3g} s apart"
    )
    _log.warning(
        "trial %s has been silent for %.0f s and may hang: %s; "
        "FailureConfig(report_timeout_s=...) has such trials killed and tried again",
        notice.trial.trial_id,
        notice.silent_s,
        usual,
    )
