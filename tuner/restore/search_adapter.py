"""Adapter between searcher and engine: its answers become events, and notices its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from searchers.searcher import Searcher, report_end
from searchers.space import SearchSpace, experiment_tag
from tuner.core.commands import (
    AttemptFailed,
    CheckpointValidated,
    Notice,
    ResultRecorded,
    TrialEnded,
    TrialPaused,
)
from tuner.core.events import SKIPPED, SearchEnded, SuggestionPostponed, TrialSuggested
from tuner.core.result import flatten
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import Failure, WorkerGroup
from tuner.storage import strict_json
from tuner.storage.config_codec import missing, require_complete

Answer = TrialSuggested | SuggestionPostponed | SearchEnded
Call = Callable[[], None]


class SearchAdapter:
    """Turns a searcher's answers into events, and notices into the searcher's callbacks.

    Args:
        searcher: The searcher, with its search properties set.
        space: The search space; its constants complete what the searcher proposes.
        request_for: Returns the resource request of a trial with a given configuration; may be the
            user's code and raise.
        group_for: Returns the workers over which such a trial trains, None for a single process;
            may raise as well.
        declaration: Identifies the declaration, see `SearchEnded`.

    Attributes:
        request_for: See above.
        group_for: See above.
        labels_for: See above.
        declaration: See above.
        excluded: Trials that run a configuration which this searcher has not proposed, and whether
            it waits for their end; see `exclude`.
    """

    def __init__(
        self,
        searcher: Searcher,
        space: Mapping[str, Any],
        request_for: Callable[[Mapping[str, Any]], Mapping[str, float]],
        group_for: Callable[[Mapping[str, Any]], WorkerGroup | None] | None = None,
        labels_for: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
        *,
        declaration: str = "",
    ) -> None:
        self._searcher = searcher
        self._hears_results = (
            getattr(searcher.on_trial_result, "__func__", None) is not Searcher.on_trial_result
        )
        self._space = SearchSpace(space)
        self.request_for = request_for
        self.group_for = group_for or _no_group
        self.labels_for = labels_for or _no_labels
        self.declaration = declaration
        self._num_suggested = 0
        self.excluded: dict[str, bool] = {}

    @property
    def num_suggested(self) -> int:
        """How many trials it has suggested, in earlier sessions too."""
        return self._num_suggested

    def ask(self, trial_id: str) -> Answer:
        """Return the configuration of a trial, or why there is none now."""
        return self._ask_searcher(trial_id)

    def _ask_searcher(self, trial_id: str) -> Answer:
        suggestion = self._searcher.suggest(trial_id)
        if suggestion is None:
            return SuggestionPostponed(trial_id)
        if suggestion == Searcher.FINISHED:
            return SearchEnded(self.declaration)
        if not isinstance(suggestion, Mapping):
            raise TypeError(
                f"{type(self._searcher).__name__}.suggest must return a dict of hyperparameters, "
                "None to be asked again later, "
                f"or Searcher.FINISHED for no more trials, got {suggestion!r:.200}"
            )
        config = self._space.completed(suggestion)
        tag = experiment_tag(self._num_suggested, config, self._space)
        self._num_suggested += 1
        why = self._searcher.explain_suggestion()
        try:
            request, group = dict(self.request_for(config)), self.group_for(config)
            labels = self.labels_for(config)
            return TrialSuggested(
                trial_id, config, request, tag, group=group, labels=labels, why=why
            )
        except Exception as error:  # noqa: BLE001  (from the user's function; other trials go on)
            return TrialSuggested(
                trial_id,
                config,
                {},
                tag,
                Failure(type(error).__name__, f"its resource request raised: {error}"),
                why=why,
            )

    def replay(self, recorded: Answer) -> Answer:
        """Ask the searcher again for a recorded answer, and return the recorded one.

        Where both are equal, the new configuration completes the recorded one with objects that
        could only be described. Where the searcher now proposes something else, it says whether it
        learns from the recorded configuration all the same; if not, see `exclude`.

        Raises:
            StorageError: If the recorded configuration holds objects that are found nowhere now.
        """
        if isinstance(recorded, SearchEnded):
            return recorded
        num_before = self._num_suggested
        answer = self._ask_searcher(recorded.trial_id)
        self._num_suggested = num_before + isinstance(recorded, TrialSuggested)
        if isinstance(recorded, TrialSuggested):
            return self._reconciled(recorded, answer)
        if isinstance(answer, TrialSuggested):
            self._searcher.on_trial_replaced(recorded.trial_id, None)
            self._searcher.on_trial_discard(recorded.trial_id)
        return recorded

    def _reconciled(self, recorded: TrialSuggested, answer: Answer) -> TrialSuggested:
        is_same = isinstance(answer, TrialSuggested) and _text(answer.config) == _text(
            recorded.config
        )
        if isinstance(answer, TrialSuggested) and is_same and missing(recorded.config):
            # What was computed, and stands nowhere in the space.
            return replace(recorded, config=answer.config)
        require_complete(recorded.config, recorded.trial_id)
        if not is_same and not self._searcher.on_trial_replaced(recorded.trial_id, recorded.config):
            self.exclude(recorded.trial_id, is_awaited=isinstance(answer, TrialSuggested))
        return recorded

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return how many trials there are to be in all, those of earlier declarations included.

        Args:
            num_samples: ``TuneConfig.num_samples``, where -1 means endless.
        """
        wanted = self._searcher.num_trials_for(num_samples)
        num_left = self._searcher.num_points_left(num_samples)
        return None if wanted is None else max(wanted, self._num_suggested + num_left)

    def surplus_trials(self, num_samples: int) -> Sequence[str]:
        """Return the trials that the experiment, as it is declared now, does not have."""
        return sorted(self._searcher.surplus_trials(num_samples))

    @property
    def keeps_state(self) -> bool:
        """Whether `state_dict` returns the searcher's whole state."""
        return self._searcher.keeps_state

    def state_dict(self) -> dict[str, Any]:
        """Return the searcher's state and that of its desk, as JSON values."""
        return {
            "searcher": self._searcher.state_dict(),
            "num_suggested": self._num_suggested,
            "foreign": dict(self.excluded),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._searcher.load_state_dict(state["searcher"])
        self._num_suggested = state["num_suggested"]
        self.excluded = dict(state["foreign"])

    def exclude(self, trial_id: str, *, is_awaited: bool) -> None:
        """Keep from the searcher the results of a trial that it has not proposed.

        It does not learn from such a trial, or cannot, since its space has no such configuration.

        Args:
            trial_id: The trial.
            is_awaited: Whether the searcher has proposed another configuration for it, which is
                discarded when the trial ends.
        """
        self.excluded[trial_id] = is_awaited

    def call_for(self, notice: Notice) -> Call | None:
        """Return the callback that a notice leads to, None if it does not concern the searcher.

        The call holds what is true now. It may be made later, when the trial has already gone on.
        """
        if notice.trial.trial_id in self.excluded:
            return self._call_for_excluded(notice)
        call: Call | None = None
        match notice:
            case ResultRecorded(trial, _, flat) if self._hears_results:
                call = partial(self._searcher.on_trial_result, trial.trial_id, flat)
            case CheckpointValidated(trial, is_delivered=True) if self._hears_results:
                call = partial(self._searcher.on_trial_result, trial.trial_id, notice.flat)
            case TrialPaused(trial):
                call = partial(self._searcher.on_trial_pause, trial.trial_id, _last_flat(trial))
            case TrialEnded(trial) if trial.ending is None or (
                trial.ending is TerminationReason.INTERRUPTED and not _is_given_up(trial)
            ):
                # It was interrupted together with all others, and a restore resumes it.
                pass
            case TrialEnded(trial):
                is_stopped = trial.ending is not TerminationReason.COMPLETED
                call = partial(
                    report_end,
                    self._searcher,
                    trial.trial_id,
                    _last_flat(trial),
                    stopped=is_stopped,
                )
            case AttemptFailed(trial, _, False):
                call = partial(report_end, self._searcher, trial.trial_id, error=True)
            case _:
                pass
        return call

    def _call_for_excluded(self, notice: Notice) -> Call | None:
        is_over = isinstance(notice, TrialEnded) or (
            isinstance(notice, AttemptFailed) and not notice.will_retry
        )
        if is_over and self.excluded[notice.trial.trial_id]:
            return partial(self._searcher.on_trial_discard, notice.trial.trial_id)
        return None


def _no_labels(config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG001  (as others)
    return {}


def _no_group(config: Mapping[str, Any]) -> None:
    """Return that a trial trains in a single process, whatever its configuration."""


def _is_given_up(trial: Trial) -> bool:
    return trial.reason is not None and trial.reason.rule == SKIPPED


def _last_flat(trial: Trial) -> Mapping[str, Any] | None:
    return flatten(trial.judged) if trial.judged else None


def _text(config: object) -> str:
    return strict_json.dumps(config, strict_json.opaque)
