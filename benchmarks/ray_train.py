"""The same figures of Ray Train, if it is installed: ``python -m benchmarks ray_train``."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .figure import Figure

NUM_RANKS = 2
NUM_REPORTS = 10
MEGABYTES = 256


def fit(loop: Callable[[dict[str, Any]], None], folder: str, max_failures: int = 0) -> float:
    """Train with `loop` over two workers, and return the seconds until user code ran in both."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig  # noqa: PLC0415  (optional)
    from ray.train.v2.api.data_parallel_trainer import (  # noqa: PLC0415  (optional)
        DataParallelTrainer,
    )

    start_s = time.time()
    DataParallelTrainer(
        loop,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=NUM_RANKS),
        run_config=RunConfig(
            storage_path=folder, failure_config=FailureConfig(max_failures=max_failures)
        ),
    ).fit()
    return max(noted(folder, "begin")) - start_s


def note(folder: str, what: str) -> None:
    """Write down the time, in a file of this process's rank."""
    from ray import train  # noqa: PLC0415  (optional)

    path = Path(folder, f"{what}.{train.get_context().get_world_rank()}")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{time.time()}\n")


def noted(folder: str, what: str) -> list[float]:
    """Return when the last of the ranks was there, each time."""
    of_ranks = [
        [float(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(Path(folder).glob(f"{what}.*"))
    ]
    return [max(times) for times in zip(*of_ranks, strict=False)]


def reports(config: dict[str, Any]) -> None:
    """Report metrics only, and note the median seconds."""
    from ray import train  # noqa: PLC0415  (optional)

    note(config["folder"], "begin")
    times_s = []
    for step in range(NUM_REPORTS):
        start = time.perf_counter()
        train.report({"step": step})
        times_s.append(time.perf_counter() - start)
    Path(config["folder"], "report.json").write_text(
        json.dumps(statistics.median(times_s)), encoding="utf-8"
    )


def is_killed(config: dict[str, Any]) -> None:
    """Kill rank 1 in the first attempt."""
    from ray import train  # noqa: PLC0415  (optional)

    note(config["folder"], "begin")
    marker = Path(config["folder"], f"killed.{train.get_context().get_world_rank()}")
    if marker.exists():
        return
    note(config["folder"], "killed")
    if train.get_context().get_world_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)


def saves(config: dict[str, Any]) -> None:
    """Report one checkpoint of `MEGABYTES` from each rank, and note the seconds."""
    from ray import train  # noqa: PLC0415  (optional)

    note(config["folder"], "begin")
    with tempfile.TemporaryDirectory() as directory:
        rank = train.get_context().get_world_rank()
        Path(directory, f"weights-{rank}").write_bytes(os.urandom(MEGABYTES * 2**20))
        start = time.perf_counter()
        train.report({"step": 0}, checkpoint=train.Checkpoint.from_directory(directory))
        took_s = time.perf_counter() - start
    Path(config["folder"], "save.json").write_text(json.dumps(took_s), encoding="utf-8")


def main() -> None:
    """Measure, and print the figures."""
    import ray  # noqa: PLC0415  (optional)

    start = time.perf_counter()
    ray.init(num_cpus=2 * NUM_RANKS, log_to_driver=False)
    Figure("Ray: start of the cluster", time.perf_counter() - start, "s").print()
    with tempfile.TemporaryDirectory() as folder:
        Figure("Ray Train, 2 workers: start to user code", fit(reports, folder), "s").print()
        median_s = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))
        Figure("Ray Train, 2 workers: report of metrics, median", 1000 * median_s, "ms").print()
    with tempfile.TemporaryDirectory() as folder:
        took_s = fit(reports, folder)
        Figure("Ray Train, 2 workers: start to user code, again", took_s, "s").print()
    with tempfile.TemporaryDirectory() as folder:
        fit(is_killed, folder, max_failures=1)
        lost_s = max(noted(folder, "begin")) - max(noted(folder, "killed"))
        Figure("Ray Train, 2 workers: kill -9 of one to user code in both", lost_s, "s").print()
    with tempfile.TemporaryDirectory() as folder:
        fit(saves, folder)
        took_s = json.loads(Path(folder, "save.json").read_text(encoding="utf-8"))
        what = f"Ray Train, 2 workers, {MEGABYTES} MB each: report, SYNC"
        Figure(what, took_s, "s").print()


if __name__ == "__main__":
    if not importlib.util.find_spec("ray"):
        sys.exit("ray is not installed in this environment")
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    main()
