"""Pace of trials while another trial hangs: ``python -m benchmarks.faults.pace``.

Two trials report every 10 ms, first alone and then next to a third trial that waits, spins in C, is
stopped or ignores signals, and that is killed after a second without a report. The limit applies to
the median time of a report and the pause before it; the longest time is printed next to it.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import tuner as tune

from .conditions import Condition, Verdict, arguments, at_most, conclude, none_of

PAUSE_S: Final = 0.01
NUM_REPORTS: Final = 300
NUM_STEADY: Final = 2
TIMEOUT_S: Final = 1.0
MAX_RATIO: Final = 1.2
ALONE: Final = "alone"


def hang() -> None:
    """Wait forever."""
    time.sleep(3600.0)


def spin() -> None:
    """Compute in C forever without releasing the GIL."""
    re.match("(a+)+b", "a" * 60)


def stop() -> None:
    """Stop the process, as a debugger does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def be_deaf() -> None:
    """Ignore SIGTERM and all exceptions."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(3600.0)
        except BaseException:  # noqa: BLE001, S112  (on purpose)
            continue


COMPANY: Final[dict[str, Callable[[], None]]] = {
    "hangs": hang,
    "spins": spin,
    "is stopped": stop,
    "is deaf": be_deaf,
}


def train(config: dict[str, Any]) -> None:
    """Report steadily, or once and then hang."""
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
    """Return the seconds of each report of the steady trials next to a hanging trial.

    Args:
        company: Which hanging trial, see `COMPANY`; any other value for none.

    Returns:
        The seconds, and the number of hanging trials that were not killed.
    """
    kinds = ["steady"] * NUM_STEADY + ([company] if company in COMPANY else [])
    with tempfile.TemporaryDirectory(prefix="faults-") as storage:
        results = tune.Tuner(
            train,
            param_space={"what": tune.grid_search(kinds)},
            tune_config=tune.TuneConfig(
                metric="took_s", mode="min", seed=0, scheduler=tune.schedulers.FIFOScheduler()
            ),
            run_config=tune.RunConfig(
                storage_path=storage,
                verbose=0,
                resources={"cpu": NUM_STEADY + 1},
                failure_config=tune.FailureConfig(report_timeout_s=TIMEOUT_S),
            ),
        ).fit()
        steady = [result for result in results if not result.error]
        found = [took for result in steady for took in result.metrics_dataframe["took_s"]]
        return found, len(kinds) - NUM_STEADY - results.num_errors


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, rounds=1)
    rounds = {
        company: [took_s(company) for _ in range(given.rounds)] for company in (ALONE, *COMPANY)
    }
    seen = {
        company: [took for found, _ in of_company for took in found]
        for company, of_company in rounds.items()
    }
    usual_s = statistics.median(seen.pop(ALONE))
    conditions = [Condition("a report and its pause, two trials by themselves", f"{usual_s:.3f} s")]
    conditions += [
        at_most(
            f"beside one that {company}: a report and its pause",
            found,
            round(MAX_RATIO * usual_s, 4),
            is_middle=True,
        )
        for company, found in seen.items()
    ]
    num_spared = sum(num for of_company in rounds.values() for _, num in of_company)
    conditions.append(
        none_of("bad company that was not killed", num_spared, given.rounds * len(COMPANY))
    )
    return conclude(Verdict(given.rounds * len(COMPANY), conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
