"""Tune a small neural network on handwritten digits.

24 trials run, two at a time, and weak ones are stopped early. Run it with ``python
examples/digits_mlp.py``; it takes less than a minute on two cores and downloads nothing. If it is
interrupted, ``python examples/digits_mlp.py --restore DIRECTORY`` continues it: results and
decisions are kept, and each unfinished network continues from its latest checkpoint, with the same
learning curve.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import tuner as tune
from schedulers import ASHAScheduler

MAX_EPOCHS = 27
CHECKPOINT = "model.pt"
Split = tuple[Tensor, Tensor]


def load_splits() -> tuple[Split, Split, Split]:
    """Return images and labels for training (60 %), validation (20 %) and test (20 %)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32")
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = train_test_split(
        images, labels, test_size=0.25, stratify=labels, random_state=0
    )
    pairs = ((images, labels), (val_images, val_labels), (test_images, test_labels))
    train, validation, test = ((torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs)
    return train, validation, test


def build_model(config: dict[str, Any]) -> nn.Module:
    """Return a network with one hidden layer for 8 x 8 images."""
    hidden = config["hidden"]
    return nn.Sequential(
        nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(hidden, 10)
    )


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Split, batch_size: int
) -> None:
    """Train the network for one epoch."""
    model.train()
    images, labels = data
    for batch in torch.randperm(len(images)).split(batch_size):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model: nn.Module, data: Split) -> dict[str, float]:
    """Return mean loss (lower is better) and accuracy (higher is better) on a split."""
    model.eval()
    images, labels = data
    logits = model(images)
    return {
        "loss": nn.functional.cross_entropy(logits, labels).item(),
        "accuracy": (logits.argmax(dim=1) == labels).float().mean().item(),
    }


def train(config: dict[str, Any]) -> None:
    """Train one network, report after each epoch, and save it with every third report.

    After an interruption of the trial or the experiment, this function is called again and
    continues from the latest checkpoint. For the same learning curve, the checkpoint has to contain
    everything that training depends on: the network, the optimizer's momentum, and the state of the
    random generator, which determines the order of the images and the dropout.
    """
    torch.manual_seed(config["seed"])
    training, validation, _ = load_splits()
    model = build_model(config)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=config["lr"],
        momentum=config["momentum"],
        weight_decay=config["weight_decay"],
    )
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory) / CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["generator"])
        epoch = saved["epoch"]
    while epoch < MAX_EPOCHS:
        train_epoch(model, optimizer, training, config["batch_size"])
        epoch += 1
        metrics = evaluate(model, validation)
        if epoch % 3 == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "generator": torch.get_rng_state(),
                "epoch": epoch,
            }
            with tempfile.TemporaryDirectory() as directory:
                torch.save(state, Path(directory) / CHECKPOINT)
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))
        else:
            tune.report(metrics)


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search, or continue an interrupted one, and return its results."""
    if options.restore:
        # The directory holds space, settings and scheduler, but never the training code.
        return tune.Tuner.restore(options.restore, train).fit()
    space = {
        "lr": tune.loguniform(1e-3, 1.0),
        "momentum": tune.uniform(0.0, 0.95),
        "weight_decay": tune.loguniform(1e-6, 1e-2),
        "batch_size": tune.choice([16, 32, 64, 128]),
        "hidden": tune.choice([16, 32, 64, 128]),
        "dropout": tune.uniform(0.0, 0.5),
        "seed": 0,
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            max_concurrent_trials=options.concurrent,
            scheduler=ASHAScheduler(
                max_t=MAX_EPOCHS, grace_period=3, reduction_factor=3, type="stopping"
            ),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=1, checkpoint_score_attribute="accuracy"
            ),
        ),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the best trials and configuration, and the test accuracy of its network."""
    table = results.get_dataframe(filter_metric="accuracy", filter_mode="max")
    columns = [
        "trial_id",
        "accuracy",
        "loss",
        "training_iteration",
        "config/lr",
        "config/momentum",
        "config/batch_size",
        "config/hidden",
    ]
    with pd.option_context(
        "display.width", 160, "display.max_columns", None, "display.precision", 4
    ):
        print(
            table[columns].sort_values("accuracy", ascending=False).head(10).to_string(index=False)
        )
    best = results.get_best_result(scope="all")
    print(
        "\nBest configuration:",
        ", ".join(f"{name}={value:.4g}" for name, value in best.config.items()),
    )
    checkpoint = best.get_best_checkpoint("accuracy", "max")
    if checkpoint is None:
        sys.exit("the best trial was stopped before its first checkpoint")
    with checkpoint.as_directory() as directory:
        saved = torch.load(Path(directory) / CHECKPOINT)
    model = build_model(best.config)
    model.load_state_dict(saved["model"])
    _, _, test = load_splits()
    print(
        f"Accuracy of its best checkpoint (epoch {saved['epoch']}) on the test split: "
        f"{evaluate(model, test)['accuracy']:.3f}"
    )
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=24, help="how many configurations to try")
    parser.add_argument("--concurrent", type=int, default=2, help="how many are trained at once")
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
