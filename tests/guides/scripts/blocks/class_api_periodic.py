"""Class API: checkpoints every ten iterations, and one at the end as well."""

import tuner as tune


class MyTrainableClass(tune.Trainable):
    def step(self):
        return {}

    def save_checkpoint(self, checkpoint_dir):
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint):
        pass


def show(results):
    saved = results[0].best_checkpoints
    print("saved at:", [metrics["training_iteration"] for _, metrics in saved])


if __name__ == "__main__":
    tuner = tune.Tuner(
        MyTrainableClass,
        run_config=tune.RunConfig(
            stop={"training_iteration": 2},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=10),
        ),
    )
    show(tuner.fit())

    tuner = tune.Tuner(
        MyTrainableClass,
        run_config=tune.RunConfig(
            stop={"training_iteration": 2},
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=10, checkpoint_at_end=True
            ),
        ),
    )
    show(tuner.fit())
