"""Reports per second of two concurrent trials, with default loggers.

Each report is acknowledged before the next one is sent.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import tuner as tune

from .figure import Figure

NUM_TRIALS = 2
NUM_REPORTS = 50_000


def report_often(config: dict[str, Any]) -> None:
    """Report again as soon as the previous report returns."""
    for step in range(config["num_reports"]):
        tune.report({"loss": 1.0 / (step + 1)})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as storage:
        tuner = tune.Tuner(
            report_often,
            param_space={"num_reports": NUM_REPORTS},
            tune_config=tune.TuneConfig(num_samples=NUM_TRIALS, max_concurrent_trials=NUM_TRIALS),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        )
        start = time.perf_counter()
        tuner.fit()
        rate = NUM_TRIALS * NUM_REPORTS / (time.perf_counter() - start)
    Figure(f"reports, {NUM_TRIALS} trials with {NUM_REPORTS:,} each", rate, "/s", "8,000/s").print()
