"""Search on this machine, on a Ray cluster, or on a Dask cluster, with one line changed.

``python examples/cluster_digits.py`` runs on this machine; ``--on ray`` on a Ray cluster of three
nodes and ``--on dask`` on three Dask workers, all of which are processes of this machine. For a
cluster of your own, only `cluster` is another: e.g.
``tune.RayCluster("auto")`` or ``tune.DaskCluster("tcp://10.0.0.1:8786")``, with a directory or an
object store as ``storage_path`` that all nodes reach. The extras ``ray`` and ``dask`` install the
two. It takes less than a minute on two cores and downloads nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import tuner as tune
from schedulers import ASHAScheduler
from tuner.cluster.cluster import Cluster

MAX_EPOCHS = 27
MODEL = "model.pkl"
NODES = 3


def train(config: dict[str, Any]) -> None:
    """Train one linear model; report, and save it, after each epoch."""
    x, x_val, y, y_val = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = SGDClassifier(
        learning_rate="constant", eta0=config["lr"], alpha=config["alpha"], random_state=0
    )
    epoch = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            model, epoch = pickle.loads(Path(directory, MODEL).read_bytes())  # noqa: S301  (our own)
    while epoch < MAX_EPOCHS:
        model.partial_fit(x, y, classes=range(10))
        epoch += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, MODEL).write_bytes(pickle.dumps((model, epoch)))
            tune.report(
                {"accuracy": float(model.score(x_val, y_val))},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


def search(
    cluster: Cluster | None, storage_path: Path | None, num_trials: int, seed: int
) -> tune.ResultGrid:
    """Run the search; only ``cluster`` differs."""
    return tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"lr": tune.loguniform(1e-5, 1.0), "alpha": tune.loguniform(1e-6, 1e-1)},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=num_trials,
            scheduler=ASHAScheduler(max_t=MAX_EPOCHS, grace_period=1, reduction_factor=3),
            seed=seed,
        ),
        run_config=tune.RunConfig(
            name="cluster_digits", storage_path=storage_path, if_exists="new", cluster=cluster
        ),
    ).fit()


@contextlib.contextmanager
def cluster_of_this_machine(kind: str) -> Iterator[Cluster | None]:
    """Start nodes that are processes of this machine, and yield how to reach them."""
    if kind == "ray":
        from ray.cluster_utils import Cluster as RayNodes  # noqa: PLC0415  (optional)

        nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(NODES):
            nodes.add_node(num_cpus=2)
        try:
            yield tune.RayCluster(nodes.address)
        finally:
            nodes.shutdown()  # type: ignore[no-untyped-call,unused-ignore]
    elif kind == "dask":
        from distributed import LocalCluster  # noqa: PLC0415  (optional)

        with LocalCluster(n_workers=NODES, threads_per_worker=2, dashboard_address=None) as workers:
            yield tune.DaskCluster(workers)
    else:
        yield None


def main() -> None:
    """Run the search, and print its best configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=("here", "ray", "dask"), default="here")
    parser.add_argument("--trials", type=int, default=27)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storage-path", type=Path, default=None)
    options = parser.parse_args()
    with cluster_of_this_machine(options.on) as cluster:
        results = search(cluster, options.storage_path, options.trials, options.seed)
    best = results.get_best_result()
    print(f"Best configuration: {best.config}, accuracy {best.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
