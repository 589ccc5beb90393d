import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.population.explore import Explorer, named_generator, replaced
from searchers.space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from tests.tiers import examples

DOMAINS = [
    uniform(-1, 2),
    quniform(-1, 1, 0.25),
    loguniform(1e-5, 10),
    qloguniform(0.1, 10, 0.1),
    randint(-3, 8),
    randint(5, 6),
    qrandint(8, 64, 8),
    lograndint(1, 1000),
    qlograndint(8, 64, 8),
    randn(1, 3),
    qrandn(0, 2, 0.5),
    choice(["adam", "sgd", None]),
    choice([16, 32, 64], ordered=True),
    choice([(1, 2)]),
]
FACTORS = st.floats(0.05, 5.0)


def rng(name="test"):
    return named_generator(name)


def moved(mutation, value, **options):
    return Explorer({"x": mutation}, **{"resample_probability": 0} | options)({"x": value}, rng())[
        "x"
    ]


@settings(max_examples=examples(150))
@given(
    st.sampled_from(DOMAINS), st.integers(0, 10**6), st.floats(0, 1), st.tuples(FACTORS, FACTORS)
)
def test_a_hyperparameter_never_leaves_its_domain(domain, seed, resample_probability, factors):
    explorer = Explorer({"x": domain}, resample_probability, factors)
    config = {"x": domain.sample(rng(str(seed)))}
    for step in range(6):
        config = explorer(config, rng(f"{seed}/{step}"))
        assert domain.contains(config["x"])
        assert type(config["x"]).__module__ != "numpy"


@given(
    st.sampled_from(DOMAINS),
    st.one_of(
        st.none(),
        st.floats(),
        st.integers(),
        st.text(max_size=3),
        st.booleans(),
        st.lists(st.integers(), max_size=2),
    ),
    st.booleans(),
)
def test_a_value_that_the_domain_does_not_know_is_brought_into_it(domain, value, is_resampled):
    assert domain.contains(Explorer({"x": domain}, float(is_resampled))({"x": value}, rng())["x"])


@pytest.mark.parametrize(
    ("mutation", "value", "up", "down"),
    [
        (uniform(0, 10), 5.0, 7.0, 3.0),
        (uniform(0, 10), 9.5, 10.0, 7.5),
        (uniform(-1, 1), 0.0, 0.4, -0.4),
        (loguniform(1e-4, 1), 1e-2, 1e-2 * 10**0.8, 1e-2 / 10**0.8),
        (quniform(0, 1, 0.1), 0.5, 0.7, 0.3),
        (randint(0, 101), 50, 70, 30),
        (randint(0, 4), 3, 3, 2),
        (choice(["s", "m", "l"], ordered=True), "m", "l", "s"),
        (["s", "m", "l"], "m", "l", "s"),
        (("s", "m", "l"), "l", "m", "m"),
        ([16, 32], 16, 32, 32),
        (randn(0, 1), 0.0, 0.8, -0.8),
    ],
)
def test_a_factor_moves_by_part_of_the_whole_scale(mutation, value, up, down):
    assert moved(mutation, value, factors=(1.2, 1.2)) == pytest.approx(up)
    assert moved(mutation, value, factors=(0.8, 0.8)) == pytest.approx(down)


@pytest.mark.parametrize(
    ("domain", "value"),
    [(randint(0, 1000), 500), (qrandint(0, 800, 8), 400), (quniform(0, 10, 0.5), 5.0)],
)
def test_what_is_rounded_moves_by_one_step_at_least(domain, value):
    assert moved(domain, value, factors=(1.0001, 1.0001)) == value + domain.q
    assert moved(domain, value, factors=(0.9999, 0.9999)) == value - domain.q


def test_unordered_categories_are_drawn_afresh():
    explorer = Explorer({"x": choice(["a", "b", "c"])}, 0)
    drawn = [explorer({"x": "a"}, rng(str(number)))["x"] for number in range(300)]
    assert all(80 <= drawn.count(category) <= 120 for category in "abc")


def test_resampling_is_as_likely_as_resample_probability():
    explorer = Explorer({"x": uniform(0, 1)}, 0.25)
    values = [explorer({"x": 0.5}, rng(str(number)))["x"] for number in range(1000)]
    near = [value for value in values if math.isclose(value, 0.3) or math.isclose(value, 0.7)]
    assert 700 <= len(near) <= 800


