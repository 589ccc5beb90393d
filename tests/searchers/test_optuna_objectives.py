"""Several metrics, and constraints."""

import json
import math
from statistics import mean

import pytest

from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.space import choice, uniform

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState

SPACE = {"x": uniform(0, 1), "kind": choice(["a", "b"])}


def several(**arguments):
    searcher = OptunaSearch(metric=["accuracy", "latency"], mode=["max", "min"], **arguments)
    assert searcher.set_search_properties(None, None, SPACE, seed=0)
    return searcher


def single(**arguments):
    searcher = OptunaSearch(metric="loss", mode="min", **arguments)
    assert searcher.set_search_properties(None, None, SPACE, seed=0)
    return searcher


def run(searcher, num, measure):
    configs = []
    for number in range(num):
        config = searcher.suggest(str(number))
        configs.append(config)
        searcher.on_trial_result(str(number), measure(config) | {"training_iteration": 1})
        searcher.on_trial_complete(str(number), measure(config) | {"training_iteration": 1})
    return configs


def trade_off(config):
    return {"accuracy": config["x"] - (config["kind"] == "b") * 0.1, "latency": config["x"] ** 2}


def dominates(one, other):
    return (
        one != other and one["accuracy"] >= other["accuracy"] and one["latency"] <= other["latency"]
    )


# Several metrics.


def test_trials_are_told_with_all_metrics_in_their_order_and_without_intermediate_values():
    searcher = several()
    config = run(searcher, 1, trade_off)[0]
    trial = searcher.study.trials[0]
    assert trial.values == list(trade_off(config).values())
    assert trial.intermediate_values == {}
    assert [direction.name for direction in searcher.study.directions] == ["MAXIMIZE", "MINIMIZE"]


def test_the_study_knows_the_pareto_front():
    searcher = several()
    configs = run(searcher, 20, trade_off)
    points = [trade_off(config) for config in configs]
    front = [
        config["x"]
        for config, point in zip(configs, points, strict=True)
        if not any(dominates(other, point) for other in points)
    ]
    assert sorted(trial.params["x"] for trial in searcher.study.best_trials) == sorted(front)
    assert 3 < len(front) < 20


def test_several_metrics_are_the_searchers_own_and_no_single_one_is():
    searcher = several()
    assert (searcher.metric, searcher.mode) == (None, None)
    limiter = ConcurrencyLimiter(OptunaSearch(metric=["a", "b"], mode=["min", "min"]), 1)
    assert limiter.set_search_properties(None, None, SPACE, seed=0)
    assert (limiter.metric, limiter.mode) == (None, None)


def test_a_list_of_one_metric_is_a_single_one():
    searcher = OptunaSearch(metric=["loss"], mode=["min"])
    assert (searcher.metric, searcher.mode) == ("loss", "min")
    assert not searcher.set_search_properties("other", None, SPACE)


@pytest.mark.parametrize(("metric", "mode"), [("loss", None), (None, "min"), ("loss", "min")])
def test_a_metric_of_the_experiment_is_refused_beside_several(metric, mode):
    searcher = OptunaSearch(metric=["a", "b"], mode=["min", "max"])
    with pytest.raises(
        ValueError,
        match="metric and mode must be left out of TuneConfig where OptunaSearch has several metrics, got",
    ):
        searcher.set_search_properties(metric, mode, SPACE)


@pytest.mark.parametrize(
    ("metric", "mode", "message"),
    [
        (
            ["a", "b"],
            ["min"],
            "as many different metrics as directions, got .*'a', 'b'.* and .*'min'",
        ),
        (["a", "a"], ["min", "max"], "as many different metrics"),
        (["a", "b"], ["min", "best"], "mode must be one of .*'best'"),
        (["a", ""], ["min", "max"], "metric must be the name"),
    ],
)
def test_metrics_and_modes_that_do_not_fit_are_refused(metric, mode, message):
    with pytest.raises(ValueError, match=message):
        OptunaSearch(metric=metric, mode=mode).set_search_properties(None, None, SPACE)


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"accuracy": 1.0},
        {"accuracy": 1.0, "latency": math.nan},
        {"accuracy": "x", "latency": 1},
    ],
)
def test_a_trial_that_lacks_a_metric_is_told_fail(result):
    searcher = several()
    searcher.suggest("a")
    searcher.on_trial_complete("a", result)
    assert searcher.study.trials[0].state == State.FAIL


def test_stopped_trials_are_pruned_and_paused_ones_go_on_running():
    searcher = several()
    for name in "ab":
        searcher.suggest(name)
        searcher.on_trial_pause(name, {"accuracy": 0.5, "latency": 1.0, "training_iteration": 1})
    searcher.on_trial_complete("a", {"accuracy": 0.5, "latency": 1.0}, stopped=True)
    assert [trial.state for trial in searcher.study.trials] == [State.PRUNED, State.RUNNING]


