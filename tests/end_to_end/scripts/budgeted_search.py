"""A search with a budget of iterations that kills itself.

Arguments: the storage path, and after how many results.
"""

import os
import signal
import sys
from pathlib import Path

import tuner as tune
from schedulers import FIFOScheduler

BUDGET = 12


class Killer(tune.Callback):
    def __init__(self, num_results):
        self._num_left = num_results

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self._num_left -= 1
        if not self._num_left:
            os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    step = 0
    if checkpoint := tune.get_checkpoint():
        step = int(Path(checkpoint.path, "step").read_text())
    while True:
        step += 1
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
            tune.report(
                {"loss": config["x"] / step}, checkpoint=tune.Checkpoint.from_directory(directory)
            )


def declare(storage, **run):
    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=2,
            seed=1,
            scheduler=FIFOScheduler(),
            max_concurrent_trials=2,
            budget={"iterations": BUDGET, "cpu_hours": 1000},
        ),
        run_config=tune.RunConfig(
            storage_path=storage, name="exp", resources={"cpu": 2}, **{"verbose": 0} | run
        ),
    )


if __name__ == "__main__":
    declare(sys.argv[1], callbacks=[Killer(int(sys.argv[2]))]).fit()
