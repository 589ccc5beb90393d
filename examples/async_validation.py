"""Validate checkpoints in processes of their own while training continues.

A validation here takes longer than the epoch whose checkpoint it validates. Its metrics are added
to those of the checkpoint once they are known, and `fit` returns when the last one is. The function
is declared with the trainer; with ``--older-form`` it is passed to `report` instead. Run it with
``python examples/async_validation.py``; it takes less than a minute on two cores and downloads
nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import tuner as tune
from tuner import train
from tuner.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
)
from tuner.train.torch import TorchTrainer, prepare_model, unwrap_model

SECONDS = 0.5
"""How long a validation pretends to take."""


def digits() -> list[Tensor]:
    """Return images and labels, for training and for validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    return [images, labels, val_images, val_labels]


def network() -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def validate(checkpoint: Checkpoint, seconds: float) -> dict[str, float]:
    """Return the accuracy of the model in `checkpoint`; runs in a process of its own."""
    _, _, images, labels = digits()
    model = network()
    with checkpoint.as_directory() as directory:
        model.load_state_dict(torch.load(Path(directory, "model.pt")))
    time.sleep(seconds)
    with torch.no_grad():
        return {"accuracy": (model(images).argmax(dim=1) == labels).float().mean().item()}


def validate_older(checkpoint: Checkpoint, config: dict[str, Any]) -> dict[str, float]:
    """Do the same; functions that are passed to `report` get one dictionary."""
    return validate(checkpoint, config["seconds"])


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers; rank 0 asks for a validation of each checkpoint."""
    torch.manual_seed(config["seed"])
    rank, num_ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    images, labels, _, _ = digits()
    images, labels = images[rank::num_ranks], labels[rank::num_ranks]
    model = prepare_model(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    asks: dict[str, Any] = {"validation": ValidationTaskConfig(fn_kwargs={"seconds": SECONDS})}
    if config["older_form"]:
        asks = {"validate_fn": validate_older, "validate_config": {"seconds": SECONDS}}
    for epoch in range(config["num_epochs"]):
        start_s = time.perf_counter()
        for batch in range(0, len(images) // 32 * 32, 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(images[batch : batch + 32]), labels[batch : batch + 32]
            )
            loss.backward()
            optimizer.step()
        metrics = {"epoch": epoch, "loss": loss.item(), "epoch_s": time.perf_counter() - start_s}
        if rank > 0:
            train.report({})  # all ranks report, the others without a checkpoint
            continue
        with tune.checkpoint_dir() as directory:
            torch.save(unwrap_model(model).state_dict(), Path(directory, "model.pt"))
            train.report(
                metrics,
                checkpoint=Checkpoint.from_directory(directory),
                checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
                **asks,
            )


def fit(options: argparse.Namespace) -> train.Result:
    """Train, wait for the validations, and return the result."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={
            "num_epochs": options.epochs,
            "seed": options.seed,
            "older_form": options.older_form,
        },
        scaling_config=ScalingConfig(num_workers=options.workers),
        validation_config=None if options.older_form else ValidationConfig(validate),
        run_config=RunConfig(
            name=options.name,
            storage_path=options.storage_path,
            # Only validations report the accuracy. No checkpoint is deleted before its own is over.
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="accuracy"
            ),
        ),
    )
    return trainer.fit()


def show(result: train.Result) -> None:
    """Print what validations have added, and what they have cost the training."""
    table = result.metrics_dataframe
    print("\nAccuracy by epoch:", ", ".join(f"{value:.3f}" for value in table["accuracy"]))
    print(
        f"An epoch took {table['epoch_s'].median():.2f} s, a validation more than {SECONDS} s;",
        f"training took {table['time_total_s'].max():.1f} s.",
    )
    checkpoint, metrics = result.best_checkpoints[-1]
    print(f"Best model: epoch {metrics['epoch']}, accuracy {metrics['accuracy']:.3f}")
    print("Its files:", checkpoint.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train")
    parser.add_argument("--epochs", type=int, default=6, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument(
        "--older-form", action="store_true", help="pass the function to report, not to the trainer"
    )
    parser.add_argument("--name", help="name of the run; the same name continues it")
    parser.add_argument(
        "--storage-path", help="where the run's directory is made; default: ~/tuner_results"
    )
    show(fit(parser.parse_args()))
