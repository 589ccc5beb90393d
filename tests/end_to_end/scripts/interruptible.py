"""Runs an experiment that never ends by itself, or goes on with it where it was interrupted.

Arguments: the storage path; ``function``, ``class`` or ``deaf`` for what is trained; the iterations after which a trial is done.
"""

import sys
import threading
from pathlib import Path

import tuner as tune
from tuner import Callback, RunConfig, Trainable, Tuner


class Counter(Trainable):
    def setup(self, config):
        self.count = 0

    def step(self):
        self.count += 1
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint):
        self.count = int(Path(checkpoint, "count").read_text())


def count(config):
    number = 0
    try:
        while True:
            number += 1
            tune.report({"count": number})
    finally:
        print("cleaned up")


def deaf(config):
    tune.report({"count": 1})
    while True:
        threading.Event().wait()


class Herald(Callback):
    """Tells the world outside when each trial has reported, and when they have been told to leave."""

    def __init__(self):
        self.reported = set()
        self.is_told = False

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.reported.add(trial)
        if len(self.reported) == 2:
            self.reported.add(None)
            print("READY", flush=True)

    def on_step_end(self, iteration, trials, **info):
        if not self.is_told and any(trial.intention for trial in trials):
            self.is_told = True
            print("TOLD", flush=True)


if __name__ == "__main__":
    storage, kind, iterations = sys.argv[1:]
    trainable = {"function": count, "class": Counter, "deaf": deaf}[kind]
    space = {"x": tune.grid_search([1, 2])}
    run_config = RunConfig(
        name="interrupted",
        storage_path=storage,
        stop={"training_iteration": int(iterations)},
        callbacks=[Herald()],
        resources={"cpu": 2, "gpu": 0},
    )
    path = f"{storage}/interrupted"
    if Tuner.can_restore(path):
        tuner = Tuner.restore(path, trainable, param_space=space, run_config=run_config)
    else:
        tuner = Tuner(trainable, param_space=space, run_config=run_config)
    results = tuner.fit()
    print("ENDED", [f"{result.status} {result.ending}" for result in results])
    print("COUNTS", [result.metrics["count"] for result in results], [result.checkpoint is not None for result in results])
