"""What all searchers with a model have in common."""

import copy
import json
import math

import numpy as np
import pytest

from searchers import BOHBSearch, CQRSearch, TreeSearch
from searchers.space import choice, grid_search, loguniform, randint, randn, sample_from, uniform

KINDS = [TreeSearch, BOHBSearch, CQRSearch]
SPACE = {
    "lr": loguniform(1e-4, 1.0),
    "net": {"depth": randint(1, 9), "act": choice(["relu", "tanh", "gelu"])},
    "epochs": 5,
}


def prepared(kind, space=SPACE, *, mode="min", seed=0, num_samples=-1, **arguments):
    searcher = kind(**arguments)
    assert searcher.set_search_properties("loss", mode, space, seed=seed, num_samples=num_samples)
    return searcher


def loss_of(config):
    return (
        abs(math.log10(config["lr"]) + 2)
        + 0.1 * config["net"]["depth"]
        + (config["net"]["act"] == "relu")
    )


def played(searcher, num_trials, loss=loss_of, first=0, bent=lambda value: value):
    """Run trials two at a time, each with two results, bent as asked for, and return their configurations."""
    configs = []
    for number in range(first, num_trials):
        config = searcher.suggest(f"t{number}")
        if config == searcher.FINISHED:
            break
        configs.append(copy.deepcopy(config))
        searcher.on_trial_result(
            f"t{number}", {"loss": bent(2 * loss(config)), "training_iteration": 1}
        )
        if number >= 1:
            searcher.on_trial_complete(
                f"t{number - 1}",
                {
                    "loss": bent(loss(configs[-2]) if len(configs) > 1 else 1.0),
                    "training_iteration": 3,
                },
            )
    return configs


@pytest.mark.parametrize("kind", KINDS)
def test_a_finite_space_is_gone_through_once(kind):
    searcher = prepared(kind, {"n": randint(0, 5), "act": choice(["a", "b", "c"])})
    configs = played(searcher, 30, loss=lambda config: float(config["n"]))
    assert len(configs) == 15
    assert len({tuple(config.values()) for config in configs}) == 15
    assert searcher.suggest("late") == searcher.FINISHED


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_without_parameters_has_one_configuration(kind):
    searcher = prepared(kind, {"epochs": 5})
    assert [searcher.suggest("a"), searcher.suggest("b")] == [{"epochs": 5}, searcher.FINISHED]


