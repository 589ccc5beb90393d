"""Optuna proposes, ASHA stops what does badly."""

import sys

import tuner as tune
from schedulers import ASHAScheduler
from searchers import OptunaSearch
from tuner import RunConfig


def objective(config):
    for step in range(1, 10):
        tune.report({"loss": (config["x"] - 2) ** 2 / step + abs(config["x"] - 2), "steps": step})


if __name__ == "__main__":
    tuner = tune.Tuner(
        objective,
        param_space={"x": tune.uniform(-10, 10), "width": tune.choice([16, 32])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=16,
            max_concurrent_trials=2,
            search_alg=OptunaSearch(seed=7),
            scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
        ),
        run_config=RunConfig(name="optuna", storage_path=sys.argv[1]),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print("best:", best.config, best.metrics["loss"])
    print("iterations:", sorted(result.metrics["training_iteration"] for result in results))
