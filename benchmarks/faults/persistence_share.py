"""Cost of saving the state, under heavy loads.

Run ``python -m benchmarks.faults.persistence_share``.

The share of persistence is `ResultGrid.persistence.share`: seconds for which journal and snapshots
kept the driver's loop, and the CPU seconds of their threads, over all seconds. Log files (CSV,
JSON, TensorBoard) are counted apart. Beside both stands what can be seen from outside: the CPU time
of the whole driver process. Each load runs in a process of its own.

L1: 8 trials, 10 reports a second in all. L2: 1,000 reports a second of trials with ten each, 10,000
trials of 0.2 s in 100 seconds, 20 at a time. L3: 20 MB of numbers in each configuration, a
checkpoint with each report, one of them kept. L4: L2 on a disk where each sync takes 5 ms longer.

What a load has written is deleted when all are over: for minutes after thousands of files were
deleted, ext4 steps over each inode that was freed just now, and making a file takes twice as long
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
    """Return L1 for so many seconds."""
    pace_s = 0.8
    return declared(paced, 8, 8, {"pace_s": pace_s, "num_reports": max(1, round(seconds / pace_s))})


def many(seconds: float) -> dict[str, Any]:
    """Return L2 for so many seconds."""
    pace_s = CONCURRENT / REPORTS_PER_S
    num_trials = max(CONCURRENT, round(seconds * REPORTS_PER_S / REPORTS_PER_TRIAL))
    return declared(
        paced, num_trials, CONCURRENT, {"pace_s": pace_s, "num_reports": REPORTS_PER_TRIAL}
    )


def large(seconds: float) -> dict[str, Any]:
    """Return L3 for so many seconds."""
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
    """Return what makes the `Tuner` of a load, without where it lies."""
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
    """Let each sync of this process take longer, as a slower disk would."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _slow(getattr(os, name)))


def _slow(sync: Callable[[int], None]) -> Callable[[int], None]:
    def slow_sync(descriptor: int) -> None:
        time.sleep(SLOW_SYNC_S)
        sync(descriptor)

    return slow_sync


def bear(load: str, seconds: float, durability: Any, storage: str) -> None:
    """Run a load in this process and print what it cost."""
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
    print(json.dumps(seen | told_by(results)))


def told_by(results: tune.ResultGrid) -> dict[str, float | None]:
    """Return what the experiment itself tells about its persistence; nothing where it does not."""
    told = getattr(results, "persistence", None)
    return {
        name: getattr(told, name, None)
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
    """Run a load in a process of its own and return what it printed."""
    command = [sys.executable, "-m", "benchmarks.faults.persistence_share", "--load", load]
    command += ["--seconds", str(seconds), "--durability", durability, "--storage", storage]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  (our own module)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge(load: str, found: dict[str, Any]) -> list[Condition]:
    """Return what is asked of a load, and the figures beside it."""
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
            bear(given.load, given.seconds, given.durability, storage)
            return 0
        conditions = [
            line
            for load in LOADS
            for line in judge(load, measure(load, given.seconds, given.durability, storage))
        ]
    return conclude(Verdict(len(LOADS), conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
