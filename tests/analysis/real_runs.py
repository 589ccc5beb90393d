"""Small experiments that are run in this process, for tests that need a journal."""

from __future__ import annotations

import math
from pathlib import Path

import tuner as tune
from schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MOASHAScheduler,
    PopulationBasedTraining,
)

HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=alert(1)>"


class Digits(tune.Trainable):
    """Gets better every step, the faster the closer its rate is to a hundredth; can be saved."""

    def setup(self, config):
        self.quality = 0.0

    def step(self):
        miss = math.log10(self.config["lr"]) + 2
        self.quality += (1 - self.quality) * 0.2 * math.exp(-(miss**2))
        return {"accuracy": self.quality, "loss": 1 - self.quality}

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "quality").write_text(repr(self.quality))

    def load_checkpoint(self, checkpoint_dir):
        self.quality = float((Path(checkpoint_dir) / "quality").read_text())


def curve(config):
    for step in range(1, config.get("steps", 9) + 1):
        if step == config.get("fails_at"):
            raise RuntimeError(f"no luck {HOSTILE}\nsecond line")
        tune.report({"loss": config["x"] / step + 0.01})


SPACE = {"lr": tune.loguniform(1e-4, 1), "momentum": tune.uniform(0.1, 0.9)}


def run(
    path,
    name,
    trainable,
    space,
    *,
    num_samples=1,
    scheduler=None,
    metric="loss",
    mode="min",
    constraints=None,
    **more,
):
    """Run an experiment and return its grid."""
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric=metric,
            mode=mode,
            constraints=constraints,
            num_samples=num_samples,
            scheduler=scheduler or FIFOScheduler(),
            search_alg="random",
            seed=1,
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(path),
            verbose=0,
            executor="inline",
            durability="process",
            **more,
        ),
    )
    return tuner.fit()


def asha(path):
    scheduler = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3, type="stopping")
    return run(
        path,
        "asha",
        curve,
        {"x": tune.uniform(0, 1), "kind": tune.choice(["a", "b"])},
        num_samples=20,
        scheduler=scheduler,
    )


def promotion(path):
    scheduler = ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3, type="promotion")
    return run(
        path,
        "promotion",
        Digits,
        SPACE,
        num_samples=9,
        scheduler=scheduler,
        metric="accuracy",
        mode="max",
    )


def hyperband(path):
    return run(
        path,
        "hyperband",
        Digits,
        SPACE,
        num_samples=14,
        scheduler=HyperBandScheduler(max_t=9),
        metric="accuracy",
        mode="max",
    )


def pbt(path):
    mutations = {"lr": tune.loguniform(1e-4, 1)}
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations=mutations
    )
    stop = {"training_iteration": 12}
    return run(
        path,
        "pbt",
        Digits,
        SPACE,
        num_samples=4,
        scheduler=scheduler,
        metric="accuracy",
        mode="max",
        stop=stop,
    )


def plain(path):
    space = {
        "x": tune.grid_search([0.5, 0.1, 0.9]),
        "fails_at": tune.grid_search([None, 4]),
        "model": {"layers": [8, 4], "act": tune.choice(["relu", HOSTILE])},
    }
    return run(path, "plain", curve, space, num_samples=2)


def tradeoff(path):
    def train(config):
        for step in range(1, 4):
            tune.report(
                {
                    "accuracy": 1 - (config["x"] - 0.8) ** 2 / step,
                    "size": config["x"] * config["layers"],
                    "other": 1.0 * step,
                }
            )

    space = {"x": tune.uniform(0, 1), "layers": tune.choice([1, 2, 3])}
    scheduler = MOASHAScheduler({"accuracy": "max", "size": "min"}, max_t=3, reduction_factor=4)
    return run(
        path, "tradeoff", train, space, num_samples=24, scheduler=scheduler, metric=None, mode=None
    )


def limited(path):
    """Two metrics, and a limit that the most accurate trials exceed."""

    def train(config):
        width = config["width"]
        for step in range(1, 4):
            tune.report(
                {
                    "accuracy": 1 - 1 / (width * step),
                    "latency_ms": width * config["layers"],
                    "size_mb": width * config["layers"] / 4,
                }
            )

    space = {"width": tune.uniform(1, 10), "layers": tune.choice([1, 2, 3])}
    return run(
        path,
        "limited",
        train,
        space,
        num_samples=24,
        metric=["accuracy", "latency_ms"],
        mode=["max", "min"],
        constraints={"size_mb": "<= 4"},
    )


KINDS = {
    "asha": asha,
    "promotion": promotion,
    "hyperband": hyperband,
    "pbt": pbt,
    "plain": plain,
    "tradeoff": tradeoff,
    "limited": limited,
}