def test_functions_are_called_or_their_numbers_multiplied():
    assert moved(lambda: 7.0, 0.5, factors=(1.2, 1.2)) == pytest.approx(0.6)
    assert moved(lambda: 7.0, 100.0, factors=(3, 3)) == 300.0
    assert moved(lambda: 7.0, 0.0) == 7.0
    assert moved(lambda: 7, 3, factors=(1.2, 1.2)) == 4
    assert moved(lambda: 7, np.int64(-3), factors=(0.9, 0.9)) == -4
    assert moved(lambda: "b", "a") == "b"
    assert moved(lambda: False, True) is False
    assert moved(lambda: 7.0, 0.5, resample_probability=1) == 7.0


def test_computed_parameters_follow_the_others():
    mutations = {
        "twice": sample_from(lambda config: 2 * config["x"]),
        "x": uniform(0, 10),
        "any": sample_from(lambda: uniform(3, 4)),
    }
    new = Explorer(mutations, 0)({"x": 5.0, "twice": 10.0}, rng())
    assert new["x"] != 5.0
    assert new["twice"] == 2 * new["x"]
    assert 3 <= new["any"] <= 4


def test_only_dictionaries_on_the_way_to_a_change_are_new():
    weights, constants = object(), {"seed": 1}
    config = {"model": {"depth": 2, "weights": weights}, "constants": constants, "lr": 0.1}
    new = Explorer({"model": {"depth": [1, 2, 3]}}, 0)(config, rng())
    assert new["model"]["depth"] in (1, 3)
    assert config["model"]["depth"] == 2
    assert new["model"]["weights"] is weights
    assert new["constants"] is constants
    assert new["lr"] == 0.1


def test_missing_keys_are_drawn():
    new = Explorer({"lr": uniform(1, 2), "model": {"depth": [1, 2], "width": lambda: 8}}, 0)(
        {"model": None}, rng()
    )
    assert 1 <= new["lr"] <= 2
    assert new["model"]["depth"] in (1, 2)
    assert new["model"]["width"] == 8


def test_the_users_function_is_applied_last_to_a_copy():
    def custom(config):
        config["model"]["layers"].append(9)
        config["lr"] = -1
        return config

    original = {"model": {"layers": [8]}, "lr": 0.1}
    new = Explorer({"lr": uniform(0, 1)}, custom_explore_fn=custom)(original, rng())
    assert new == {"model": {"layers": [8, 9]}, "lr": -1}
    assert original == {"model": {"layers": [8]}, "lr": 0.1}


def test_a_function_that_returns_nothing_is_refused():
    with pytest.raises(
        TypeError,
        match="custom_explore_fn must return a configuration, got None; let it return the",
    ):
        Explorer({}, custom_explore_fn=lambda config: None)({"lr": 1}, rng())


def test_the_same_name_draws_the_same():
    explorer = Explorer({str(number): domain for number, domain in enumerate(DOMAINS)})
    assert explorer({}, rng("a")) == explorer({}, rng("a"))
    assert explorer({}, rng("a")) != explorer({}, rng("b"))


def test_values_are_replaced_at_their_paths():
    config = {"a": {"b": 1, "c": 2}, "d": 3}
    assert replaced(config, {("a", "b"): 5, ("e", "f"): 6}) == {
        "a": {"b": 5, "c": 2},
        "d": 3,
        "e": {"f": 6},
    }
    assert config == {"a": {"b": 1, "c": 2}, "d": 3}


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"mutations": [1]},
            TypeError,
            "hyperparam_mutations must be a dictionary, got [1]; give each hyperparameter by name",
        ),
        (
            {"mutations": {"a": {"lr": 0.1}}},
            TypeError,
            "hyperparam_mutations must hold lists, domains such as uniform(0, 1), functions",
        ),
        (
            {"mutations": {"lr": []}},
            ValueError,
            "choice must be given one value at least, got none",
        ),
        (
            {"mutations": {"lr": grid_search([1])}},
            ValueError,
            "hyperparam_mutations must have no grid, got {'grid_search': [1]} for 'lr'",
        ),
        (
            {"resample_probability": 1.5},
            ValueError,
            "resample_probability must be between 0 and 1, got 1.5",
        ),
        (
            {"resample_probability": "1"},
            TypeError,
            "resample_probability must be a number, got '1'",
        ),
        (
            {"factors": (1.2,)},
            ValueError,
            "perturbation_factors must be two numbers, got (1.2,); the default is (1.2, 0.8)",
        ),
        (
            {"factors": (1.2, 0)},
            ValueError,
            "perturbation_factors must be more than 0 and finite, got (1.2, 0)",
        ),
        ({"factors": (1.2, "a")}, TypeError, "perturbation_factors must be a number, got 'a'"),
        (
            {"custom_explore_fn": 3},
            TypeError,
            "custom_explore_fn must be a function or None, got 3",
        ),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, error, complaint):
    with pytest.raises(error) as caught:
        Explorer(**{"mutations": {}} | arguments)
    assert str(caught.value).startswith(complaint)
