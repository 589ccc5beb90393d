"""`convert_search_space`, with which scripts for Ray Tune turn a space into what a searcher takes."""

import importlib

import pytest

import searchers
from searchers import AxSearch, BayesOptSearch, HyperOptSearch, OptunaSearch
from searchers.space import choice, loguniform, randint, uniform

SPACE = {"a": uniform(0, 1), "n": {"b": uniform(1, 2)}, "constant": 3}


def suggestion_of(searcher):
    assert searcher.set_search_properties("loss", "min", {}, seed=0)
    return searcher.suggest("t")


def test_bounds_of_ranges():
    pytest.importorskip("bayes_opt")
    bounds = BayesOptSearch.convert_search_space(SPACE)
    assert bounds == {"a": (0, 1), "n/b": (1, 2)}
    suggestion = suggestion_of(BayesOptSearch(bounds))
    assert 0 <= suggestion["a"] <= 1 <= suggestion["n"]["b"] <= 2


@pytest.mark.parametrize("word", [loguniform(1e-3, 1), randint(0, 5), choice([1, 2])])
def test_what_bounds_cannot_say_is_refused(word):
    with pytest.raises(
        ValueError,
        match=r"convert_search_space must have uniform ranges for BayesOptSearch, got .* for 'a'",
    ):
        BayesOptSearch.convert_search_space({"a": word})


def test_distributions_of_optuna():
    optuna = pytest.importorskip("optuna")
    converted = OptunaSearch.convert_search_space({**SPACE, "c": choice([1, 2])})
    assert converted == {
        "a": optuna.distributions.FloatDistribution(0.0, 1.0),
        "n/b": optuna.distributions.FloatDistribution(1.0, 2.0),
        "c": optuna.distributions.CategoricalDistribution([1, 2]),
    }
    suggestion = suggestion_of(OptunaSearch(converted))
    assert 0 <= suggestion["a"] <= 1 <= suggestion["n"]["b"] <= 2
    with pytest.raises(ValueError, match=r"categories that Optuna can store, got .* for 'c'"):
        OptunaSearch.convert_search_space({"c": choice([[1], [2]])})


@pytest.mark.parametrize("kind", [HyperOptSearch, AxSearch])
def test_other_searchers_take_the_space_as_it_is(kind):
    assert kind.convert_search_space(SPACE) == SPACE


@pytest.mark.parametrize("config", [{"a": (0, 1)}, {"a": [0.5, 2], "b": "constant"}])
def test_bounds_in_param_space_are_no_constants_for_bayesopt(config):
    pytest.importorskip("bayes_opt")
    with pytest.raises(
        ValueError,
        match=r"param_space must hold search-space words for BayesOptSearch, got .* for 'a'.* tune.uniform",
    ):
        BayesOptSearch().set_search_properties("loss", "min", config)
    assert BayesOptSearch().set_search_properties("loss", "min", {**config, "c": uniform(0, 1)})


@pytest.mark.parametrize(
    ("name", "remedy"), [("generation_strategy", "give method"), ("db_settings", "leave it out")]
)
def test_arguments_of_the_older_client_of_ax_are_refused_by_name(name, remedy):
    with pytest.raises(
        TypeError,
        match=f"AxSearch takes no argument '{name}', which belongs to Ax's older AxClient; {remedy}",
    ):
        AxSearch(**{name: object()})


def test_a_client_of_ax_and_two_seeds_are_refused():
    with pytest.raises(ValueError, match="ax_client must be None"):
        AxSearch(ax_client=object())
    with pytest.raises(
        ValueError, match="seed and random_seed must not both be given, got 1 and 2"
    ):
        AxSearch(seed=1, random_seed=2)


def test_the_seed_of_the_older_client_is_recorded_by_its_name():
    pytest.importorskip("ax.api.client")
    assert AxSearch(random_seed=3).declared_arguments == {"random_seed": 3}


@pytest.mark.parametrize(("module", "name"), [
    ("optuna", "OptunaSearch"), ("hyperopt", "HyperOptSearch"), ("bayesopt", "BayesOptSearch"), ("ax", "AxSearch"), ("bohb", "BOHBSearch"),
    ("nevergrad", "NevergradSearch"), ("basic_variant", "BasicVariantGenerator"), ("concurrency_limiter", "ConcurrencyLimiter"),
    ("repeater", "Repeater"),
])  # fmt: skip
def test_import_paths_of_ray_tune(module, name):
    assert getattr(importlib.import_module(f"tuner.search.{module}"), name) is getattr(
        searchers, name
    )
