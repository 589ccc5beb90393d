"""Conditional spaces, several metrics and constraints in `OptunaSearch`."""

import json
import math
from statistics import mean

import pytest

from searchers import ConcurrencyLimiter, OptunaSearch
from searchers.objectives import outcome_constraints
from searchers.space import (
    SearchSpace,
    choice,
    grid_search,
    loguniform,
    only_if,
    qloguniform,
    randint,
    randn,
    sample_from,
    uniform,
)

optuna = pytest.importorskip("optuna")

SPACE = {
    "opt": choice(
        [
            {"name": "sgd", "momentum": uniform(0, 1), "act": choice([abs, [1], "x"])},
            {"name": "adam", "beta": uniform(0.8, 1)},
            0,
        ]
    ),
    "lr": only_if({"opt": [0, 1]}, qloguniform(0.1, 1, 0.1)),
    "depth": randint(1, 6),
    "skip": only_if(
        {"depth": lambda depth: depth > 3}, {"kind": choice(["add", "concat"]), "gain": 2}
    ),
    "epochs": 5,
}


def prepared(config=SPACE, *, seed=0, **arguments):
    searcher = OptunaSearch(metric="loss", mode="min", **arguments)
    assert searcher.set_search_properties(None, None, config, seed=seed)
    return searcher


def loss_of(config):
    """Best with adam and a small rate, by a large margin."""
    return (
        3.0
        if config["opt"] == 0 or config["opt"]["name"] == "sgd"
        else config["lr"] + abs(config["opt"]["beta"] - 0.9)
    )


def evaluate(searcher, number):
    config = searcher.suggest(str(number))
    searcher.on_trial_complete(str(number), {"loss": loss_of(config)})
    return config


SAMPLERS = {
    "tpe": lambda: None,
    "tpe in groups": lambda: optuna.samplers.TPESampler(multivariate=True, group=True, seed=0),
    "random": lambda: optuna.samplers.RandomSampler(seed=0),
}


@pytest.mark.property
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_suggestions_have_active_parameters_only(sampler):
    searcher, space = prepared(sampler=SAMPLERS[sampler]()), SearchSpace(SPACE)
    for number in range(40):
        config = evaluate(searcher, number)
        values = space.values_of(config)
        assert space.config_of(values, None) == config
        assert set(searcher.study.trials[number].params) == set(values)


@pytest.mark.property
def test_the_model_finds_the_best_branch():
    searcher = prepared()
    for number in range(30):
        evaluate(searcher, number)
    late = [evaluate(searcher, number) for number in range(30, 50)]
    assert sum(config["opt"] != 0 and config["opt"]["name"] == "adam" for config in late) > 14


def test_points_come_first_and_missing_parameters_are_suggested():
    points = [
        {
            "opt": {"name": "sgd", "momentum": 0.5, "act": [1]},
            "lr": 0.3,
            "depth": 5,
            "skip/kind": "add",
        },
        {"opt": 0},
        {"opt/beta": 0.9},
    ]
    searcher = prepared(points_to_evaluate=points)
    first, second, third = (searcher.suggest(str(number)) for number in range(3))
    assert first == {
        "opt": {"name": "sgd", "momentum": 0.5, "act": [1]},
        "lr": 0.3,
        "depth": 5,
        "skip": {"kind": "add", "gain": 2},
        "epochs": 5,
    }
    assert second["opt"] == 0
    assert third["opt"] == {"name": "adam", "beta": 0.9}


def test_points_with_rewards_need_all_active_parameters():
    whole = {"opt": {"name": "adam", "beta": 0.9}, "lr": 0.1, "depth": 2}
    searcher = prepared(
        points_to_evaluate=[whole, {"opt": 0, "depth": 1}], evaluated_rewards=[0.1, 3.0]
    )
    assert [trial.value for trial in searcher.study.trials] == [0.1, 3.0]
    assert searcher.study.trials[1].params == {"opt": 2, "depth": 1}
    with pytest.raises(
        ValueError, match=r"must be complete, got none of \['lr'\]; add their values"
    ):
        prepared(
            points_to_evaluate=[{"opt": {"name": "adam", "beta": 0.9}, "depth": 2}],
            evaluated_rewards=[0.1],
        )


def test_points_that_do_not_fit_are_refused_with_the_space():
    with pytest.raises(ValueError, match="'lr' must be left out where 'opt' is 2"):
        prepared(points_to_evaluate=[{"opt": 0, "lr": 0.5}])


def test_a_restored_search_continues_as_if_uninterrupted():
    straight = prepared()
    expected = [evaluate(straight, number) for number in range(16)]
    first = prepared()
    before = [evaluate(first, number) for number in range(12)]
    second = prepared()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + [evaluate(second, number) for number in range(12, 16)] == expected


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            randn(),
            (
                "'opt/0/x' must be a range of floats or integers or a choice for OptunaSearch, got "
                "randn"
            ),
        ),
        (
            sample_from(int),
            "'opt/0/x' must be a range .*, got sample_from; compute the value in the training code",
        ),
        (
            optuna.distributions.FloatDistribution(0, 1),
            (
                "'opt/0/x' must be .*, got FloatDistribution.* in a conditional space; "
                "use the functions of this"
            ),
        ),
    ],
)
def test_domains_that_optuna_does_not_support_are_refused_inside_options(word, message):
    with pytest.raises(ValueError, match=message):
        prepared({"opt": choice([{"x": word, "y": uniform(0, 1)}, "none"])})


