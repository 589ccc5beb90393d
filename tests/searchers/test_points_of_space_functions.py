"""Points for a space that is a function of an Optuna trial are checked like any others."""

import math

import pytest

from searchers import BasicVariantGenerator, OptunaSearch, TreeSearch
from searchers.space import uniform

pytest.importorskip("optuna")


def define(trial):
    trial.suggest_float("lr", 0, 10)
    trial.suggest_categorical("act", ["relu", "tanh"])
    return {"epochs": 4}


def define_layers(trial):
    for layer in range(trial.suggest_int("model/num", 1, 3)):
        trial.suggest_int(f"model/width{layer}", 8, 64)


def first(function, point, constants=None, **arguments):
    searcher = OptunaSearch(function, points_to_evaluate=[point], **arguments)
    searcher.set_search_properties("loss", "min", constants or {}, seed=1)
    return searcher.suggest("t0")


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"lr": 1.0, "act": "relu", "zz": 3}, "'zz' must be a name .* 'lr', 'act'; correct"),
        ({"learning": 1.0}, "'learning' must be a name"),
        ({"lr": 1.0, "epochs": 5}, "'epochs' must be 4 as in the space, got 5"),
    ],
)
def test_what_the_function_does_not_know_is_refused_before_the_search(point, message):
    with pytest.raises(ValueError, match=message):
        first(define, point)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"lr": 20.0}, r"'lr' must lie in FloatDistribution.*, got 20.0; correct the point"),
        ({"lr": "foo"}, "'lr' must lie in FloatDistribution.*, got 'foo'"),
        ({"act": "gelu"}, "'act' must lie in CategoricalDistribution.*, got 'gelu'"),
        ({"lr": 1.0, "akt": "relu"}, "'akt' must be a name .*; did you mean 'act'?"),
    ],
)
def test_what_is_known_to_be_wrong_is_refused_at_construction(point, message):
    with pytest.raises(ValueError, match=message):
        OptunaSearch(define, points_to_evaluate=[point])


@pytest.mark.parametrize(
    "point",
    [
        {"model": {"num": 2, "width0": 8, "width1": 9}},
        {"model/num": 2, "model/width0": 8, "model/width1": 9},
    ],
)
def test_points_may_be_nested_or_flat(point):
    assert first(define_layers, point) == {"model": {"num": 2, "width0": 8, "width1": 9}}


def test_values_that_are_not_asked_for_beside_the_others_are_refused():
    with pytest.raises(ValueError, match=r"'model/width1' must be a name .* asks the trial for"):
        first(define_layers, {"model": {"num": 1, "width0": 8, "width1": 9}})
    with pytest.raises(
        ValueError, match=r"'model/width2' must come with all that decides .*; add 'model/num'"
    ):
        first(define_layers, {"model": {"width2": 9}})


def test_constants_may_be_repeated():
    config = first(
        define, {"lr": 2.0, "act": "tanh", "epochs": 4, "data": "x"}, constants={"data": "x"}
    )
    assert config == {"lr": 2.0, "act": "tanh", "epochs": 4, "data": "x"}
    with pytest.raises(ValueError, match="'data' must be 'x' as in the space, got 'y'"):
        first(define, {"lr": 2.0, "data": "y"}, constants={"data": "x"})


def test_parameters_that_are_left_out_are_drawn():
    config = first(define, {"lr": 2.0})
    assert config["lr"] == 2.0
    assert config["act"] in ("relu", "tanh")


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([0.5, 0.6], "evaluated_rewards must hold one value per point, got 2 for 1"),
        ([math.nan], "evaluated_rewards must hold numbers, got nan"),
        (["good"], "evaluated_rewards must hold numbers, got 'good'"),
    ],
)
def test_rewards_are_checked(rewards, message):
    with pytest.raises(ValueError, match=message):
        first(define, {"lr": 1.0, "act": "relu"}, evaluated_rewards=rewards)


def test_points_with_rewards_are_complete():
    with pytest.raises(ValueError, match=r"must be complete, got none of \['act'\]"):
        first(define, {"lr": 1.0}, evaluated_rewards=[0.5])


@pytest.mark.parametrize("kind", [BasicVariantGenerator, TreeSearch, OptunaSearch])
@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"lr": 0.5}, r"must be a list of configurations, got one, \{'lr': 0.5\}; put it into"),
        ([0.5], r"must hold configurations as dictionaries, got 0.5; write"),
        (["lr"], r"must hold configurations as dictionaries, got 'lr'"),
        ("lr", r"must be a list of configurations, got 'lr'"),
    ],
)
def test_points_that_are_no_dictionaries_are_refused_at_construction(kind, points, message):
    with pytest.raises(TypeError, match=f"points_to_evaluate {message}"):
        kind(points_to_evaluate=points)


def test_a_space_that_is_declared_checks_the_same():
    searcher = OptunaSearch({"lr": uniform(0, 1)}, points_to_evaluate=[{"lrr": 0.5}])
    with pytest.raises(ValueError, match="'lrr' must be a name in the space"):
        searcher.set_search_properties("loss", "min", {}, seed=1)
