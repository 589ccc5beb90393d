"""Constants of a search space that look as if they were to be searched."""

import warnings

import pytest

import tuner as tune
from tuner import Tuner


def train(config):
    tune.report({"loss": 1.0})


def test_lists_in_a_space_without_domains_are_warned_of():
    with pytest.warns(RuntimeWarning, match=r"'lr', 'depth', .* \"lr\": tune.choice\(\[0.1, 0.2\]"):
        Tuner(train, param_space={"lr": [0.1, 0.2], "depth": range(1, 4), "epochs": 3})


@pytest.mark.parametrize("function", [lambda: 3, lambda config: config["a"], lambda spec: 3])
def test_a_lambda_that_computes_a_value_is_warned_of(function):
    with pytest.warns(RuntimeWarning, match=r"a lambda for 'model/lr'.* write tune.sample_from\("):
        Tuner(train, param_space={"model": {"lr": function}, "a": tune.uniform(0, 1)})


@pytest.mark.parametrize(
    "space",
    [
        {"lr": tune.uniform(0, 1), "layers": [128, 64]},
        {"layers": [64, 64]},
        {"layers": [64]},
        {"path": (1, 2)},
        {"activation": lambda x: max(x, 0), "lr": tune.uniform(0, 1)},
        {"activation": abs},
        {"model": {"layers": [128, 64]}},
    ],
)
def test_other_constants_are_not(space):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tuner(train, param_space=space)
