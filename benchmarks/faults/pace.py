"""Whether trials keep their pace beside one that hangs, spins, is stopped or is deaf: ``python -m benchmarks.faults.pace``.

Two trials report every 10 ms, first by themselves and then beside each kind of bad company, which has a third slot and is killed after a
second without a report. What counts is how long a report and the pause before it take in the middle; the longest one is shown beside it.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import tuner as tune

from .conditions import Condition, Verdict, arguments, conclude, none_of

PAUSE_S: Final = 0.01
NUM_REPORTS: Final = 300
NUM_STEADY: Final = 2
TIMEOUT_S: Final = 1.0
MAX_RATIO: Final = 1.2
ALONE: Final = "alone"


def hang() -> None:
    """Wait for ever."""
    time.sleep(3600.0)


def spin() -> None:
    """Compute for ever in C, without ever letting another thread have the interpreter."""
    re.match("(a+)+b", "a" * 60)


def stop() -> None:
    """Be stopped, as by a debugger."""
    os.kill(os.getpid(), signal.SIGSTOP)


def be_deaf() -> None:
    """Listen neither to an exception nor to a polite signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(3600.0)
        except BaseException:  # noqa: BLE001, S112  (that is the point)
            continue


COMPANY: Final[dict[str, Callable[[], None]]] = {"hangs": hang, "spins": spin, "is stopped": stop, "is deaf": be_deaf}


def train(config: dict[str, Any]) -> None:
    """Report steadily, or once and then never again."""
    if config["what"] in COMPANY:
        tune.report({"took_s": 0.0})
        COMPANY[config["what"]]()
    before_s = time.perf_counter()
    for _ in range(NUM_REPORTS):
        time.sleep(PAUSE_S)
        now_s = time.perf_counter()
        tune.report({"took_s": now_s - before_s})
        before_s = now_s


def took_s(company: str) -> tuple[list[float], int]:
    """Return how long each report of the steady trials took beside such company, in order, and how many of the company were not killed."""
    kinds = ["steady"] * NUM_STEADY + ([company] if company in COMPANY else [])
    with tempfile.TemporaryDirectory(prefix="faults-") as storage:
        results = tune.Tuner(
            train,
            param_space={"what": tune.grid_search(kinds)},
            tune_config=tune.TuneConfig(metric="took_s", mode="min", seed=0, scheduler=tune.schedulers.FIFOScheduler()),
            run_config=tune.RunConfig(
                storage_path=storage,
                verbose=0,
                resources={"cpu": NUM_STEADY + 1},
                failure_config=tune.FailureConfig(report_timeout_s=TIMEOUT_S),
            ),
        ).fit()
        steady = [result for result in results if not result.error]
        found = sorted(took for result in steady for took in result.metrics_dataframe["took_s"])
        return found, len(kinds) - NUM_STEADY - results.num_errors


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, rounds=1)
    conditions: list[Condition] = []
    num_survivors = limit_s = 0.0
    for company in (ALONE, *COMPANY):
        rounds = [took_s(company) for _ in range(given.rounds)]
        found = sorted(took for one, _ in rounds for took in one)
        num_survivors += sum(num for _, num in rounds)
        middle_s, worst_s = found[len(found) // 2], found[-1]
        limit_s = limit_s or MAX_RATIO * middle_s
        shown = f"{1000 * middle_s:.1f}, at worst {1000 * worst_s:.1f} ms"
        if company == ALONE:
            conditions.append(Condition("a report and its pause, two trials by themselves", shown))
        else:
            what = f"beside one that {company}: a report and its pause"
            conditions.append(Condition(what, shown, f"<= {1000 * limit_s:.1f} ms, the middle one", middle_s <= limit_s))
    conditions.append(none_of("bad company that was not killed", round(num_survivors), given.rounds * len(COMPANY)))
    return conclude(Verdict(given.rounds * len(COMPANY), conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
