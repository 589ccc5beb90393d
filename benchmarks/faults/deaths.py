"""Time until the driver notices a crash, by cause: ``python -m benchmarks.faults.deaths``.

Each trial records the time just before it crashes, on the monotonic clock that all processes of the
machine share; a callback in the driver records the time of the failure.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import tuner as tune

from .conditions import Condition, Verdict, arguments, at_most, conclude, none_of

MAX_S: Final = 0.2


class Crash(BaseException):
    """An exception that is not an `Exception`, so that training code does not catch it."""


def raise_base_exception() -> NoReturn:
    """Raise a `BaseException`."""
    raise Crash


WAYS: Final[dict[str, Callable[[], object]]] = {
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os._exit": lambda: os._exit(3),
    "sys.exit": lambda: sys.exit(3),
    "a BaseException": raise_base_exception,
}


def die(config: dict[str, Any]) -> None:
    """Report, record the time, and crash."""
    tune.report({"loss": 1.0})
    Path(config["moments"], tune.get_context().get_trial_id()).write_text(
        repr(time.monotonic()), encoding="utf-8"
    )
    WAYS[config["way"]]()


class Listener(tune.Callback):
    """Records the seconds from each crash to the callback, by cause."""

    def __init__(self) -> None:
        self.delays_s: dict[str, list[float]] = defaultdict(list)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Record the delay of a failure."""
        now_s = time.monotonic()
        died_s = float(Path(trial.config["moments"], trial.trial_id).read_text(encoding="utf-8"))
        self.delays_s[trial.config["way"]].append(now_s - died_s)


def measure(rounds: int) -> tuple[Listener, int]:
    """Run trials that crash, two at a time, `rounds` for each cause.

    Returns:
        The callback with the delays, and the number of trials that did not fail.
    """
    listener = Listener()
    with tempfile.TemporaryDirectory(prefix="faults-") as storage:
        moments = Path(storage, "moments")
        moments.mkdir()
        results = tune.Tuner(
            die,
            param_space={"way": tune.grid_search(list(WAYS)), "moments": str(moments)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=rounds, max_concurrent_trials=2, seed=0
            ),
            run_config=tune.RunConfig(
                storage_path=storage,
                verbose=0,
                callbacks=[listener],
                resources={"cpu": 2},
                failure_config=tune.FailureConfig(max_common_failures=None),  # all are meant to die
            ),
        ).fit()
        return listener, rounds * len(WAYS) - results.num_errors


def main() -> int:
    """Run the bench."""
    given = arguments(__doc__, rounds=20)
    listener, num_silent = measure(given.rounds)
    conditions: list[Condition] = [
        at_most(f"{way}: from the death to its notice", listener.delays_s[way], MAX_S)
        for way in WAYS
    ]
    conditions.append(none_of("deaths that were not noticed", num_silent, given.rounds * len(WAYS)))
    return conclude(Verdict(given.rounds * len(WAYS), conditions), given.verdict)


if __name__ == "__main__":
    sys.exit(main())
