"""How long an experiment with a long history takes to be restored, and with how much memory: ``python -m benchmarks.faults.long_journal``.

The history is that of a real experiment whose trials run in the driver's own process; the restore is a process of its own, which finds
that all is done. Neither the start of Python nor the imports count.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tuner as tune
from searchers import BasicVariantGenerator

from .conditions import Condition, Verdict, arguments, conclude

NUM_REPORTS = 100
NAME = "long"
MAX_MB = 300
_TRIALS_PER_S = 5_000
"""Of the restore: 1,000 trials within a second, 10,000 within two."""


def train(config: dict[str, Any]) -> None:
    """Report a curve."""
    for step in range(1, NUM_REPORTS + 1):
        tune.report({"loss": config["x"] / step})


def declared(storage: str, num_trials: int) -> dict[str, Any]:
    """Return what is given to the `Tuner` each time."""
    return {
        "param_space": {"x": tune.uniform(0.0, 1.0)},
        "tune_config": tune.TuneConfig(metric="loss", mode="min", search_alg=BasicVariantGenerator(), num_samples=num_trials, seed=0),
        "run_config": tune.RunConfig(name=NAME, storage_path=storage, verbose=0, executor="inline"),
    }


def restore(storage: str, num_trials: int) -> None:
    """Restore the experiment and print seconds and megabytes."""
    given = declared(storage, num_trials)
    start_s = time.perf_counter()
    results = tune.Tuner.restore(Path(storage, NAME), train, **given).fit()
    elapsed_s = time.perf_counter() - start_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"elapsed_s": elapsed_s, "peak_mb": peak_mb, "num_terminated": results.num_terminated}))


def measure(num_trials: int) -> dict[str, float]:
    """Make a history, restore it in a fresh process, and return what that printed."""
    with tempfile.TemporaryDirectory(prefix="faults-") as storage:
        command = [sys.executable, "-m", "benchmarks.faults.long_journal", "--trials", str(num_trials), "--storage", storage]
        for step in ("make", "restore"):
            printed = subprocess.run([*command, "--step", step], stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603
        found: dict[str, float] = json.loads(printed)
    return found


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, trials=1_000, step="all", storage="")
    if given.step == "make":
        tune.Tuner(train, **declared(given.storage, given.trials)).fit()
        return 0
    if given.step == "restore":
        restore(given.storage, given.trials)
        return 0
    found = measure(given.trials)
    limit_s = max(1.0, given.trials / _TRIALS_PER_S)
    what = f"restore of {given.trials:,} trials with {NUM_REPORTS} results each"
    conditions = [
        Condition(f"{what}: time", f"{found['elapsed_s']:.2f} s", f"<= {limit_s:g} s", found["elapsed_s"] <= limit_s),
        Condition(f"{what}: memory at most", f"{found['peak_mb']:.0f} MB", f"<= {MAX_MB} MB", found["peak_mb"] <= MAX_MB),
        Condition(
            f"{what}: trials that are there",
            f"{found['num_terminated']:,.0f}",
            f"{given.trials:,}",
            found["num_terminated"] == given.trials,
        ),
    ]
    return conclude(Verdict(1, conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
