"""Tune a small Lightning network on handwritten digits.

Of 12 configurations, the best third is promoted at 1 and at 3 epochs. Run it with ``python
examples/lightning_digits.py``; it takes less than a minute on two cores and downloads nothing. A
paused training continues from its checkpoint in a new process when it is promoted: `resume` passes
Lightning the file with weights, optimizer and loops. If the search is interrupted, ``python
examples/lightning_digits.py --restore DIRECTORY`` continues it.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning.pytorch as lightning
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from schedulers import ASHAScheduler
from tuner.integration.pytorch_lightning import TuneReportCheckpointCallback, resume

MAX_EPOCHS = 9


class Network(lightning.LightningModule):
    """One hidden layer between 64 pixels and 10 digits."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(
            nn.Linear(64, config["hidden"]),
            nn.ReLU(),
            nn.Dropout(config["dropout"]),
            nn.Linear(config["hidden"], 10),
        )

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log loss (lower is better) and accuracy (higher is better)."""
        images, labels = batch
        logits = self.layers(images)
        self.log("val_loss", nn.functional.cross_entropy(logits, labels))
        self.log("val_accuracy", (logits.argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what trains the network."""
        return torch.optim.SGD(
            self.parameters(), lr=self.config["lr"], momentum=self.config["momentum"]
        )


def loaders() -> list[DataLoader[Any]]:
    """Return batches for training and validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    pairs = ((images, labels, True), (val_images, val_labels, False))
    return [
        DataLoader(TensorDataset(x, y), batch_size=64, shuffle=is_training)
        for x, y, is_training in pairs
    ]


def train(config: dict[str, Any]) -> None:
    """Train one network; the callback reports and saves it after each validation."""
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=MAX_EPOCHS,
        accelerator="cpu",
        callbacks=[TuneReportCheckpointCallback({"loss": "val_loss", "accuracy": "val_accuracy"})],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Network(config), *loaders(), ckpt_path=resume())


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search, or continue an interrupted one, and return its results."""
    if options.restore:
        return tune.Tuner.restore(options.restore, train).fit()
    space = {
        "lr": tune.loguniform(1e-3, 1.0),
        "momentum": tune.uniform(0.0, 0.95),
        "hidden": tune.choice([16, 32, 64, 128]),
        "dropout": tune.uniform(0.0, 0.5),
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ASHAScheduler(
                type="promotion", max_t=MAX_EPOCHS, grace_period=1, reduction_factor=3
            ),
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
    print(
        "Best configuration:",
        ", ".join(f"{name}={value:.4g}" for name, value in best.config.items()),
    )
    print(f"Its network: loss {best.metrics['loss']:.4f}, accuracy {best.metrics['accuracy']:.3f}")
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=12, help="how many configurations to try")
    parser.add_argument(
        "--seed",
        type=int,
        help="what the choice of configurations follows from; default: drawn and written down",
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    parser.add_argument(
        "--restore",
        metavar="DIRECTORY",
        help="continue the experiment in this directory instead of starting one",
    )
    show(search(parser.parse_args()))
