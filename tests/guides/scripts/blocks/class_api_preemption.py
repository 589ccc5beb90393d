"""Class API: a checkpoint that the trainable asks for in its result."""

import random

import tuner as tune


# to be implemented by user.
def detect_instance_preemption():
    choice = random.randint(1, 100)
    # simulating a 1% chance of preemption.
    return choice <= 1


def train_func(self):
    # training code
    result = {"mean_accuracy": "my_accuracy"}
    if detect_instance_preemption():
        result.update(should_checkpoint=True)
    return result


class Preempted(tune.Trainable):
    step = train_func

    def setup(self, config):
        random.seed(0)  # so that the same steps are preempted each time

    def save_checkpoint(self, checkpoint_dir):
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint):
        pass


if __name__ == "__main__":
    tuner = tune.Tuner(
        Preempted,
        run_config=tune.RunConfig(
            stop={"training_iteration": 300},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    results = tuner.fit()

    random.seed(0)
    preempted = [step for step in range(1, 301) if detect_instance_preemption()]
    saved = [metrics["training_iteration"] for _, metrics in results[0].best_checkpoints]
    print("preempted some time:", bool(preempted))
    print("saved when preempted:", saved == preempted)
