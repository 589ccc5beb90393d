"""A virtual clock for searches in other environments: workers that train on a table, and ask whenever one of them is free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .table import Table
from .trace import NUM_WORKERS, Epoch, Trace, duration_s

Ask = Callable[..., Mapping[str, Any]]
"""Asks a search a question; see `Conversation.ask`."""
_MAX_FREE = 1_000


@dataclass(slots=True)
class _Trial:
    index: int
    epoch: int = 0
    until: int = 0
    cost_s: float = 0.0


def run_peer(ask: Ask, method: str, table: Table, seed: int) -> Trace:
    """Let a search run on a table until its time is over."""
    return _Clock(ask, table).run(method, seed)


class _Clock:
    """Four workers, in virtual time. What falls on the same moment happens in the order in which it was begun."""

    def __init__(self, ask: Ask, table: Table) -> None:
        self._ask = ask
        self._table = table
        self._trace = Trace()
        self._trials: dict[str, _Trial] = {}
        self._due: list[tuple[float, int, str]] = []
        self._num_begun = 0
        self._is_finished = False
        self._num_free_workers = NUM_WORKERS
        self._now_s = 0.0

    def run(self, method: str, seed: int) -> Trace:
        space, end_s = self._table.grid.described(), duration_s(self._table)
        setting = {
            "method": method,
            "space": space,
            "max_epochs": self._table.num_epochs,
            "num_workers": NUM_WORKERS,
            "seed": seed,
        }
        self._trace.versions = dict(self._question("begin", setting=setting)["versions"])
        self._employ()
        while self._due and self._due[0][0] <= end_s:
            self._now_s, _, name = heapq.heappop(self._due)
            self._happen(name)
            self._employ()
        if not (self._due or self._is_finished):
            raise RuntimeError(
                f"the search lets all workers wait at {self._now_s:.3g} of {end_s:.3g} s, and "
                "nothing is left to happen"
            )
        return self._trace

    def _question(self, do: str, **facts: Any) -> Mapping[str, Any]:
        answer = self._ask(do, **facts)
        self._trace.decision_s += answer["seconds"]
        return answer

    def _employ(self) -> None:
        """Give work to the free workers, as long as the search has some."""
        for _ in range(_MAX_FREE):
            if not self._num_free_workers or self._is_finished:
                return
            order = self._question("ask")
            self._is_finished = "finished" in order
            if "wait" in order or self._is_finished:
                return
            self._begin(order)
        raise RuntimeError(f"the search has asked {_MAX_FREE} times for values that it knows")

    def _begin(self, order: Mapping[str, Any]) -> None:
        name = order["trial"]
        if name not in self._trials:
            self._trials[name] = _Trial(self._table.grid.index(order["config"]))
            self._trace.num_suggestions += 1
        trial = self._trials[name]
        if any(name == running for _, _, running in self._due):
            raise RuntimeError(
                f"the search asks for trial {name}, which is running; it has to have ended, "
                "or to have been paused"
            )
        trial.until = order["until"]
        if trial.epoch >= trial.until:
            self._tell("complete", name, trial)
            return
        self._num_free_workers -= 1
        self._train(name, trial)

    def _train(self, name: str, trial: _Trial) -> None:
        self._num_begun += 1
        heapq.heappush(
            self._due,
            (self._now_s + float(self._table.costs_s[trial.index]), self._num_begun, name),
        )

    def _happen(self, name: str) -> None:
        trial = self._trials[name]
        trial.epoch += 1
        trial.cost_s += float(self._table.costs_s[trial.index])
        self._trace.epochs.append(Epoch(self._now_s, trial.index, trial.epoch))
        verdict = self._tell("report", name, trial)["verdict"]
        if verdict == "continue" and trial.epoch < trial.until:
            self._train(name, trial)
            return
        self._num_free_workers += 1
        if trial.epoch >= trial.until and verdict == "continue":
            self._tell("complete", name, trial)

    def _tell(self, do: str, name: str, trial: _Trial) -> Mapping[str, Any]:
        epoch = min(trial.epoch, trial.until)
        value = float(self._table.curves[trial.index, epoch - 1])
        return self._question(do, trial=name, epoch=epoch, value=value, cost_s=trial.cost_s)
