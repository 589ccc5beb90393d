"""Time from the start of Python to the first result of a trivial trial, with default loggers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from .figure import Figure

SCRIPT = """
import tempfile, time
import tuner as tune

class FirstResult(tune.Callback):
    def on_trial_result(self, **info):
        print(time.time())

with tempfile.TemporaryDirectory() as storage:
    tune.Tuner(
        lambda config: tune.report({"loss": 0.0}),
        run_config=tune.RunConfig(storage_path=storage, verbose=0, callbacks=[FirstResult()]),
    ).fit()
"""
NUM_RUNS = 5


def measure_s() -> float:
    """Return the seconds from starting a process to its first result."""
    start = time.time()
    done = subprocess.run(  # noqa: S603  (the script above)
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[0]) - start


if __name__ == "__main__":
    measure_s()  # fills the disk cache
    waits = [measure_s() for _ in range(NUM_RUNS)]
    Figure(
        "first result since process start, middle of five", statistics.median(waits), "s", "0.5 s"
    ).print()
