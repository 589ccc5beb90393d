"""Asks the searcher for configurations and tells it what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from searchers.searcher import Searcher
from searchers.space import SearchSpace, constants, experiment_tag, merge
from tuner.core.commands import AttemptFailed, Notice, ResultRecorded, TrialEnded
from tuner.core.events import SearchEnded, SuggestionPostponed, TrialSuggested
from tuner.core.result import flatten
from tuner.core.trial import Ending, Failure, Trial

Answer = TrialSuggested | SuggestionPostponed | SearchEnded


class Proposer:
    """Turns a searcher's answers into events, and the experiment's notices into what a searcher hears.

    Args:
        searcher: The searcher, with its search properties set.
        space: The search space; its constants complete what the searcher proposes.
        request_for: Returns the resource request of a trial with a given configuration; may be the user's code and raise.
    """

    def __init__(
        self, searcher: Searcher, space: Mapping[str, Any], request_for: Callable[[Mapping[str, Any]], Mapping[str, float]]
    ) -> None:
        self._searcher = searcher
        self._space = SearchSpace(space)
        self._constants = constants(space)
        self._request_for = request_for
        self._num_suggested = 0
        self._foreign: dict[str, bool] = {}

    def ask(self, trial_ids: list[str]) -> list[Answer]:
        """Return one answer for each id; once the searcher has nothing to propose it is not asked again for the rest."""
        answers: list[Answer] = []
        for trial_id in trial_ids:
            if answers and isinstance(answers[-1], SuggestionPostponed | SearchEnded):
                answers.append(SuggestionPostponed(trial_id) if isinstance(answers[-1], SuggestionPostponed) else SearchEnded())
            else:
                answers.append(self._ask_once(trial_id))
        return answers

    def disown(self, trial_id: str, *, is_awaited: bool) -> None:
        """Take note that a trial runs a configuration which this searcher has not proposed, so that its results would mislead it.

        Args:
            trial_id: The trial.
            is_awaited: Whether the searcher has proposed another configuration for it; it then hears at the end that this one failed.
        """
        self._foreign[trial_id] = is_awaited

    def tell(self, notice: Notice) -> None:
        """Let the searcher hear of a notice that concerns it."""
        if notice.trial.trial_id in self._foreign:
            self._tell_foreign(notice)
            return
        match notice:
            case ResultRecorded(trial, _, flat):
                self._searcher.on_trial_result(trial.trial_id, flat)
            case TrialEnded(trial):
                self._searcher.on_trial_complete(trial.trial_id, _last_flat(trial), stopped=trial.ending is not Ending.COMPLETED)
            case AttemptFailed(trial, _, False):
                self._searcher.on_trial_complete(trial.trial_id, error=True)
            case _:
                pass

    def _tell_foreign(self, notice: Notice) -> None:
        is_over = isinstance(notice, TrialEnded) or (isinstance(notice, AttemptFailed) and not notice.will_retry)
        if is_over and self._foreign[notice.trial.trial_id]:
            self._searcher.on_trial_complete(notice.trial.trial_id, error=True)

    def _ask_once(self, trial_id: str) -> Answer:
        suggestion = self._searcher.suggest(trial_id)
        if suggestion is None:
            return SuggestionPostponed(trial_id)
        if isinstance(suggestion, str):
            return SearchEnded()
        config = merge(self._constants, suggestion)
        tag = experiment_tag(self._num_suggested, config, self._space)
        self._num_suggested += 1
        try:
            return TrialSuggested(trial_id, config, dict(self._request_for(config)), tag)
        except Exception as error:  # noqa: BLE001  (the user's resource function; one trial's trouble must not end the others)
            return TrialSuggested(trial_id, config, {}, tag, Failure(type(error).__name__, f"its resource request raised: {error}"))


def _last_flat(trial: Trial) -> Mapping[str, Any] | None:
    return flatten(trial.last_result) if trial.last_result else None
