"""A searcher hears of what it has proposed, and of nothing that would mislead it."""

from searchers import Searcher
from tuner.core.commands import ResultRecorded, TrialEnded
from tuner.core.events import SuggestionPostponed, TrialSuggested
from tuner.core.trial import Ending, Trial
from tuner.proposer import Proposer


class Listens(Searcher):
    def __init__(self, *suggestions):
        self.suggestions = list(suggestions)
        self.heard = []

    def suggest(self, trial_id):
        return self.suggestions.pop(0)

    def on_trial_result(self, trial_id, result):
        self.heard.append(("result", trial_id))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.heard.append(("failed" if error else "complete", trial_id))


def live(proposer, trial_id, config):
    """Let a recorded trial be suggested, report and end."""
    recorded = TrialSuggested(trial_id, config, {}, "0")
    assert proposer.relive(recorded).config == config
    trial = Trial(trial_id, config, {})
    trial.ending = Ending.COMPLETED
    proposer.tell(ResultRecorded(trial, {}, {}))
    proposer.tell(TrialEnded(trial))


def test_what_it_proposes_for_a_trial_that_ran_something_else_has_failed():
    searcher = Listens({"x": 1}, {"x": 2}, None)
    proposer = Proposer(searcher, {}, lambda config: {})
    live(proposer, "same", {"x": 1})
    live(proposer, "another", {"x": 3})
    live(proposer, "postponed", {"x": 4})
    assert searcher.heard == [("result", "same"), ("complete", "same"), ("failed", "another")]
    assert proposer.disowned == {"another", "postponed"}


def test_what_it_proposes_where_it_had_postponed_has_failed():
    searcher = Listens({"x": 1})
    assert Proposer(searcher, {}, lambda config: {}).relive(SuggestionPostponed("t")) == SuggestionPostponed("t")
    assert searcher.heard == [("failed", "t")]
