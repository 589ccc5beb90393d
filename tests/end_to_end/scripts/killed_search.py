"""A search that kills itself, and can be continued without its declaration.

Argument: the storage path.
"""

import os
import signal
import sys

import tuner as tune
from schedulers import ASHAScheduler


class Killer(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if trial.trial_id == "t00003":
            os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["x"] / step})


def declare(storage, **run):
    return tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 1), "of": tune.choice(["a", "b"])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=6,
            seed=1,
            scheduler=ASHAScheduler(max_t=3),
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(storage_path=storage, name="exp", verbose=0, **run),
    )


if __name__ == "__main__":
    declare(sys.argv[1], callbacks=[Killer()]).fit()
