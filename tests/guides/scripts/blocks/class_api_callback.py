"""Class API: checkpoints that a callback asks for."""

import tuner as tune
from tuner.experiment import Trial
from tuner.result import SHOULD_CHECKPOINT, TRAINING_ITERATION


class CheckpointByStepsTaken(tune.Callback):
    def __init__(self, iterations_per_checkpoint: int):
        self.steps_per_checkpoint = iterations_per_checkpoint
        self._trials_last_checkpoint = {}

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict, **info
    ):
        current_iteration = result[TRAINING_ITERATION]
        if (
            current_iteration - self._trials_last_checkpoint.get(trial, -1)
            >= self.steps_per_checkpoint
        ):
            result[SHOULD_CHECKPOINT] = True
            self._trials_last_checkpoint[trial] = current_iteration


class Counter(tune.Trainable):
    def step(self):
        return {}

    def save_checkpoint(self, checkpoint_dir):
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint):
        pass


if __name__ == "__main__":
    tuner = tune.Tuner(
        Counter,
        run_config=tune.RunConfig(
            stop={"training_iteration": 9},
            callbacks=[CheckpointByStepsTaken(3)],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    saved = tuner.fit()[0].best_checkpoints
    print("saved at:", [metrics["training_iteration"] for _, metrics in saved])
