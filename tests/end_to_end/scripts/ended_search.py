"""A search that sends itself a signal.

Arguments: the storage path, and the number of the signal.
"""

import os
import sys
from pathlib import Path

import tuner as tune
from schedulers import ASHAScheduler

NUM_RESULTS = 7


class Signalling(tune.Callback):
    """Sends the signal when a number of results have come."""

    num_results = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.num_results += 1
        if self.num_results == NUM_RESULTS:
            os.kill(os.getpid(), int(sys.argv[2]))


def train(config):
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "epoch").read_text())
    for epoch in range(start, 12):
        with tune.checkpoint_dir() as directory:
            Path(directory, "epoch").write_text(str(epoch + 1))
            checkpoint = tune.Checkpoint.from_directory(directory)
            tune.report({"loss": config["x"] ** 2 / (epoch + 1)}, checkpoint=checkpoint)


def given(storage, **run):
    return {
        "param_space": {"x": tune.uniform(-1, 1), "act": tune.choice([abs, max])},
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=8,
            scheduler=ASHAScheduler(max_t=12),
            seed=1,
            max_concurrent_trials=1,
        ),
        "run_config": tune.RunConfig(
            storage_path=storage,
            name="exp",
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            **run,
        ),
    }


if __name__ == "__main__":
    tune.Tuner(train, **given(sys.argv[1], callbacks=[Signalling()])).fit()
