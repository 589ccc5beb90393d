import json

import pytest

from searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    DuplicateGuard,
    OptunaSearch,
    Repeater,
    Searcher,
)
from searchers.space import choice, grid_search, quniform, randint, sample_from, uniform


class Reciter(Searcher):
    """Proposes given configurations in order, and records its calls."""

    def __init__(self, *values):
        self.values = list(values)
        self.calls = []
        self.asked = []

    def suggest(self, trial_id):
        self.asked.append(trial_id)
        return {"x": self.values.pop(0)} if self.values else self.FINISHED

    def on_trial_result(self, trial_id, result):
        self.calls.append((trial_id, result["loss"]))

    def on_trial_complete(self, trial_id, result=None, error=False, stopped=False):
        self.calls.append((trial_id, result and result["loss"], error, stopped))


def guarded(policy, *values, space=None, num_samples=-1, **given):
    inner = Reciter(*values)
    guard = DuplicateGuard(inner, policy, **given)
    assert guard.set_search_properties(
        "loss", "min", space or {"x": uniform(0, 9)}, seed=0, num_samples=num_samples
    )
    return inner, guard


def test_repeat_lets_duplicates_run():
    _, guard = guarded("repeat", 1.0, 1.0, 1.0)
    assert [guard.suggest(name) for name in "abcd"] == [{"x": 1.0}] * 3 + ["FINISHED"]


def test_skip_asks_again_with_another_trial_id():
    inner, guard = guarded("skip", 1.0, 1.0, 1.0, 2.0)
    assert [guard.suggest(name) for name in "ab"] == [{"x": 1.0}, {"x": 2.0}]
    assert inner.calls == [("b", None, True, False), ("b+1", None, True, False)]
    guard.on_trial_result("b", {"loss": 5})
    guard.on_trial_complete("b", {"loss": 5})
    assert inner.calls[2:] == [("b+2", 5), ("b+2", 5, False, False)]


def test_reuse_reports_all_earlier_results():
    inner, guard = guarded("reuse", 1.0, 1.0, 2.0)
    guard.suggest("a")
    guard.on_trial_result("a", {"loss": 3, "host": "h"})
    guard.on_trial_result("a", {"loss": 2, "host": "h"})
    guard.on_trial_complete("a", {"loss": 2, "host": "h"}, stopped=True)
    calls = inner.calls.copy()
    assert guard.suggest("b") == {"x": 2.0}
    assert inner.calls[len(calls) :] == [("b", 3), ("b", 2), ("b", 2, False, True)]


def test_reuse_reports_failures_too():
    inner, guard = guarded("reuse", 1.0, 1.0, 2.0)
    guard.suggest("a")
    guard.on_trial_complete("a", error=True)
    guard.suggest("b")
    assert inner.calls == [("a", None, True, False), ("b", None, True, False)]


def test_a_duplicate_of_a_running_trial_gets_its_results_as_they_arrive():
    inner, guard = guarded("reuse", 1.0, 1.0, 2.0)
    guard.suggest("a")
    guard.on_trial_result("a", {"loss": 3})
    assert guard.suggest("b") == {"x": 2.0}
    assert inner.calls == [("a", 3), ("b", 3)]
    guard.on_trial_result("a", {"loss": 1})
    guard.on_trial_complete("a", {"loss": 1})
    assert inner.calls[2:] == [("a", 1), ("b", 1), ("a", 1, False, False), ("b", 1, False, False)]
    guard.on_trial_complete("b", {"loss": 8})
    assert inner.calls[6:] == [("b+1", 8, False, False)]


def test_a_searcher_that_waits_for_a_running_trial_is_asked_later():
    inner = Reciter(1.0, 1.0, 2.0)
    guard = DuplicateGuard(ConcurrencyLimiter(inner, 2), "reuse")
    guard.set_search_properties("loss", "min", {"x": uniform(0, 9)}, seed=0)
    assert [guard.suggest("a"), guard.suggest("b"), guard.suggest("b")] == [{"x": 1.0}, None, None]
    guard.on_trial_complete("a", {"loss": 1})
    assert guard.suggest("b") == {"x": 2.0}
    assert inner.asked == ["a", "b", "b+1"]


