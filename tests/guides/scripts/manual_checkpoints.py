"""Manual checkpoints at any iteration: requested in a trainable's result, and by a callback."""

import sys
from collections import defaultdict
from pathlib import Path

import tuner as tune
from tuner import Callback, CheckpointConfig, FailureConfig, RunConfig, Trainable
from tuner.experiment import Trial
from tuner.result import SHOULD_CHECKPOINT, TRAINING_ITERATION


class Preempted(Trainable):
    """Is preempted at its third and fifth step."""

    def step(self):
        if self.iteration + 1 == 3:
            return {"should_checkpoint": True}
        if self.iteration + 1 == 5:
            return {SHOULD_CHECKPOINT: True}
        return {}

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "iteration.txt").write_text(str(self.iteration))

    def load_checkpoint(self, checkpoint):
        pass


class Fragile(Trainable):
    """Fails once after its fourth step if its configuration says so."""

    def setup(self, config):
        self.fails = config["fails"]

    def step(self):
        if self.fails and self.iteration == 4:
            raise RuntimeError("fails once")
        return {}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        self.fails = False


class CheckpointByStepsTaken(Callback):
    """Asks for a checkpoint of each trial after every N of its iterations."""

    def __init__(self, N):  # noqa: N803  (the name in the guides)
        self.steps_per_checkpoint = N
        self.last_checkpoint: dict[Trial, int] = defaultdict(lambda: -1)

    def on_trial_result(self, iteration, trials, trial, result, **info):
        current_iteration = result[TRAINING_ITERATION]
        if current_iteration - self.last_checkpoint[trial] >= self.steps_per_checkpoint:
            result[SHOULD_CHECKPOINT] = True
            self.last_checkpoint[trial] = current_iteration


def fit(trainable, name, callbacks, param_space=None):
    tuner = tune.Tuner(
        trainable,
        param_space=param_space,
        run_config=RunConfig(
            name=name,
            storage_path=sys.argv[1],
            stop={TRAINING_ITERATION: 9},
            callbacks=callbacks,
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            failure_config=FailureConfig(max_failures=1),
            verbose=0,
        ),
    )
    for result in tuner.fit():
        print(
            name,
            result.metrics[TRAINING_ITERATION],
            [metrics[TRAINING_ITERATION] for _, metrics in result.best_checkpoints],
        )


if __name__ == "__main__":
    fit(Preempted, "preempted", [])
    callback = CheckpointByStepsTaken(N=3)
    fit(Fragile, "by_steps", [callback], {"fails": tune.grid_search([False, True])})
    print("trials seen:", len(callback.last_checkpoint))
