"""Properties of all searchers that fit a model."""

import copy
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import AutoSearch, BOHBSearch, CQRSearch, GPSearch, TreeSearch
from searchers.models import gaussian_process, level_rows, linear_trend, observations
from searchers.models.bohb_search import Density
from searchers.models.candidates import mutants
from searchers.models.encoding import Encoding, key
from searchers.models.observations import Observations
from searchers.models.prior_band import LocalDensity, PriorBand
from searchers.space import (
    Categorical,
    SearchSpace,
    choice,
    grid_search,
    loguniform,
    only_if,
    randint,
    randn,
    sample_from,
    uniform,
)
from tests.tiers import examples

KINDS = [AutoSearch, GPSearch, TreeSearch, BOHBSearch, CQRSearch]
SPACE = {
    "lr": loguniform(1e-4, 1.0),
    "net": {"depth": randint(1, 9), "act": choice(["relu", "tanh", "gelu"])},
    "epochs": 5,
}


def vector_of(encoding, config):
    return encoding.encoded(encoding.assignments(config))


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
    """Run trials two at a time and return their configurations.

    Each reports two results, transformed by `bent`.
    """
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
def test_a_finite_space_is_enumerated_once(kind):
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
def test_pending_configurations_are_not_suggested_again(kind):
    searcher = prepared(kind, n_initial_points=6)
    played(searcher, 7)
    pending = [json.dumps(searcher.suggest(f"pending {number}")) for number in range(6)]
    assert len(set(pending)) == 6


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_no_number_of_a_continuous_range_is_suggested_twice(kind, seed):
    rates = [config["lr"] for config in played(prepared(kind, seed=seed), examples(60))]
    assert len(set(rates)) == examples(60)
    assert all(1e-4 <= rate <= 1.0 for rate in rates)


@pytest.mark.property
@pytest.mark.parametrize("kind", [AutoSearch, GPSearch])
def test_a_multiple_of_the_metric_gives_the_same_search(kind):
    num = examples(25)
    plain = played(prepared(kind), num)
    assert played(prepared(kind), num, bent=lambda value: 1024 * value) == plain
    assert played(prepared(kind, mode="max"), num, bent=lambda value: -value / 4) == plain


@pytest.mark.property
@pytest.mark.parametrize("kind", [TreeSearch, BOHBSearch, CQRSearch])
def test_any_increasing_function_of_the_metric_gives_the_same_search(kind):
    num = examples(25)
    plain = played(prepared(kind), num)
    assert played(prepared(kind), num, bent=lambda value: math.exp(3 * value) - 7) == plain
    assert played(prepared(kind, mode="max"), num, bent=lambda value: -(value**3)) == plain


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.45, 0.75])
def test_a_restored_search_continues_as_if_uninterrupted(kind, share):
    num = examples(32)
    original, stop = prepared(kind), int(share * num)
    played(original, stop)
    restored = prepared(kind, seed=99)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert played(restored, num, first=stop) == played(original, num, first=stop)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_another_search(kind):
    first, second, third = (played(prepared(kind, seed=seed), 11) for seed in range(3))
    assert first != second != third


@pytest.mark.parametrize("kind", KINDS)
def test_the_searchers_seed_takes_precedence_over_the_experiments(kind):
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
def test_the_model_is_fitted_to_points_with_rewards_which_are_not_run(kind):
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
    first = [searcher.suggest(f"t{number}") for number in range(8)]
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


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_failures_count_as_worst_for_models(kind):
    searcher = prepared(kind, {"x": uniform(0, 1)}, n_initial_points=6, random_fraction=0)
    late = []
    for number in range(20):
        x = searcher.suggest(f"t{number}")["x"]
        if x < 0.5:
            searcher.on_trial_complete(f"t{number}", error=True)
        else:
            searcher.on_trial_complete(
                f"t{number}", {"loss": abs(x - 0.8), "training_iteration": 1}
            )
        late += [x] if number >= 10 else []
    assert np.mean([x < 0.45 for x in late]) <= 0.3  # of random points almost half


