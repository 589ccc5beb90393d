"""Train with Accelerate in two processes.

A worker looks to Accelerate like one of its own launcher's, so that `Accelerator` finds the others
by itself. Each epoch the state of model, optimizer and random generators of all workers is saved
into one checkpoint, and after a failure, which happens on purpose, all continue from it. Run it
with ``python examples/accelerate_ddp.py``; it takes less than a minute on two cores and downloads
nothing.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from tuner import train
from tuner.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from tuner.train.torch import TorchTrainer


def loaders() -> list[DataLoader[Any]]:
    """Return batches for training and validation; Accelerate divides them among the workers."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    pairs = ((images, labels, True), (val_images, val_labels, False))
    return [
        DataLoader(TensorDataset(x, y), batch_size=32, shuffle=is_training)
        for x, y, is_training in pairs
    ]


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers."""
    set_seed(config["seed"])
    accelerator = Accelerator()
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    network, optimizer, batches, val_batches = accelerator.prepare(network, optimizer, *loaders())
    start = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
        start = checkpoint.get_metadata()["epoch"] + 1
    is_first = checkpoint is None
    for epoch in range(start, config["num_epochs"]):
        network.train()
        for images, labels in batches:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(network(images), labels))
            optimizer.step()
        network.eval()
        num_right = num_images = 0
        for images, labels in val_batches:
            with torch.no_grad():
                answers = network(images).argmax(dim=1)
            right = accelerator.gather_for_metrics(answers == labels)
            num_right, num_images = num_right + right.sum(), num_images + len(right)
        # The directory is one for all workers: rank 0 writes the model, each its generators.
        with tune.checkpoint_dir() as directory:
            accelerator.save_state(directory)
            checkpoint = Checkpoint.from_directory(directory)
            if accelerator.is_main_process:
                checkpoint.set_metadata({"epoch": epoch})
            accuracy = float(num_right / num_images)
            train.report({"accuracy": accuracy, "epoch": epoch}, checkpoint=checkpoint)
        if is_first and epoch == 1:
            raise RuntimeError("a failure on purpose")


def fit(options: argparse.Namespace) -> train.Result:
    """Train and return the result."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": options.epochs, "seed": options.seed},
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            storage_path=options.storage_path, failure_config=FailureConfig(max_failures=1)
        ),
    )
    return trainer.fit()


def show(result: train.Result) -> None:
    """Print the learning curve and where the last state is."""
    table = result.metrics_dataframe
    print("\nAccuracy by epoch:", ", ".join(f"{value:.3f}" for value in table["accuracy"]))
    assert result.checkpoint is not None  # noqa: S101  (each epoch has saved one)
    print("Files:", result.checkpoint.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train")
    parser.add_argument("--epochs", type=int, default=5, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument(
        "--storage-path", help="where the run's directory is made; default: ~/tuner_results"
    )
    show(fit(parser.parse_args()))