def test_skipped_duplicates_do_not_count_towards_num_samples():
    guard = DuplicateGuard(BasicVariantGenerator(), "skip")
    guard.set_search_properties(None, None, {"x": randint(0, 8)}, seed=0, num_samples=8)
    assert sorted(guard.suggest(f"t{number}")["x"] for number in range(8)) == list(range(8))
    assert guard.num_trials_for(8) == 8


def test_no_more_than_the_samples_are_proposed():
    guard = DuplicateGuard(BasicVariantGenerator(), "skip")
    guard.set_search_properties(
        None, None, {"x": uniform(0, 1), "g": grid_search([1, 2])}, seed=0, num_samples=3
    )
    assert [guard.suggest(f"t{number}") == Searcher.FINISHED for number in range(8)] == [
        False
    ] * 6 + [True] * 2


@pytest.mark.parametrize(
    ("space", "num_points"),
    [
        ({"x": choice([1, 2, 3]), "y": grid_search(["a", "b"])}, 6),
        ({"x": quniform(0, 1, 0.25)}, 5),
        ({"x": randint(2, 4), "deep": [{"z": choice([abs, len])}]}, 4),
        ({}, 1),
    ],
)
@pytest.mark.parametrize("policy", ["skip", "reuse"])
def test_an_exhausted_space_ends_the_search(space, num_points, policy):
    guard = DuplicateGuard(BasicVariantGenerator(), policy)
    guard.set_search_properties(None, None, space, seed=0, num_samples=100)
    answers = [guard.suggest(f"t{number}") for number in range(num_points + 2)]
    assert [answer == Searcher.FINISHED for answer in answers] == [False] * num_points + [True] * 2


def test_after_max_tries_a_duplicate_is_run():
    inner, guard = guarded("skip", *[1.0] * 20, max_tries=3)
    assert [guard.suggest(name) for name in "ab"] == [{"x": 1.0}] * 2
    assert inner.asked == ["a", "b", "b+1", "b+2", "b+3"]


def test_a_space_with_computed_values_is_never_exhausted():
    guard = DuplicateGuard(BasicVariantGenerator(), "skip", max_tries=2)
    guard.set_search_properties(
        None, None, {"x": choice([1]), "y": sample_from(lambda: 5)}, seed=0, num_samples=3
    )
    assert [guard.suggest(name) for name in "abcd"] == [{"x": 1, "y": 5}] * 3 + [Searcher.FINISHED]


def test_objects_are_compared_by_identity_or_equality():
    one, other = object(), object()
    _, guard = guarded(
        "skip", one, one, other, [other], (1, 2), (1, 2), frozenset({1}), frozenset({1})
    )
    assert [guard.suggest(name) for name in "abcdef"] == [
        {"x": one},
        {"x": other},
        {"x": [other]},
        {"x": (1, 2)},
        {"x": frozenset({1})},
        "FINISHED",
    ]


@pytest.mark.parametrize("policy", ["skip", "reuse"])
def test_a_restored_guard_remembers_what_was_proposed(policy):
    space = {"x": randint(0, 30), "f": choice([abs, len])}
    first, second = (DuplicateGuard(BasicVariantGenerator(), policy) for _ in range(2))
    for guard in (first, second):
        guard.set_search_properties("loss", "min", space, seed=0, num_samples=60)
    for number in range(20):
        first.suggest(f"t{number}")
        first.on_trial_result(f"t{number}", {"loss": 1.0})
        if number % 2:
            first.on_trial_complete(f"t{number}", {"loss": 1.0})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = [first.suggest(f"u{number}") for number in range(41)]
    assert [second.suggest(f"u{number}") for number in range(41)] == rest
    assert rest[-1] == Searcher.FINISHED
    assert second.state_dict() == first.state_dict()


def test_computed_objects_cannot_be_compared_after_a_restore():
    _, guard = guarded("skip", object(), 1.0)
    guard.suggest("a")
    with pytest.raises(
        ValueError,
        match="objects in configurations must stand in the space, got 1 others; use choice for "
        "them",
    ):
        guard.load_state_dict(json.loads(json.dumps(guard.state_dict())))


