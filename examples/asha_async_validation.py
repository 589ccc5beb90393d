"""Search with ASHA over trainings of two processes, judged by validations that run beside them.

Each trial trains a network in two workers, and asks for a validation after each epoch. The metric
that ASHA compares is known only when the validation has ended, while the trial may be an epoch
ahead already: it is stopped or paused at its next report. Run it with ``python
examples/asha_async_validation.py``; it takes less than a minute on two cores and downloads nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import tuner as tune
from schedulers import ASHAScheduler
from tuner import train
from tuner.train import Checkpoint, ScalingConfig, ValidationConfig
from tuner.train.torch import TorchTrainer, prepare_model, unwrap_model

MAX_EPOCHS = 9


def digits() -> list[Tensor]:
    """Return images and labels, for training and for validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    return [images, labels, val_images, val_labels]


def network(hidden: int) -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def validate(checkpoint: Checkpoint) -> dict[str, float]:
    """Return loss (to minimise) and accuracy of the model in `checkpoint`."""
    _, _, images, labels = digits()
    with checkpoint.as_directory() as directory:
        saved = torch.load(Path(directory, "model.pt"))
    model = network(saved["hidden"])
    model.load_state_dict(saved["model"])
    with torch.no_grad():
        logits = model(images)
    return {
        "val_loss": nn.functional.cross_entropy(logits, labels).item(),
        "val_accuracy": (logits.argmax(dim=1) == labels).float().mean().item(),
    }


def train_func(config: dict[str, Any]) -> None:
    """Train one network in one of the trial's workers."""
    rank, num_ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    images, labels, _, _ = digits()
    images, labels = images[rank::num_ranks], labels[rank::num_ranks]
    torch.manual_seed(0)
    model = prepare_model(network(config["hidden"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    start = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "model.pt"))
        unwrap_model(model).load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"] + 1
    for epoch in range(start, MAX_EPOCHS):
        for batch in range(0, len(images) // 32 * 32, 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(images[batch : batch + 32]), labels[batch : batch + 32]
            )
            loss.backward()
            optimizer.step()
        if rank > 0:
            train.report({})
            continue
        with tune.checkpoint_dir() as directory:
            state = {
                "model": unwrap_model(model).state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
                "hidden": config["hidden"],
            }
            torch.save(state, Path(directory, "model.pt"))
            train.report(
                {"loss": loss.item()},
                checkpoint=Checkpoint.from_directory(directory),
                validation=True,
            )


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search and return its results."""
    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=options.workers),
        # With more than two validations outstanding, a trial waits in its report.
        validation_config=ValidationConfig(validate, max_pending=2),
    )
    tuner = tune.Tuner(
        trainer,
        param_space={
            "train_loop_config": {
                "lr": tune.loguniform(1e-3, 1.0),
                "momentum": tune.uniform(0.0, 0.95),
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
    chosen = best.config["train_loop_config"]
    print("Best configuration:", ", ".join(f"{name}={value:.4g}" for name, value in chosen.items()))
    print("Its network: loss {val_loss:.4f}, accuracy {val_accuracy:.3f}".format(**best.metrics))
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=9, help="how many configurations to try")
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