@pytest.mark.parametrize("kind", KINDS)
def test_computed_and_normal_parameters_are_searched_too(kind):
    space = {"x": randn(0.0, 1.0), "y": sample_from(lambda config: config["x"] + 1)}
    configs = played(prepared(kind, space), 14, loss=lambda config: config["x"] ** 2)
    assert all(config["y"] == config["x"] + 1 for config in configs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_finite_space_with_a_computed_parameter_is_endless(kind):
    configs = played(
        prepared(kind, {"n": randint(0, 2), "y": sample_from(lambda: 0)}),
        8,
        loss=lambda config: config["n"],
    )
    assert len(configs) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_fraction_of_one_needs_no_results(kind):
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
def test_bad_arguments_are_refused_at_once(kind, arguments, message):
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
            "must be numbers",
        ),
    ],
)
def test_an_unsupported_space_is_refused_before_the_first_trial(kind, arguments, given, message):
    metric, mode, space = given
    with pytest.raises(ValueError, match=message):
        kind(**arguments).set_search_properties(metric, mode, space, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_metric_is_not_accepted(kind):
    assert not kind(metric="loss", mode="min").set_search_properties("other", None, SPACE)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_space_nothing_is_suggested(kind):
    with pytest.raises(
        RuntimeError, match="metric, mode and space must be known before the first suggestion"
    ):
        kind().suggest("a")


CONDITIONAL_SPACE = {
    "lr": loguniform(1e-4, 1.0),
    "opt": choice(
        [
            {"name": "sgd", "momentum": uniform(0.0, 0.9), "nesterov": choice([True, False])},
            {
                "name": "adam",
                "beta": uniform(0.8, 0.999),
                "eps": only_if({"beta": lambda beta: beta > 0.9}, loguniform(1e-8, 1e-2)),
            },
            "none",
        ]
    ),
    "depth": randint(1, 5),
    "skip": only_if(
        {"depth": lambda depth: depth > 2},
        choice([{"every": randint(1, 3)}, {"gain": uniform(0, 1)}]),
    ),
    "size": Categorical((16, 32, 64), is_ordered=True),
    "pad": only_if({"size": [32, 64]}, randint(0, 3)),
    "width": randint(0, 10_000),
    "groups": only_if({"width": lambda width: width % 2 == 0}, choice([1, 2])),
    "epochs": 5,
}
FINITE = {
    "opt": choice(
        [
            {"name": "sgd", "nesterov": choice([True, False])},
            {"name": "adam", "n": randint(0, 3)},
            "none",
        ]
    ),
    "depth": randint(1, 4),
    "skip": only_if({"depth": 3}, choice(["add", "cat"])),
}


def chained(length):
    """Return a space with one configuration more than parameters, which are too many to count."""
    return {
        f"p{number}": only_if({f"p{number + 1}": 1}, choice([1, 2])) for number in range(length)
    } | {f"p{length}": choice([1, 2])}


def conditional_loss(config):
    """Return a loss that is best in the second option, with the larger ``beta``."""
    opt = config["opt"]
    if opt == "none" or opt["name"] == "sgd":
        return 2.0 + abs(math.log10(config["lr"]) + 2)
    return 5 * (0.98 - opt["beta"]) ** 2 + abs(math.log10(config["lr"]) + 2) + 0.1 * config["depth"]


def prepared_conditional(kind, space=CONDITIONAL_SPACE, *, seed=0, **arguments):
    searcher = kind(**arguments)
    assert searcher.set_search_properties("loss", "min", space, seed=seed, num_samples=-1)
    return searcher


def played_conditional(searcher, num_trials, loss=conditional_loss, first=0):
    configs = []
    for number in range(first, num_trials):
        config = searcher.suggest(f"t{number}")
        if config == searcher.FINISHED:
            break
        configs.append(copy.deepcopy(config))
        searcher.on_trial_complete(f"t{number}", {"loss": loss(config), "training_iteration": 1})
    return configs


def is_settled(encoding, rows):
    """Return whether exactly the inactive entries are NaN, and all others encode values."""
    return all(
        encoding.settled(row) == pytest.approx(row, abs=1e-4, nan_ok=True)
        and is_whole(encoding, row)
        for row in rows.tolist()
    )


def is_whole(encoding, row):
    return not encoding.missing(encoding.decoded(row))


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32))
def test_vectors_have_active_parameters_only(seed):
    encoding, space = Encoding(CONDITIONAL_SPACE, "TreeSearch"), SearchSpace(CONDITIONAL_SPACE)
    rng = np.random.default_rng(seed)
    for row in encoding.from_cube(rng.random((5, len(encoding.columns)))).tolist():
        config = encoding.config(row, rng)
        values = space.values_of(config)
        assert [not math.isnan(entry) for entry in row] == [
            column.name in values for column in encoding.columns
        ]
        assert space.config_of(values, None) == config
        assert vector_of(encoding, config) == pytest.approx(row, abs=1e-4, nan_ok=True)