def test_a_grid_beside_conditions_is_refused():
    with pytest.raises(ValueError, match=r"'a' must be a range .*, got grid_search; use choice"):
        prepared({"a": grid_search([1, 2]), "b": only_if({"a": 1}, loguniform(0.1, 1))})


def test_the_argument_space_may_be_conditional():
    searcher = OptunaSearch(
        {"opt": choice([{"x": uniform(0, 1)}, "none"])}, metric="loss", mode="min"
    )
    assert searcher.set_search_properties(None, None, {"epochs": 3}, seed=0)
    assert {str(type(searcher.suggest(str(number))["opt"])) for number in range(10)} == {
        str(dict),
        str(str),
    }


State = optuna.trial.TrialState

OBJECTIVES_SPACE = {"x": uniform(0, 1), "kind": choice(["a", "b"])}


def several(**arguments):
    searcher = OptunaSearch(metric=["accuracy", "latency"], mode=["max", "min"], **arguments)
    assert searcher.set_search_properties(None, None, OBJECTIVES_SPACE, seed=0)
    return searcher


def single(**arguments):
    searcher = OptunaSearch(metric="loss", mode="min", **arguments)
    assert searcher.set_search_properties(None, None, OBJECTIVES_SPACE, seed=0)
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


def test_trials_end_with_all_metrics_in_order_and_no_intermediate_values():
    searcher = several()
    config = run(searcher, 1, trade_off)[0]
    trial = searcher.study.trials[0]
    assert trial.values == list(trade_off(config).values())
    assert trial.intermediate_values == {}
    assert [direction.name for direction in searcher.study.directions] == ["MAXIMIZE", "MINIMIZE"]


def test_the_study_has_the_pareto_front():
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


def test_with_several_metrics_the_searchers_metric_is_none():
    searcher = several()
    assert (searcher.metric, searcher.mode) == (None, None)
    limiter = ConcurrencyLimiter(OptunaSearch(metric=["a", "b"], mode=["min", "min"]), 1)
    assert limiter.set_search_properties(None, None, OBJECTIVES_SPACE, seed=0)
    assert (limiter.metric, limiter.mode) == (None, None)


def test_a_list_of_one_metric_is_a_single_one():
    searcher = OptunaSearch(metric=["loss"], mode=["min"])
    assert (searcher.metric, searcher.mode) == ("loss", "min")
    assert not searcher.set_search_properties("other", None, OBJECTIVES_SPACE)


@pytest.mark.parametrize(("metric", "mode"), [("loss", None), (None, "min"), ("loss", "min")])
def test_a_metric_of_the_experiment_is_refused_with_several(metric, mode):
    searcher = OptunaSearch(metric=["a", "b"], mode=["min", "max"])
    with pytest.raises(
        ValueError,
        match=r"metric and mode must be the same everywhere, got .* in TuneConfig and "
        r"metric=\['a', 'b'\]",
    ):
        searcher.set_search_properties(metric, mode, OBJECTIVES_SPACE)


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
        OptunaSearch(metric=metric, mode=mode).set_search_properties(None, None, OBJECTIVES_SPACE)


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
def test_a_trial_that_lacks_a_metric_is_fail(result):
    searcher = several()
    searcher.suggest("a")
    searcher.on_trial_complete("a", result)
    assert searcher.study.trials[0].state == State.FAIL


def test_stopped_trials_are_pruned_and_paused_ones_stay_running():
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


def test_a_restored_search_for_several_metrics_continues_as_if_uninterrupted():
    first, second = several(), several()
    run(first, 14, trade_off)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [first.suggest(name) for name in "abc"] == [second.suggest(name) for name in "abc"]


# What `TuneConfig` says.


def told(objectives, bounds, **arguments):
    searcher = OptunaSearch(**arguments)
    metric, mode = objectives[0] if len(objectives) == 1 else (None, None)
    assert searcher.set_search_properties(
        metric,
        mode,
        OBJECTIVES_SPACE,
        seed=0,
        objectives=objectives,
        constraints=outcome_constraints(bounds),
    )
    return searcher


TRADE_OFF = (("accuracy", "max"), ("latency", "min"))


def test_the_metrics_of_the_experiment_are_searched_as_those_of_the_searcher():
    assert run(told(TRADE_OFF, None), 14, trade_off) == run(several(), 14, trade_off)


def test_bounds_are_satisfied_at_zero_or_below_for_optuna():
    searcher = told(TRADE_OFF, {"size": "<= 4", "accuracy": ">= 0.25"})
    run(searcher, 1, lambda config: {"accuracy": 0.5, "latency": 1.0, "size": 3})
    assert searcher.study.trials[0].constraints == {"size": -1.0, "accuracy": -0.25}
    assert searcher.study.best_trials == searcher.study.trials


