"""A network whose training fails once and continues from model and optimizer saved by torch."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import tuner as tune
from tuner import Checkpoint, CheckpointConfig, FailureConfig, RunConfig


def train_func(config):
    torch.manual_seed(0)
    inputs = torch.linspace(-1, 1, 32).unsqueeze(1)
    targets = 2 * inputs + 1
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start_epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            model.load_state_dict(torch.load(Path(directory) / "model.pt", map_location="cpu"))
            optimizer.load_state_dict(
                torch.load(Path(directory) / "optimizer.pt", map_location="cpu")
            )
            start_epoch = torch.load(Path(directory) / "extra_state.pt")["epoch"] + 1
    for epoch in range(start_epoch, 5):
        print("epoch", epoch)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as temporary:
            torch.save(model.state_dict(), Path(temporary) / "model.pt")
            torch.save(optimizer.state_dict(), Path(temporary) / "optimizer.pt")
            torch.save({"epoch": epoch}, Path(temporary) / "extra_state.pt")
            everything = {
                "epoch": epoch,
                "model_state_dict": model.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "loss": loss.item(),
            }
            torch.save(everything, Path(temporary) / "checkpoint.pth")
            tune.report(
                {"loss": loss.item(), "epoch": epoch},
                checkpoint=Checkpoint.from_directory(temporary),
            )
        if epoch == config["fails_at"]:
            raise RuntimeError("a failure, to show how it is survived")


if __name__ == "__main__":
    tuner = tune.Tuner(
        train_func,
        param_space={"fails_at": tune.grid_search([1, None])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(
            name="torch",
            storage_path=sys.argv[1],
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    for result in tuner.fit():
        with result.checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory) / "checkpoint.pth")
        print(
            saved["epoch"],
            saved["loss"],
            saved["model_state_dict"]["weight"].item(),
            len(saved["optimizer_state_dict"]["state"]),
        )