@pytest.mark.parametrize("kind", KINDS)
def test_pending_configurations_do_not_come_again(kind):
    searcher = prepared(kind, n_initial_points=4)
    played(searcher, 12)
    pending = [json.dumps(searcher.suggest(f"pending {number}")) for number in range(12)]
    assert len(set(pending)) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_any_increasing_function_of_the_metric_gives_the_same_search(kind):
    plain = played(prepared(kind), 25)
    assert played(prepared(kind), 25, bent=lambda value: math.exp(3 * value) - 7) == plain
    assert played(prepared(kind, mode="max"), 25, bent=lambda value: -(value**3)) == plain


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", [3, 14, 23])
def test_a_restored_search_goes_on_as_if_uninterrupted(kind, stop):
    original = prepared(kind)
    played(original, stop)
    restored = prepared(kind, seed=99)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert played(restored, 32, first=stop) == played(original, 32, first=stop)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_another_search(kind):
    assert played(prepared(kind), 12) != played(prepared(kind, seed=1), 12)
    assert played(prepared(kind, seed=1), 12) != played(prepared(kind, seed=2), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_of_its_own_comes_before_the_experiments(kind):
    searchers = [kind(seed=7), kind(seed=7)]
    for number, searcher in enumerate(searchers):
        searcher.set_search_properties("loss", "min", SPACE, seed=number)
    assert played(searchers[0], 12) == played(searchers[1], 12)


@pytest.mark.parametrize("kind", KINDS)
def test_points_to_evaluate_come_first_and_may_be_partial(kind):
    points = [{"lr": 0.5, "net": {"depth": 3, "act": "tanh"}}, {"net/depth": 8}]
    configs = played(prepared(kind, points_to_evaluate=points), 3)
    assert configs[0] == {"lr": 0.5, "net": {"depth": 3, "act": "tanh"}, "epochs": 5}
    assert configs[1]["net"]["depth"] == 8


@pytest.mark.parametrize("kind", KINDS)
def test_evaluated_points_teach_and_are_not_run_again(kind):
    points = [
        {"lr": 10**-exponent, "net": {"depth": 1, "act": "gelu"}}
        for exponent in np.linspace(0.1, 3.9, 20).tolist()
    ]
    rewards = [loss_of(point) for point in points]
    searcher = prepared(
        kind,
        points_to_evaluate=points,
        evaluated_rewards=rewards,
        n_initial_points=0,
        random_fraction=0,
    )
    first = [searcher.suggest(f"t{number}") for number in range(10)]
    assert all(
        config["lr"] not in [point["lr"] for point in points] or config["net"] != points[0]["net"]
        for config in first
    )
    assert np.median([loss_of(config) for config in first]) < np.median(rewards) + 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_points_are_spread_over_the_space(kind):
    searcher = prepared(kind, {"x": uniform(0, 1), "y": uniform(0, 1)})
    configs = [searcher.suggest(f"t{number}") for number in range(10)]
    for name in "xy":
        assert sorted(int(10 * config[name]) for config in configs) == list(range(10))


def test_few_samples_have_fewer_first_points():
    searcher = prepared(TreeSearch, {"x": uniform(0, 1)}, num_samples=16)
    assert sorted(int(4 * searcher.suggest(f"t{number}")["x"]) for number in range(4)) == list(
        range(4)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_models_learn_that_failures_are_worst(kind):
    searcher = prepared(kind, {"x": uniform(0, 1)}, random_fraction=0)
    late = []
    for number in range(40):
        x = searcher.suggest(f"t{number}")["x"]
        if x < 0.5:
            searcher.on_trial_complete(f"t{number}", error=True)
        else:
            searcher.on_trial_complete(
                f"t{number}", {"loss": abs(x - 0.8), "training_iteration": 1}
            )
        late += [x] if number >= 20 else []
    assert np.mean([x < 0.45 for x in late]) < 0.3  # of random points almost half


@pytest.mark.parametrize("kind", KINDS)
def test_computed_and_normal_parameters_are_searched_too(kind):
    space = {"x": randn(0.0, 1.0), "y": sample_from(lambda config: config["x"] + 1)}
    configs = played(prepared(kind, space), 14, loss=lambda config: config["x"] ** 2)
    assert all(config["y"] == config["x"] + 1 for config in configs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_that_only_functions_make_endless_goes_on(kind):
    configs = played(
        prepared(kind, {"n": randint(0, 2), "y": sample_from(lambda: 0)}),
        8,
        loss=lambda config: config["n"],
    )
    assert len(configs) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_everything_at_random_needs_no_results(kind):
    searcher = prepared(kind, random_fraction=1.0, n_initial_points=0)
    assert len({json.dumps(searcher.suggest(f"t{number}")) for number in range(20)}) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_results_without_a_time_still_count(kind):
    searcher = prepared(kind)
    for number in range(12):
        searcher.suggest(f"t{number}")
        searcher.on_trial_complete(f"t{number}", {"loss": float(number)})
    assert searcher.observations.table().quantiles.argmin() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_initial_points": -1}, "n_initial_points must be a whole number from 0, got -1"),
        ({"n_initial_points": 1.5}, "n_initial_points must be a whole number"),
        ({"random_fraction": 1.5}, "random_fraction must be between 0 and 1, got 1.5"),
        ({"time_attr": ""}, "time_attr must be the name of an entry"),
        ({"seed": -1}, "random_state must be 0 or more"),
        (
            {"points_to_evaluate": [{}], "evaluated_rewards": [1, 2]},
            "one value per point, got 2 for 1",
        ),
    ],
)
def test_wrong_arguments_are_refused_at_once(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ({}, (None, "min", SPACE), "metric must be the name of one metric for .*Search, got None"),
        ({}, ("loss", None, SPACE), "mode must be one of"),
        (
            {},
            ("loss", "min", {"x": grid_search([1])}),
            "'x' must be a range of numbers or a choice",
        ),
        ({"points_to_evaluate": [{"lr": 7.0}]}, ("loss", "min", SPACE), "'lr' must lie in"),
        (
            {"points_to_evaluate": [{"lr": 0.1}], "evaluated_rewards": [1]},
            ("loss", "min", SPACE),
            "must be complete, got none of",
        ),
        (
            {"points_to_evaluate": [{"x": 1}], "evaluated_rewards": [math.nan]},
            ("loss", "min", {"x": randint(0, 5)}),
            "must hold numbers",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_before_the_first_trial(kind, arguments, given, message):
    metric, mode, space = given
    with pytest.raises(ValueError, match=message):
        kind(**arguments).set_search_properties(metric, mode, space, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_given_twice_is_told(kind):
    assert not kind(metric="loss", mode="min").set_search_properties("other", None, SPACE)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_space_nothing_is_suggested(kind):
    with pytest.raises(
        RuntimeError, match="metric, mode and space must be known before the first suggestion"
    ):
        kind().suggest("a")
