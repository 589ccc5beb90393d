"""Search for forests that are both accurate and small.

There is no single best trial: the result is the Pareto front. Run it with ``python
examples/several_objectives.py``; it takes some seconds and downloads nothing. If matplotlib is
installed, the trade-off is drawn to ``pareto.svg`` in the experiment's directory; otherwise a table
is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import tuner as tune
from searchers import OptunaSearch


def train(config: dict[str, Any]) -> None:
    """Report accuracy (higher is better) and the number of nodes (lower is better)."""
    features, labels = load_breast_cancer(return_X_y=True)
    parts = train_test_split(features, labels, test_size=0.4, stratify=labels, random_state=0)
    features, val_features, labels, val_labels = parts
    forest = RandomForestClassifier(**config, random_state=0).fit(features, labels)
    num_nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
    tune.report({"accuracy": forest.score(val_features, val_labels), "num_nodes": num_nodes})


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Return all results; the metrics are the searcher's own."""
    searcher = OptunaSearch(metric=["accuracy", "num_nodes"], mode=["max", "min"])
    space = {
        "n_estimators": tune.lograndint(1, 65),
        "max_depth": tune.randint(1, 11),
        "max_features": tune.uniform(0.05, 1.0),
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(
            num_samples=options.trials, search_alg=searcher, seed=options.seed
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the front from small to large, and draw all trials if that is possible."""
    best = sorted(results.get_best_results(), key=lambda result: result.metrics["num_nodes"])
    print("\nNothing beats these in both:")
    for result in best:
        print(
            f"{result.trial_id}  {result.metrics['num_nodes']:5d} nodes  accuracy "
            f"{result.metrics['accuracy']:.3f}  {result.config}"
        )
    print("Pareto front:", len(best), "of", len(results), "trials")
    if importlib.util.find_spec("matplotlib"):
        print("Drawn:", draw(results, best))


def draw(results: tune.ResultGrid, best: list[tune.Result]) -> Path:
    """Draw accuracy over size, the front as a line, and return the file."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (not needed for the search)

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.scatter(*points(list(results)), color="silver", label="tried")
    axes.plot(*points(best), "o-", color="tab:blue", label="Pareto front")
    axes.set(
        xlabel="nodes in all trees (lower is better)",
        ylabel="accuracy (higher is better)",
        xscale="log",
    )
    axes.legend()
    path = Path(results.experiment_path) / "pareto.svg"
    figure.savefig(path)
    return path


def points(results: list[tune.Result]) -> tuple[list[float], list[float]]:
    """Return sizes and accuracies."""
    return [result.metrics["num_nodes"] for result in results], [
        result.metrics["accuracy"] for result in results
    ]


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
    show(search(parser.parse_args()))
