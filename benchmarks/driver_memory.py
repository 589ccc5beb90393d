"""How much memory the driver keeps of each trial that is over, with everything on that a real run has, snapshots included.

Trials run in the driver's process, one after the other, since a process for each would measure the
machine's patience; they leave nothing behind there.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tuner as tune
from schedulers import FIFOScheduler
from searchers import BasicVariantGenerator

from .figure import Figure

SIZES = {1: 4_000, 20: 2_000}
"""Numbers of trials by numbers of results of each."""


def resident_bytes() -> int:
    """Return how much memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch(tune.Callback):
    """Looks at the memory when a fifth of the trials are over, since the first of them import what is imported on first use, and last."""

    def __init__(self, num_trials: int) -> None:
        self._marks = (num_trials // 5, num_trials - 1)
        self._num_over = 0
        self._seen: list[int] = []

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Count the trial."""
        self._num_over += 1
        if self._num_over in self._marks:
            gc.collect()
            self._seen.append(resident_bytes())

    @property
    def bytes_per_trial(self) -> float:
        """By how much the memory grew with each trial."""
        return (self._seen[-1] - self._seen[0]) / (self._marks[-1] - self._marks[0])


def bytes_per_trial(num_trials: int, num_reports: int, storage: str) -> float:
    """Return what the driver keeps of each trial of an experiment."""

    def train(config: dict[str, Any]) -> None:
        for step in range(num_reports):
            tune.report({"loss": config["x"] / (step + 1), "accuracy": 1 - config["x"]})

    watch = MemoryWatch(num_trials)
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0.0, 1.0), "lr": tune.loguniform(1e-4, 1e-1)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=BasicVariantGenerator(),
            scheduler=FIFOScheduler(),
            num_samples=num_trials,
        ),
        run_config=tune.RunConfig(
            storage_path=storage, verbose=0, executor="inline", callbacks=[watch]
        ),
    )
    results = tuner.fit()
    if results.num_terminated != num_trials:
        sys.exit(f"only {results.num_terminated} of {num_trials} trials ended well")
    return watch.bytes_per_trial


if __name__ == "__main__":
    # As an experiment of many minutes takes them.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "2")
    for reports, size in SIZES.items():
        with tempfile.TemporaryDirectory() as directory:
            kept = bytes_per_trial(size, reports, directory)
        Figure(
            f"driver, memory of a finished trial with {reports} result{'s' * (reports > 1)}",
            kept / 1e3,
            "kB",
            "4 kB",
        ).print()
