"""Search with and without priors, and compare the results after the same number of trials.

Run it with ``python examples/prior.py``; it takes some seconds and downloads nothing. The ranges
are wide on purpose: a prior excludes nothing, and says where good values are likely.
"""

from __future__ import annotations

import argparse
from itertools import accumulate
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import tuner as tune
from searchers import TreeSearch

PLAIN = {"C": tune.loguniform(1e-4, 1e6), "gamma": tune.loguniform(1e-9, 1e3)}
EXPECTED = {
    "C": tune.loguniform(1e-4, 1e6, prior=1.0),
    "gamma": tune.loguniform(1e-9, 1e3, prior=1e-3, prior_confidence="high"),
}
"""Rules of thumb: 1 for ``C``, and for ``gamma`` one over the number of features times their
variance, roughly."""


def train(config: dict[str, Any]) -> None:
    """Report the accuracy on held-out digits (higher is better)."""
    images, labels = load_digits(return_X_y=True)
    images, val_images, labels, val_labels = train_test_split(
        images, labels, train_size=0.3, test_size=0.3, stratify=labels, random_state=0
    )
    tune.report({"accuracy": SVC(**config).fit(images, labels).score(val_images, val_labels)})


def search(space: dict[str, Any], seed: int, options: argparse.Namespace) -> tune.ResultGrid:
    """Try some configurations of a space."""
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            search_alg=TreeSearch(),
            seed=seed,
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path, verbose=0),
    )
    return tuner.fit()


def mean_progress(searches: list[tune.ResultGrid]) -> list[float]:
    """Return the best accuracy so far after each trial, as the mean over searches."""
    progress = [
        accumulate((result.metrics["accuracy"] for result in results), max) for results in searches
    ]
    return [sum(values) / len(values) for values in zip(*progress, strict=True)]


def main(options: argparse.Namespace) -> None:
    """Search with several seeds, and print how far both ways came."""
    seeds = range(options.seed, options.seed + options.searches)
    plain, expected = (
        [search(space, seed, options) for seed in seeds] for space in (PLAIN, EXPECTED)
    )
    print(
        f"\nBest accuracy so far, the mean of {options.searches} searches\n\ntrials  with a "
        "prior  without"
    )
    for number, (with_prior, without) in enumerate(
        zip(mean_progress(expected), mean_progress(plain), strict=True), start=1
    ):
        print(f"{number:6d}  {with_prior:12.3f}  {without:7.3f}")
    best = max(
        (results.get_best_result() for results in expected),
        key=lambda result: result.metrics["accuracy"],
    )
    print(
        "\nBest configuration:",
        ", ".join(f"{name}={value:.3g}" for name, value in best.config.items()),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trials", type=int, default=10, help="how many configurations each search tries"
    )
    parser.add_argument(
        "--searches",
        type=int,
        default=3,
        help="how many searches there are of each kind, each with a seed of its own",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="what the choice of configurations follows from"
    )
    parser.add_argument(
        "--storage-path",
        help="where the experiments' directories are made; default: ~/tuner_results",
    )
    main(parser.parse_args())