def test_each_repeat_reuses_the_same_repeat():
    inner = Reciter(1.0, 1.0, 2.0)
    guard = DuplicateGuard(Repeater(inner, 2), "reuse")
    guard.set_search_properties("loss", "min", {"x": uniform(0, 9)}, seed=0, num_samples=8)
    for name, loss in (("a", 1.0), ("b", 3.0)):
        guard.suggest(name)
        guard.on_trial_complete(name, {"loss": loss})
    assert guard.suggest("c") == {"x": 2.0, "__trial_index__": 0}
    assert inner.calls == [("a", 2.0, False, False), ("c", 2.0, False, False)]


def test_a_guard_inside_a_repeater_gets_no_repeats():
    searcher = Repeater(DuplicateGuard(Reciter(1.0, 1.0, 2.0), "skip"), 2)
    searcher.set_search_properties("loss", "min", {"x": uniform(0, 9)}, seed=0, num_samples=8)
    assert [searcher.suggest(name)["x"] for name in "abcd"] == [1.0, 1.0, 2.0, 2.0]


def test_bad_arguments_are_refused_at_once():
    with pytest.raises(
        ValueError,
        match=r"duplicates must be one of \('repeat', 'skip', 'reuse'\), got 'drop'; 'repeat' lets "
        r"them run",
    ):
        DuplicateGuard(Reciter(), "drop")
    with pytest.raises(ValueError, match="max_tries must be a whole number of at least 1, got 0"):
        DuplicateGuard(Reciter(), max_tries=0)
    with pytest.raises(TypeError, match="searcher must be a Searcher"):
        DuplicateGuard(Reciter)
    with pytest.raises(
        ValueError,
        match=r"got 'reuse'; put the DuplicateGuard inside: Repeater\(DuplicateGuard\(searcher\)\)",
    ):
        DuplicateGuard(ConcurrencyLimiter(Repeater(Reciter(), 2, set_index=False), 2), "reuse")


def test_evaluated_points_count_as_proposed():
    class Learner(Reciter):
        def add_evaluated_point(
            self, parameters, value, error=False, pruned=False, intermediate_values=None
        ):
            self.calls.append((parameters, value))

    inner = Learner(1.0, 2.0)
    guard = DuplicateGuard(inner, "reuse")
    guard.set_search_properties("loss", "min", {"x": uniform(0, 9), "deep": {"y": 1}}, seed=0)
    inner.values = [1.0, 2.0]
    guard.add_evaluated_point({"x": 7.0}, 0.5)
    assert inner.calls == [({"x": 7.0}, 0.5)]
    inner.suggest = lambda trial_id: (
        {"x": 7.0, "deep": {"y": 1}} if trial_id == "a" else {"x": 2.0, "deep": {"y": 1}}
    )
    assert guard.suggest("a")["x"] == 2.0
    assert inner.calls[1:] == [("a", 0.5, False, False)]


def test_points_evaluated_in_several_metrics_are_reused_with_all_of_them():
    pytest.importorskip("optuna")
    guard = DuplicateGuard(OptunaSearch(points_to_evaluate=[{"x": 1}]), "reuse")
    objectives = (("accuracy", "max"), ("latency", "min"))
    guard.set_search_properties(None, None, {"x": randint(0, 3)}, seed=0, objectives=objectives)
    guard.add_evaluated_point({"x": 1}, [0.9, 5.0])
    assert guard.suggest("a")["x"] != 1
    reused = [trial for trial in guard.searcher.study.trials if trial.params["x"] == 1]
    assert [trial.values for trial in reused] == [[0.9, 5.0]] * len(reused)
    assert len(reused) >= 2


@pytest.mark.property
def test_optuna_enumerates_a_small_space_without_repetition():
    pytest.importorskip("optuna")
    guard = DuplicateGuard(OptunaSearch(), "reuse")
    guard.set_search_properties(
        "loss", "min", {"x": randint(0, 3), "k": choice(["a", "b"])}, seed=0, num_samples=100
    )
    seen = []
    while isinstance(config := guard.suggest(f"t{len(seen)}"), dict):
        seen.append((config["x"], config["k"]))
        guard.on_trial_complete(f"t{len(seen) - 1}", {"loss": config["x"]})
    assert len(seen) == len(set(seen)) == 6
