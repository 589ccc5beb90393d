"""Tune a small Keras network on handwritten digits.

Of 16 configurations, the best third is promoted at 2 and at 6 epochs. Run it with ``python
examples/keras_digits.py``; it takes less than a minute on two cores and downloads nothing. A paused
network continues from its checkpoint in a new process when it is promoted: `resume` loads weights
and optimizer, and returns the epoch. If the search is interrupted, ``python
examples/keras_digits.py --restore DIRECTORY`` continues it in the same way.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tuner as tune
from schedulers import ASHAScheduler
from tuner.integration.keras import TuneReportCheckpointCallback, resume

MAX_EPOCHS = 18


def splits() -> list[Any]:
    """Return images for training and validation, then their labels."""
    images, labels = load_digits(return_X_y=True)
    return list(
        train_test_split(
            (images / 16.0).astype("float32"),
            labels,
            test_size=0.25,
            stratify=labels,
            random_state=0,
        )
    )


def train(config: dict[str, Any]) -> None:
    """Train one network; the callback reports and saves it after each epoch."""
    keras.utils.set_random_seed(0)
    images, val_images, labels, val_labels = splits()
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(config["hidden"], activation="relu"),
            keras.layers.Dropout(config["dropout"]),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(config["lr"], momentum=config["momentum"])
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        images,
        labels,
        validation_data=(val_images, val_labels),
        batch_size=64,
        epochs=MAX_EPOCHS,
        initial_epoch=resume(model),
        callbacks=[
            TuneReportCheckpointCallback(metrics={"loss": "val_loss", "accuracy": "val_accuracy"})
        ],
        verbose=0,
    )


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
                type="promotion", max_t=MAX_EPOCHS, grace_period=2, reduction_factor=3
            ),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(
            storage_path=options.storage_path,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the best configuration and the accuracy of its network, loaded from its checkpoint."""
    best = results.get_best_result()
    print(
        "\nBest configuration:",
        ", ".join(f"{name}={value:.4g}" for name, value in best.config.items()),
    )
    if best.best_checkpoint is not None:
        _, images, _, labels = splits()
        loss, accuracy = TuneReportCheckpointCallback.get_model(best.best_checkpoint).evaluate(
            images, labels, verbose=0
        )
        print(
            f"Its network after {best.best_metrics['training_iteration']} epochs: loss "
            f"{loss:.4f}, accuracy {accuracy:.3f}"
        )
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=16, help="how many configurations to try")
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
