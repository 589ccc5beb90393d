"""Models of the quality benchmark: networks, forests and boosted trees."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.quality import boosting, computed, forests, generated, leaves, mixed, networks
from benchmarks.quality.losses import example_weights, loss, metric
from benchmarks.quality.preparation import prepared
from benchmarks.quality.problems import classification, regression, with_rare_class
from benchmarks.quality.scores import score

FOREST = {"max_features": 0.5, "min_samples_leaf": 2, "sample": 0.8}
LEAVES = {"learning_rate": 0.3, "max_leaf_nodes": 4, "min_samples_leaf": 4}
STUMPS = {
    "learning_rate": 0.3,
    "max_depth": 1,
    "subsample": 0.9,
    "max_features": 0.5,
    "min_samples_leaf": 1,
}
NETWORKS = {
    "linear": {"depth": 0},
    "features": {"depth": 0, "num_features": 64},
    "convolution": {"channels": 4, "kernel": 3, "pool": "max", "depth": 1, "width": 16},
    "adagrad": {"optimizer": "adagrad", "lr": 0.1},
    "hinge": {"loss": "hinge", "lr": 0.003},
    "nesterov": {"optimizer": "nesterov"},
    "rmsprop": {"optimizer": "rmsprop", "lr": 0.003, "beta2": 0.9},
    "sign": {"optimizer": "sign", "lr": 0.003},
    "sine": {"activation": "sine", "init": "glorot"},
    "silu": {"activation": "silu", "init": "lecun"},
    "leaky": {"activation": "leaky relu", "init": "small", "lr": 0.05},
    "warmup": {"schedule": "linear", "warmup": 3},
}


@pytest.fixture(scope="module")
def digits():
    problem = classification("digits", "error", 200, 300, seed=0)
    return problem.__class__(
        problem.metric, problem.train, problem.valid, problem.num_outputs, (8, 8)
    )


def changed(problem, metric_name):
    return problem.__class__(
        metric_name, problem.train, problem.valid, problem.num_outputs, problem.shape
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_kind_learn_reproducibly(digits, name):
    config = {"lr": 0.02, **NETWORKS[name]}
    values = networks.train_networks(digits, [config], 8, seed=1)
    assert values[0, -1] < min(0.35, values[0, 0])
    np.testing.assert_array_equal(
        values, networks.model(**NETWORKS[name]).train(digits, [{"lr": config["lr"]}], 8, 1)
    )


def test_networks_trained_together_equal_those_trained_alone(digits):
    configs = [
        {"lr": 0.02, "channels": 2, "pool": pool, "frequency": 1.0, "lr_decay": decay}
        for pool in ("max", "mean")
        for decay in (0.5, 1)
    ]
    together = networks.train_networks(digits, configs, 2, seed=1)
    alone = np.vstack([networks.train_networks(digits, [config], 2, seed=1) for config in configs])
    np.testing.assert_allclose(together, alone, atol=0.01)
    assert len({tuple(row) for row in together.round(2)}) > 1


@pytest.mark.parametrize(
    "setting",
    [
        {"l1": 0.1},
        {"weight_decay": 0.1},
        {"input_noise": 2.0},
        {"label_smoothing": 0.5},
        {"class_weight": 1.0},
        {"lr_decay": 0.5},
        {"warmup": 2},
        {"schedule": "step", "drop": 0.5},
        {"schedule": "linear"},
        {"init": "small"},
        {"decoupled_decay": 1.0},
    ],
)
def test_every_hyperparameter_has_an_effect(digits, setting):
    problem = changed(with_rare_class(digits, 1, 3), "log_loss")
    values = networks.train_networks(problem, [{"depth": 0}, {"depth": 0, **setting}], 3, seed=1)
    assert (values[0] != values[1]).any()


def test_frozen_layers_are_trained_from_the_epoch_after_the_last_frozen_one(digits):
    values = networks.train_networks(
        digits, [{"frozen": frozen, "dropout": 0.0} for frozen in (0, 2, 9)], 4, seed=1
    )
    assert (values[0] != values[1]).any()
    np.testing.assert_array_equal(values[1, :2], values[2, :2])
    assert (values[1, 2:] != values[2, 2:]).any()


def test_transformers_learn_reproducibly_and_see_the_order_of_letters():
    problem = computed.names(5, 200, 100, 1)
    config = {"blocks": 1, "depth": 0, "width": 8, "batch_size": 8, "optimizer": "adam"}
    values = networks.train_networks(problem, [config, {**config, "lr": 0.001}], 8, seed=1)
    assert values[0, -1] < 0.8 * values[0, 0]
    np.testing.assert_array_equal(
        values, networks.train_networks(problem, [config, {**config, "lr": 0.001}], 8, seed=1)
    )
    turned = replace(problem, valid=(problem.valid[0][:, ::-1].copy(), problem.valid[1]))
    assert networks.train_networks(turned, [config], 8, seed=1)[0, -1] > values[0, -1]


def test_networks_that_differ_in_kind_can_be_trained_together(digits):
    configs = [
        {"lr": 0.01, "activation": activation, "optimizer": optimizer, "schedule": schedule}
        for schedule, optimizer, activation in (
            ("constant", "sgd", "relu"),
            ("cosine", "adam", "sine"),
            ("constant", "sgd", "tanh"),
            ("step", "rmsprop", "relu"),
        )
    ]
    merged = networks.model(merged=("activation", "optimizer", "schedule"))
    np.testing.assert_allclose(
        merged.train(digits, configs, 3, 1),
        networks.train_networks(digits, configs, 3, seed=1),
        atol=0.01,
    )


def test_each_network_is_trained_with_the_inputs_that_it_prepares():
    problem = generated.classes("error", 3, 90, 60, 1)
    configs = [
        {"lr": 0.02, "selection": "best", "num_selected": 3},
        {"lr": 0.02},
        {"lr": 0.02, "selection": "components", "num_selected": 5},
    ]
    together = networks.model(prepare=prepared).train(problem, configs, 8, 1)
    assert len({tuple(row) for row in together}) == 3
    np.testing.assert_allclose(
        together[1],
        networks.train_networks(prepared(problem, {}), [configs[1]], 8, 1)[0],
        atol=0.02,
    )
    assert (together[:, -1] < 0.6).all()


def test_a_mixture_trains_each_configuration_as_its_family_does(digits):
    families = {"net": (networks.MODEL, {"depth": 0}), "forest": (forests.MODEL, {"sample": 0.5})}
    configs = [
        {"family": "forest", "max_features": 0.2, "min_samples_leaf": 1},
        {"family": "net", "lr": 0.01},
        {"family": "forest", "max_features": 0.4, "min_samples_leaf": 4},
    ]
    own = [{name: config[name] for name in config if name != "family"} for config in configs]
    model = mixed.model(families)
    values = model.train(digits, configs, 3, 1)
    trees = [{**own[row], "sample": 0.5} for row in (0, 2)]
    np.testing.assert_array_equal(values[[0, 2]], forests.MODEL.train(digits, trees, 3, 1))
    np.testing.assert_array_equal(
        values[[1]], networks.train_networks(digits, [{**own[1], "depth": 0}], 3, 1)
    )
    assert model.cost_s(digits, configs[0]) == forests.MODEL.cost_s(digits, trees[0])


def test_an_epoch_can_be_several_stages_of_boosting():
    problem = regression("diabetes", 100, 100, 0)
    every = boosting.MODEL.train(problem, [STUMPS], 9, 3)
    several = boosting.model(3)
    np.testing.assert_array_equal(several.train(problem, [STUMPS], 3, 3), every[:, 2::3])
    assert several.cost_s(problem, STUMPS) == 3 * boosting.MODEL.cost_s(problem, STUMPS)


def test_wider_fronts_cost_more(digits):
    costs_s = [
        networks.cost_s(digits, {"channels": channels, "depth": 1, "width": 8})
        for channels in (2, 8)
    ]
    assert costs_s[0] < costs_s[1]
    assert networks.cost_s(digits, {"depth": 0, "num_features": 32}) < networks.cost_s(
        digits, {"depth": 0, "num_features": 256}
    )


def test_metrics_of_networks_are_those_of_trees(digits):
    outputs = np.random.default_rng(0).normal(size=(300, 10))
    probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    for name in ("error", "balanced_error", "log_loss"):
        found = metric(name, torch.from_numpy(outputs)[None], torch.from_numpy(digits.valid[1]))
        assert float(found[0]) == pytest.approx(
            score(changed(digits, name), probabilities), rel=1e-5
        )
    diabetes = regression("diabetes", 100, 100, 0, "mae")
    for name in ("mse", "mae"):
        found = metric(name, torch.zeros(1, 100, 1), torch.from_numpy(diabetes.valid[1]))
        assert float(found[0]) == pytest.approx(
            score(changed(diabetes, name), np.zeros(100)), rel=1e-5
        )
    assert score(diabetes, diabetes.valid[1].ravel()) == 0.0


def test_the_hinge_loss_sums_the_violated_margins():
    outputs = torch.tensor([[[2.0, 0.0, 1.5], [3.0, 0.0, 0.0]]])
    assert loss("hinge", outputs, torch.tensor([0, 0]), None, torch.zeros(1, 1)).tolist() == [0.25]
    assert loss(
        "hinge", outputs, torch.tensor([0, 0]), torch.tensor([[2.0, 0.0]]), torch.zeros(1, 1)
    ).tolist() == [0.5]


def test_label_smoothing_mixes_in_the_mean_over_all_classes():
    outputs = torch.tensor([[[2.0, 0.0]]], dtype=torch.float64)
    sharp, even = (
        loss("log", outputs, torch.tensor([kind]), None, torch.zeros(1, 1)) for kind in (0, 1)
    )
    smoothed = loss("log", outputs, torch.tensor([0]), None, torch.full((1, 1), 0.2))
    assert float(smoothed) == pytest.approx(0.9 * float(sharp) + 0.1 * float(even))


def test_class_weights_can_give_rare_classes_the_same_total_weight(digits):
    problem = with_rare_class(digits, 4, 2)
    assert (problem.train[1] == 4).sum() == 2
    weights = example_weights(problem, torch.tensor([[0.0], [1.0]])).numpy()
    np.testing.assert_allclose(weights[0], 1.0)
    np.testing.assert_allclose(
        [weights[1, problem.train[1] == kind].sum() for kind in range(10)],
        weights[1].sum() / 10,
        rtol=1e-5,
    )
    assert example_weights(problem, torch.zeros(2, 1)) is None


@pytest.mark.parametrize("name", ["error", "log_loss", "balanced_error", "mse", "mae"])
def test_trees_of_every_kind_learn(name):
    is_regression = name in {"mse", "mae"}
    problem = (
        regression("diabetes", 200, 200, 0, name)
        if is_regression
        else classification("wine", name, 90, 88, seed=0)
    )
    for model, config in (
        (forests.MODEL, FOREST),
        (leaves.MODEL, LEAVES),
        (boosting.MODEL, STUMPS),
    ):
        values = model.train(problem, [config], 9, 3)
        assert values.shape == (1, 9)
        assert values[0, -1] < values[0, 0]
        np.testing.assert_array_equal(values, model.train(problem, [config], 9, 3))


def test_trees_that_see_more_cost_more():
    wine, diabetes = (
        classification("wine", "error", 90, 88, seed=0),
        regression("diabetes", 90, 88, 0),
    )
    for model, config in (
        (leaves.MODEL, LEAVES),
        (boosting.MODEL, STUMPS),
        (forests.MODEL, FOREST),
    ):
        assert model.cost_s(wine, {**config, "max_features": 0.2}) < model.cost_s(
            wine, {**config, "max_features": 0.9}
        )
    for model, config in ((leaves.MODEL, LEAVES), (boosting.MODEL, STUMPS)):
        assert model.cost_s(wine, config) > 2 * model.cost_s(diabetes, config), (
            "three classes need three trees"
        )
    assert forests.MODEL.cost_s(wine, {**FOREST, "kind": "extra trees"}) < forests.MODEL.cost_s(
        wine, FOREST
    )
