"""Kinds of trainables, their parameters and resources, and the registry of names."""

import functools

import cloudpickle
import pytest

from tuner.execution.class_trainable import Trainable
from tuner.execution.resources import PlacementGroupFactory
from tuner.execution.trainable import (
    check_trainable,
    get_trainable,
    is_class_trainable,
    labels_for,
    register_trainable,
    requests_vary,
    resources_for,
    trainable_name,
    with_parameters,
    with_resources,
)


class Counter(Trainable):
    def setup(self, config, start=0):
        self.value = start

    def step(self):
        self.value += 1
        return {"value": self.value}


class Unsaved(Trainable):
    def step(self):
        return {}


class Abstract(Trainable):
    pass


def train(config):
    return {"loss": config["x"]}


# What can be trained.


def with_config_and_default(config, epochs=3):
    pass


def named_last(epochs=1, *, config):
    return config


def no_arguments():
    pass


def two(first, second):
    pass


def two_defaults(lr=0.1, epochs=3):
    pass


async def asynchronous(config):
    pass


class Callable:
    def __call__(self, config):
        return config


class AsynchronousCallable:
    async def __call__(self, config):
        return config


@pytest.mark.parametrize(
    "trainable",
    [train, with_config_and_default, named_last, lambda c: None, lambda *a: None, lambda c, /: None,
     Callable(), Callable().__call__,
     functools.partial(two, second=1), functools.partial(train), Counter, print],
)  # fmt: skip
def test_functions_of_the_configuration_and_subclasses_can_be_trained(trainable):
    check_trainable(trainable)


@pytest.mark.parametrize(
    ("trainable", "why"),
    [
        (3, "must be a function of the configuration or a subclass of Trainable, got 3"),
        ("train", "must be a function"),
        (None, "must be a function"),
        (Counter({}), "must be a function"),
        (dict, "must derive from Trainable, got dict"),
        (Abstract, "Abstract must implement step"),
        (Trainable, "must implement step"),
        (lambda **named: None, "cannot be called with"),
        (no_arguments, r"no_arguments\(\) cannot be called with \(config\)"),
        (lambda config, reporter: None, "leave reporter out, and call tune.report"),
        (two, "as an argument config or as the only one without a default"),
        (two_defaults, "must take the configuration as an argument config"),
        (lambda config, data: None, "missing a required argument: 'data'; see with_parameters"),
        (asynchronous, "asynchronous is asynchronous"),
        (AsynchronousCallable(), "is asynchronous"),
    ],
)
def test_anything_else_is_refused_with_the_reason(trainable, why):
    with pytest.raises(TypeError, match=why):
        check_trainable(trainable)


def test_names_of_trainables():
    names = [
        trainable_name(one)
        for one in (train, Counter, functools.partial(train), lambda c: 0, Callable())
    ]
    assert names == ["train", "Counter", "train", "lambda", "Callable"]


def test_only_subclasses_are_class_trainables():
    assert [is_class_trainable(one) for one in (Counter, train, Counter({}), dict, 3)] == [
        True,
        False,
        False,
        False,
        False,
    ]


# Parameters and resources.


def weighted(config, data, scale=1):
    return sum(data) * scale * config["x"]


def test_parameters_reach_a_function_by_name():
    bound = with_parameters(weighted, data=[1, 2])
    check_trainable(bound)
    assert bound({"x": 10}) == 30
    assert with_parameters(named_last, epochs=2)(config={"x": 1}) == {"x": 1}


def test_parameters_may_be_given_one_after_the_other_and_the_last_one_counts():
    bound = with_parameters(with_parameters(weighted, data=[1], scale=2), data=[1, 2])
    assert bound({"x": 10}) == 60
    bound = with_parameters(with_parameters(Counter, start=1), start=2)
    assert bound({}).value == 2


def test_parameters_reach_the_setup_of_a_class_and_its_original_stays():
    bound = with_parameters(Counter, start=5)
    assert bound({}).train()["value"] == 6
    assert Counter({}).train()["value"] == 1
    assert (bound.__name__, bound.__module__) == (Counter.__name__, Counter.__module__)


@pytest.mark.parametrize(
    ("trainable", "parameters"),
    [
        (train, {"data": 1}),
        (weighted, {"scale": 2}),
        (weighted, {"config": 1}),
        (Counter, {"begin": 1}),
        (dict, {}),
        (3, {}),
    ],
)
def test_parameters_that_do_not_fit_are_refused(trainable, parameters):
    with pytest.raises(
        TypeError,
        match=r"cannot be called with|must derive|must be a function|multiple values|config",
    ):
        with_parameters(trainable, **parameters)


@pytest.mark.parametrize("trainable", [with_config_and_default, Counter])
def test_resources_and_parameters_chain_in_either_order(trainable):
    parameters = {"start": 1} if trainable is Counter else {"epochs": 1}
    one = with_parameters(with_resources(trainable, {"gpu": 1}), **parameters)
    other = with_resources(with_parameters(trainable, **parameters), {"gpu": 1})
    assert resources_for(one, {}) == resources_for(other, {}) == {"gpu": 1.0}
    assert resources_for(trainable, {}) == {"cpu": 1.0}
    check_trainable(one)
    check_trainable(other)
    if trainable is Counter:
        assert one({}).value == other({}).value == 1


