"""Search over a scikit-learn pipeline, stopping poor configurations between folds.

`TunerSearchCV` is used like `RandomizedSearchCV`. Run it with ``python
examples/sklearn_search.py``; it takes half a minute on two cores and downloads nothing. With
``--storage-path``, the same command continues a killed search without repeating finished trials.
"""

from __future__ import annotations

import argparse

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import tuner as tune
from schedulers import ASHAScheduler
from tuner.integration.sklearn import TunerSearchCV

NUM_FOLDS = 5


def main(options: argparse.Namespace) -> None:
    """Search, and print what was found."""
    images, labels = load_digits(return_X_y=True)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=0.25, stratify=labels, random_state=0
    )
    search = TunerSearchCV(
        make_pipeline(StandardScaler(), SVC()),
        {
            "standardscaler": [StandardScaler(), MinMaxScaler(), "passthrough"],
            "svc__C": tune.loguniform(1e-3, 1e3),
            "svc__gamma": tune.loguniform(1e-5, 1.0),
        },
        n_iter=options.trials,
        cv=StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=0),
        scheduler=ASHAScheduler(
            type="stopping", max_t=NUM_FOLDS, grace_period=1, reduction_factor=2
        ),
        random_state=options.seed,
        storage_path=options.storage_path,
        verbose=1,
    )
    search.fit(images, labels)
    table = pd.DataFrame(search.cv_results_).sort_values("rank_test_score")
    print(
        "\n",
        table[["trial_id", "mean_test_score", "num_splits", "param_svc__C", "param_svc__gamma"]]
        .head()
        .to_string(index=False),
        sep="",
    )
    print(f"\nFolds evaluated: {table['num_splits'].sum()} of {len(table) * NUM_FOLDS}")
    print(f"Best configuration: {search.best_params_}, mean accuracy {search.best_score_:.4f}")
    print(f"Its accuracy on the test split: {search.score(test_images, test_labels):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=24, help="how many configurations to try")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the choice of configurations follows from"
    )
    parser.add_argument(
        "--storage-path",
        help="where the experiment's directory is made and stays; default: a temporary one",
    )
    main(parser.parse_args())
