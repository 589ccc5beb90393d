"""Class API: save and load a checkpoint."""

import os

import torch
from torch import nn

import tuner as tune


class MyTrainableClass(tune.Trainable):
    def setup(self, config):
        self.model = nn.Sequential(
            nn.Linear(config.get("input_size", 32), 32), nn.ReLU(), nn.Linear(32, 10)
        )

    def step(self):
        return {}

    def save_checkpoint(self, tmp_checkpoint_dir):
        checkpoint_path = os.path.join(tmp_checkpoint_dir, "model.pth")
        torch.save(self.model.state_dict(), checkpoint_path)
        return tmp_checkpoint_dir

    def load_checkpoint(self, tmp_checkpoint_dir):
        checkpoint_path = os.path.join(tmp_checkpoint_dir, "model.pth")
        self.model.load_state_dict(torch.load(checkpoint_path))


if __name__ == "__main__":
    tuner = tune.Tuner(
        MyTrainableClass,
        param_space={"input_size": 64},
        run_config=tune.RunConfig(
            stop={"training_iteration": 2},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
        ),
    )
    results = tuner.fit()

    saved = results[0].best_checkpoints
    print("saved at:", [metrics["training_iteration"] for _, metrics in saved])
    with results[0].checkpoint.as_directory() as directory:
        weights = torch.load(os.path.join(directory, "model.pth"))
    print("inputs:", weights["0.weight"].shape[1])
