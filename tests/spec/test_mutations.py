"""What a scheduler mutates, against the search space."""

import warnings

import pytest

import tuner as tune
from schedulers import PB2, PopulationBasedTraining, ResourceChangingScheduler
from tuner import TuneConfig, Tuner


def train(config):
    tune.report({"loss": 1.0})


def declare(space, mutations, wrap=lambda scheduler: scheduler):
    scheduler = PopulationBasedTraining(hyperparam_mutations=mutations)
    return Tuner(
        train,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", scheduler=wrap(scheduler)),
    )


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("momentun", "momentum"),
        ("momntum", "momentum"),
        ("mommentum", "momentum"),
        ("momenutm", "momentum"),
        ("Momentum", "momentum"),
        ("LR", "lr"),
        ("lrr", "lr"),
        ("rl", "lr"),
        ("weight-decay", "weight_decay"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda scheduler: scheduler, ResourceChangingScheduler], ids=["alone", "wrapped"]
)
def test_a_name_one_typing_error_away_is_warned_of(given, known, wrap):
    space = {known: tune.uniform(0, 1)}
    with pytest.warns(RuntimeWarning, match=f"mutates '{given}'.* and not '{known}', which it has"):
        declare(space, {given: tune.uniform(0, 1)}, wrap)


def test_nested_names_are_compared_where_they_stand():
    space = {"opt": {"momentum": tune.uniform(0, 1), "lr": 0.1}}
    with pytest.warns(RuntimeWarning, match="mutates 'opt/momentun'.* and not 'opt/momentum'"):
        declare(space, {"opt": {"momentun": tune.uniform(0, 1)}})
    with pytest.warns(RuntimeWarning, match="mutates 'opf'.* and not 'opt'"):
        declare(space, {"opf": {"lr": tune.uniform(0, 1)}})


@pytest.mark.process
def test_bounds_of_pb2_are_compared_as_well():
    with pytest.warns(RuntimeWarning, match="hyperparam_bounds mutates 'momentun'"):
        Tuner(
            train,
            param_space={"momentum": tune.uniform(0, 1)},
            tune_config=TuneConfig(
                metric="loss", mode="min", scheduler=PB2(hyperparam_bounds={"momentun": [0.0, 1.0]})
            ),
        )


@pytest.mark.parametrize(
    ("space", "name"),
    [
        ({"momentum": 0.9}, "weight_decay"),  # sampled as in Ray Tune
        ({"x": tune.uniform(0, 1)}, "y"),
        ({"layer1": tune.uniform(0, 1)}, "layer2"),
        ({"layer": tune.uniform(0, 1)}, "layer2"),
        ({"momentum": 0.9, "momentun": tune.uniform(0, 1)}, "momentun"),
    ],
)
def test_other_names_are_added_without_a_word(space, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuner = declare(space, {name: tune.uniform(0, 1)})
    assert name in tuner._spec.space


def test_a_flattened_name_of_a_nested_hyperparameter_is_refused():
    with pytest.raises(ValueError, match=r"got 'opt/lr'; write \{'opt': \{'lr': \.\.\.\}\}"):
        declare({"opt": {"lr": tune.uniform(0, 1)}}, {"opt/lr": tune.uniform(0, 1)})
    declare({"opt/lr": tune.uniform(0, 1)}, {"opt/lr": tune.uniform(0, 1)})
