"""Search for forests that are accurate and fast, within a limit on their size.

Latency is measured, and the size is that of the saved model; both are known only after training. So
is the result: not one best trial, but the Pareto front of those that keep the limit. Run it with
``python examples/several_objectives.py``; it takes half a minute and downloads nothing. If
matplotlib is installed, the trade-off is drawn to ``pareto.svg`` in the experiment's directory.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import time
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import tuner as tune

MAX_KB = 500
SPACE = {
    "n_estimators": tune.lograndint(1, 129),
    "max_depth": tune.randint(2, 13),
    "max_features": tune.uniform(0.05, 1.0),
    "min_samples_leaf": tune.randint(1, 9),
}


def train(config: dict[str, Any]) -> None:
    """Report the accuracy on held-out digits, the time to classify them, and the size."""
    images, labels = load_digits(return_X_y=True)
    images, val_images, labels, val_labels = train_test_split(
        images, labels, test_size=0.4, stratify=labels, random_state=0
    )
    forest = RandomForestClassifier(**config, random_state=0).fit(images, labels)
    tune.report(
        {
            "accuracy": forest.score(val_images, val_labels),
            "latency_ms": latency_ms(forest, val_images),
            "size_kb": len(pickle.dumps(forest)) / 1000,
        }
    )


def latency_ms(forest: RandomForestClassifier, images: Any) -> float:
    """Return how long all images take."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        forest.predict(images)
        times.append(time.perf_counter() - start)
    return 1000 * min(times)  # other trials, which run at the same time, only ever add to it


def search(options: argparse.Namespace) -> tune.ResultGrid:
    """Return all results."""
    tuner = tune.Tuner(
        train,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric=["accuracy", "latency_ms"],
            mode=["max", "min"],
            constraints={"size_kb": f"<= {MAX_KB}"},
            num_samples=options.trials,
            seed=options.seed,
        ),
        run_config=tune.RunConfig(storage_path=options.storage_path),
    )
    return tuner.fit()


def show(results: tune.ResultGrid) -> None:
    """Print the front and a compromise, and draw all trials if that is possible."""
    front = results.get_best_results()
    print(f"\nNothing within {MAX_KB} kB beats these in both:")
    for result in front:
        print(described(result))
    print("Pareto front:", len(front), "of", len(results.feasible), "trials that keep the limit")
    if len(front):
        weights = {"accuracy": 0.7, "latency_ms": 0.3}
        print("A compromise:", described(results.get_best_result(weights=weights)))
    if importlib.util.find_spec("matplotlib"):
        print("Drawn:", draw(results, front))


def described(result: tune.Result) -> str:
    """Return a line about a trial."""
    metrics = result.metrics
    return (
        f"{result.trial_id}  accuracy {metrics['accuracy']:.3f}  {metrics['latency_ms']:6.3f} ms  "
        f"{metrics['size_kb']:6.1f} kB  {result.config}"
    )


def draw(results: tune.ResultGrid, front: tune.ResultGrid) -> Path:
    """Draw accuracy over latency, the front as a line, and return the file."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (not needed for the search)

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    larger = [result for result in results if not result.feasible]
    axes.scatter(*points(larger), color="silver", marker="x", label=f"larger than {MAX_KB} kB")
    axes.scatter(*points(list(results.feasible)), color="tab:blue", alpha=0.4, label="tried")
    axes.plot(*points(list(front)), "o-", color="tab:blue", label="Pareto front")
    axes.set(
        xlabel="latency of 719 images in ms (lower is better)",
        ylabel="accuracy (higher is better)",
        xscale="log",
    )
    axes.legend()
    path = Path(results.experiment_path) / "pareto.svg"
    figure.savefig(path)
    return path


def points(results: list[tune.Result]) -> tuple[list[float], list[float]]:
    """Return latencies and accuracies."""
    return [result.metrics["latency_ms"] for result in results], [
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
