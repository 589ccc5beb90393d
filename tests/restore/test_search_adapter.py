"""A searcher is notified of what it has proposed, and of nothing that would mislead it."""

import pytest

from searchers import ConcurrencyLimiter, Repeater, Searcher
from tuner.core.commands import AttemptFailed, ResultRecorded, TrialEnded, TrialPaused
from tuner.core.events import TrialSuggested
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import Failure
from tuner.restore.search_adapter import SearchAdapter


class Listens(Searcher):
    def __init__(self):
        self.calls = []

    def suggest(self, trial_id):
        return {}

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id))

    def on_trial_pause(self, trial_id, result=None):
        self.calls.append(("pause", trial_id, result))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append(("failed" if error else "complete", trial_id))


class Explains(Listens):
    def explain_suggestion(self):
        return "as always"


def tell(search_adapter, notice):
    if call := search_adapter.call_for(notice):
        call()


@pytest.mark.parametrize(("is_awaited", "end"), [(True, [("failed", "t0")]), (False, [])])
def test_a_trial_it_has_not_proposed_is_only_discarded_and_only_if_it_waits_for_it(is_awaited, end):
    searcher = Listens()
    search_adapter = SearchAdapter(searcher, {}, lambda config: {})
    search_adapter.exclude("t0", is_awaited=is_awaited)
    excluded, own = Trial("t0", {}, {}), Trial("t1", {}, {})
    for trial in (excluded, own):
        trial.ending = TerminationReason.COMPLETED
        tell(search_adapter, ResultRecorded(trial, {}, {}))
        tell(search_adapter, TrialPaused(trial))
        tell(search_adapter, AttemptFailed(trial, Failure("ValueError", ""), will_retry=True))
        tell(search_adapter, TrialEnded(trial))
    assert searcher.calls == [*end, ("result", "t1"), ("pause", "t1", None), ("complete", "t1")]


def test_the_notice_of_a_pause_has_the_last_result_flattened():
    searcher, trial = Listens(), Trial("t0", {}, {})
    trial.last_result = {"loss": 1.0, "val": {"loss": 2.0}}
    call = SearchAdapter(searcher, {}, lambda config: {}).call_for(TrialPaused(trial))
    trial.last_result = {"loss": 0.5}  # it has continued before the searcher is notified
    call()
    assert searcher.calls == [("pause", "t0", {"loss": 1.0, "val/loss": 2.0})]


def refuse(config):
    raise ValueError(config)


@pytest.mark.parametrize(
    "wrapped", [lambda own: own, lambda own: ConcurrencyLimiter(own, 1), Repeater]
)
@pytest.mark.parametrize("request_for", [lambda config: {}, refuse])
def test_a_suggestion_has_the_explanation_of_the_searcher(wrapped, request_for):
    searcher = wrapped(Explains())
    searcher.set_search_properties("loss", "min", {}, num_samples=1)
    assert SearchAdapter(searcher, {}, request_for).ask("t0").why == "as always"


def test_a_repeated_suggestion_keeps_the_recorded_explanation():
    recorded = TrialSuggested("t0", {}, {}, why="by an earlier version")
    assert SearchAdapter(Explains(), {}, lambda config: {}).replay(recorded) == recorded
