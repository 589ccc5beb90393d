"""Tune twice: a short search over a wide space, then a longer one that starts from its best.

Run it with ``python examples/warm_start.py``; it takes half a minute on two cores and downloads
nothing. With ``python examples/warm_start.py --earlier DIRECTORY`` the second search starts from
the best configurations of an existing experiment, of tuner or Ray Tune, that reported ``accuracy``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import tuner as tune
from searchers import BasicVariantGenerator

WIDE = {
    "lr": tune.loguniform(1e-4, 1.0),
    "hidden": tune.choice([8, 16, 32, 64]),
    "alpha": tune.loguniform(1e-7, 1.0),
    "epochs": 4,
}
NARROW = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "hidden": tune.choice([16, 32, 64]),
    "alpha": tune.loguniform(1e-7, 1.0),
    "epochs": 12,
}
"""The second search trains longer and looks closer. Points of the first that lie outside are left
out, with a warning that names them."""


def train(config: dict[str, Any]) -> None:
    """Train one network, and report its validation accuracy (higher is better) after each epoch."""
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images / 16.0, labels, stratify=labels, random_state=0
    )
    model = MLPClassifier(
        config["hidden"], learning_rate_init=config["lr"], alpha=config["alpha"], random_state=0
    )
    for _ in range(config["epochs"]):
        model.partial_fit(train_images, train_labels, classes=np.arange(10))
        tune.report({"accuracy": float(model.score(test_images, test_labels))})


def search(
    space: dict[str, Any], points: list[dict[str, Any]], options: argparse.Namespace
) -> tune.ResultGrid:
    """Try some configurations, given points first and random ones for the rest."""
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            max_concurrent_trials=2,
            search_alg=BasicVariantGenerator(points_to_evaluate=points),
            seed=options.seed,
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path),
    )
    return tuner.fit()


def described(config: dict[str, Any]) -> str:
    """Return a configuration in one line."""
    return ", ".join(f"{name}={value:.4g}" for name, value in config.items())


def main(options: argparse.Namespace) -> None:
    """Search twice, and tell what the second search began with and what it found."""
    earlier = options.earlier or search(WIDE, [], options).experiment_path
    points = tune.points_from(earlier, "accuracy", "max", num_points=3, space=NARROW)
    print(f"\nThe best of {earlier} to begin with:")
    for point in points:
        print("  ", described(point))
    results = search(NARROW, points, options)
    best = results.get_best_result()
    is_given = best.trial_id in [trial.trial_id for trial in results.trials[: len(points)]]
    print(
        f"\nBest trial: {best.trial_id}, accuracy {best.metrics['accuracy']:.3f},",
        "one of these" if is_given else "a new one",
    )
    print("Best configuration:", described(best.config))
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=10, help="how many configurations each search tries"
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="what the choice of configurations follows from; default: drawn and written down",
    )
    parser.add_argument(
        "--storage-path",
        help="where the experiments' directories are made; default: ~/tuner_results",
    )
    parser.add_argument(
        "--earlier",
        metavar="DIRECTORY",
        help="begin with the best of the experiment in this directory",
    )
    main(parser.parse_args())
