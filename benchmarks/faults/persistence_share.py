"""Cost of persistence under heavy loads.

Run ``python -m benchmarks.faults.persistence_share``.

The share of persistence is `ResultGrid.persistence.share`: the seconds for which journal and
snapshots blocked the driver's loop plus the CPU seconds of their threads, divided by the elapsed
seconds. Log files (CSV, JSON, TensorBoard) are counted separately. The CPU time of the whole driver
process is printed for comparison. Each load runs in a separate process.

L1: 8 trials, 10 reports a second in all. L2: 1,000 reports a second of trials with ten each, 10,000
trials of 0.2 s in 100 seconds, 20 at a time. L3: 20 MB of numbers in each configuration, a
checkpoint with each report, one of them kept. L4: L2 on a disk where each sync takes 5 ms longer.

The files of a load are deleted only when all loads have ended: for minutes after thousands of files
were deleted, ext4 skips each inode that was freed recently, and creating a file takes twice as long
or more.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tuner as tune

from .conditions import Condition, Verdict, arguments, conclude

LOADS = ("L1", "L2", "L3", "L4")
MAX_SHARE = 0.05
MAX_PAUSE_S = 0.25
ARRAY_BYTES = 20 << 20
REPORTS_PER_S = 1_000
REPORTS_PER_TRIAL = 10
CONCURRENT = 20
SLOW_SYNC_S = 0.005


def paced(config: dict[str, Any]) -> None:
    """Report at a steady pace."""
    for step in range(1, config["num_reports"] + 1):
        time.sleep(config["pace_s"])
        tune.report({"loss": 1.0 / step})


def saving(config: dict[str, Any]) -> None:
    """Report at a steady pace, each time with a checkpoint."""
    for step in range(1, config["num_reports"] + 1):
        time.sleep(config["pace_s"])
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step), encoding="utf-8")
            tune.report(
                {"loss": float(config["array"][0]) + 1.0 / step},
                checkpoint=tune.Checkpoint.from_directory(directory),
            )


def array(_: dict[str, Any]) -> Any:
    """Return 20 MB of numbers."""
    return np.zeros(ARRAY_BYTES // 8)


def few(seconds: float) -> dict[str, Any]:
    """Return load L1, to run for `seconds`."""
    pace_s = 0.8
    return declared(paced, 8, 8, {"pace_s": pace_s, "num_reports": max(1, round(seconds / pace_s))})


def many(seconds: float) -> dict[str, Any]:
    """Return load L2, to run for `seconds`."""
    pace_s = CONCURRENT / REPORTS_PER_S
    num_trials = max(CONCURRENT, round(seconds * REPORTS_PER_S / REPORTS_PER_TRIAL))
    return declared(
        paced, num_trials, CONCURRENT, {"pace_s": pace_s, "num_reports": REPORTS_PER_TRIAL}
    )


def large(seconds: float) -> dict[str, Any]:
    """Return load L3, to run for `seconds`."""
    pace_s = 0.2
    return declared(
        saving,
        4,
        2,
        {
            "pace_s": pace_s,
            "num_reports": max(1, round(seconds / pace_s / 2)),
            "array": tune.sample_from(array),
        },
    )


LOAD_OF: dict[str, Callable[[float], dict[str, Any]]] = {
    "L1": few,
    "L2": many,
    "L3": large,
    "L4": many,
}


def declared(
    trainable: Callable[[dict[str, Any]], None],
    num_trials: int,
    concurrent: int,
    space: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments of `Tuner` for a load, except for its storage path."""
    return {
        "trainable": trainable,
        "param_space": space,
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_trials,
            max_concurrent_trials=concurrent,
            seed=0,
        ),
        "resources": {"cpu": concurrent},
    }


