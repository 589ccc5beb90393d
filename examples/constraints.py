"""Search for the most accurate tree within a budget of leaves.

The number of leaves is known only after training, so it is declared as a constraint: the space
cannot be restricted to small trees. Run it with ``python examples/constraints.py``; it takes some
seconds and downloads nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import tuner as tune
from searchers import OptunaSearch

MAX_LEAVES = 40


def train(config: dict[str, Any]) -> None:
    """Report the accuracy on held-out digits (higher is better) and the number of leaves."""
    images, labels = load_digits(return_X_y=True)
    images, val_images, labels, val_labels = train_test_split(
        images, labels, test_size=0.4, stratify=labels, random_state=0
    )
    tree = DecisionTreeClassifier(**config, random_state=0).fit(images, labels)
    tune.report({"accuracy": tree.score(val_images, val_labels), "num_leaves": tree.get_n_leaves()})


def leaves_too_many(result: Mapping[str, Any]) -> list[float]:
    """Return by how much the budget is exceeded; at 0 or below a constraint is satisfied."""
    return [result["num_leaves"] - MAX_LEAVES]


def main(options: argparse.Namespace) -> None:
    """Search, and print the best tree within the budget, and the best of all."""
    searcher = OptunaSearch(constraints=leaves_too_many)
    space = {
        "max_depth": tune.randint(2, 16),
        "min_samples_leaf": tune.lograndint(1, 65),
        "ccp_alpha": tune.loguniform(1e-5, 1e-1),
        "criterion": tune.choice(["gini", "entropy"]),
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            search_alg=searcher,
            seed=options.seed,
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path),
    )
    results = tuner.fit()
    later = list(results)[len(results) // 2 :]
    num_within = sum(result.metrics["num_leaves"] <= MAX_LEAVES for result in later)
    print(
        f"\nIn the second half of the search, {num_within} of {len(later)} trees stay within "
        f"{MAX_LEAVES} leaves"
    )
    best = searcher.study.best_trial
    allowed = next(result for result in results if result.trial_id == best.user_attrs["trial_id"])
    for words, result in (
        ("Best within the budget:", allowed),
        ("Best of all:", results.get_best_result()),
    ):
        print(
            words,
            f"accuracy {result.metrics['accuracy']:.3f}, {result.metrics['num_leaves']} "
            f"leaves, {result.config}",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40, help="how many configurations to try")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the choice of configurations follows from"
    )
    parser.add_argument(
        "--storage-path", help="where the experiment's directory is made; default: ~/tuner_results"
    )
    main(parser.parse_args())
