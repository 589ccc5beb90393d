"""Runs an experiment at ``verbose=0`` that provokes many warnings; argument: the storage path."""

import os
import signal
import sys

import tuner as tune
from tuner import Callback, CheckpointConfig, FailureConfig, RunConfig, Trainable, Tuner


class Noisy(Trainable):
    def step(self):
        print("on stdout")
        print("on stderr", file=sys.stderr)
        if self.config["how"] == "raise":
            raise ValueError("raised")
        if self.config["how"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": object(), "done": self.iteration == 2}


class Broken(Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        raise RuntimeError("a callback that raises")


class Interrupting(Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = (
        "1"  # "unknown" is never reported, which is one of the complaints
    )
    Tuner(
        Noisy,
        param_space={"how": tune.grid_search(["raise", "kill", None])},
        tune_config=tune.TuneConfig(metric="unknown", mode="max"),
        run_config=RunConfig(
            name="quiet",
            storage_path=sys.argv[1],
            verbose=0,
            callbacks=[Broken(), Interrupting()],
            checkpoint_config=CheckpointConfig(checkpoint_score_attribute="unknown"),
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()