@pytest.mark.parametrize(
    "trainable",
    [
        with_parameters(weighted, data=[1]),
        with_resources(Counter, {"cpu": 2}),
        with_parameters(Counter, start=1),
    ],
)
def test_bound_parameters_are_pickled(trainable):
    copy = cloudpickle.loads(cloudpickle.dumps(trainable))
    assert trainable_name(copy) == trainable_name(trainable)
    assert resources_for(copy, {}) == resources_for(trainable, {})
    assert (
        copy({"x": 3}) == 3
        if trainable_name(copy) == "weighted"
        else copy({}).train()["value"] == trainable({}).train()["value"]
    )


class Greedy(Unsaved):
    @classmethod
    def default_resource_request(cls, config):
        return PlacementGroupFactory([{"CPU": 1}, {"CPU": config["workers"], "GPU": 0.5}])


@pytest.mark.parametrize(
    ("trainable", "resources"),
    [
        (train, {"cpu": 1.0}),
        (Counter, {"cpu": 1.0}),
        (Greedy, {"cpu": 4.0, "gpu": 0.5}),
        (with_resources(Greedy, {"cpu": 1}), {"cpu": 1.0}),
        (
            with_resources(train, {"CPU": 2, "GPU": 0.25, "TPU_v4": 1}),
            {"cpu": 2.0, "gpu": 0.25, "TPU_v4": 1.0},
        ),
        (with_resources(train, lambda config: {"cpu": config["workers"]}), {"cpu": 3.0}),
        (with_resources(with_resources(train, {"cpu": 5}), {"cpu": 7}), {"cpu": 7.0}),
        (
            with_resources(
                train,
                PlacementGroupFactory([{}, {"cpu": 1}, {"cpu": 1, "gpu": 1}], strategy="SPREAD"),
            ),
            {"cpu": 2.0, "gpu": 1.0},
        ),
    ],
)
def test_requests(trainable, resources):
    assert resources_for(trainable, {"workers": 3}) == resources


@pytest.mark.parametrize(
    ("request_", "error"),
    [({"cpu": -1}, ValueError), ({"cpu": "2"}, ValueError), ({"cpu": True}, ValueError),
     ({"cpu": float("nan")}, ValueError),
     ({"cpu": 1, "CPU": 1}, ValueError), ({"gpu": 1.5}, ValueError), (3, TypeError),
      ([{"cpu": 1}], TypeError)],
)  # fmt: skip
def test_impossible_requests_are_refused_early_and_from_functions_late(request_, error):
    with pytest.raises(error, match=r"must be|requested twice"):
        with_resources(train, request_)
    with pytest.raises(error, match=r"must be|requested twice"):
        resources_for(with_resources(train, lambda config: request_), {})


@pytest.mark.parametrize(
    ("bundles", "strategy"), [([], "PACK"), ([{"cpu": 1}], "STACK"), ([{"cpu": -1}], "PACK")]
)
def test_impossible_bundles_are_refused(bundles, strategy):
    with pytest.raises(ValueError, match="must"):
        PlacementGroupFactory(bundles, strategy)


def test_with_resources_does_not_change_the_function():
    with_resources(train, {"cpu": 4})
    assert not hasattr(train, "requested_resources")


@pytest.mark.parametrize("trainable", [train, Counter])
def test_labels_are_attached_with_the_resources_and_replaced_with_them(trainable):
    labelled = with_resources(trainable, {"cpu": 4}, labels={"accelerator": "A100"})
    assert labels_for(labelled, {}) == {"accelerator": "A100"}
    assert labels_for(trainable, {}) == labels_for(with_resources(labelled, {"cpu": 1}), {}) == {}
    varying = with_resources(trainable, {"cpu": 4}, labels=lambda config: {"zone": config["z"]})
    assert labels_for(varying, {"z": "west"}) == {"zone": "west"}
    assert (requests_vary(labelled), requests_vary(varying)) == (False, True)


@pytest.mark.parametrize("labels", ["A100", {"accelerator": 1}, ["accelerator"]])
def test_labels_are_strings_by_name(labels):
    with pytest.raises(TypeError, match="labels must be a dictionary of strings"):
        with_resources(train, {"cpu": 4}, labels=labels)
    with pytest.raises(TypeError, match="labels must be a dictionary of strings"):
        labels_for(with_resources(train, {"cpu": 4}, labels=lambda _: labels), {})


# Names.


def test_a_registered_trainable_is_found_by_its_name():
    register_trainable("registered", train)
    assert get_trainable("registered") is train
    register_trainable("registered", Counter)
    assert get_trainable("registered") is Counter


def test_an_unknown_name_is_answered_with_the_closest():
    register_trainable("resnet_cifar", train)
    with pytest.raises(ValueError, match="'resnet_cifr'; did you mean 'resnet_cifar'"):
        get_trainable("resnet_cifr")
    with pytest.raises(ValueError, match=r"registered are .*resnet_cifar"):
        get_trainable("zzzzzz")


def test_only_trainables_can_be_registered():
    with pytest.raises(TypeError, match="must be a function"):
        register_trainable("three", 3)
    with pytest.raises(TypeError, match="name must be a non-empty string"):
        register_trainable("", train)
