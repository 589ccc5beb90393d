"""Evaluations of a search's configurations, some of them at the same time, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .clock import Ask

SPREAD = 0.3
"""Standard deviation of the logarithm of the time that an evaluation takes."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An evaluation that has ended.

    Attributes:
        share: Share of the budget of evaluations that have ended, with this one.
        trial: Name that the search has given it.
        config: Its configuration.
        cost_s: The virtual time that it took.
    """

    share: float
    trial: str
    config: Mapping[str, Any]
    cost_s: float


class Evaluations:
    """All evaluations of one run of a search, in the order in which they end.

    The search is asked for a configuration whenever a worker is free, until the budget is spent.
    Whoever iterates tells it the result of each evaluation, before the next one is taken. How long
    an evaluation takes depends on its number and the seed alone.

    Args:
        ask: Sends requests to the search.
        num_workers: Number of evaluations that run at the same time.
        num_evaluations: The budget.
        seed: Seed of the times.

    Attributes:
        num_asked: Number of configurations that the search has been asked for.
        num_ended: Number of evaluations that have ended.
        decision_s: CPU seconds spent inside the search.
    """

    def __init__(self, ask: Ask, num_workers: int, num_evaluations: int, seed: int) -> None:
        self._ask = ask
        self._num_workers = num_workers
        self._durations = np.random.default_rng([seed, 1]).lognormal(0.0, SPREAD, num_evaluations)
        self._running: list[tuple[float, int, str, Mapping[str, Any]]] = []
        self._is_finished = False
        self.num_asked = 0
        self.num_ended = 0
        self.decision_s = 0.0

    def send(self, do: str, **facts: Any) -> Mapping[str, Any]:
        """Send a request to the search, and return its answer."""
        answer = self._ask(do, **facts)
        self.decision_s += answer["seconds"]
        return answer

    def __iter__(self) -> Iterator[Ended]:
        """Yield evaluations as they end.

        Raises:
            RuntimeError: If the search waits although no evaluation is running.
        """
        budget, now_s = len(self._durations), 0.0
        self._start(now_s)
        while self._running:
            now_s, number, trial, config = heapq.heappop(self._running)
            self.num_ended += 1
            yield Ended(self.num_ended / budget, trial, config, float(self._durations[number]))
            self._start(now_s)
        if self.num_asked < budget and not self._is_finished:
            raise RuntimeError(
                f"the search waits after {self.num_asked} evaluations, none of which is running"
            )

    def _start(self, now_s: float) -> None:
        """Ask for configurations while workers are free and the budget is not spent."""
        while (
            len(self._running) < self._num_workers
            and self.num_asked < len(self._durations)
            and not self._is_finished
        ):
            order = self.send("ask")
            self._is_finished = "finished" in order
            if "trial" not in order:
                return
            due = now_s + self._durations[self.num_asked]
            heapq.heappush(self._running, (due, self.num_asked, order["trial"], order["config"]))
            self.num_asked += 1
