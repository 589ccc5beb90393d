"""Optuna searches a conditional space as if a function of a trial had defined it: parents first, and only what exists."""

import json

import pytest

from searchers import OptunaSearch
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
    """Best with adam and a small rate: nothing else comes near."""
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


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_suggestions_have_what_exists_and_nothing_else(sampler):
    searcher, space = prepared(sampler=SAMPLERS[sampler]()), SearchSpace(SPACE)
    for number in range(40):
        config = evaluate(searcher, number)
        values = space.values_of(config)
        assert space.config_of(values, None) == config
        assert set(searcher.study.trials[number].params) == set(values)


def test_the_model_finds_the_branch_that_pays():
    searcher = prepared()
    for number in range(30):
        evaluate(searcher, number)
    late = [evaluate(searcher, number) for number in range(30, 50)]
    assert sum(config["opt"] != 0 and config["opt"]["name"] == "adam" for config in late) > 14


def test_points_come_first_and_what_they_leave_open_is_suggested():
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


def test_points_with_rewards_need_what_exists_beside_them():
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


def test_a_restored_search_goes_on_as_if_uninterrupted():
    straight = prepared()
    expected = [evaluate(straight, number) for number in range(25)]
    first = prepared()
    before = [evaluate(first, number) for number in range(13)]
    second = prepared()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + [evaluate(second, number) for number in range(13, 25)] == expected


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
            "'opt/0/x' must be .*, got FloatDistribution.* in a conditional space; use the words",
        ),
    ],
)
def test_what_optuna_cannot_search_is_refused_inside_options(word, message):
    with pytest.raises(ValueError, match=message):
        prepared({"opt": choice([{"x": word, "y": uniform(0, 1)}, "none"])})


def test_a_grid_beside_what_is_conditional_is_refused():
    with pytest.raises(ValueError, match=r"'a' must be a range .*, got grid_search; use choice"):
        prepared({"a": grid_search([1, 2]), "b": only_if({"a": 1}, loguniform(0.1, 1))})


def test_a_conditional_space_may_be_the_searchers_own():
    searcher = OptunaSearch(
        {"opt": choice([{"x": uniform(0, 1)}, "none"])}, metric="loss", mode="min"
    )
    assert searcher.set_search_properties(None, None, {"epochs": 3}, seed=0)
    assert {str(type(searcher.suggest(str(number))["opt"])) for number in range(10)} == {
        str(dict),
        str(str),
    }