def test_each_parameter_has_a_column():
    names = [column.name for column in Encoding(CONDITIONAL_SPACE, "TreeSearch").columns]
    assert {
        "opt",
        "opt/0/momentum",
        "opt/1/beta",
        "opt/1/eps",
        "skip",
        "skip/0/every",
        "skip/1/gain",
        "groups",
    } < set(names)
    assert len(names) == len(set(names)) == 14


def test_mutants_and_samples_have_all_active_parameters():
    encoding, rng = Encoding(CONDITIONAL_SPACE, "TreeSearch"), np.random.default_rng(0)
    parents = encoding.from_cube(rng.random((400, len(encoding.columns))))
    children = mutants(rng, encoding, parents, np.full(400, 0.2), 0.3)
    assert (np.isnan(parents) & ~np.isnan(children)).any()
    assert is_settled(encoding, children)
    assert is_settled(encoding, Density(parents[:7], encoding).sample(rng, encoding, 200, 3.0))
    assert is_settled(
        encoding,
        LocalDensity(encoding, parents[0], ["low"] * len(encoding.columns)).sample(rng, 200),
    )
    assert is_settled(encoding, PriorBand(encoding).expected(rng))


def test_each_mutant_changes_an_active_parameter():
    encoding = Encoding(
        {
            "a": choice([1, {f"x{number}": uniform(0, 1) for number in range(20)}]),
            "y": uniform(0, 1),
        },
        "me",
    )
    rng = np.random.default_rng(0)
    parents = np.repeat([vector_of(encoding, {"a": 1, "y": 0.5})], 200, axis=0)
    children = mutants(rng, encoding, parents, np.full(200, 0.1), 0.0)
    is_same = (children == parents) | (np.isnan(children) & np.isnan(parents))
    # Every other one changes the choice, of which every other one draws what it was.
    assert is_same.all(axis=1).mean() < 0.4


def test_inactive_parameters_do_not_affect_densities():
    encoding = Encoding(
        {"opt": choice([{"a": choice([1, 2, 3], prior=2)}, {"b": uniform(0, 1, prior=0.5)}])}, "me"
    )
    one, other = vector_of(encoding, {"opt": {"a": 1}}), vector_of(encoding, {"opt": {"b": 0.5}})
    found = PriorBand(encoding).prior.densities(np.array([one, other]))
    assert found[0] < 1 < found[1]


@pytest.mark.parametrize("space", [FINITE, chained(110)])
def test_each_configuration_of_a_finite_space_is_counted_once(space):
    encoding = Encoding(space, "me")
    found = [key(vector) for vector in encoding.each(np.random.default_rng(3))]
    assert len(found) == len(set(found)) == (24 if space is FINITE else 112)
    assert encoding.size == (24 if space is FINITE else None)


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_a_conditional_space_is_searched_without_repetition(kind):
    searcher, space = prepared_conditional(kind), SearchSpace(CONDITIONAL_SPACE)
    configs = played_conditional(searcher, examples(60))
    assert len({json.dumps(config) for config in configs}) == examples(60)
    for config, trial in zip(configs, searcher.observations.trials.values(), strict=True):
        values = space.values_of(config)
        assert space.config_of(values, None) == config
        assert (
            sum(not math.isnan(entry) for entry in trial.vector)
            == len(values)
            == len(space.active(values))
        )


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_finds_the_best_option(kind):
    configs = played_conditional(prepared_conditional(kind, random_fraction=0), 40)
    late = [config["opt"] for config in configs[20:]]
    assert np.mean([opt != "none" and opt["name"] == "adam" for opt in late]) > 0.6
    assert (
        np.median([conditional_loss(config) for config in configs[20:]])
        < np.median([conditional_loss(config) for config in configs[:10]]) - 0.5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_finite_conditional_space_is_enumerated_once(kind):
    searcher = prepared_conditional(kind, FINITE, n_initial_points=21)
    configs = played_conditional(searcher, 40, loss=lambda config: float(config["depth"]))
    assert len(configs) == len({json.dumps(config) for config in configs}) == 24
    assert searcher.suggest("late") == searcher.FINISHED


@pytest.mark.property
def test_a_conditional_space_of_unknown_size_is_enumerated_once():
    searcher = prepared_conditional(TreeSearch, chained(110), random_fraction=1.0)
    configs = played_conditional(searcher, 200, loss=len)
    assert len(configs) == len({json.dumps(config) for config in configs}) == 112
    assert [searcher.suggest("late"), searcher.suggest("later")] == [searcher.FINISHED] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_functions_make_a_conditional_space_endless(kind):
    space = {
        "a": choice(
            [{"n": randint(0, 2), "m": sample_from(lambda config: config["a"]["n"] + 1)}, 3]
        )
    }
    configs = played_conditional(prepared_conditional(kind, space), 8, loss=lambda _config: 1.0)
    assert len(configs) == 8
    assert all(config["a"] == 3 or config["a"]["m"] == config["a"]["n"] + 1 for config in configs)


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.45, 0.75])
def test_a_restored_search_of_a_conditional_space_continues(kind, share):
    num = examples(30)
    original, stop = prepared_conditional(kind), int(share * num)
    played_conditional(original, stop)
    restored = prepared_conditional(kind, seed=99)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert played_conditional(restored, num, first=stop) == played_conditional(
        original, num, first=stop
    )


