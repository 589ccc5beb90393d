"""Class API: periodic and final checkpoints, as files or dictionaries; steps without reports."""

import sys
from pathlib import Path

import tuner as tune
from tuner import CheckpointConfig, FailureConfig, RunConfig, Trainable


class Files(Trainable):
    """Saves itself into a file, and fails once, in its fifth step."""

    def setup(self, config):
        self.total = config["start"]
        self.restored = False

    def step(self):
        self.total += 1
        if self.iteration == 4 and not self.restored:
            raise RuntimeError("the fifth step fails once")
        return {}

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "total.txt").write_text(str(self.total))
        print("saved in", checkpoint_dir)
        return checkpoint_dir

    def load_checkpoint(self, checkpoint):
        self.total = int((Path(checkpoint) / "total.txt").read_text())
        self.restored = True
        print("loaded from", checkpoint)


class Dictionary(Trainable):
    """Saves itself by returning a dictionary."""

    def setup(self, config):
        self.state = {"steps": 0}

    def step(self):
        self.state["steps"] += 1
        if self.iteration == 2 and "restored" not in self.state:
            raise RuntimeError("the third step fails once")
        return {"steps": self.state["steps"], "restored": "restored" in self.state}

    def save_checkpoint(self, checkpoint_dir):
        return self.state

    def load_checkpoint(self, checkpoint):
        self.state = checkpoint | {"restored": True}


def fit(trainable, name, iterations, failures=0, **config):
    tuner = tune.Tuner(
        trainable,
        param_space={"start": 10},
        run_config=RunConfig(
            name=name,
            storage_path=sys.argv[1],
            stop={"training_iteration": iterations},
            checkpoint_config=CheckpointConfig(**config),
            failure_config=FailureConfig(max_failures=failures),
            verbose=0,
        ),
    )
    (result,) = tuner.fit()
    saved = [metrics["training_iteration"] for _, metrics in result.best_checkpoints]
    print(name, result.metrics["training_iteration"], saved, result.error)


if __name__ == "__main__":
    fit(Files, "default", 2)
    fit(Files, "rare", 2, checkpoint_frequency=10)
    fit(Files, "no_end", 2, checkpoint_at_end=False)
    fit(Files, "periodic", 7, failures=1, checkpoint_frequency=4)
    fit(Files, "coincident", 4, checkpoint_frequency=2, checkpoint_at_end=True)
    fit(Dictionary, "dictionary", 4, failures=1, checkpoint_frequency=2)
