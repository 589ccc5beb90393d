"""Tune a Lightning network that trains in two processes.

A worker looks to Lightning like one of torchrun's, so that its trainer finds the others by itself.
`RayTrainReportCallback` reports and saves after each epoch; a trial that was paused continues from
the file that it has saved. Run it with ``python examples/lightning_ddp.py``; it takes less than a
minute on two cores and downloads nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from schedulers import ASHAScheduler
from tuner import train
from tuner.train import ScalingConfig
from tuner.train.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from tuner.train.torch import TorchTrainer

MAX_EPOCHS = 9


class Network(lightning.LightningModule):
    """One hidden layer between 64 pixels and 10 digits."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(
            nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 10)
        )

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log loss and accuracy, as means over all workers."""
        images, labels = batch
        logits = self.layers(images)
        loss = nn.functional.cross_entropy(logits, labels)
        self.log("val_loss", loss, sync_dist=True)
        right = (logits.argmax(dim=1) == labels).float().mean()
        self.log("val_accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what trains the network."""
        return torch.optim.SGD(self.parameters(), lr=self.config["lr"], momentum=0.9)


def loaders() -> list[DataLoader[Any]]:
    """Return batches for training and validation; Lightning divides them among the workers."""
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
    """Train one network in one of the trial's workers."""
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=MAX_EPOCHS,
        accelerator="cpu",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = prepare_trainer(trainer)
    path = None
    if checkpoint := train.get_checkpoint():
        path = str(Path(checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME))
    trainer.fit(Network(config), *loaders(), ckpt_path=path)


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search and return its results."""
    trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=options.workers))
    tuner = tune.Tuner(
        trainer,
        param_space={
            "train_loop_config": {
                "lr": tune.loguniform(1e-3, 1.0),
                "hidden": tune.choice([16, 32, 64]),
            }
        },
        tune_config=tune.TuneConfig(
            metric="val_loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=3),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print how far trials came, and the best configuration."""
    lengths = [trial.num_rows for trial in results.trials]
    best = results.get_best_result()
    print(
        "\nTrials by epochs trained:",
        ", ".join(f"{lengths.count(length)} x {length}" for length in sorted(set(lengths))),
    )
    print("Best configuration:", best.config["train_loop_config"])
    print("Its network: loss {val_loss:.4f}, accuracy {val_accuracy:.3f}".format(**best.metrics))
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3, help="how many configurations to try")
    parser.add_argument("--workers", type=int, default=2, help="how many processes train each")
    parser.add_argument(
        "--seed",
        type=int,
        help="what the choice of configurations follows from; default: drawn and written down",
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    show(search(parser.parse_args()))
