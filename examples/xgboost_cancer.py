"""Tune XGBoost on scikit-learn's breast cancer data.

Of 24 configurations, weak ones are stopped after 5 and after 20 rounds. Run it with ``python
examples/xgboost_cancer.py``; it takes half a minute on two cores and downloads nothing. The model
is saved every fifth round. If the search is interrupted, ``python examples/xgboost_cancer.py
--restore DIRECTORY`` continues it, and `resume` trains only the missing rounds of each model.
"""

from __future__ import annotations

import argparse
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import tuner as tune
from schedulers import ASHAScheduler
from tuner.integration.xgboost import TuneReportCheckpointCallback, resume

NUM_ROUNDS, HALF = 80, 0.5
CONSTANTS = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "nthread": 1}


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
    training, validation, _ = (xgboost.DMatrix(features, labels) for features, labels in splits())
    xgboost.train(
        CONSTANTS | config,
        training,
        evals=[(validation, "validation")],
        callbacks=[
            TuneReportCheckpointCallback(
                {"loss": "validation-logloss", "error": "validation-error"}, frequency=5
            )
        ],
        verbose_eval=False,
        **resume(NUM_ROUNDS),
    )


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Run the search, or continue an interrupted one, and return its results."""
    if options.restore:
        return tune.Tuner.restore(options.restore, train).fit()
    space = {
        "learning_rate": tune.loguniform(1e-2, 1.0),
        "max_depth": tune.randint(1, 9),
        "min_child_weight": tune.loguniform(0.1, 10.0),
        "subsample": tune.uniform(0.5, 1.0),
        "colsample_bytree": tune.uniform(0.3, 1.0),
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.trials,
            scheduler=ASHAScheduler(
                type="stopping", max_t=NUM_ROUNDS, grace_period=5, reduction_factor=4
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
        accuracy = ((model.predict(xgboost.DMatrix(features)) > HALF) == labels).mean()
        print(
            f"Its best model, of {model.num_boosted_rounds()} rounds: accuracy {accuracy:.3f} "
            "on the test split"
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
