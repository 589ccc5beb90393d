"""A search of a conditional space that kills itself.

Arguments: the storage path and the searcher, see `SEARCHERS`.
"""

import os
import signal
import sys

import tuner as tune
from schedulers import ASHAScheduler
from searchers import BasicVariantGenerator, OptunaSearch

SEARCHERS = {"random": BasicVariantGenerator, "optuna": OptunaSearch}


class Killer(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if trial.trial_id == "t00004":
            os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    for step in range(1, 4):
        tune.report({"loss": config["depth"] + config.get("lr", 2.0) / step})


def is_deep(depth):
    return depth > 2


SPACE = {
    "opt": tune.choice(
        [
            {"name": "sgd", "act": tune.choice([abs, max]), "m": tune.uniform(0, 1)},
            {"name": "adam", "f": min},
            "none",
        ]
    ),
    "lr": tune.only_if({"opt": [0, 1]}, tune.loguniform(1e-4, 1)),
    "depth": tune.randint(1, 5),
    "skip": tune.only_if({"depth": is_deep}, {"kind": tune.choice(["add", "concat"]), "norm": sum}),
}


def declare(storage, searcher, callbacks=None):
    return tune.Tuner(
        train,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=12,
            seed=1,
            max_concurrent_trials=1,
            scheduler=ASHAScheduler(max_t=3),
            search_alg=SEARCHERS[searcher](),
        ),
        run_config=tune.RunConfig(
            name="exp", storage_path=storage, verbose=0, executor="inline", callbacks=callbacks
        ),
    )


if __name__ == "__main__":
    declare(*sys.argv[1:], callbacks=[Killer()]).fit()
