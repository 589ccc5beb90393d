"""Train a network on handwritten digits: a script with options, to be tuned by its command line.

``python examples/argparse_digits.py --lr 0.01`` trains once, and prints. ``tuner run
examples/argparse_digits.yaml`` searches for the best options, with the sweep file beside this
script; it takes about a minute on two cores and downloads nothing. If it is interrupted, ``tuner
resume argparse_digits`` continues it. The script knows of that search by two things only: it calls
`tuner.report`, and it keeps its state in the directory ``TUNER_CHECKPOINT_DIR``, where there is
one.
"""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import tuner as tune


def load_state(directory: str | None) -> tuple[int, MLPClassifier] | None:
    """Return the epoch and the model that were saved, None at the beginning."""
    path = Path(directory or ".", "state.pickle")
    if not (directory and path.exists()):
        return None
    epoch, model = pickle.loads(path.read_bytes())  # noqa: S301  (written by this script)
    return epoch, model


def save_state(directory: str | None, epoch: int, model: MLPClassifier) -> None:
    """Save the epoch and the model; a file under its name is always whole."""
    if directory:
        unfinished = Path(directory, "state.pickle.new")
        unfinished.write_bytes(pickle.dumps((epoch, model)))
        unfinished.rename(Path(directory, "state.pickle"))


def train(options: argparse.Namespace) -> None:
    """Train, and report after each epoch."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
    images, val_images, labels, val_labels = parts
    directory = os.environ.get("TUNER_CHECKPOINT_DIR")
    epoch, model = load_state(directory) or (
        0,
        MLPClassifier(
            options.width,
            learning_rate_init=options.lr,
            alpha=options.alpha,
            activation=options.activation,
            random_state=options.seed,
        ),
    )
    while epoch < options.epochs:
        model.partial_fit(images, labels, classes=range(10))
        epoch += 1
        metrics = {
            "epoch": epoch,
            "val_loss": log_loss(val_labels, model.predict_proba(val_images)),
            "accuracy": model.score(val_images, val_labels),
        }
        save_state(directory, epoch, model)  # before the report, to which it then belongs
        tune.report(metrics)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--width", type=int, default=64, help="neurons of the hidden layer")
    parser.add_argument("--alpha", type=float, default=1e-4, help="L2 regularisation")
    parser.add_argument("--activation", choices=["relu", "tanh"], default="relu")
    parser.add_argument("--epochs", type=int, default=27, help="how long to train")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    train(parser.parse_args())
