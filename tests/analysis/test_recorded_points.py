"""Configurations that were read from files are points of the space that they are from."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest

import tuner as tune
from searchers import BasicVariantGenerator, GPSearch, OptunaSearch, TreeSearch
from searchers.space.recorded_forms import is_recorded_form, recorded_index
from tuner import RunConfig, TuneConfig, Tuner


def train(config):
    tune.report({"loss": config["a"]})


def relu(x):
    return x


def tanh(x):
    return x


class Model:
    """Has the default representation, with an address."""


MODEL = Model()


def fit(space, directory, **settings):
    return Tuner(
        train,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", seed=1, **settings),
        run_config=RunConfig(storage_path=directory, name="x", verbose=0, executor="inline"),
    ).fit()


SPACES = {
    "secret": {"password": tune.Secret("PASSWORD")},
    "function": {"nested": {"function": relu, "width": 3}},
    "partial": {"function": functools.partial(relu, 3)},
    "object": {"model": MODEL, "list": [MODEL, 3]},
    "array": {"weights": np.arange(3)},
    "scalar": {"weight": np.float64(3)},
    "path": {"data": Path("/data")},
    "nan": {"missing": math.nan, "keys": {1: (2, 3)}},
    "functions": {"function": tune.choice([relu, tanh])},
    "arrays": {"weights": tune.choice([np.arange(3), np.ones(2)])},
    "secrets": {"password": tune.choice([tune.Secret("PASSWORD"), None])},
    "tuples": {"layers": tune.choice([(1, 2), (3, 4)])},
    "options": {
        "option": tune.choice([{"by": relu, "m": tune.uniform(0, 1)}, {"by": tanh, "k": (1, 2)}])
    },
}


@pytest.mark.process
@pytest.mark.parametrize("extra", SPACES.values(), ids=SPACES)
def test_recorded_configurations_are_points_of_the_same_space(extra, tmp_path, monkeypatch):
    monkeypatch.setenv("PASSWORD", "hunter2")
    space = {"a": tune.uniform(0, 1), **extra}
    first = fit(space, tmp_path / "first", num_samples=3).get_best_result().config
    directory = tmp_path / "first" / "x"
    sources = {
        "as recorded": tune.points_from(directory, "loss", "min", num_points=1),
        "with the space": tune.points_from(directory, "loss", "min", num_points=1, space=space),
        "read": [tune.ResultGrid.from_directory(directory).get_best_result().config],
    }
    for name, points in sources.items():
        searcher = TreeSearch(points_to_evaluate=points)
        again = fit(space, tmp_path / name, search_alg=searcher)[0].config
        assert repr(again) == repr({key: first[key] for key in again}), name
        assert again.keys() == first.keys()


@pytest.mark.parametrize("kind", [BasicVariantGenerator, GPSearch, OptunaSearch])
def test_every_searcher_recognises_recorded_forms(kind):
    space = {"a": tune.uniform(0, 1), "f": tune.choice([relu, tanh]), "model": MODEL}
    point = {"a": 0.5, "f": "<function tanh>", "model": repr(MODEL).partition(" at ")[0] + ">"}
    searcher = kind(points_to_evaluate=[point])
    searcher.set_search_properties("loss", "min", space, seed=1, num_samples=1)
    config = searcher.suggest("t0")
    assert (config["a"], config["f"]) == (0.5, tanh)


def test_other_text_does_not_stand_for_an_object():
    space = {"a": tune.uniform(0, 1), "f": relu}
    with pytest.raises(ValueError, match="'f' must be <function relu"):
        Tuner(
            train,
            param_space=space,
            tune_config=TuneConfig(
                metric="loss",
                mode="min",
                search_alg=TreeSearch(points_to_evaluate=[{"a": 0.5, "f": "<function tanh>"}]),
            ),
        ).fit()


def test_a_form_that_two_options_share_stands_for_neither():
    options = [lambda: 1, lambda: 2]
    assert recorded_index(options, "<function <lambda>>") is None
    assert recorded_index(options, repr(options[1])) == 1
    assert recorded_index([(1, 2), (3,)], [3]) == 1


def test_forms_of_plain_values_are_the_values():
    assert not is_recorded_form("3", 3)
    assert not is_recorded_form(1, True)
    assert not is_recorded_form(None, "None")
    assert is_recorded_form(1, 1.0)
    assert is_recorded_form({1: (2,)}, {"1": [2]})
    assert not is_recorded_form({1: (2,)}, {"1": [2], "3": 4})
