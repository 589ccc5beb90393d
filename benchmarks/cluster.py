"""Trials and reports on a cluster of three nodes, which are processes of this machine.

Beside the fake cluster of the tests, Ray and Dask are measured where they are installed, and Ray
Tune on the same nodes of Ray.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tuner as tune
from searchers import BasicVariantGenerator
from tests.cluster.fake_cluster import FakeCluster
from tuner.cluster.cluster import Cluster
from tuner.cluster.executor import ClusterExecutor
from tuner.cluster.node_messages import Setup, SharedStorage
from tuner.cluster.node_processes import NodeProcesses
from tuner.cluster.shared_directory import SharedProof
from tuner.core.events import NodeJoined
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.pickling import pickle_trainable
from tuner.execution.process_executor import ProcessExecutor

from .figure import Figure

NUM_NODES = 3
NUM_CPUS = 2
NUM_TRIALS = 1_200
NUM_REPORTS = 3_000
NUM_RAY_TUNE_TRIALS = 20
NUM_RAY_TUNE_REPORTS = 100


def report_once(config: dict[str, Any]) -> None:
    """Report one number."""
    now_s = time.time()
    tune.report({"loss": config["x"], "began_s": now_s, "ended_s": now_s})


def report_often(config: dict[str, Any]) -> None:
    """Report again as soon as the previous report returns; the last result has the median cycle."""
    began_s, cycles_s = time.time(), []
    for _ in range(config["num_reports"]):
        reported_s = time.perf_counter()
        tune.report({"loss": 0.0})
        cycles_s.append(time.perf_counter() - reported_s)
    metrics = {"cycle_s": statistics.median(cycles_s), "began_s": began_s, "ended_s": time.time()}
    tune.report({"loss": 0.0, **metrics})


def fit(  # noqa: PLR0917  (what is measured differs in each of them)
    trainable: Callable[[dict[str, Any]], None],
    space: Mapping[str, Any],
    num_trials: int,
    cluster: Cluster | None,
    storage: str,
    cpus: float = 1.0,
) -> tuple[float, tune.ResultGrid]:
    """Run an experiment, and return the seconds from its first trial's start to its last result.

    The start of the nodes is measured apart.
    """
    results = tune.Tuner(
        tune.with_resources(trainable, {"cpu": cpus}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", search_alg=BasicVariantGenerator(), num_samples=num_trials
        ),
        run_config=tune.RunConfig(
            storage_path=storage,
            verbose=0,
            if_exists="new",
            name="run",
            cluster=cluster,
            resources=None if cluster else {"cpu": NUM_NODES * NUM_CPUS},
        ),
    ).fit()
    if results.num_terminated != num_trials:
        sys.exit(f"only {results.num_terminated} of {num_trials} trials ended well")
    began_s = min(float(result.metrics["began_s"]) for result in results)
    return max(float(result.metrics["ended_s"]) for result in results) - began_s, results


def start_s(cluster: Cluster) -> float:
    """Return the seconds from connecting until all nodes can run trials."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = NodeProcesses(cluster, trainable=pickle_trainable(report_once))
        assign = AssignmentBuilder(Path(directory), "start", len)
        executor = ClusterExecutor(nodes, ProcessExecutor(nodes, assign, capacity={}))
        began_s = time.perf_counter()
        shared = SharedProof(Path(directory), cluster.liveness.lease_s)
        storage = SharedStorage(directory, shared.proof)
        setup = Setup(storage=storage, environ={}, sys_path=sys.path)
        events = executor.connect(setup, shared)
        while sum(isinstance(event, NodeJoined) for event in events) < NUM_NODES:
            events += executor.wait(60.0)
        elapsed_s = time.perf_counter() - began_s
        executor.shutdown(10.0)
    return elapsed_s