@pytest.mark.parametrize("kind", KINDS)
def test_points_to_evaluate_may_choose_a_branch(kind):
    points = [
        {"opt": {"momentum": 0.5}},
        {"opt": "none", "depth": 4, "skip": {"every": 2}},
        {"opt/name": "adam", "opt/beta": 0.95},
    ]
    configs = played_conditional(prepared_conditional(kind, points_to_evaluate=points), 4)
    assert configs[0]["opt"]["momentum"] == 0.5
    assert set(configs[0]["opt"]) == {"name", "momentum", "nesterov"}
    assert (configs[1]["opt"], configs[1]["depth"], configs[1]["skip"]) == ("none", 4, {"every": 2})
    assert configs[2]["opt"]["beta"] == 0.95
    assert set(configs[2]["opt"]) == {"name", "beta", "eps"}


@pytest.mark.parametrize("kind", KINDS)
def test_evaluated_points_need_active_parameters_only(kind):
    point = {"lr": 0.1, "opt": "none", "depth": 1, "size": 16, "width": 7}
    searcher = prepared_conditional(kind, points_to_evaluate=[point], evaluated_rewards=[0.5])
    assert searcher.observations.num_observed == 1
    with pytest.raises(ValueError, match=r"must be complete, got none of \['opt/0/nesterov'\]"):
        prepared_conditional(
            kind, points_to_evaluate=[{**point, "opt": {"momentum": 0.5}}], evaluated_rewards=[0.5]
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"opt": "rmsprop"}, "'opt' must fit an option of its choice"),
        ({"depth": 1, "skip": {"every": 1}}, "'skip.*' must be left out where 'depth' is 1"),
        ({"skip": {"every": 1}}, "must come with 'depth', which decides whether it is there"),
    ],
)
def test_points_that_do_not_fit_are_refused_with_the_space(kind, point, message):
    with pytest.raises(ValueError, match=message):
        prepared_conditional(kind, points_to_evaluate=[point])


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_priors_count_inside_branches(kind):
    sgd = {
        "momentum": uniform(0, 1, prior=0.9, prior_confidence="high"),
        "nesterov": choice([True, False], prior=True),
    }
    space = {
        "opt": choice([{"beta": uniform(0, 1)}, sgd, "none"], prior=1, prior_confidence="high"),
        "lr": uniform(0, 1, prior=0.2),
    }
    searcher = prepared_conditional(kind, space)
    assert searcher.suggest("first") == {
        "opt": {"momentum": 0.9, "nesterov": True},
        "lr": pytest.approx(0.2),
    }
    configs = played_conditional(
        searcher,
        20,
        loss=lambda config: (
            abs(config["opt"]["momentum"] - 0.9) if "momentum" in config["opt"] else 2.0
        ),
    )
    assert np.mean(["momentum" in config["opt"] for config in configs]) > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_grid_in_a_conditional_space_is_refused(kind):
    with pytest.raises(
        ValueError,
        match=r"'n' must be a range of numbers or a choice for .*Search, got grid_search",
    ):
        prepared_conditional(
            kind, {"n": grid_search([1, 2]), "a": only_if({"n": 1}, choice([1, 2]))}
        )


