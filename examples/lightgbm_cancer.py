"""Tune LightGBM on scikit-learn's breast cancer data.

Of 24 configurations, the best third is promoted at 5, 15 and 45 rounds. Run it with ``python
examples/lightgbm_cancer.py``; it takes half a minute on two cores and downloads nothing. A paused
model continues from its checkpoint when it is promoted: `resume` passes LightGBM the model and the
number of remaining rounds. If the search is interrupted, ``python examples/lightgbm_cancer.py
--restore DIRECTORY`` continues it in the same way.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import tuner as tune
from schedulers import ASHAScheduler
from tuner.integration.lightgbm import TuneReportCheckpointCallback, resume

NUM_ROUNDS = 60
CONSTANTS = {
    "objective": "binary",
    "metric": ["binary_logloss", "auc"],
    "num_threads": 1,
    "verbosity": -1,
}


def splits() -> list[tuple[Any, Any]]:
    """Return features and labels for training, validation and the final test: 60, 20 and 20 %."""
    data, labels = load_breast_cancer(return_X_y=True)
    data, test, labels, test_labels = train_test_split(
        data, labels, test_size=0.2, stratify=labels, random_state=0
    )
    data, val, labels, val_labels = train_test_split(
        data, labels, test_size=0.25, stratify=labels, random_state=0
    )
    return [(data, labels), (val, val_labels), (test, test_labels)]


def train(config: dict[str, Any]) -> None:
    """Train one model; the callback reports each round, and saves every fifth."""
    training, validation, _ = (lightgbm.Dataset(features, labels) for features, labels in splits())
    lightgbm.train(
        CONSTANTS | config,
        training,
        valid_sets=[validation],
        valid_names=["validation"],
        callbacks=[
            TuneReportCheckpointCallback(
                {"loss": "validation-binary_logloss", "auc": "validation-auc"}, frequency=5
            )
        ],
        **resume(NUM_ROUNDS),
    )


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search, or continue an interrupted one, and return its results."""
    if options.restore:
        return tune.Tuner.restore(options.restore, train).fit()
    space = {
        "learning_rate": tune.loguniform(1e-2, 1.0),
        "num_leaves": tune.lograndint(2, 64),
        "min_data_in_leaf": tune.lograndint(1, 40),
        "feature_fraction": tune.uniform(0.3, 1.0),
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ASHAScheduler(
                type="promotion", max_t=NUM_ROUNDS, grace_period=5, reduction_factor=3
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
    """Print the best configuration, and how its model does on data that no trial has seen."""
    best = results.get_best_result()
    print(
        "\nBest configuration:",
        ", ".join(f"{name}={value:.4g}" for name, value in best.config.items()),
    )
    if best.best_checkpoint is not None:
        model = TuneReportCheckpointCallback.get_model(best.best_checkpoint)
        features, labels = splits()[-1]
        print(
            f"Its best model, of {model.num_trees()} rounds: AUC "
            f"{roc_auc_score(labels, model.predict(features)):.4f} on the test split"
        )
    print("Files:", results.experiment_path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=24, help="how many configurations to try")
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
