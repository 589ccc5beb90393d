"""Train one network on handwritten digits in two processes, through a failure.

The network is trained with PyTorch's `DistributedDataParallel`. Each epoch rank 0 saves model,
optimizer and epoch, and all ranks report. After the second epoch the training fails on purpose: all
workers are restarted, and continue from the latest checkpoint. Run it with ``python
examples/ddp_digits.py``; it takes less than a minute on two cores and downloads nothing. If it is
interrupted, the same command with the same ``--name`` continues it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tuner import train
from tuner.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from tuner.train.torch import TorchTrainer, prepare_data_loader, prepare_model, unwrap_model


def digits() -> list[Tensor]:
    """Return images and labels, for training and for validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    return [images, labels, val_images, val_labels]


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers; all of them run this."""
    images, labels, val_images, val_labels = digits()
    loader = prepare_data_loader(
        DataLoader(TensorDataset(images, labels), batch_size=config["batch_size"], shuffle=True)
    )
    torch.manual_seed(config["seed"])
    model = prepare_model(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    start_epoch = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            unwrap_model(model).load_state_dict(torch.load(Path(checkpoint_dir, "model.pt")))
            optimizer.load_state_dict(torch.load(Path(checkpoint_dir, "optimizer.pt")))
            start_epoch = torch.load(Path(checkpoint_dir, "extra_state.pt"))["epoch"] + 1

    for epoch in range(start_epoch, config["num_epochs"]):
        if train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)  # another order of the data in each epoch
        model.train()
        for batch, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = unwrap_model(model)(val_images).argmax(dim=1) == val_labels
        metrics = {"accuracy": right.float().mean().item(), "epoch": epoch}

        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            checkpoint = None
            # The model is the same on all ranks, so one of them saves it.
            if train.get_context().get_world_rank() == 0:
                torch.save(unwrap_model(model).state_dict(), Path(temp_checkpoint_dir, "model.pt"))
                torch.save(optimizer.state_dict(), Path(temp_checkpoint_dir, "optimizer.pt"))
                torch.save({"epoch": epoch}, Path(temp_checkpoint_dir, "extra_state.pt"))
                checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
            train.report(metrics, checkpoint=checkpoint)

        if epoch == 1:  # reached only by the first attempt, since epoch 1 is not trained again
            raise RuntimeError("a failure on purpose")


def fit(options: argparse.Namespace) -> train.Result:
    """Train, or continue what was interrupted, and return the result."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={
            "num_epochs": options.epochs,
            "lr": 0.05,
            "batch_size": 32,
            "seed": options.seed,
        },
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            name=options.name,
            storage_path=options.storage_path,
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="accuracy"
            ),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    return trainer.fit()


def show(result: train.Result) -> None:
    """Print the learning curve and where the best model is."""
    table = result.metrics_dataframe
    print("\nAccuracy by epoch:", ", ".join(f"{value:.3f}" for value in table["accuracy"]))
    checkpoint, metrics = result.best_checkpoints[-1]
    print(f"Best model: epoch {metrics['epoch']}, accuracy {metrics['accuracy']:.3f}")
    print("Its files:", checkpoint.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train")
    parser.add_argument("--epochs", type=int, default=8, help="how long to train")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="what the first weights follow from",
    )
    parser.add_argument("--name", help="name of the run; the same name continues it")
    parser.add_argument(
        "--storage-path", help="where the run's directory is made; default: ~/tuner_results"
    )
    show(fit(parser.parse_args()))
