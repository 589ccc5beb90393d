"""Models beat random search on toy problems with known minima, with the calls of an experiment.

Everything is seeded, so that the figures are the same each time; the margins are those of several
seeds, far from what they measure.
"""

import functools
import math

import numpy as np
import pytest

from schedulers import ASHAScheduler
from searchers import (
    AutoSearch,
    BasicVariantGenerator,
    BOHBSearch,
    CQRSearch,
    GPSearch,
    TreeSearch,
)
from searchers.space import choice, lograndint, loguniform, randint, uniform
from tests.tiers import examples, is_full
from tuner import TuneConfig
from tuner.testing.simulation import simulate

pytestmark = pytest.mark.property
NUM_SEEDS = examples(25) // 5
"""Five with ``--full``, else three."""
NUM_SEEDS_OF_SLOW = NUM_SEEDS if is_full() else 1
"""Of searchers whose models take longer."""
MAX_T = 9


def branin(config):
    x, y = 15 * config["x"] - 5, 15 * config["y"]
    bowl = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887


WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
SLOPES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(config):
    place = np.array(list(config.values()))
    return 3.32237 - float(WEIGHTS @ np.exp(-(SLOPES * (place - CENTRES) ** 2).sum(axis=1)))


def network(config):
    """Return a loss of interacting numbers, integers and categories; its minimum is 0.

    It resembles the loss of a network.
    """
    best_rate = {"sgd": -1.5, "adam": -3.0}[config["optimizer"]] - 0.2 * config["depth"]
    rate = 1 - math.exp(-((math.log10(config["lr"]) - best_rate) ** 2))
    size = (math.log2(config["units"]) - 8) ** 2 / 16 + (config["depth"] - 3) ** 2 / 9
    return rate + 0.3 * size + {"relu": 0.05, "tanh": 0.2, "gelu": 0.0, "none": 0.6}[config["act"]]


TOYS = {
    "branin": (branin, {"x": uniform(0, 1), "y": uniform(0, 1)}),
    "hartmann": (hartmann, {f"x{number}": uniform(0, 1) for number in range(6)}),
    "network": (
        network,
        {
            "lr": loguniform(1e-6, 1.0),
            "units": lograndint(8, 1025),
            "depth": randint(1, 8),
            "optimizer": choice(["sgd", "adam"]),
            "act": choice(["relu", "tanh", "gelu", "none"]),
        },
    ),
}


def regret_of_full_trainings(searcher, toy, seed, num_trials=50):
    """Return the least loss of trials that are all trained to the end, four at a time."""
    loss_of, space = TOYS[toy]
    searcher.set_search_properties("loss", "min", space, seed=seed, num_samples=num_trials)
    losses = []
    for number in range(num_trials):
        losses.append(loss_of(searcher.suggest(f"t{number}")))
        if number >= 3:
            searcher.on_trial_complete(
                f"t{number - 3}", {"loss": losses[number - 3], "training_iteration": 1}
            )
    return min(losses)


def regret_of_successive_halving(searcher, toy, seed, num_full_trainings=16):
    """Return the loss of the trial that has reported the least, under promotion, four at a time."""
    loss_of, space = TOYS[toy]

    def curve(config):
        final = loss_of(config)
        for step in range(1, MAX_T + 1):
            yield {
                "loss": final
                + (4.0 + 0.3 * final) * math.exp(-step / 2) * (1 - (step - 1) / (MAX_T - 1))
            }

    tune_config = TuneConfig(
        metric="loss",
        mode="min",
        num_samples=-1,
        seed=seed,
        search_alg=searcher,
        scheduler=ASHAScheduler(max_t=MAX_T, reduction_factor=3, type="promotion"),
        time_budget_s=num_full_trainings * MAX_T / 4,
    )
    best = simulate(
        curve, param_space=space, tune_config=tune_config, num_slots=4
    ).grid.get_best_result(scope="all")
    return loss_of(best.config)


@functools.cache
def median_log_regret(regret_of, kind, toy, num_seeds=NUM_SEEDS):
    """Return the median over the seeds of the regret's decimal logarithm."""
    regrets = [regret_of(kind(), toy, seed) for seed in range(num_seeds)]
    return float(np.median([math.log10(max(regret, 1e-6)) for regret in regrets]))


@pytest.mark.parametrize(("toy", "margin"), [("branin", 0.2), ("hartmann", 0.2), ("network", 0.2)])
def test_trees_beat_random_search_in_full_trainings(toy, margin):
    by_chance = median_log_regret(regret_of_full_trainings, BasicVariantGenerator, toy)
    assert median_log_regret(regret_of_full_trainings, TreeSearch, toy) < by_chance - margin


@pytest.mark.parametrize(("toy", "margin"), [("branin", 0.5), ("hartmann", 0.1), ("network", 0.05)])
def test_trees_beat_random_search_under_successive_halving(toy, margin):
    by_chance = median_log_regret(regret_of_successive_halving, BasicVariantGenerator, toy)
    assert median_log_regret(regret_of_successive_halving, TreeSearch, toy) < by_chance - margin


@pytest.mark.parametrize(("toy", "margin"), [("branin", 1.5), ("hartmann", 1.0), ("network", 0.3)])
def test_a_gaussian_process_comes_much_closer_than_random_search(toy, margin):
    regret = functools.partial(
        median_log_regret, regret_of_full_trainings, toy=toy, num_seeds=NUM_SEEDS_OF_SLOW
    )
    assert regret(GPSearch) < regret(BasicVariantGenerator) - margin


@pytest.mark.parametrize(("toy", "margin"), [("branin", 1.0), ("hartmann", 0.5), ("network", 0.3)])
def test_the_default_search_comes_much_closer_than_random_search(toy, margin):
    regret = functools.partial(
        median_log_regret, regret_of_full_trainings, toy=toy, num_seeds=NUM_SEEDS_OF_SLOW
    )
    assert regret(AutoSearch) < regret(BasicVariantGenerator) - margin


@pytest.mark.parametrize(("kind", "num_seeds"), [(BOHBSearch, 5), (CQRSearch, NUM_SEEDS_OF_SLOW)])
def test_the_other_models_beat_random_search(kind, num_seeds):
    differences = [
        median_log_regret(regret_of_full_trainings, kind, toy, num_seeds)
        - median_log_regret(regret_of_full_trainings, BasicVariantGenerator, toy, num_seeds)
        for toy in TOYS
    ]
    assert np.mean(differences) < -0.1