def measure(name: str, cluster: Cluster | None, storage: str) -> None:
    """Print the figures of one cluster, or of this machine alone."""
    is_local = cluster is None
    if cluster:
        goal = "at most 3 s"
        Figure(f"{name}: connect and {NUM_NODES} nodes", start_s(cluster), "s", goal).print()
    elapsed_s, _ = fit(report_once, {"x": tune.uniform(0, 1)}, NUM_TRIALS, cluster, storage)
    goal = "" if is_local else "100 x Ray Tune"
    Figure(f"{name}: trials with one report, 6 slots", NUM_TRIALS / elapsed_s, "/s", goal).print()
    goals = {1: "450/s", 6: "8 x Ray Tune", 12: "1,000/s"}
    for num_trials, reports_goal in goals.items():
        space = {"num_reports": NUM_REPORTS}
        cpus = 1.0 if num_trials <= NUM_NODES * NUM_CPUS else 0.5
        elapsed_s, results = fit(report_often, space, num_trials, cluster, storage, cpus)
        rate = num_trials * NUM_REPORTS / elapsed_s
        goal = "" if is_local else reports_goal
        Figure(f"{name}: reports, {num_trials} trials", rate, "/s", goal).print()
        if num_trials == 1:
            cycle_ms = 1e3 * float(results[0].metrics["cycle_s"])
            goal = "" if is_local else "at most 2 ms"
            Figure(f"{name}: median report cycle, 1 trial", cycle_ms, "ms", goal).print()


@contextlib.contextmanager
def ray_nodes() -> Iterator[str]:
    """Start a Ray cluster, and yield its address."""
    from ray.cluster_utils import Cluster as RayNodes  # noqa: PLC0415  (optional)

    nodes = RayNodes(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(NUM_NODES):
        nodes.add_node(num_cpus=NUM_CPUS)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def ray_tune(address: str) -> None:
    """Print the figures of Ray Tune."""
    import ray  # noqa: PLC0415  (optional)
    from ray import tune as ray_tune  # noqa: PLC0415

    def once(config: dict[str, Any]) -> None:
        ray_tune.report({"loss": config["x"]})

    def often(config: dict[str, Any]) -> None:
        for _ in range(NUM_RAY_TUNE_REPORTS):
            ray_tune.report({"loss": config["x"]})

    ray.init(address=address, log_to_driver=False)
    for trainable, num_trials, what, number in (
        (once, NUM_RAY_TUNE_TRIALS, "trials with one report, 6 slots", NUM_RAY_TUNE_TRIALS),
        (often, 6, "reports, 6 trials", 6 * NUM_RAY_TUNE_REPORTS),
    ):
        with tempfile.TemporaryDirectory() as storage:
            tuner = ray_tune.Tuner(
                trainable,
                param_space={"x": ray_tune.uniform(0.0, 1.0)},
                tune_config=ray_tune.TuneConfig(metric="loss", mode="min", num_samples=num_trials),
                run_config=ray_tune.RunConfig(storage_path=storage, verbose=0),
            )
            began_s = time.perf_counter()
            tuner.fit()
            rate = number / (time.perf_counter() - began_s)
        Figure(f"Ray Tune: {what}", rate, "/s").print()
    ray.shutdown()


def main(storage: str) -> None:
    """Measure this machine alone, and all clusters that can be started here."""
    measure("this machine", None, storage)
    with FakeCluster({f"n{number}": {"cpu": NUM_CPUS} for number in range(NUM_NODES)}) as cluster:
        measure("fake cluster", cluster, storage)
    if importlib.util.find_spec("distributed"):
        from distributed import LocalCluster  # noqa: PLC0415  (optional)

        with LocalCluster(
            n_workers=NUM_NODES,
            threads_per_worker=NUM_CPUS,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        ) as nodes:
            measure("Dask", tune.DaskCluster(nodes.scheduler_address), storage)
    if importlib.util.find_spec("ray"):
        os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
        with ray_nodes() as address:
            measure("Ray", tune.RayCluster(address), storage)
            ray_tune(address)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
