"""Running statistics of one metric of one trial, in constant memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final, Self

from .result import as_float

_NUM_RECENT: Final = 10


class MetricSummary:
    """Minimum, maximum and averages of a metric over a trial's results.

    Minimum and maximum are those of the finite values: what has diverged is never the best. Averages are of all values, so that NaN makes
    them NaN. They weigh each reported value alike, however many iterations lie between two of them.

    Attributes:
        last: The latest value.
        min: The smallest finite value, NaN while there is none.
        max: The largest finite value, NaN while there is none.
        count: How many values were seen.
    """

    __slots__ = ("_recent", "_total", "count", "last", "max", "min")

    def __init__(self) -> None:
        """Create the summary of no values."""
        self.count = 0
        self.last = self.min = self.max = math.nan
        self._total = 0.0
        self._recent = array(
            "d"
        )  # for each metric of each trial a deque takes 760 bytes, and a list of ten floats 420

    def add(self, value: float) -> None:
        """Take in the next value."""
        self.count += 1
        self.last = value
        self._total += value
        self._recent.append(as_float(value))
        if len(self._recent) > _NUM_RECENT:
            del self._recent[0]
        # `not (a >= b)` is also true where b is NaN, which is how the first number replaces it.
        if math.isfinite(value):
            if not self.min <= value:
                self.min = value
            if not self.max >= value:
                self.max = value

    def state(self) -> list[float]:
        """Return what the summary consists of: count, last, minimum, maximum, total, then the latest values."""
        return [self.count, self.last, self.min, self.max, self._total, *self._recent]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> Self:
        """Return the summary whose `state` this is."""
        summary = cls()
        count, summary.last, summary.min, summary.max, summary._total, *recent = state
        summary.count = int(count)
        summary._recent.extend(map(as_float, recent))
        return summary

    @property
    def avg(self) -> float:
        """Mean of all values, NaN without any."""
        return self._total / self.count if self.count else math.nan

    @property
    def recent(self) -> Sequence[float]:
        """The latest values, oldest first, at most 10."""
        return tuple(self._recent)

    def recent_avg(self, num_values: int) -> float:
        """Return the mean of the latest `num_values` (at most 10) values, of fewer where there are fewer."""
        values = self._recent[-num_values:]
        return sum(values) / len(values) if values else math.nan

    def by_scope(self, scope: str, mode: str) -> float:
        """Return what ``get_best_result`` compares: ``last``, ``avg``, ``last-5-avg``, ``last-10-avg`` or, for ``all``, the best."""
        match scope:
            case "last":
                return self.last
            case "avg":
                return self.avg
            case "last-5-avg":
                return self.recent_avg(5)
            case "last-10-avg":
                return self.recent_avg(10)
            case "all":
                return self.max if mode == "max" else self.min
            case _:
                raise ValueError(
                    f"scope must be one of last, avg, last-5-avg, last-10-avg, all, got {scope!r}"
                )
