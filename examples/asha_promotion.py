"""Search for a small network with ASHA, pausing and promoting trials.

27 trials train for one epoch, the best third of them for three, and so on up to 27. Run it with
``python examples/asha_promotion.py``; it takes a minute on two cores and downloads nothing. If it
is interrupted, ``python examples/asha_promotion.py --restore DIRECTORY`` continues it: paused
trials stay paused, and are promoted as before.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tuner as tune
from schedulers import ASHAScheduler

MAX_EPOCHS = 27
CHECKPOINT = "model.pt"


def train(config: dict[str, Any]) -> None:
    """Train one network; report, and save it, after each epoch.

    A promoted trial calls this function again in a new process, and continues from its checkpoint.
    Without checkpoints no trial could be paused.
    """
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.25, stratify=labels, random_state=0
    )
    images, val_images, labels, val_labels = map(torch.from_numpy, parts)
    model = nn.Sequential(
        nn.Linear(64, config["hidden"]),
        nn.ReLU(),
        nn.Dropout(config["dropout"]),
        nn.Linear(config["hidden"], 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, CHECKPOINT))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    while epoch < MAX_EPOCHS:
        model.train()
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        epoch += 1
        with tempfile.TemporaryDirectory() as directory:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
            }
            torch.save(state, Path(directory, CHECKPOINT))
            tune.report(
                evaluate(model, val_images, val_labels),
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


@torch.no_grad()
def evaluate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Return mean loss (lower is better) and accuracy (higher is better)."""
    model.eval()
    logits = model(images)
    accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
    return {"loss": nn.functional.cross_entropy(logits, labels).item(), "accuracy": accuracy}


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search, or continue an interrupted one, and return its results."""
    if options.restore:
        # The directory holds space, settings and scheduler, but never the training code.
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
            max_concurrent_trials=2,
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


def story(results: tune.ResultGrid, trial_id: str) -> str:
    """Return what `explain` prints about a trial."""
    text = io.StringIO()
    results.explain(trial_id, file=text)
    return text.getvalue()


def show(results: tune.ResultGrid) -> None:
    """Print trial lengths, the training saved by pausing, and the best trial with its history."""
    lengths = [trial.num_rows for trial in results.trials]
    stories = [story(results, trial.trial_id) for trial in results.trials]
    num_pauses, num_promotions = (
        sum(text.count(words) for text in stories) for words in ("is paused:", "is resumed:")
    )
    print(
        "\nTrials by epochs trained:",
        ", ".join(f"{lengths.count(length)} x {length}" for length in sorted(set(lengths))),
    )
    print(f"Epochs trained: {sum(lengths)}; all trials to the end take {len(results) * MAX_EPOCHS}")
    print(f"Trials were paused {num_pauses} times and promoted {num_promotions} times")
    best = results.get_best_result()
    print(
        f"\nBest trial: {best.trial_id}, loss {best.metrics['loss']:.4f}, accuracy "
        f"{best.metrics['accuracy']:.3f}"
    )
    print(
        "Best configuration:",
        ", ".join(f"{name}={value:.4g}" for name, value in best.config.items()),
        "\n",
    )
    results.explain(best.trial_id)
    print("\nFiles:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=27, help="how many configurations to try")
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