MODELS = {
    AutoSearch: ("Gaussian process", "randomised trees"),
    GPSearch: ("Gaussian process",),
    TreeSearch: ("randomised trees",),
    BOHBSearch: ("kernel densities",),
    CQRSearch: ("conformal quantile regression",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_suggestion_is_explained(kind):
    arguments = {"n_initial_points": 2, "random_fraction": 0.0}
    searcher = prepared(kind, points_to_evaluate=[{"lr": 0.1}], **arguments)
    told = []
    for number in range(10):
        searcher.suggest(f"t{number}")
        told.append(searcher.explain_suggestion())
        if number >= 3:  # results come late
            for late in range(4) if number == 3 else [number]:
                result = {"loss": 1.0 / (1 + late), "training_iteration": 1}
                searcher.on_trial_complete(f"t{late}", result)
    assert told[:4] == [
        "number 1 of points_to_evaluate",
        "initial point 1 of 2",
        "initial point 2 of 2",
        "random, since fewer than 4 trials have results",
    ]
    by_model = [f"{model}, fitted to {{}} trials" for model in MODELS[kind]]
    for number, each in enumerate(told[4:], start=4):
        assert each in [text.format(number) for text in by_model]
    assert len({each.split(",")[0] for each in told[4:]}) == len(by_model)


def test_a_random_suggestion_is_explained_by_its_share():
    searcher = prepared(TreeSearch, random_fraction=1.0)
    played(searcher, 20)
    assert searcher.explain_suggestion() == "random, drawn with random_fraction=1"


@pytest.mark.parametrize("kind", [AutoSearch, GPSearch, TreeSearch])
def test_an_explanation_says_how_far_early_results_are_believed(kind):
    # Of ten trials, the first four are trained on; the best at 100 is the worst at 10.
    searcher = prepared(kind, {"x": uniform(0, 1)}, n_initial_points=10)
    for number in range(10):
        x = searcher.suggest(f"t{number}")["x"]
        searcher.on_trial_result(f"t{number}", {"loss": x, "training_iteration": 10})
        if number < 4:
            searcher.on_trial_result(f"t{number}", {"loss": 1 - x, "training_iteration": 100})
        searcher.on_trial_complete(f"t{number}", stopped=True)
    restored = prepared(kind, {"x": uniform(0, 1)}, n_initial_points=10)
    restored.load_state_dict(json.loads(json.dumps(searcher.state_dict())))
    for each in (searcher, restored):
        each.suggest("next")
        told = re.fullmatch(
            r"(.*), fitted to 10 trials; share of a lead expected to last until 100: "
            r"(-?\d\.\d\d) from 10; 4 trials reached 100",
            each.explain_suggestion(),
        )
        assert told[1] in MODELS[kind]
        assert -1 <= float(told[2]) < 0.9


def test_a_state_without_times_is_explained_by_the_start_of_their_slots():
    recorded = Observations()
    for number in range(10):
        recorded.add(f"t{number}", [number / 10])
        recorded.record(f"t{number}", 10, number)
        if number < 4:
            recorded.record(f"t{number}", 100, number)
    earlier = Observations()
    earlier.load_state_dict(recorded.state_dict())
    [low, high] = earlier.table().levels
    assert 9 < low.time <= 10
    assert 90 < high.time <= 100


def with_rounding_errors(function, rng):
    def changed(*arguments, **named):
        found = function(*arguments, **named)
        return (
            tuple(each * (1 + 1e-14 * rng.normal(size=each.shape)) for each in found)
            if isinstance(found, tuple)
            else found * (1 + 1e-14 * rng.normal(size=found.shape))
        )

    return changed


@pytest.mark.property
@pytest.mark.parametrize("kind", [AutoSearch, GPSearch, TreeSearch])
@pytest.mark.parametrize("seed", range(3))
def test_rounding_errors_of_linear_algebra_change_no_suggestion(kind, seed, monkeypatch):
    # Another kind of processor adds in another order.
    expected = played(prepared(kind, seed=seed), examples(40))
    rng = np.random.default_rng(seed)
    for module, name in [
        (linear_trend, "ridge"),
        (observations, "ridge"),
        (gaussian_process, "_cholesky"),
        (gaussian_process, "_solve"),
    ]:
        changed = with_rounding_errors(getattr(module, name), rng)
        monkeypatch.setattr(module, name, changed)
    assert played(prepared(kind, seed=seed), examples(40)) == expected


@pytest.mark.property
@pytest.mark.parametrize("kind", [GPSearch, CQRSearch])
def test_an_explanation_counts_the_trials_that_the_model_is_fitted_to(kind, monkeypatch):
    # The process is fitted to so many trials at most, and the quantiles not anew for each
    # suggestion.
    monkeypatch.setattr(level_rows, "MAX_ROWS", 24)
    num_trials = 30 if kind is GPSearch else 60
    searcher = prepared(kind, n_initial_points=num_trials, random_fraction=0.0)
    played(searcher, num_trials)
    counts = []
    for number in range(3):
        searcher.suggest(f"late{number}")
        counts.append(int(re.search(r"fitted to (\d+) trials", searcher.explain_suggestion())[1]))
        searcher.on_trial_result(f"late{number}", {"loss": 1.0, "training_iteration": 3})
    if kind is GPSearch:
        assert 12 <= min(counts) <= max(counts) <= 24  # a trial has several rows
    else:
        assert counts == [num_trials] * 3
