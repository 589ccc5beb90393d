"""Population based training of a resettable class: all members run, clones reuse processes."""

import os
import sys
from pathlib import Path

import tuner as tune
from schedulers import PopulationBasedTraining
from tuner import CheckpointConfig, RunConfig, Trainable


class Learner(Trainable):
    def setup(self, config):
        self.weight = 10.0
        self.num_resets = 0
        self.learn_with(config)

    def learn_with(self, config):
        self.lr = config["lr"]

    def step(self):
        self.weight -= self.lr * self.weight
        return {
            "mean_accuracy": 1 / (1 + abs(self.weight)),
            "lr": self.lr,
            "process": os.getpid(),
            "num_resets": self.num_resets,
        }

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "weight.txt").write_text(repr(self.weight))
        return checkpoint_dir

    def load_checkpoint(self, checkpoint):
        self.weight = float((Path(checkpoint) / "weight.txt").read_text())

    def reset_config(self, new_config):
        self.num_resets += 1
        self.learn_with(new_config)
        return True


if __name__ == "__main__":
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=4,
        hyperparam_mutations={"lr": tune.uniform(0.001, 0.5)},
        quantile_fraction=0.5,
    )
    tuner = tune.Tuner(
        Learner,
        param_space={"lr": tune.grid_search([0.002, 0.01, 0.2, 0.3])},
        tune_config=tune.TuneConfig(
            metric="mean_accuracy", mode="max", scheduler=scheduler, reuse_actors=True, seed=3
        ),
        run_config=RunConfig(
            name="pbt_class",
            storage_path=sys.argv[1],
            resources={"cpu": 4},
            stop={"training_iteration": 24},
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    )
    results = tuner.fit()
    frames = [result.metrics_dataframe for result in results]
    print(
        "members:",
        len(results),
        min(frame["training_iteration"].iloc[-1] for frame in frames) >= 24,
    )
    print("has clones:", any(trial.grafts for trial in results.trials))
    # Each attempt but the first is a clone, in a process of its own or in the one before, reset.
    births = [
        frame["process"].nunique() + frame.groupby("process")["num_resets"].max().sum()
        for frame in frames
    ]
    print(
        "attempts:",
        births
        == [trial.attempt for trial in results.trials]
        == [1 + len(trial.grafts) for trial in results.trials],
    )
    print("learning rates:", all(result.metrics["lr"] == result.config["lr"] for result in results))