def slow_down_syncs() -> None:
    """Delay each sync of this process by `SLOW_SYNC_S`, as on a slower disk."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _slow(getattr(os, name)))


def _slow(sync: Callable[[int], None]) -> Callable[[int], None]:
    def slow_sync(descriptor: int) -> None:
        time.sleep(SLOW_SYNC_S)
        sync(descriptor)

    return slow_sync


def run_load(load: str, seconds: float, durability: Any, storage: str) -> None:
    """Run a load in this process and print its cost as JSON."""
    if load == "L4":
        slow_down_syncs()
    given = LOAD_OF[load](seconds)
    resources = given.pop("resources")
    keep = tune.CheckpointConfig(num_to_keep=1)
    config = tune.RunConfig(
        storage_path=storage,
        verbose=0,
        durability=durability,
        resources=resources,
        checkpoint_config=keep,
    )
    start_s = time.perf_counter()
    results = tune.Tuner(run_config=config, **given).fit()
    elapsed_s = time.perf_counter() - start_s
    num_reports = sum(result.metrics["training_iteration"] for result in results)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seen = {
        "elapsed_s": elapsed_s,
        "driver_cpu_s": usage.ru_utime + usage.ru_stime,
        "num_reports": num_reports,
    }
    print(json.dumps(seen | persistence_of(results)))


def persistence_of(results: tune.ResultGrid) -> dict[str, float | None]:
    """Return the figures in `ResultGrid.persistence`, None for those that are missing."""
    persistence = getattr(results, "persistence", None)
    return {
        name: getattr(persistence, name, None)
        for name in (
            "share",
            "worst_share",
            "log_files_share",
            "longest_pause_s",
            "num_bytes",
            "num_syncs",
        )
    }


def measure(load: str, seconds: float, durability: str, storage: str) -> dict[str, Any]:
    """Run a load in a separate process and return the figures it printed."""
    command = [sys.executable, "-m", "benchmarks.faults.persistence_share", "--load", load]
    command += ["--seconds", str(seconds), "--durability", durability, "--storage", storage]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  (our own module)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge(load: str, found: dict[str, Any]) -> list[Condition]:
    """Return the figures of a load and the conditions on them."""
    rate = found["num_reports"] / found["elapsed_s"]
    cpu = found["driver_cpu_s"] / found["elapsed_s"]
    figures = [
        Condition(f"{load}: reports a second; CPU of the driver", f"{rate:,.0f}/s; {cpu:.0%}")
    ]
    share, worst, pause_s = found["share"], found["worst_share"], found["longest_pause_s"]
    if share is None:
        why = "not in results.persistence"
        return [
            *figures,
            Condition(f"{load}: share of persistence", why, f"<= {MAX_SHARE:.0%}", holds=False),
        ]
    return [
        *figures,
        Condition(
            f"{load}: bytes written, syncs", f"{found['num_bytes']:,.0f}, {found['num_syncs']:,.0f}"
        ),
        Condition(
            f"{load}: share of persistence",
            f"{share:.2%}",
            f"<= {MAX_SHARE:.0%}",
            share <= MAX_SHARE,
        ),
        Condition(
            f"{load}: share in the worst minute",
            f"{worst:.2%}",
            f"<= {MAX_SHARE:.0%}",
            worst <= MAX_SHARE,
        ),
        Condition(f"{load}: share of log files", f"{found['log_files_share']:.2%}"),
        Condition(
            f"{load}: longest pause",
            f"{1000 * pause_s:.0f} ms",
            f"<= {1000 * MAX_PAUSE_S:.0f} ms",
            pause_s <= MAX_PAUSE_S,
        ),
    ]


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, seconds=100.0, load="all", durability="group", storage="")
    with tempfile.TemporaryDirectory(prefix="faults-") as made:
        storage = given.storage or made
        if given.load != "all":
            run_load(given.load, given.seconds, given.durability, storage)
            return 0
        conditions = [
            line
            for load in LOADS
            for line in judge(load, measure(load, given.seconds, given.durability, storage))
        ]
    return conclude(Verdict(len(LOADS), conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
