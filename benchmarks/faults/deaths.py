"""Time until the driver notices that a trial has crashed, by cause: ``python -m benchmarks.faults.deaths``.

Each trial writes down when it dies, by the clock that all processes of the machine share; the
driver's callbacks are called.
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


class Doom(BaseException):
    """What no training code should catch."""


def raise_doom() -> NoReturn:
    """Raise what is no `Exception`."""
    raise Doom


WAYS: Final[dict[str, Callable[[], object]]] = {
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os._exit": lambda: os._exit(3),
    "sys.exit": lambda: sys.exit(3),
    "a BaseException": raise_doom,
}


def die(config: dict[str, Any]) -> None:
    """Report, write down the time, and die."""
    tune.report({"loss": 1.0})
    Path(config["moments"], tune.get_context().get_trial_id()).write_text(
        repr(time.monotonic()), encoding="utf-8"
    )
    WAYS[config["way"]]()


class Listener(tune.Callback):
    """Writes down how long after its crash each trial's failure is reported."""

    def __init__(self) -> None:
        """Nobody has died yet."""
        self.delays_s: dict[str, list[float]] = defaultdict(list)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Hear of a death."""
        now_s = time.monotonic()
        died_s = float(Path(trial.config["moments"], trial.trial_id).read_text(encoding="utf-8"))
        self.delays_s[trial.config["way"]].append(now_s - died_s)


def measure(rounds: int) -> tuple[Listener, int]:
    """Let trials die, two at a time, so many of each way; return who has listened, and how many have not failed."""
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
