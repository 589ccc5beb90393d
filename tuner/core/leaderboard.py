"""The best results so far."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .trial import Trial

_NUM_LEADERS = 5


class Leaderboard:
    """Keeps the best result of all trials and the few best trials, whatever their status.

    Attributes:
        trial: The trial that reported the best result, None while no finite value has been reported.
        value: Its metric, NaN while there is none.
        result: The whole result, flattened.
    """

    __slots__ = ("_leaders", "_metric", "_sign", "result", "trial", "value")

    def __init__(self, metric: str | None, mode: str | None) -> None:
        """Create an empty board for a metric that is minimised or maximised."""
        self._metric = metric
        self._sign = -1.0 if mode == "max" else 1.0
        self._leaders: list[tuple[float, Trial]] = []
        self.trial: Trial | None = None
        self.value = math.nan
        self.result: Mapping[str, Any] = {}

    @property
    def leaders(self) -> Sequence[Trial]:
        """The best trials by their best result, best first, at most five."""
        return tuple(trial for _, trial in self._leaders)

    def state_dict(self) -> dict[str, Any]:
        """Return the board as JSON values."""
        return {
            "trial": self.trial.trial_id if self.trial else None,
            "value": self.value,
            "result": dict(self.result),
            "leaders": [[cost, trial.trial_id] for cost, trial in self._leaders],
        }

    def load_state_dict(self, state: Mapping[str, Any], trial_of: Callable[[str], Trial]) -> None:
        """Take back what `state_dict` returned; `trial_of` returns a trial by its id."""
        self.trial = trial_of(state["trial"]) if state["trial"] else None
        self.value = state["value"]
        self.result = state["result"]
        self._leaders = [(cost, trial_of(trial_id)) for cost, trial_id in state["leaders"]]

    def consider(self, trial: Trial, flat: Mapping[str, Any]) -> None:
        """Take in a flattened result; of equal values the earlier one stays ahead."""
        value = flat.get(self._metric) if self._metric else None
        if isinstance(value, bool) or not isinstance(value, (float, int)) or not math.isfinite(value):
            return
        cost = self._sign * value
        if self.trial is None or cost < self._sign * self.value:
            self.trial, self.value, self.result = trial, float(value), flat
        self._rank(trial, cost)

    def forget(self, trial: Trial) -> None:
        """Take a trial off the board whose results no longer count; of the one that leads then only the metric is known."""
        self._leaders = [(cost, leader) for cost, leader in self._leaders if leader is not trial]
        if self.trial is trial:
            cost, self.trial = self._leaders[0] if self._leaders else (math.nan, None)
            self.value, self.result = self._sign * cost, {}

    def _rank(self, trial: Trial, cost: float) -> None:
        # A trial's best value only ever improves, so the few best can be kept without looking at the others again.
        if len(self._leaders) == _NUM_LEADERS and cost >= self._leaders[-1][0]:
            return
        standing = next((index for index, (_, leader) in enumerate(self._leaders) if leader is trial), None)
        if standing is not None:
            if cost >= self._leaders[standing][0]:
                return
            del self._leaders[standing]
        bisect.insort(self._leaders, (cost, trial), key=lambda entry: entry[0])
        del self._leaders[_NUM_LEADERS:]
