import json
import math

import pytest

from searchers import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from searchers.objectives import outcome_constraints
from searchers.space import choice, grid_search, sample_from, uniform


class Recorder(Searcher):
    """Proposes numbers and records its calls."""

    def __init__(self, metric=None, mode=None):
        self.metric, self.mode = metric, mode
        self.calls = []
        self.num_suggested = 0
        self.spec = {}

    def set_search_properties(self, metric, mode, config, **spec):
        self.spec = spec
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id):
        self.num_suggested += 1
        return {"x": self.num_suggested, "inner": {"y": 0}}

    def on_trial_result(self, trial_id, result):
        self.calls.append(("result", trial_id))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append((trial_id, result, error, stopped))


def repeats(num=3, **given):
    inner = Recorder()
    searcher = Repeater(inner, num, **given)
    assert searcher.set_search_properties("loss", "min", {}, num_samples=4 * num)
    return inner, searcher


def test_each_configuration_is_suggested_repeat_times():
    _, searcher = repeats()
    assert [searcher.suggest(name)["x"] for name in "abcdefg"] == [1, 1, 1, 2, 2, 2, 3]


def test_each_trial_has_its_number_among_the_repeats():
    _, searcher = repeats()
    assert [searcher.suggest(name)["__trial_index__"] for name in "abcd"] == [0, 1, 2, 0]


def test_without_the_index_configurations_are_unchanged():
    _, searcher = repeats(2, set_index=False)
    assert searcher.suggest("a") == searcher.suggest("b") == {"x": 1, "inner": {"y": 0}}


def test_no_repeat_shares_its_configuration_with_another():
    _, searcher = repeats()
    searcher.suggest("a")["inner"]["y"] = 5
    assert searcher.suggest("b")["inner"] == {"y": 0}


def test_the_searcher_gets_one_end_with_the_mean_once_all_are_over():
    inner, searcher = repeats()
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_result("a", {"loss": 9})
    searcher.on_trial_complete("c", {"loss": 3.0, "training_iteration": 4, "host": "h"})
    searcher.on_trial_complete("a", {"loss": 1.0, "training_iteration": 4, "host": "h"})
    assert inner.calls == []
    searcher.on_trial_complete("b", {"loss": 5.0, "training_iteration": 4, "host": "h"})
    assert inner.calls == [("a", {"loss": 3.0, "training_iteration": 4, "host": "h"}, False, False)]


def end_after(*endings):
    inner, searcher = repeats(len(endings))
    for number in range(len(endings)):
        searcher.suggest(str(number))
    for number, (result, words) in enumerate(endings):
        searcher.on_trial_complete(str(number), result, **words)
    (call,) = inner.calls
    return call[1:]


def test_the_mean_of_several_metrics_and_of_what_is_reported_once():
    inner = Recorder()
    limits = outcome_constraints({"size": "<= 4"})
    objectives = (("accuracy", "max"), ("latency", "min"))
    first, second = Repeater(inner, 2), Repeater(inner, 2)
    for searcher in (first, second):
        assert searcher.set_search_properties(
            None, None, {}, num_samples=4, objectives=objectives, constraints=limits
        )
    first.suggest("a"), first.suggest("b")
    first.on_trial_result("a", {"accuracy": 0.1, "latency": 1.0, "size": 3})
    second.load_state_dict(first.state_dict())
    second.on_trial_complete("a", {"accuracy": 0.4, "loss": 1})
    second.on_trial_complete("b", {"accuracy": 0.6, "latency": 2.0, "size": 6})
    expected = {"accuracy": 0.5, "loss": 1, "latency": 1.5, "size": 4.5}
    assert inner.calls == [("a", expected, False, False)]


def test_nan_missing_values_and_failures_do_not_count():
    end = end_after(
        ({"loss": 1.0}, {}),
        ({"loss": math.nan}, {}),
        ({}, {}),
        (None, {"error": True}),
        (None, {}),
        ({"loss": 4.0}, {}),
    )
    assert end == ({"loss": 2.5}, False, False)


def test_the_mean_of_nan_alone_is_nan():
    result, error, stopped = end_after(({"loss": math.nan}, {}), ({"loss": math.nan}, {}))
    assert (math.isnan(result["loss"]), error, stopped) == (True, False, False)


def test_if_all_repeats_fail_the_configuration_has_failed():
    assert end_after((None, {"error": True}), (None, {"error": True})) == (None, True, False)


def test_if_no_repeat_reports_there_is_no_result():
    assert end_after((None, {}), (None, {"error": True})) == (None, False, False)


