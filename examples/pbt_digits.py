"""Find a schedule for the learning rate with a population of networks.

The population has six members, of which two train at a time; the worst become clones of the best.
Run it with ``python examples/pbt_digits.py``; it takes a minute on two cores and downloads nothing.
If it is interrupted, ``python examples/pbt_digits.py --restore DIRECTORY`` continues it; all
exploits so far are kept.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tuner as tune
from schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay

INTERVAL = 5
CHECKPOINT = "model.pt"
LEARNING_RATES = tune.loguniform(1e-3, 1.0)
Schedule = list[tuple[int, float]]


class DigitsNetwork(tune.Trainable):
    """A network with one hidden layer for 8 x 8 images; each step trains for one epoch."""

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Load the data, three quarters of it for training, and build the network."""
        torch.seed()  # so that two clones of one donor do not train alike
        images, labels = load_digits(return_X_y=True)
        parts = train_test_split(
            (images / 16.0).astype("float32"),
            labels,
            test_size=0.25,
            stratify=labels,
            random_state=0,
        )
        self.images, self.val_images, self.labels, self.val_labels = map(torch.from_numpy, parts)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"], momentum=0.9)

    def step(self) -> dict[str, float]:
        """Train one epoch; return validation loss (to minimise) and accuracy (to maximise)."""
        self.model.train()
        for batch in torch.randperm(len(self.images)).split(32):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(
                self.model(self.images[batch]), self.labels[batch]
            ).backward()
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.val_images)
        accuracy = (logits.argmax(dim=1) == self.val_labels).float().mean().item()
        return {
            "loss": nn.functional.cross_entropy(logits, self.val_labels).item(),
            "accuracy": accuracy,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write down the weights and the momentum."""
        torch.save(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            Path(checkpoint_dir, CHECKPOINT),
        )

    def load_checkpoint(self, checkpoint: str) -> None:
        """Load weights and momentum, possibly another member's, but not the saved learning rate."""
        saved = torch.load(Path(checkpoint, CHECKPOINT))
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.config["lr"]


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Train a population, or continue an interrupted one, and return its results."""
    if options.restore:
        return tune.Tuner.restore(options.restore, DigitsNetwork).fit()
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=INTERVAL,
        hyperparam_mutations={"lr": LEARNING_RATES},
        # Up by 10 % of the logarithmic scale, or down by 15 %: about twice, or a third.
        perturbation_factors=(
            1.1,
            0.85,
        ),
    )
    return run({"lr": LEARNING_RATES}, options, num_samples=options.members, scheduler=scheduler)


def run(space: dict[str, Any], options: argparse.Namespace, **tune_options: Any) -> tune.ResultGrid:
    """Train every member for the same number of epochs, two at a time."""
    tuner = tune.Tuner(
        DigitsNetwork,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", max_concurrent_trials=2, seed=options.seed, **tune_options
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            stop={"training_iteration": options.epochs},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    )
    return tuner.fit()


def schedule_of(best: tune.Result, experiment_path: str) -> Schedule:
    """Return the epochs at which the learning rate of these weights changed, oldest first."""
    policy = Path(experiment_path, f"pbt_policy_{best.trial_id}.txt")
    if not policy.exists():  # it was never a clone
        return [(0, best.config["lr"])]
    replay = PopulationBasedTrainingReplay(str(policy))
    return [
        (0, replay.config["lr"]),
        *((change.iteration, change.config["lr"]) for change in replay.changes),
    ]


def draw(schedule: Schedule, num_epochs: int, path: Path) -> None:
    """Draw the learning rate over the epochs, on a logarithmic scale, as an SVG file."""
    across, down = 560 / num_epochs, 80
    ends = [epoch for epoch, _ in schedule[1:]] + [num_epochs]
    parts, corners = [], []
    for power in range(4):
        y = 20 + down * power
        parts.append(
            f'<path d="M60 {y} h560" stroke="#ddd"/><text x="8" y="{y + 4}">{10**-power:g}</text>'
        )
    for (begin, lr), end in zip(schedule, ends, strict=True):
        height = 20 - down * math.log10(lr)
        corners += [f"{60 + across * epoch:.1f},{height:.1f}" for epoch in (begin, end)]
        parts.append(f'<text x="{60 + across * begin:.1f}" y="285">{begin}</text>')
    line = f'<polyline points="{" ".join(corners)}" fill="none" stroke="#06c" stroke-width="2"/>'
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="300" '
        'font-family="sans-serif" font-size="12">'
    )
    path.write_text("\n".join([head, *parts, line, "</svg>"]) + "\n", encoding="utf-8")


def show(results: tune.ResultGrid) -> None:
    """Print the best member, how its learning rate came about, and what all of that has cost."""
    best = results.get_best_result()
    num_epochs = best.metrics["training_iteration"]
    print(
        f"\nBest member: {best.trial_id}, loss {best.metrics['loss']:.4f}, accuracy "
        f"{best.metrics['accuracy']:.3f}"
    )
    print(f"Best configuration: lr={best.config['lr']:.4g}, with which it has ended")
    schedule = schedule_of(best, results.experiment_path)
    print(
        "Schedule of its weights:",
        ", ".join(f"lr={lr:.4g} from epoch {epoch + 1}" for epoch, lr in schedule),
    )
    (record,) = (trial for trial in results.trials if trial.trial_id == best.trial_id)
    for graft in record.grafts:
        print(
            f"  at epoch {graft.iteration} it became a clone of {graft.donor_id} as that was "
            f"after epoch {graft.checkpoint.iteration}"
        )
    picture = Path(results.experiment_path, "schedule.svg")
    draw(schedule, num_epochs, picture)
    print("Picture of the schedule:", picture)
    num_clones = sum(len(trial.grafts) for trial in results.trials)
    num_schedules, num_trained = (
        len(results) + num_clones,
        sum(trial.num_rows for trial in results.trials),
    )
    alone = num_schedules * num_epochs
    print(
        f"Epochs trained: {num_trained}. {num_schedules} schedules were tried; trained by "
        f"themselves to the end they take {alone}."
    )
    print("Files:", results.experiment_path)


def compare(options: argparse.Namespace) -> None:
    """Train as many networks as long as the population, each with a constant learning rate."""
    constant = run({"lr": LEARNING_RATES}, options, num_samples=options.members).get_best_result()
    loss, accuracy, lr = (
        constant.metrics["loss"],
        constant.metrics["accuracy"],
        constant.config["lr"],
    )
    print(
        f"\nBest of {options.members} constant learning rates: loss {loss:.4f}, accuracy "
        f"{accuracy:.3f}, lr={lr:.4g}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=6, help="how many networks there are")
    parser.add_argument("--epochs", type=int, default=40, help="how long each is trained")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="also train as many networks with constant learning rates",
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="what learning rates and clones follow from; default: drawn and written down",
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    parser.add_argument(
        "--restore",
        metavar="DIRECTORY",
        help="continue the experiment in this directory instead of starting one",
    )
    arguments = parser.parse_args()
    show(search(arguments))
    if arguments.compare:
        compare(arguments)
