"""Trials that are suggested before there is a slot for them change nothing but what can be seen."""

import dataclasses

import pytest

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from searchers import BasicVariantGenerator, ConcurrencyLimiter, TreeSearch
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.testing import simulate

SCHEDULERS = {
    "fifo": FIFOScheduler,
    "stopping": lambda: ASHAScheduler(max_t=16, reduction_factor=2, type="stopping"),
    "promotion": lambda: ASHAScheduler(max_t=16, reduction_factor=2, type="promotion"),
    "hyperband": lambda: HyperBandScheduler(max_t=16),
    "median": lambda: MedianStoppingRule(grace_period=2, min_samples_required=2),
    "pbt": lambda: PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"x": tune.uniform(0, 1)},
        synch=True,
    ),
}
SPACE = {"x": tune.uniform(0, 1)}


def losses(config):
    for step in range(1, 17):
        yield {"loss": config["x"] / step + (step * 7919 + int(config["x"] * 1e6)) % 100 / 100}


def outcome(scheduler, num_slots, num_samples):
    simulation = simulate(
        losses,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=num_samples, seed=5, scheduler=scheduler
        ),
        num_slots=num_slots,
        duration_s=lambda config, _: 0.5 + config["x"],
    )
    decisions = [decision for entry in simulation.history for decision in entry.decisions]
    return (
        decisions,
        [(each.config, each.ending, each.metrics) for each in simulation.grid],
        simulation.elapsed_s,
    )


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize(("num_slots", "num_samples"), [(1, 9), (3, 3), (3, 24)])
def test_every_scheduler_decides_as_if_each_trial_came_when_a_slot_is_free(
    name, num_slots, num_samples, monkeypatch
):
    early = outcome(SCHEDULERS[name](), num_slots, num_samples)
    settings = ExperimentSpec.settings
    monkeypatch.setattr(
        ExperimentSpec,
        "settings",
        lambda *arguments: dataclasses.replace(settings(*arguments), max_pending=0),
    )
    assert early == outcome(SCHEDULERS[name](), num_slots, num_samples)


@pytest.mark.parametrize(
    ("max_pending", "settings"),
    [
        (16, {"num_samples": 3}),
        (16, {"num_samples": 3, "max_concurrent_trials": 1}),
        (0, {"num_samples": -1, "time_budget_s": 9.0}),
        (0, {"num_samples": 3, "duplicates": "skip"}),
        (0, {"num_samples": 3, "search_alg": BasicVariantGenerator(max_concurrent=2)}),
        (0, {"num_samples": 3, "search_alg": ConcurrencyLimiter(BasicVariantGenerator(), 2)}),
        (0, {"num_samples": 3, "search_alg": TreeSearch()}),
    ],
)
def test_only_of_a_grid_or_random_samples_in_known_number_are_trials_suggested_early(
    max_pending, settings
):
    settings = {"search_alg": BasicVariantGenerator(), **settings}
    spec = make_spec(
        losses, SPACE, tune.TuneConfig(metric="loss", mode="min", **settings), tune.RunConfig()
    )
    spec.connect()
    assert spec.settings({"cpu": 4.0}).max_pending == max_pending


def test_two_trials_for_each_slot_are_suggested_early_where_there_are_many():
    spec = make_spec(
        losses, SPACE, tune.TuneConfig(search_alg=BasicVariantGenerator()), tune.RunConfig()
    )
    spec.connect()
    assert spec.settings({"cpu": 64.0}).max_pending == 128
