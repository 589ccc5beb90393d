"""The best result so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .trial import Trial


class Leaderboard:
    """Keeps the best result of all trials, whatever their status.

    Attributes:
        trial: The trial that reported it, None while no finite value has been reported.
        value: Its metric, NaN while there is none.
        result: The whole result, flattened.
    """

    __slots__ = ("_metric", "_sign", "result", "trial", "value")

    def __init__(self, metric: str | None, mode: str | None) -> None:
        """Create an empty board for a metric that is minimised or maximised."""
        self._metric = metric
        self._sign = -1.0 if mode == "max" else 1.0
        self.trial: Trial | None = None
        self.value = math.nan
        self.result: Mapping[str, Any] = {}

    def consider(self, trial: Trial, flat: Mapping[str, Any]) -> bool:
        """Take in a flattened result and return whether it is the new best; of equal values the earlier one stays."""
        value = flat.get(self._metric) if self._metric else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if self.trial is not None and self._sign * value >= self._sign * self.value:
            return False
        self.trial, self.value, self.result = trial, float(value), flat
        return True
