"""Carries the experiment's notices to searcher and callbacks, in the order that Ray Tune's users know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import (
    AttemptFailed,
    CheckpointMissed,
    CheckpointRecorded,
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
from tuner.core.trial import CheckpointRecord, TerminationReason, Trial
from tuner.storage.checkpoints import Checkpoint, locate
from tuner.storage.layout import trial_directory, trial_path

from .suggestion_queue import SuggestionQueue

_ENOUGH_RESULTS = 10
"""After so many results of a trial, what none has reported is presumably misspelt."""

_log = logging.getLogger("tuner")


class Observers:
    """Everybody who hears of what happens: the searcher at the end of the turn at the earliest, the callbacks at once, in their order.

    Args:
        suggestions: Where the searcher is told.
        callbacks: The user's callbacks and the loggers.
        trials: The live list of all trials, handed to every hook.
        experiment_path: The experiment's directory, in which trials have theirs.
        metric: The metric to optimise, by its flattened name.
        score_attribute: The metric by which checkpoints are ranked; a checkpoint without it is reported once.
        why_unsavable: Why trials cannot be asked for a checkpoint, empty where they can be.
        trainable_name: Name of what is trained.
        say: Shows the user a sentence; None for nobody to show it to.
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
        why_unsavable: str = "",
        trainable_name: str = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._suggestions = suggestions
        self._callbacks = callbacks
        self._trials = trials
        self._experiment_path = experiment_path
        self._metric = metric
        self._score_attribute = score_attribute
        self._why_unsavable = why_unsavable
        self._trainable_name = trainable_name
        for trial in trials:  # of earlier sessions
            trial.trainable_name = trainable_name
        self._vain_askers: set[str] = set()
        """Callbacks of which the user has been told that they ask for checkpoints in vain."""
        self._thresholds: Mapping[str, Any] = {}
        """The flattened numbers and comparisons of the stop criterion, until a mistaken one has been told."""
        self._say = say
        self._awaited: set[str] = set()
        """Metrics that the stop criterion names and nobody has reported yet."""
        self._kinds_refused: set[str] = set()
        """Kinds of failures of which the user has been told that they are not worth a retry."""
        self._replaced: set[str] = set()
        """Names of the engine of which the user has been told that what is reported by them is dropped."""
        self.turn = 0

    def begin_experiment(self, **info: Any) -> None:
        """Tell what is about to be run; see `Callback.setup`."""
        stop = info.get("stop")
        self._awaited = set(flatten(stop)) if isinstance(stop, Mapping) else set()
        self._thresholds = (
            flatten(stop) if isinstance(stop, Mapping) and info.get("mode") == "min" else {}
        )
        self._callbacks.call(
            "setup", experiment_path=self._experiment_path, metric=self._metric, **info
        )

    def begin_turn(self) -> None:
        """Tell that a turn of the driver begins."""
        self.turn += 1
        if self._callbacks.has("on_step_begin"):
            self._callbacks.call("on_step_begin", iteration=self.turn, trials=self._trials)

    def end_turn(self) -> None:
        """Tell that a turn of the driver is over."""
        if self._callbacks.has("on_step_end"):
            self._callbacks.call("on_step_end", iteration=self.turn, trials=self._trials)

    def end_experiment(self) -> None:
        """Tell that the experiment is over."""
        self._callbacks.call("on_experiment_end", trials=self._trials)

    def remark(self, text: str) -> None:
        """Pass on what the scheduler wants the user to know."""
        _log.info("%s", text)
        if self._say:
            self._say(text)

    def tell(self, notice: Notice) -> bool:
        """Tell everybody; return whether a callback wants a checkpoint of the trial at its result."""
        if isinstance(notice, TrialAdded):
            locate(
                notice.trial,
                trial_path(self._experiment_path, notice.trial.trial_id),
                self._trainable_name,
            )
        self._suggestions.tell(notice)
        info: dict[str, Any] = {
            "iteration": self.turn,
            "trials": self._trials,
            "trial": notice.trial,
        }
        if isinstance(notice, ResultRecorded):
            if self._awaited:
                self._await_metrics(notice)
            asker = self._callbacks.on_trial_result(notice.result, notice.text, **info)
            if asker and self._why_unsavable:
                self._refuse_checkpoint(asker)
                return False
            return bool(asker)
        self._tell_callbacks(notice, info)
        return False

    def _tell_callbacks(self, notice: Notice, info: Mapping[str, Any]) -> None:  # noqa: C901, PLR0912  (one case for each notice)
        call = self._callbacks.call
        match notice:
            case TrialStarted(trial):
                call("on_trial_start", **info)
                if trial.source:
                    call("on_trial_restore", **info)
            case CheckpointRecorded(trial, checkpoint):
                self._look_for_score(trial, checkpoint)
                self._tell_checkpoint(checkpoint, info)
                call("on_trial_save", **info)
            case CheckpointMissed(trial, failure):
                _log.warning(
                    "trial %s goes on without a checkpoint that could not be saved: %s",
                    trial.trial_id,
                    failure,
                )
            case KeysReplaced(trial, names):
                self._tell_of_replaced(trial, names)
            case MetricMissed(trial, metric, value):
                _log.warning("%s", warning_for(metric, trial, value))
            case StartsHeld(_, reason):
                _log.warning("%s", possible_common_failure(reason))
            case TrialSilent():
                _tell_of_silence(notice)
            case AttemptFailed(_, _, True):
                call("on_trial_recover", **info)
            case AttemptFailed(trial, failure, _, objection):
                call("on_trial_error", **info)
                if objection and failure.kind not in self._kinds_refused:
                    self._kinds_refused.add(failure.kind)
                    _log.warning("trial %s is not tried again: %s", trial.trial_id, objection)
            case TrialEnded(trial):
                self._look_for_direction(trial)
                if self._awaited and trial.ending is TerminationReason.COMPLETED:
                    self._tell_of_awaited(trial)
                call("on_trial_complete", **info)
            case ExploitApplied(trial, graft):
                call("on_trial_exploit", graft=graft, **info)
            case TrialAdded() | TrialPaused() | ResultRecorded():
                pass
            case _:
                assert_never(notice)

    def _tell_checkpoint(self, checkpoint: CheckpointRecord, info: Mapping[str, Any]) -> None:
        if self._callbacks.has("on_checkpoint"):
            path = (
                trial_directory(self._experiment_path, info["trial"].trial_id)
                / checkpoint.directory
            )
            self._callbacks.call("on_checkpoint", checkpoint=Checkpoint(path), **info)

    def _await_metrics(self, notice: ResultRecorded) -> None:
        self._awaited.difference_update(notice.flat)
        if self._awaited and notice.trial.num_rows >= _ENOUGH_RESULTS:
            self._tell_of_awaited(notice.trial)

    def _tell_of_awaited(self, trial: Trial) -> None:
        _log.warning(
            "trial %s has never reported %s, and so cannot meet this criterion; it has reported: %s",
            trial.trial_id,
            ", ".join(f"stop[{name!r}]" for name in sorted(self._awaited)),
            ", ".join(sorted({*own_keys(trial), TRAINING_ITERATION, TIME_TOTAL_S}))
            if trial.last_result
            else "nothing",
        )
        self._awaited.clear()

    def _refuse_checkpoint(self, asker: str) -> None:
        if asker not in self._vain_askers:
            self._vain_askers.add(asker)
            _log.warning(
                "callback %s sets should_checkpoint in on_trial_result, which has no effect: %s",
                asker,
                self._why_unsavable,
            )

    def _tell_of_replaced(self, trial: Trial, names: Iterable[str]) -> None:
        news = [name for name in names if name not in self._replaced]
        self._replaced.update(news)
        if TRAINING_ITERATION in news:
            _log.warning(
                "trial %s has reported a training_iteration that is not a whole number above the one before; such results are numbered by "
                "the engine, one above the one before; report your own count under another name to keep it",
                trial.trial_id,
            )
        if others := [name for name in news if name != TRAINING_ITERATION]:
            _log.warning(
                "trial %s has reported %s, which the engine fills in, and the reported values are dropped; report them under other names, "
                "e.g. %r, to keep them",
                trial.trial_id,
                ", ".join(map(repr, others)),
                f"my_{others[0].rpartition('/')[-1]}",
            )

    def _look_for_direction(self, trial: Trial) -> None:
        if (
            self._metric
            and self._thresholds
            and (warning := warning_of_direction(trial, self._metric, self._thresholds))
        ):
            self._thresholds = {}
            _log.warning("%s", warning)

    def _look_for_score(self, trial: Trial, checkpoint: CheckpointRecord) -> None:
        if self._score_attribute is None or checkpoint.score is not None:
            return
        _log.warning(
            "%s of trial %s has no number %r, by which checkpoints are ranked, and ranks lowest; the trial has reported: %s",
            checkpoint.directory,
            trial.trial_id,
            self._score_attribute,
            ", ".join(sorted(trial.summary)) or "none",
        )
        self._score_attribute = None


def _tell_of_silence(notice: TrialSilent) -> None:
    usual = (
        "it has not reported at all yet"
        if notice.usual_s is None
        else f"its reports usually come {notice.usual_s:.3g} s apart"
    )
    _log.warning(
        "trial %s has been silent for %.0f s and may hang: %s; FailureConfig(report_timeout_s=...) has such trials killed and tried again",
        notice.trial.trial_id,
        notice.silent_s,
        usual,
    )
