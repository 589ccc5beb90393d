"""Virtual clock for searches in other environments.

Its workers train by reading a table. Whenever one of them is free, the search is asked for work.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .table import WORST, Table
from .trace import NUM_WORKERS, Epoch, Trace, duration_s

Ask = Callable[..., Mapping[str, Any]]
"""Sends a request to a search and returns its reply; see `Conversation.ask`."""
# A search that repeats requests for known epochs, which take no time, would never end.
_MAX_REQUESTS = 1_000


@dataclass(slots=True)
class _Trial:
    index: int
    seed: int
    epoch: int = 0
    until: int = 0
    cost_s: float = 0.0


def run_peer(ask: Ask, method: str, table: Table, seed: int) -> Trace:
    """Run a search on a table until its time is over."""
    return _Clock(ask, table, seed).run(method)


class _Clock:
    """Four workers in virtual time."""

    def __init__(self, ask: Ask, table: Table, seed: int) -> None:
        self._ask = ask
        self._table = table
        self._seed = seed
        self._num_starts: Counter[int] = Counter()
        self._trace = Trace()
        self._trials: dict[str, _Trial] = {}
        # Epochs in progress: when they end, a serial number and the trial. Epochs that end at the
        # same time are reported in the order in which they were started.
        self._due: list[tuple[float, int, str]] = []
        self._num_started = 0
        self._is_finished = False
        self._num_free_workers = NUM_WORKERS
        self._now_s = 0.0

    def run(self, method: str) -> Trace:
        space, end_s = self._table.grid.described(), duration_s(self._table)
        setting = {
            "method": method,
            "space": space,
            "max_epochs": self._table.num_epochs,
            "num_workers": NUM_WORKERS,
            "seed": self._seed,
        }
        self._trace.versions = dict(self._request("begin", setting=setting)["versions"])
        self._assign_work()
        while self._due and self._due[0][0] <= end_s:
            self._now_s, _, name = heapq.heappop(self._due)
            self._finish_epoch(name)
            self._assign_work()
        if not (self._due or self._is_finished):
            raise RuntimeError(
                f"the search lets all workers wait at {self._now_s:.3g} of {end_s:.3g} s, and "
                "nothing is left to happen"
            )
        return self._trace

    def _request(self, do: str, **facts: Any) -> Mapping[str, Any]:
        answer = self._ask(do, **facts)
        self._trace.decision_s += answer["seconds"]
        return answer

    def _assign_work(self) -> None:
        """Ask the search for work until no worker is free or the search has none."""
        for _ in range(_MAX_REQUESTS):
            if not self._num_free_workers or self._is_finished:
                return
            order = self._request("ask")
            self._is_finished = "finished" in order
            if "wait" in order or self._is_finished:
                return
            self._start(order)
        raise RuntimeError(f"the search has asked {_MAX_REQUESTS} times for values that it knows")

    def _start(self, order: Mapping[str, Any]) -> None:
        name = order["trial"]
        if name not in self._trials:
            row = self._table.grid.index(order["config"])
            self._trials[name] = _Trial(
                row, self._table.seed_of(self._seed, row, self._num_starts[row])
            )
            self._num_starts[row] += 1
            self._trace.num_suggestions += 1
        trial = self._trials[name]
        if any(name == running for _, _, running in self._due):
            raise RuntimeError(
                f"the search asks for trial {name}, which is running; it has to have ended, "
                "or to have been paused"
            )
        trial.until = order["until"]
        if trial.epoch >= trial.until:
            self._send("complete", name, trial)
            return
        self._num_free_workers -= 1
        self._train(name, trial)

    def _train(self, name: str, trial: _Trial) -> None:
        self._num_started += 1
        heapq.heappush(
            self._due,
            (self._now_s + float(self._table.costs_s[trial.index]), self._num_started, name),
        )

    def _finish_epoch(self, name: str) -> None:
        trial = self._trials[name]
        trial.epoch += 1
        trial.cost_s += float(self._table.costs_s[trial.index])
        self._trace.epochs.append(Epoch(self._now_s, trial.index, trial.epoch, trial.seed))
        verdict = self._send("report", name, trial)["verdict"]
        if verdict == "continue" and trial.epoch < trial.until:
            self._train(name, trial)
            return
        self._num_free_workers += 1
        if trial.epoch >= trial.until and verdict == "continue":
            self._send("complete", name, trial)

    def _send(self, do: str, name: str, trial: _Trial) -> Mapping[str, Any]:
        # A trial may be asked to stop at an epoch before the one that it has reached: its value is
        # read from the table.
        epoch = min(trial.epoch, trial.until)
        value = float(self._table.seen[trial.seed, trial.index, epoch - 1])
        # Not every search accepts NaN and infinity.
        value = value if math.isfinite(value) else WORST
        return self._request(do, trial=name, epoch=epoch, value=value, cost_s=trial.cost_s)