def test_values_of_stopped_repeats_do_not_count():
    assert end_after(({"loss": 1.0}, {}), ({"loss": 8.0}, {"stopped": True})) == (
        {"loss": 1.0},
        False,
        False,
    )


def test_if_all_repeats_are_stopped_the_configuration_is():
    stopped = {"stopped": True}
    assert end_after(
        ({"loss": 1.0}, stopped), ({"loss": 2.0}, stopped), (None, {"error": True})
    ) == ({"loss": 1.5}, False, True)


def test_values_without_a_mean_never_raise():
    end = end_after(
        ({"loss": "x", "n": 10**400, "b": True, "i": math.inf}, {}),
        ({"loss": [1], "n": 1, "b": True, "i": -math.inf}, {}),
    )
    assert end[0]["loss"] == "x"
    assert (end[0]["n"], end[0]["b"]) == (1, True)


def test_num_samples_counts_repeats():
    inner, searcher = repeats(3)
    assert (
        inner.spec["num_samples"],
        searcher.num_trials_for(12),
        searcher.num_trials_for(-1),
    ) == (4, 12, None)


def test_a_grid_is_repeated_as_a_whole():
    searcher = Repeater(BasicVariantGenerator(), 2)
    searcher.set_search_properties(None, None, {"d": grid_search([2, 3])}, seed=0, num_samples=2)
    names = [f"t{number}" for number in range(searcher.num_trials_for(2))]
    assert [searcher.suggest(name)["d"] for name in names] == [2, 2, 3, 3]
    assert searcher.suggest("end") == Searcher.FINISHED


def test_a_number_of_samples_with_a_remainder_is_refused():
    with pytest.raises(
        ValueError, match="num_samples must be a multiple of repeat=3, got 10; make it 12, say"
    ):
        Repeater(Recorder(), 3).set_search_properties("loss", "min", {}, num_samples=10)


def test_bad_arguments_are_refused_at_once():
    with pytest.raises(
        ValueError,
        match="repeat must be a whole number of at least 1, got 0; with 1 each configuration is "
        "run once",
    ):
        Repeater(Recorder(), 0)
    with pytest.raises(
        TypeError, match=r"searcher must be a Searcher, got <class .*; construct it first"
    ):
        Repeater(Recorder)


def test_a_limiter_inside_counts_configurations():
    searcher = Repeater(ConcurrencyLimiter(Recorder(), 1), 2)
    searcher.set_search_properties("loss", "min", {}, num_samples=8)
    assert [searcher.suggest(name) and name for name in "abcd"] == ["a", "b", None, None]
    searcher.on_trial_complete("a", {"loss": 1})
    assert searcher.suggest("c") is None
    searcher.on_trial_complete("b", {"loss": 1})
    assert searcher.suggest("c")["x"] == 2


@pytest.mark.parametrize("batch", [False, True])
def test_a_limiter_outside_counts_trials(batch):
    inner = Recorder()
    searcher = ConcurrencyLimiter(Repeater(inner, 2), 1, batch=batch)
    searcher.set_search_properties("loss", "min", {}, num_samples=8)
    seen = []
    for name in "abcd":
        seen.append(searcher.suggest(name)["x"])
        assert searcher.suggest("z") is None
        searcher.on_trial_complete(name, {"loss": seen[-1]})
    assert seen == [1, 1, 2, 2]
    assert [call[:2] for call in inner.calls] == [("a", {"loss": 1}), ("c", {"loss": 2})]


def test_objects_of_the_space_are_repeated_after_a_restore():
    space = {"f": choice([abs, len]), "constant": print, "x": uniform(0, 1)}
    first, second = (Repeater(BasicVariantGenerator(), 3) for _ in range(2))
    for searcher in (first, second):
        searcher.set_search_properties("loss", "min", space, seed=0, num_samples=9)
    first.suggest("a")
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [second.suggest(name) for name in "bcdefghij"] == [
        first.suggest(name) for name in "bcdefghij"
    ]


def test_an_object_that_was_computed_cannot_be_repeated_after_a_restore():
    searcher = Repeater(BasicVariantGenerator(), 2)
    searcher.set_search_properties("loss", "min", {"f": sample_from(object)}, seed=0, num_samples=4)
    searcher.suggest("a")
    state = json.loads(json.dumps(searcher.state_dict()))
    with pytest.raises(ValueError, match="must be found in the space"):
        searcher.load_state_dict(state)


def test_metric_and_mode_of_the_searcher_are_its_own():
    searcher = Repeater(Recorder("loss", "min"), 2)
    assert (searcher.metric, searcher.mode) == ("loss", "min")
    assert not searcher.set_search_properties("other", "max", {}, num_samples=2)
    assert not searcher.keeps_state