def test_points_have_a_reward_for_each_metric():
    points = [{"x": 0.5, "kind": "a"}, {"x": 0.25, "kind": "b"}]
    searcher = several(points_to_evaluate=points, evaluated_rewards=[(0.9, 2.0), [0.5, 1.0]])
    searcher.suggest("a")
    assert [trial.values for trial in searcher.study.get_trials(states=[State.COMPLETE])] == [
        [0.9, 2.0],
        [0.5, 1.0],
    ]


@pytest.mark.parametrize("reward", [0.5, [0.5], [0.5, None], [0.5, math.nan], "ab"])
def test_rewards_that_lack_a_metric_are_refused(reward):
    with pytest.raises(ValueError, match="evaluated_rewards must hold"):
        several(points_to_evaluate=[{"x": 0.5, "kind": "a"}], evaluated_rewards=[reward])


def test_a_restored_search_for_several_metrics_goes_on_as_if_uninterrupted():
    first, second = several(), several()
    run(first, 14, trade_off)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [first.suggest(name) for name in "abc"] == [second.suggest(name) for name in "abc"]


# Constraints.


def bounded(config):
    return {"loss": -config["x"], "memory": config["x"] - 0.4}


@pytest.mark.parametrize("constraints", [["memory"], lambda result: [result["memory"], -1.0]])
def test_the_default_sampler_and_the_best_trial_respect_constraints(constraints):
    searcher = single(constraints=constraints)
    configs = run(searcher, 45, bounded)
    assert searcher.study.best_trial.params["x"] <= 0.4
    assert mean(config["x"] for config in configs[-15:]) < 0.5
    assert mean(config["x"] for config in run(single(), 45, bounded)[-15:]) > 0.8, (
        "else this says nothing"
    )


@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler"])
def test_a_given_sampler_respects_constraints(name):
    options = {"population_size": 8} if name == "NSGAIISampler" else {}
    searcher = single(
        constraints=["memory"], sampler=getattr(optuna.samplers, name)(seed=1, **options)
    )
    configs = run(searcher, 64, bounded)
    assert mean(config["x"] for config in configs[-16:]) < 0.5


def test_constraints_are_told_as_optuna_tells_them():
    searcher = single(constraints=lambda result: (result["memory"], -1))
    run(searcher, 1, bounded)
    trial = searcher.study.trials[0]
    assert trial.constraints == {"0": bounded(trial.params)["memory"], "1": -1.0}
    named = single(constraints=["memory"])
    run(named, 1, bounded)
    assert set(named.study.trials[0].constraints) == {"memory"}


def test_stopped_and_paused_trials_tell_by_how_much_they_violate_constraints():
    searcher = single(constraints=["memory"])
    for name in "ab":
        searcher.suggest(name)
        searcher.on_trial_pause(name, {"loss": 1.0, "memory": 3.0, "training_iteration": 1})
    searcher.on_trial_complete(
        "a", {"loss": 1.0, "memory": 2.0, "training_iteration": 2}, stopped=True
    )
    assert [trial.constraints for trial in searcher.study.trials] == [
        {"memory": 2.0},
        {"memory": 3.0},
    ]


@pytest.mark.parametrize("memory", [None, math.nan, "much", 10**400])
def test_a_trial_whose_constraints_cannot_be_told_is_told_fail(memory):
    searcher = single(constraints=["memory"])
    for name in "abc":
        searcher.suggest(name)
        searcher.on_trial_pause(name, {"loss": 1.0, "memory": memory, "training_iteration": 1})
        searcher.on_trial_complete(
            name, {"loss": 1.0, "memory": memory, "training_iteration": 1}, stopped=name == "b"
        )
    assert {trial.state for trial in searcher.study.trials} == {State.FAIL}


@pytest.mark.parametrize("constraints", [lambda result: result["typo"], lambda result: 3])
def test_a_constraint_function_that_raises_costs_the_trial_and_nothing_else(constraints):
    searcher = single(constraints=constraints)
    searcher.suggest("a")
    with pytest.warns(
        RuntimeWarning,
        match=r"constraints raised (KeyError|TypeError).*; the trial counts as failed",
    ):
        searcher.on_trial_complete("a", {"loss": 1.0})
    assert searcher.study.trials[0].state == State.FAIL


def test_no_constraints_in_what_a_function_returns_are_none():
    searcher = single(constraints=lambda result: [])
    run(searcher, 1, bounded)
    assert searcher.study.trials[0].state == State.COMPLETE


@pytest.mark.parametrize("constraints", ["memory", 3, [], [3], [""]])
def test_what_are_no_constraints_is_refused_at_once(constraints):
    with pytest.raises(
        TypeError,
        match="constraints must be a function of a result or a list of names of metrics, got",
    ):
        OptunaSearch(constraints=constraints)


def test_a_restored_search_keeps_its_constraints():
    first, second = single(constraints=["memory"]), single(constraints=["memory"])
    run(first, 14, bounded)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [trial.constraints for trial in second.study.trials] == [
        trial.constraints for trial in first.study.trials
    ]
    assert [first.suggest(name) for name in "abc"] == [second.suggest(name) for name in "abc"]
