"""Trials per second, each in a fresh process, two at a time, with default loggers.

On ext4, measure only when the disk is idle: for half a minute after thousands of files were
deleted, creating one takes twenty times as long, because the file system skips each inode that was
freed recently.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import tuner as tune
from searchers import AutoSearch, BasicVariantGenerator
from searchers.searcher import Searcher

from .figure import Figure

NUM_TRIALS = 3_000
NUM_TORCH_TRIALS = 1_000
NUM_SEARCHED_TRIALS = 300
LINE = {"x": tune.uniform(0.0, 1.0)}
SIX_PARAMETERS = {
    "x": tune.uniform(0.0, 1.0),
    "lr": tune.loguniform(1e-5, 1.0),
    "decay": tune.loguniform(1e-6, 0.1),
    "momentum": tune.uniform(0.0, 1.0),
    "width": tune.randint(16, 512),
    "activation": tune.choice(["relu", "tanh", "gelu"]),
}


def report_once(config: dict[str, Any]) -> None:
    """Report one number."""
    tune.report({"loss": config["x"]})


def torch_trainable() -> Callable[[dict[str, Any]], None]:
    """Return a trainable that computes with torch, which is imported in this process."""
    import torch  # noqa: PLC0415  (trials without torch are measured first)

    def multiply(config: dict[str, Any]) -> None:
        matrix = torch.full((64, 64), config["x"])
        tune.report({"loss": (matrix @ matrix).mean().item()})

    return multiply


def trials_per_s(
    trainable: Callable[[dict[str, Any]], None],
    num_trials: int,
    storage: str,
    *,
    space: Mapping[str, Any] = LINE,
    search: Callable[[], Searcher] = BasicVariantGenerator,
) -> float:
    """Return trials per second of a whole experiment, its start and end included."""
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=search(),
            num_samples=num_trials,
            max_concurrent_trials=2,
        ),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    )
    start = time.perf_counter()
    results = tuner.fit()
    elapsed_s = time.perf_counter() - start
    if results.num_terminated != num_trials:
        sys.exit(f"only {results.num_terminated} of {num_trials} trials ended well")
    return num_trials / elapsed_s


def main(storage: str) -> None:
    """Measure all rates.

    All experiments share a directory, so that no file is deleted before the last one ends.
    """
    Figure(
        f"trials, {NUM_TRIALS:,} with a fresh process each",
        trials_per_s(report_once, NUM_TRIALS, storage),
        "/s",
        "300/s",
    ).print()
    Figure(
        f"trials, {NUM_SEARCHED_TRIALS} of six parameters, proposed by AutoSearch",
        trials_per_s(
            report_once, NUM_SEARCHED_TRIALS, storage, space=SIX_PARAMETERS, search=AutoSearch
        ),
        "/s",
        "100/s",
    ).print()
    if importlib.util.find_spec("torch"):
        rate = trials_per_s(torch_trainable(), NUM_TORCH_TRIALS, storage)
        Figure(f"trials, {NUM_TORCH_TRIALS:,} with torch used in each", rate, "/s", "100/s").print()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
