"""Find a schedule for the learning rate of networks that each train in two processes.

The members of the population take turns; every third epoch the worst continue from the checkpoints
of the best, with other learning rates. All workers of a member are started anew for that, which
takes a fraction of a second. Run it with ``python examples/pbt_ddp.py``; it takes a minute on two
cores and downloads nothing.
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
from schedulers import PopulationBasedTraining
from tuner import train
from tuner.train import Checkpoint, ScalingConfig
from tuner.train.torch import TorchTrainer, prepare_model, unwrap_model

INTERVAL = 3


def digits() -> list[Tensor]:
    """Return images and labels, for training and for validation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    return [images, labels, val_images, val_labels]


def train_func(config: dict[str, Any]) -> None:
    """Train one member in one of its workers."""
    rank, num_ranks = train.get_context().get_world_rank(), train.get_context().get_world_size()
    images, labels, val_images, val_labels = digits()
    images, labels = images[rank::num_ranks], labels[rank::num_ranks]
    model = prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    start = 0
    if checkpoint := train.get_checkpoint():  # possibly another member's
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "model.pt"))
        unwrap_model(model).load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        for group in optimizer.param_groups:
            group["lr"] = config["lr"]  # the rate of this member, not the one that was saved
        start = saved["epoch"] + 1
    for epoch in range(start, config["num_epochs"]):
        for batch in range(0, len(images) // 32 * 32, 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                model(images[batch : batch + 32]), labels[batch : batch + 32]
            ).backward()
            optimizer.step()
        with torch.no_grad():
            logits = unwrap_model(model)(val_images)
        metrics = {
            "loss": nn.functional.cross_entropy(logits, val_labels).item(),
            "accuracy": (logits.argmax(dim=1) == val_labels).float().mean().item(),
            "lr": config["lr"],
        }
        with tune.checkpoint_dir() as directory:
            if rank == 0:
                state = {
                    "model": unwrap_model(model).state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                }
                torch.save(state, Path(directory, "model.pt"))
            checkpoint = Checkpoint.from_directory(directory) if rank == 0 else None
            train.report(metrics, checkpoint=checkpoint)


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Train the population and return its results."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"num_epochs": options.epochs},
        scaling_config=ScalingConfig(num_workers=options.workers),
    )
    rates = tune.loguniform(1e-3, 1.0)
    tuner = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"lr": rates}},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.members,
            scheduler=PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=INTERVAL,
                quantile_fraction=0.5,
                hyperparam_mutations={"train_loop_config": {"lr": rates}},
            ),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        ),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the best member and the rates with which its weights were trained."""
    best = results.get_best_result()
    rates = best.metrics_dataframe["lr"]
    print("\nBest member: loss {loss:.4f}, accuracy {accuracy:.3f}".format(**best.metrics))
    print("Learning rates that it reported:", ", ".join(f"{rate:.2g}" for rate in rates))
    print("Exploits:", sum(trial.attempt > 1 for trial in results.trials), "members were restarted")
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=4, help="size of the population")
    parser.add_argument("--epochs", type=int, default=12, help="how long each member trains")
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
