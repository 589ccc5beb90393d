"""Search for classifiers that are accurate and fast, within a limit on their size.

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

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import tuner as tune

MAX_KB = 200
SPACE = {
    "model": tune.choice(
        [
            {
                "kind": "forest",
                "n_estimators": tune.lograndint(4, 129),
                "max_depth": tune.randint(3, 13),
            },
            {
                "kind": "network",
                "width": tune.lograndint(8, 257),
                "depth": tune.randint(1, 5),
                "learning_rate_init": tune.loguniform(1e-4, 1e-1),
            },
        ]
    )
}


def train(config: dict[str, Any]) -> None:
    """Report the accuracy on held-out digits, the time to classify them, and the size."""
    images, labels = load_digits(return_X_y=True)
    images, val_images, labels, val_labels = train_test_split(
        images / 16, labels, test_size=0.4, stratify=labels, random_state=0
    )
    model = classifier(**config["model"]).fit(images, labels)
    tune.report(
        {
            "accuracy": model.score(val_images, val_labels),
            "latency_ms": latency_ms(model, val_images),
            "size_kb": len(pickle.dumps(model)) / 1000,
        }
    )


def classifier(kind: str, **arguments: Any) -> Any:
    """Return an untrained classifier."""
    if kind == "forest":
        return RandomForestClassifier(**arguments, random_state=0)
    layers = (arguments["width"],) * arguments["depth"]
    rate = arguments["learning_rate_init"]
    return MLPClassifier(layers, learning_rate_init=rate, early_stopping=True, random_state=0)


def latency_ms(model: Any, images: Any) -> float:
    """Return how long a batch of ten times as many images takes."""
    batch, times = np.tile(images, (10, 1)), []
    for _ in range(10):
        start = time.perf_counter()
        model.predict(batch)
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
        f"{metrics['size_kb']:6.1f} kB  {result.config['model']}"
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
        xlabel="latency of a batch in ms (lower is better)",
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
