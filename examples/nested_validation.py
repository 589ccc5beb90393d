"""Validate checkpoints by a trainer of two processes, beside a training of two processes.

The validation function starts a trainer of its own, under a name made from that of the training. It
borrows its workers from the experiment in which it runs, so that the two never use more than the
machine has. Run it with ``python examples/nested_validation.py``; it takes less than a minute on
two cores and downloads nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn

import tuner as tune
from tuner import train
from tuner.train import (
    Checkpoint,
    CheckpointUploadMode,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
)
from tuner.train.torch import TorchTrainer, prepare_model, unwrap_model


def digits(is_training: bool) -> tuple[Tensor, Tensor]:
    """Return images and labels of this worker, for training or for validation."""
    images, labels = load_digits(return_X_y=True)
    rank, num_ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    part = slice(rank, 1200, num_ranks) if is_training else slice(1200 + rank, None, num_ranks)
    return torch.from_numpy((images / 16.0).astype("float32"))[part], torch.from_numpy(labels)[part]


def network() -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def evaluate(config: dict[str, Any]) -> None:
    """Count in one of the validation's workers; all of them report the sum."""
    images, labels = digits(is_training=False)
    model = network()
    with config["checkpoint"].as_directory() as directory:
        model.load_state_dict(torch.load(Path(directory, "model.pt")))
    with torch.no_grad():
        right = model(images).argmax(dim=1) == labels
    counts = torch.tensor([right.sum(), len(right)])
    dist.all_reduce(counts)
    train.report({"accuracy": (counts[0] / counts[1]).item(), "num_images": int(counts[1])})


def validate(checkpoint: Checkpoint, train_run_name: str, epoch: int) -> dict[str, Any]:
    """Return what a trainer of two workers reports about `checkpoint`."""
    trainer = TorchTrainer(
        evaluate,
        train_loop_config={"checkpoint": checkpoint},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name=f"{train_run_name}_validation_epoch_{epoch}"),
    )
    metrics = trainer.fit().metrics
    return {name: metrics[name] for name in ("accuracy", "num_images")}


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers."""
    torch.manual_seed(config["seed"])
    images, labels = digits(is_training=True)
    model = prepare_model(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(config["num_epochs"]):
        for batch in range(0, len(images) // 32 * 32, 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(images[batch : batch + 32]), labels[batch : batch + 32]
            )
            loss.backward()
            optimizer.step()
        if train.get_context().get_world_rank() > 0:
            train.report({})
            continue
        with tune.checkpoint_dir() as directory:
            torch.save(unwrap_model(model).state_dict(), Path(directory, "model.pt"))
            name = train.get_context().get_experiment_name()
            train.report(
                {"epoch": epoch, "loss": loss.item()},
                checkpoint=Checkpoint.from_directory(directory),
                checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
                validation=ValidationTaskConfig(fn_kwargs={"train_run_name": name, "epoch": epoch}),
            )


def fit(options: argparse.Namespace) -> train.Result:
    """Train, wait for the validations, and return the result."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": options.epochs, "seed": options.seed},
        scaling_config=ScalingConfig(num_workers=2),
        validation_config=ValidationConfig(validate),
        run_config=RunConfig(name="digits", storage_path=options.storage_path),
    )
    return trainer.fit()


def show(result: train.Result) -> None:
    """Print the metrics that the validations have added."""
    print()
    for checkpoint, metrics in result.best_checkpoints:
        print(
            "{name}: loss {loss:.4f}, accuracy {accuracy:.3f} of {num_images} images".format(
                name=Path(checkpoint.path).name, **metrics
            )
        )
    print("Files:", result.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument(
        "--storage-path", help="where the runs' directories are made; default: ~/tuner_results"
    )
    show(fit(parser.parse_args()))
