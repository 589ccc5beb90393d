"""RUSH: a few trials known to be good from earlier tasks set the bar that every other trial has to clear."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from schedulers.decisions import Number


@final
class KnownGood:
    """The first trials of an experiment and the best values they had at each level.

    Args:
        num_trials: How many of the first trials are known to be good; 0 sets no bar.

    Example:
        >>> known_good = KnownGood(1)
        >>> known_good.join("a"), known_good.join("b")
        (None, None)
        >>> known_good.record("a", level=1, value=0.5, mode="min")
        >>> known_good.admits("b", level=1, value=0.6, mode="min"), known_good.admits("b", level=3, value=0.6, mode="min")
        (False, True)

    Reference:
        Zappella, Salinas, Archambeau. A Resource-Efficient Method for Repeated HPO and NAS Problems. AutoML workshop at ICML 2021,
        arXiv 2103.16111.

    Departures:
        Syne Tune takes trials for known whose number is small; here they are the first that were added, whatever they are called. There a
        known trial sets the bar only while it goes on itself, here always: it is what earlier tasks say can be reached.
    """

    def __init__(self, num_trials: int) -> None:
        self._num_trials = num_trials
        self._names: list[str] = []
        self._thresholds: dict[Number, float] = {}

    def join(self, trial_id: str) -> None:
        """Take a new trial among the known ones, as long as there are too few."""
        if len(self._names) < self._num_trials and trial_id not in self._names:
            self._names.append(trial_id)

    def record(self, trial_id: str, level: Number, value: float, mode: str) -> None:
        """Raise the bar at a level to what a known trial has reached there; NaN and other trials raise none."""
        if trial_id in self._names and not math.isnan(value):
            best = min if mode == "min" else max
            self._thresholds[level] = best(self._thresholds.get(level, value), value)

    @property
    def sets_bars(self) -> bool:
        """Whether there is a bar at any level."""
        return bool(self._thresholds)

    def threshold(self, level: Number) -> float:
        """Return the bar at a level, NaN where there is none."""
        return self._thresholds.get(level, math.nan)

    def admits(self, trial_id: str, level: Number, value: float, mode: str) -> bool:
        """Return whether a trial may go on from a level: a known one always, another one if its value is no worse than the bar."""
        bar = self._thresholds.get(level)
        if bar is None or trial_id in self._names:
            return True
        return value <= bar if mode == "min" else value >= bar

    def state_dict(self) -> dict[str, Any]:
        """Return names and bars, as JSON values."""
        return {
            "names": list(self._names),
            "thresholds": [[level, bar] for level, bar in self._thresholds.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self._names = list(state["names"])
        self._thresholds = {level: bar for level, bar in state["thresholds"]}  # noqa: C416  (pairs come back as lists)
