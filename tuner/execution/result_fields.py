"""The keys that the engine adds to every result, and the counts behind them."""

from __future__ import annotations

import functools
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from tuner.core import result as key
from tuner.wire.record import record

_COUNTED = (
    (key.TIMESTEPS_THIS_ITER, key.TIMESTEPS_TOTAL),
    (key.EPISODES_THIS_ITER, key.EPISODES_TOTAL),
)
_TOTALS = frozenset(total for _, total in _COUNTED)


@record
class Place:
    """Where training runs.

    Attributes:
        pid: Id of the process.
        hostname: Name of the machine.
        node_ip: Its address.
    """

    pid: int
    hostname: str
    node_ip: str


@functools.cache
def host() -> tuple[str, str]:
    """Return this machine's name and address, cached; forked workers inherit the cache."""
    return socket.gethostname(), _address()


def here() -> Place:
    """Return the place of this process."""
    return Place(os.getpid(), *host())


def _address() -> str:
    # Connecting a datagram socket sends nothing; it only has the routing table choose our address.
    # Looking up the name could hang.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def local_date(timestamp: int) -> str:
    """Return a time as local time in the form of results, e.g. ``2030-01-31_23-59-58``."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(timestamp))


class AutoFill:
    """Completes the results of a trial with the engine's keys, and keeps the counts for that.

    Training time is counted from `resume` on, so that waiting for the engine does not count.

    Attributes:
        iteration: ``training_iteration`` of the latest result.
        time_total_s: Training time of the trial up to it, earlier attempts included.
        counters: ``timesteps_total`` and ``episodes_total`` up to it, if the training code reports
            them.
    """

    __slots__ = (
        "_clock", "_date", "_date_of", "_dated_s", "_first_iteration", "_fixed", "_mark_s",
        "_time_before_s", "_wall_clock", "counters", "iteration", "time_total_s", "trial_id",
    )  # fmt: skip

    def __init__(
        self,
        trial_id: str,
        place: Place,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        date: Callable[[int], str] = local_date,
    ) -> None:
        """Create the counts of a trial that has not reported yet.

        Args:
            trial_id: The trial.
            place: Where it runs.
            clock: Clock for training time, in seconds.
            wall_clock: Clock for timestamps, in seconds since 1970.
            date: Formats a time of `wall_clock`.
        """
        self.trial_id = trial_id
        self._fixed = {key.PID: place.pid, key.HOSTNAME: place.hostname, key.NODE_IP: place.node_ip}
        self._clock = clock
        self._wall_clock = wall_clock
        self._date = date
        self._dated_s, self._date_of = -1, ""
        self.restore(0, 0.0, {})
        self.resume()

    def restore(self, iteration: int, time_total_s: float, counters: Mapping[str, int]) -> None:
        """Continue from these counts."""
        self.iteration = self._first_iteration = iteration
        self.time_total_s = self._time_before_s = time_total_s
        self.counters = dict(counters)

    def resume(self) -> None:
        """Start to measure the training time of the next result."""
        self._mark_s = self._clock()

    def elapsed_s(self) -> float:
        """Return the training time since `resume`, in seconds."""
        return self._clock() - self._mark_s

    def fill(
        self, metrics: Mapping[str, Any], elapsed_s: float, checkpoint_dir_name: str | None = None
    ) -> dict[str, Any]:
        """Return the next result: the metrics first, then the keys of the engine.

        The result is counted only by `count`.

        Args:
            metrics: The reported metrics, converted. Keys of `SUPPLIED_BY_USER` in it, such as
                ``time_this_iter_s``, replace the engine's values, and so does a
                ``training_iteration`` that increases.
            elapsed_s: Its training time in seconds.
            checkpoint_dir_name: Name of the directory of the checkpoint reported with it.
        """
        supplied = metrics.keys() & key.SUPPLIED_BY_USER
        elapsed_s = float(metrics.get(key.TIME_THIS_ITER_S, elapsed_s)) if supplied else elapsed_s
        time_total_s = self.time_total_s + elapsed_s
        iteration = next_iteration(metrics, self.iteration)
        timestamp = int(self._wall_clock())
        # Formatting a date takes longer than all the rest, and trials report many times a second.
        if timestamp != self._dated_s:
            self._dated_s, self._date_of = timestamp, self._date(timestamp)
        filled = {
            **metrics,
            key.TIMESTAMP: timestamp,
            key.CHECKPOINT_DIR_NAME: checkpoint_dir_name,
            key.SHOULD_CHECKPOINT: checkpoint_dir_name is not None,
            key.DONE: False,
            key.TRAINING_ITERATION: iteration,
            key.TRIAL_ID: self.trial_id,
            key.DATE: self._date_of,
            key.TIME_THIS_ITER_S: elapsed_s,
            key.TIME_TOTAL_S: time_total_s,
            **self._fixed,
            key.TIME_SINCE_RESTORE: time_total_s - self._time_before_s,
            key.ITERATIONS_SINCE_RESTORE: iteration - self._first_iteration,
            **self.counters,
        }
        for name in supplied:
            filled[name] = metrics[name]
        for this_iter, total in _COUNTED:
            if this_iter in supplied and total not in supplied:
                filled[total] = self.counters.get(total, 0) + int(metrics[this_iter])
        return filled

    def counted(self) -> tuple[int, float, dict[str, int]]:
        """Return the counts up to the latest result, for `recount`."""
        return self.iteration, self.time_total_s, self.counters

    def recount(self, counted: tuple[int, float, dict[str, int]]) -> None:
        """Forget the results since `counted`."""
        self.iteration, self.time_total_s, self.counters = counted

    def count(self, result: Mapping[str, Any]) -> None:
        """Make a result that `fill` returned the latest one."""
        self.iteration = result[key.TRAINING_ITERATION]
        self.time_total_s = result[key.TIME_TOTAL_S]
        if self.counters or not _TOTALS.isdisjoint(result):
            self.counters = counters_of(result)


def next_iteration(metrics: Mapping[str, Any], latest: int) -> int:
    """Return the ``training_iteration`` of the next result.

    It is the reported one if that is a larger whole number, otherwise one more than the latest.

    Args:
        metrics: The reported metrics, converted.
        latest: The ``training_iteration`` of the previous result.

    Example:
        >>> next_iteration({}, 3), next_iteration({"training_iteration": 10}, 3)
        (4, 10)
        >>> next_iteration({"training_iteration": 3}, 3)
        4
    """
    reported = metrics.get(key.TRAINING_ITERATION)
    if (
        isinstance(reported, bool)
        or not isinstance(reported, (int, float))
        or not latest < reported < math.inf
        or reported % 1
    ):
        return latest + 1
    return int(reported)


def counters_of(result: Mapping[str, Any]) -> dict[str, int]:
    """Return ``timesteps_total`` and ``episodes_total`` of a result, if it has them."""
    return {total: int(result[total]) for _, total in _COUNTED if total in result}
