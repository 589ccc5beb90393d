"""HyperBand for a class and a function: a band of 17 trials in brackets of 9, 5 and 3.

Two trials run at a time.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import tuner as tune
from schedulers import HyperBandScheduler
from tuner import Checkpoint, RunConfig, Trainable


class Curve(Trainable):
    def setup(self, config):
        self.timestep = 0

    def step(self):
        self.timestep += 1
        return {
            "episode_reward_mean": self.config["height"]
            * self.timestep
            / (self.timestep + self.config["width"])
        }

    def save_checkpoint(self, checkpoint_dir):
        return {"timestep": self.timestep}

    def load_checkpoint(self, checkpoint):
        self.timestep = checkpoint["timestep"]


def train_func(config):
    timestep = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            timestep = json.loads((Path(checkpoint_dir) / "timestep.json").read_text())
    while True:
        timestep += 1
        with tempfile.TemporaryDirectory() as temporary:
            (Path(temporary) / "timestep.json").write_text(json.dumps(timestep))
            reward = config["height"] * timestep / (timestep + config["width"])
            tune.report(
                {"episode_reward_mean": reward}, checkpoint=Checkpoint.from_directory(temporary)
            )


def fit(trainable, name):
    tuner = tune.Tuner(
        trainable,
        param_space={"width": tune.uniform(0, 20), "height": tune.uniform(0, 100)},
        tune_config=tune.TuneConfig(
            metric="episode_reward_mean",
            mode="max",
            scheduler=HyperBandScheduler(
                time_attr="training_iteration", max_t=9, reduction_factor=3
            ),
            num_samples=17,
            max_concurrent_trials=2,
            seed=5,
        ),
        run_config=RunConfig(name=name, storage_path=sys.argv[1], verbose=0),
    )
    results = tuner.fit()
    lengths = Counter(result.metrics["training_iteration"] for result in results)
    print(name, sorted(lengths.items()))
    print(
        name,
        "best trained to the end:",
        results.get_best_result().metrics["training_iteration"] == 9,
    )
    print(name, "attempts:", sum(trial.attempt for trial in results.trials) > len(results))


if __name__ == "__main__":
    fit(Curve, "class")
    fit(train_func, "function")
