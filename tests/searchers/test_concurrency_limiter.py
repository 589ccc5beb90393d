import json

import pytest

from searchers import BasicVariantGenerator, ConcurrencyLimiter, Searcher


class Recorder(Searcher):
    """Proposes numbers and records its calls."""

    def __init__(self):
        self.calls = []
        self.num_suggested = 0

    def suggest(self, trial_id):
        self.num_suggested += 1
        return {"x": self.num_suggested} if self.num_suggested <= 5 else self.FINISHED

    def num_trials_for(self, num_samples):
        return 5

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id, result["loss"]))

    def on_trial_pause(self, trial_id, result=None):
        self.calls.append(("pause", trial_id, result))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append((trial_id, result, error, stopped))

    def state_dict(self):
        return {"calls": [list(each) for each in self.calls], "num_suggested": self.num_suggested}

    def load_state_dict(self, state):
        self.calls = [tuple(each) for each in state["calls"]]
        self.num_suggested = state["num_suggested"]


def suggest_all(searcher, names):
    return [searcher.suggest(name) for name in names]


def test_no_more_suggestions_than_the_limit_are_unfinished():
    limiter = ConcurrencyLimiter(Recorder(), 2)
    assert suggest_all(limiter, "abc") == [{"x": 1}, {"x": 2}, None]
    limiter.on_trial_complete("a")
    assert suggest_all(limiter, "cd") == [{"x": 3}, None]


def test_the_searcher_is_not_asked_beyond_the_limit():
    inner = Recorder()
    suggest_all(ConcurrencyLimiter(inner, 1), "abcd")
    assert inner.num_suggested == 1


def test_ends_are_passed_on_at_once_and_unchanged():
    inner = Recorder()
    limiter = ConcurrencyLimiter(inner, 3)
    suggest_all(limiter, "abc")
    limiter.on_trial_result("b", {"loss": 1})
    limiter.on_trial_complete("b", {"loss": 2}, stopped=True)
    limiter.on_trial_complete("a", error=True)
    assert inner.calls == [
        ("result", "b", 1),
        ("b", {"loss": 2}, False, True),
        ("a", None, True, False),
    ]


@pytest.mark.parametrize("batch", [False, True])
def test_a_pause_is_passed_on_at_once_and_frees_no_room(batch):
    inner = Recorder()
    limiter = ConcurrencyLimiter(inner, 1, batch=batch)
    limiter.suggest("a")
    limiter.on_trial_pause("a", {"loss": 1})
    assert inner.calls == [("pause", "a", {"loss": 1})]
    assert limiter.suggest("b") is None


def test_a_batch_is_reported_when_all_have_ended_in_the_order_of_suggestion():
    inner = Recorder()
    limiter = ConcurrencyLimiter(inner, 3, batch=True)
    suggest_all(limiter, "abc")
    limiter.on_trial_complete("c", {"loss": 3}, stopped=True)
    limiter.on_trial_complete("a", error=True)
    assert inner.calls == []
    assert limiter.suggest("d") is None
    limiter.on_trial_complete("b", {"loss": 2})
    assert inner.calls == [
        ("a", None, True, False),
        ("b", {"loss": 2}, False, False),
        ("c", {"loss": 3}, False, True),
    ]
    assert limiter.suggest("d") == {"x": 4}


def test_a_last_batch_that_is_not_full_is_reported():
    inner = Recorder()
    limiter = ConcurrencyLimiter(inner, 4, batch=True)
    suggest_all(limiter, "ab")
    limiter.on_trial_complete("a")
    limiter.on_trial_complete("b")
    assert [call[0] for call in inner.calls] == ["a", "b"]


def test_finished_does_not_count_towards_the_limit():
    limiter = ConcurrencyLimiter(Recorder(), 10)
    assert suggest_all(limiter, "abcdefg")[5:] == [limiter.FINISHED] * 2
    assert limiter.num_trials_for(3) == 5


def test_ends_of_unknown_trials_are_passed_on():
    inner = Recorder()
    ConcurrencyLimiter(inner, 1, batch=True).on_trial_complete("z")
    assert inner.calls == [("z", None, False, False)]


@pytest.mark.parametrize("batch", [False, True])
def test_a_restored_limiter_continues_as_if_uninterrupted(batch):
    first = ConcurrencyLimiter(Recorder(), 3, batch=batch)
    suggest_all(first, "abc")
    first.on_trial_complete("b", {"loss": 2})
    inner = Recorder()
    second = ConcurrencyLimiter(inner, 3, batch=batch)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.suggest("d") == (None if batch else {"x": 4})
    second.on_trial_complete("a")
    second.on_trial_complete("c")
    assert [call[0] for call in inner.calls] == (["a", "b", "c"] if batch else ["b", "a", "c"])


def test_search_properties_are_passed_to_the_searcher_and_taken_from_it():
    limiter = ConcurrencyLimiter(BasicVariantGenerator(), 2)
    assert limiter.set_search_properties("loss", "min", {"epochs": 1}, num_samples=4)
    assert (limiter.metric, limiter.mode, limiter.num_trials_for(4)) == ("loss", "min", 4)
    assert not limiter.set_search_properties("other", "max", {"epochs": 1})


def test_bad_arguments_are_refused_at_once():
    with pytest.raises(
        ValueError,
        match="max_concurrent must be at least 1, got 0; without a limit, use the searcher itself",
    ):
        ConcurrencyLimiter(Recorder(), 0)
    with pytest.raises(
        TypeError, match=r"searcher must be a Searcher, got <class .*; construct it first"
    ):
        ConcurrencyLimiter(Recorder, 1)
