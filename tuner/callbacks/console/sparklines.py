"""Sparklines: learning curves of a dozen characters, kept in constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, final

from tuner.core.trial import Trial
from tuner.core.trial_metrics import MetricSummary

_MAX_POINTS: Final = 64
_MAX_CURVES: Final = 1_000
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_NOT_FINITE: Final = "!"
_REACH: Final = 4.0
"""Of the middle half of the values, on either side of it: the fall at the beginning stays visible,
and what comes after it, too."""


def sparkline(values: Sequence[float]) -> str:
    """Return a curve as a row of bars, from its own minimum to its own maximum.

    Values far outside the middle half of the others, as at the beginning of a training, are cut:
    beyond four times its extent.

    Args:
        values: In their order, one for each bar; what is not finite is drawn as an exclamation
            mark.

    Example:
        >>> sparkline([1.0, 2.0, 4.0, 8.0]), sparkline([3.0, 3.0])
        ('▁▂▄█', '▄▄')
    """
    low, high = _scale(sorted(value for value in values if math.isfinite(value)))
    return "".join(_bar(value, low, high) for value in values)


@final
class Curve:
    """The values of one metric of one trial, thinned out evenly once there are many.

    It is told of a trial's summary now and then, and takes from there what is new: all of it if
    that are ten values at most, which is as many as a summary remembers, and else the latest ten.
    """

    __slots__ = ("_latest", "_num_seen", "_points", "_step")

    def __init__(self) -> None:
        """Create a curve without values."""
        self._points: list[tuple[int, float]] = []
        self._latest = (0, math.nan)
        self._num_seen = 0
        self._step = 1

    def take(self, summary: MetricSummary) -> None:
        """Take in what is new; a summary that has become shorter is another one."""
        if summary.count < self._num_seen:
            self._points, self._num_seen, self._step = [], 0, 1
        recent = summary.recent
        num_new = min(summary.count - self._num_seen, len(recent))
        for position, value in enumerate(recent[len(recent) - num_new :], summary.count - num_new):
            self._latest = (position, value)
            if not self._points or position // self._step != self._points[-1][0] // self._step:
                self._points.append(self._latest)
        self._num_seen = summary.count
        while len(self._points) > _MAX_POINTS:
            self._step *= 2
            # Of each slot the first one stays.
            self._points = list(
                {
                    position // self._step: (position, value)
                    for position, value in reversed(self._points)
                }.values()
            )[::-1]

    def averages(self, num_cells: int) -> list[float]:
        """Return the curve as so many values at most, each the mean of an equally long piece."""
        if not self._points:
            return []
        points = (
            [*self._points] if self._points[-1] == self._latest else [*self._points, self._latest]
        )
        first, length = points[0][0], points[-1][0] - points[0][0] + 1
        num_cells = min(num_cells, length)
        cells: list[list[float]] = [[] for _ in range(num_cells)]
        for position, value in points:
            cells[(position - first) * num_cells // length].append(value)
        means = [points[0][1]]
        for cell in cells:
            # A piece of which nothing is known is drawn like the one before it.
            means.append(sum(cell) / len(cell) if cell else means[-1])
        return means[1:]


@final
class Curves:
    """Remembers the learning curves of the trials that may be shown.

    Nobody tells it of results: as often as somebody looks, it looks at the trials' own summaries.
    So the driver pays nothing for a result, and a trial that is over between two looks has a curve
    of its ten latest values, like one from before a restore. Results that are reported again after
    a failed attempt are drawn twice.

    Args:
        metric: Flattened name of what is drawn, None for nothing.
    """

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._curves: dict[str, Curve] = {}

    def look_at(self, trials: Iterable[Trial]) -> None:
        """Take in what these trials have reported since the last look; where many are remembered, all others are forgotten."""
        is_full = len(self._curves) > _MAX_CURVES
        earlier, self._curves = self._curves, {} if is_full else self._curves
        for trial in trials:
            summary = trial.summary.get(self._metric or "")
            if summary is not None:
                curve = self._curves[trial.trial_id] = earlier.get(trial.trial_id) or Curve()
                curve.take(summary)

    def drawn(self, trial: Trial, num_cells: int) -> str:
        """Return a trial's curve as a row of bars, empty where nothing is known."""
        if trial.trial_id not in self._curves:
            self.look_at([trial])
        curve = self._curves.get(trial.trial_id)
        return sparkline(curve.averages(num_cells)) if curve else ""


def _scale(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    quarter = (len(values) - 1) // 4
    first, third = values[quarter], values[-1 - quarter]
    reach = _REACH * (third - first)
    is_narrow = reach == 0 or math.isinf(reach)
    return (
        (values[0], values[-1])
        if is_narrow
        else (max(values[0], first - reach), min(values[-1], third + reach))
    )


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return _NOT_FINITE
    if low == high:
        return _LEVELS[(len(_LEVELS) - 1) // 2]
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return _LEVELS[round(share * (len(_LEVELS) - 1))]