def test_both_bounds_of_a_metric_are_told_to_optuna():
    searcher = told((("loss", "min"),), {"size": [">= 1", "<= 4"]})
    for name, size in (("small", 0.5), ("kept", 3), ("large", 6)):
        searcher.suggest(name)
        searcher.on_trial_complete(name, {"loss": 1.0, "size": size})
    assert [trial.constraints for trial in searcher.study.trials] == [
        {"size": 0.5, "size <= 4": -3.5},
        {"size": -2, "size <= 4": -1},
        {"size": -5, "size <= 4": 2},
    ]
    assert searcher.study.best_trial.number == 1


def test_a_bounded_metric_that_is_reported_once_counts_after_a_restore_too():
    first, second = (told((("loss", "min"),), {"size": "<= 4"}) for _ in range(2))
    first.suggest("a")
    first.on_trial_result("a", {"loss": 2.0, "size": 5, "training_iteration": 1})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.on_trial_complete("a", {"loss": 1.0, "size": None, "training_iteration": 2})
    assert second.study.trials[0].constraints == {"size": 1.0}
    assert second.study.trials[0].values == [1.0]
    assert second.state_dict()["newest"] == {}


def test_a_function_adds_to_the_constraints_of_the_experiment():
    searcher = told((("loss", "min"),), {"size": "<= 4"}, constraints=lambda result: [-1])
    run(searcher, 1, lambda config: {"loss": 1.0, "size": 3})
    assert searcher.study.trials[0].constraints == {"0": -1.0, "size": -1.0}


@pytest.mark.parametrize(
    ("objectives", "constraints", "message"),
    [
        ((("loss", "min"),), {"size": "<= 4"}, "constraints must be None with CmaEsSampler"),
        (TRADE_OFF, None, "sampler must be able to search the space for 2 metrics, CmaEs"),
    ],
)
def test_a_sampler_that_cannot_is_refused(objectives, constraints, message):
    pytest.importorskip("cmaes")
    with pytest.raises(ValueError, match=message):
        told(objectives, constraints, sampler=optuna.samplers.CmaEsSampler(seed=1))


# Constraints.


def bounded(config):
    return {"loss": -config["x"], "memory": config["x"] - 0.4}


@pytest.mark.property
@pytest.mark.parametrize("constraints", [["memory"], lambda result: [result["memory"], -1.0]])
def test_the_default_sampler_and_the_best_trial_respect_constraints(constraints):
    searcher = single(constraints=constraints)
    configs = run(searcher, 45, bounded)
    assert searcher.study.best_trial.params["x"] <= 0.4
    assert mean(config["x"] for config in configs[-15:]) < 0.5
    assert mean(config["x"] for config in run(single(), 45, bounded)[-15:]) > 0.8, (
        "else this says nothing"
    )


@pytest.mark.property
@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler"])
def test_a_given_sampler_respects_constraints(name):
    options = {"population_size": 8} if name == "NSGAIISampler" else {}
    searcher = single(
        constraints=["memory"], sampler=getattr(optuna.samplers, name)(seed=1, **options)
    )
    configs = run(searcher, 64, bounded)
    assert mean(config["x"] for config in configs[-16:]) < 0.5


def test_constraints_are_stored_as_by_optuna():
    searcher = single(constraints=lambda result: (result["memory"], -1))
    run(searcher, 1, bounded)
    trial = searcher.study.trials[0]
    assert trial.constraints == {"0": bounded(trial.params)["memory"], "1": -1.0}
    named = single(constraints=["memory"])
    run(named, 1, bounded)
    assert set(named.study.trials[0].constraints) == {"memory"}


def test_stopped_and_paused_trials_have_constraint_values():
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
def test_a_trial_without_constraint_values_is_fail(memory):
    searcher = single(constraints=["memory"])
    for name in "abc":
        searcher.suggest(name)
        searcher.on_trial_pause(name, {"loss": 1.0, "memory": memory, "training_iteration": 1})
        searcher.on_trial_complete(
            name, {"loss": 1.0, "memory": memory, "training_iteration": 1}, stopped=name == "b"
        )
    assert {trial.state for trial in searcher.study.trials} == {State.FAIL}


@pytest.mark.parametrize("constraints", [lambda result: result["typo"], lambda result: 3])
def test_a_constraint_function_that_raises_fails_the_trial_only(constraints):
    searcher = single(constraints=constraints)
    searcher.suggest("a")
    with pytest.warns(
        RuntimeWarning,
        match=r"constraints raised (KeyError|TypeError).*; the trial counts as failed",
    ):
        searcher.on_trial_complete("a", {"loss": 1.0})
    assert searcher.study.trials[0].state == State.FAIL


def test_an_empty_result_of_a_constraint_function_means_no_constraints():
    searcher = single(constraints=lambda result: [])
    run(searcher, 1, bounded)
    assert searcher.study.trials[0].state == State.COMPLETE


@pytest.mark.parametrize("constraints", ["memory", 3, [], [3], [""]])
def test_bad_constraints_are_refused_at_once(constraints):
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
