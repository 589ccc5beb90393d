"""Spaces in the words of other libraries are taken where that is simple, and refused at construction elsewhere."""

import numpy as np
import pytest

from searchers import AxSearch, BayesOptSearch, BOHBSearch, HyperOptSearch, OptunaSearch, TreeSearch
from searchers.space import uniform
from tuner import TuneConfig, Tuner


def train(config):
    raise AssertionError("nothing is run here")


@pytest.mark.parametrize(
    "bounds",
    [
        {"a": (0, 1), "b": [2.0, 3]},
        {"a": (np.int64(0), np.int64(1)), "b": [np.float32(2.0), np.float32(3.0)]},
    ],
)
def test_bounds_are_ranges_for_bayesopt(bounds):
    pytest.importorskip("bayes_opt")
    searcher = BayesOptSearch(bounds, "loss", "min")
    for name in "123":
        config = searcher.suggest(name)
        assert 0 <= config["a"] <= 1
        assert 2 <= config["b"] <= 3
        assert isinstance(config["a"], float)


def test_bounds_beside_words_are_refused():
    pytest.importorskip("bayes_opt")
    message = (
        r"got both: 'a' is \(0, 1\); write tune.uniform\(0, 1\), and put constants into param_space"
    )
    with pytest.raises(ValueError, match=message):
        BayesOptSearch({"a": (0, 1), "b": uniform(0, 1)})


def test_ax_takes_its_list_of_dictionaries():
    pytest.importorskip("ax")
    space = [
        {"name": "x", "type": "range", "bounds": [0.0, 1.0]},
        {
            "name": "lr",
            "type": "range",
            "bounds": [1e-4, 1.0],
            "value_type": "float",
            "log_scale": True,
        },
        {"name": "n", "type": "range", "bounds": [1, 8]},
        {"name": "kind", "type": "choice", "values": ["a", "b"]},
        {"name": "fixed", "type": "fixed", "value": 7},
    ]
    config = AxSearch(space, "loss", "min", method="random_search").suggest("1")
    assert {name: type(value).__name__ for name, value in config.items()} == {
        "x": "float", "lr": "float", "n": "int", "kind": "str", "fixed": "int",
    }  # fmt: skip
    with pytest.raises(
        ValueError,
        match=r"'x' must be a range with bounds, .*; write the space with search-space words",
    ):
        AxSearch([{"name": "x", "type": "range", "bounds": [0, 1], "digits": 3}])


def test_words_of_hyperopt_are_refused():
    hp = pytest.importorskip("hyperopt").hp
    space = {"deep": {"x": hp.uniform("x", 0, 1)}}
    message = "got 'deep/x' in the words of hyperopt; write tune.uniform"
    for make in (
        HyperOptSearch,
        lambda given: TreeSearch(space=given),
        lambda given: BOHBSearch(space=given),
    ):
        with pytest.raises(ValueError, match=message):
            make(space)
    with pytest.raises(
        ValueError, match=rf"param_space must hold constants and search-space words, {message}"
    ):
        Tuner(train, param_space=space)
    with pytest.raises(
        TypeError,
        match="space must be a dictionary for HyperOptSearch, got a space of hyperopt; write HyperOptSearch",
    ):
        HyperOptSearch(hp.choice("kind", [{"x": hp.uniform("x", 0, 1)}, {}]))


def test_distributions_of_optuna_are_for_optuna():
    optuna = pytest.importorskip("optuna")
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    assert 0 <= OptunaSearch(space, "loss", "min").suggest("1")["x"] <= 1
    Tuner(
        train,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", search_alg=OptunaSearch()),
    )
    with pytest.raises(ValueError, match="got 'x' in the words of optuna"):
        Tuner(train, param_space=space)


@pytest.mark.parametrize("make", [lambda space: TreeSearch(space=space), HyperOptSearch])
def test_what_is_no_dictionary_is_refused(make):
    with pytest.raises(
        TypeError, match=r"space must be a dictionary for \w+, got \[1\]; write \w+\(space="
    ):
        make([1])
