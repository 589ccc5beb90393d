"""Time and memory to restore an experiment with a long journal.

Run ``python -m benchmarks.faults.long_journal``. The journal is that of a real experiment whose
trials run in the driver's process. The driver is killed when nine of ten trials have ended, and the
experiment is restored twice, each time in a fresh process: first to continue, where the time to the
first new result counts, and then once more when all trials have ended. Neither the start of Python
nor the imports are measured.
"""

from __future__ import annotations

import json
import os
import resource
import signal
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
"""Speed of the restore: 1,000 trials within a second, 10,000 within two."""
_FIRST_S = 2.0
"""Limit for the first new result, for any number of earlier results."""
_SHARE_OF_THE_FIRST_DRIVER = 0.9


class Training:
    """Training function that reports a curve, and can kill the driver.

    Args:
        last_trial: Number of the trial in the middle of which the driver is killed, None for no
            kill.

    Attributes:
        first_s: When the first result was acknowledged, in seconds of `time.perf_counter`.
    """

    def __init__(self, last_trial: int | None = None) -> None:
        self.first_s: float | None = None
        self._last = None if last_trial is None else f"t{last_trial:05d}"

    def __call__(self, config: dict[str, Any]) -> None:
        """Train."""
        is_last = tune.get_context().get_trial_id() == self._last
        for step in range(1, NUM_REPORTS + 1):
            tune.report({"loss": config["x"] / step})
            self.first_s = self.first_s or time.perf_counter()
            if is_last and step == NUM_REPORTS // 2:
                os.kill(os.getpid(), signal.SIGKILL)


def declared(storage: str, num_trials: int) -> dict[str, Any]:
    """Return the arguments of `Tuner` that all drivers share."""
    return {
        "param_space": {"x": tune.uniform(0.0, 1.0)},
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=BasicVariantGenerator(),
            num_samples=num_trials,
            seed=0,
        ),
        "run_config": tune.RunConfig(name=NAME, storage_path=storage, verbose=0, executor="inline"),
    }


def make(storage: str, num_trials: int) -> None:
    """Run the experiment until it is killed."""
    training = Training(int(_SHARE_OF_THE_FIRST_DRIVER * num_trials))
    tune.Tuner(training.__call__, **declared(storage, num_trials)).fit()


def restore(storage: str, num_trials: int) -> None:
    """Restore the experiment, run the remaining trials, and print seconds and megabytes."""
    training, given, continued = Training(), declared(storage, num_trials), tune.Tuner.restore
    start_s = time.perf_counter()
    results = continued(Path(storage, NAME), training.__call__, **given).fit()
    ended_s = time.perf_counter()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    elapsed_s = (training.first_s or ended_s) - start_s
    print(
        json.dumps(
            {"elapsed_s": elapsed_s, "peak_mb": peak_mb, "num_terminated": results.num_terminated}
        )
    )


def measure(num_trials: int) -> list[dict[str, float]]:
    """Run and kill an experiment, restore it twice, and return the figures of both restores."""
    with tempfile.TemporaryDirectory(prefix="faults-") as storage:
        command = [
            sys.executable,
            "-m",
            "benchmarks.faults.long_journal",
            "--trials",
            str(num_trials),
            "--storage",
            storage,
        ]
        killed = subprocess.run([*command, "--step", "make"], check=False)  # noqa: S603
        if killed.returncode != -signal.SIGKILL:
            raise RuntimeError(
                f"the first driver was to be killed, and ended with {killed.returncode}"
            )
        restores = [
            subprocess.run(  # noqa: S603
                [*command, "--step", "restore"], stdout=subprocess.PIPE, text=True, check=True
            )
            for _ in range(2)
        ]
        return [json.loads(done.stdout) for done in restores]


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, trials=1_000, step="all", storage="")
    if given.step == "make":
        make(given.storage, given.trials)
        return 0
    if given.step == "restore":
        restore(given.storage, given.trials)
        return 0
    limits_s = {
        "first new result after a kill": _FIRST_S,
        "restore of what is done": max(1.0, given.trials / _TRIALS_PER_S),
    }
    conditions = []
    for (what, limit_s), found in zip(limits_s.items(), measure(given.trials), strict=True):
        name = f"{given.trials:,} trials: {what}"
        conditions += [
            Condition(
                name,
                f"{found['elapsed_s']:.2f} s",
                f"<= {limit_s:g} s",
                found["elapsed_s"] <= limit_s,
            ),
            Condition(
                f"{name}, memory at most",
                f"{found['peak_mb']:.0f} MB",
                f"<= {MAX_MB} MB",
                found["peak_mb"] <= MAX_MB,
            ),
            Condition(
                f"{name}, trials",
                f"{found['num_terminated']:,.0f}",
                f"{given.trials:,}",
                found["num_terminated"] == given.trials,
            ),
        ]
    return conclude(Verdict(2, conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
