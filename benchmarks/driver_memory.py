"""Memory that the driver keeps for each finished trial.

Loggers and snapshots are on, as in a real run. Trials run one after the other in the driver's
process, which saves the time to start thousands of processes; they allocate nothing that outlives
them.
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
"""Number of trials by number of results per trial."""


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch(tune.Callback):
    """Measures memory after a fifth of the trials and near the end.

    The first fifth warms up: it includes the modules that are imported on first use.
    """

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
        """The growth of memory per trial, in bytes."""
        return (self._seen[-1] - self._seen[0]) / (self._marks[-1] - self._marks[0])


def bytes_per_trial(num_trials: int, num_reports: int, storage: str) -> float:
    """Run an experiment and return the bytes that the driver keeps for each trial."""

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
    # Snapshots as often as in an experiment of many minutes.
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
