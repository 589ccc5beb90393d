"""The trial and report rates of Ray Tune, if it is installed: ``python -m benchmarks ray_tune``."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .figure import Figure

NUM_TRIALS = 20
NUM_REPORTERS = 2
NUM_REPORTS = 1_000


def elapsed_s(trainable: Callable[[dict[str, Any]], None], num_trials: int) -> float:
    """Return the seconds Ray Tune takes for the trials, two at a time, on a running cluster."""
    from ray import tune  # noqa: PLC0415  (optional)

    with tempfile.TemporaryDirectory() as storage:
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0.0, 1.0)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=num_trials, max_concurrent_trials=2
            ),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        )
        start = time.perf_counter()
        tuner.fit()
        return time.perf_counter() - start


def report_once(config: dict[str, Any]) -> None:
    """Report one number."""
    from ray import tune  # noqa: PLC0415  (optional)

    tune.report({"loss": config["x"]})


def report_often(config: dict[str, Any]) -> None:  # noqa: ARG001  (every trainable takes one)
    """Report again as soon as the previous report returns."""
    from ray import tune  # noqa: PLC0415  (optional)

    for step in range(NUM_REPORTS):
        tune.report({"loss": 1.0 / (step + 1)})


if __name__ == "__main__":
    if not importlib.util.find_spec("ray"):
        sys.exit("ray is not installed in this environment")
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    import ray

    ray.init(num_cpus=2, log_to_driver=False)
    Figure(
        f"Ray Tune: trials, {NUM_TRIALS}", NUM_TRIALS / elapsed_s(report_once, NUM_TRIALS), "/s"
    ).print()
    rate = NUM_REPORTERS * NUM_REPORTS / elapsed_s(report_often, NUM_REPORTERS)
    Figure(
        f"Ray Tune: reports, {NUM_REPORTERS} trials with {NUM_REPORTS:,} each", rate, "/s"
    ).print()
