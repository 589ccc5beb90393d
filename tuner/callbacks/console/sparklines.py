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
"""How far the scale reaches beyond the middle half of the values, in multiples of that half's
extent. Then neither the fall at the beginning of a training nor what follows it is flattened."""


def sparkline(values: Sequence[float]) -> str:
    """Return a curve as a row of bars, scaled from its minimum to its maximum.

    Values beyond four times the extent of the middle half, as at the beginning of a training, are
    drawn as the lowest or highest bar.

    Args:
        values: One for each bar; values that are not finite are drawn as exclamation marks.

    Example:
        >>> sparkline([1.0, 2.0, 4.0, 8.0]), sparkline([3.0, 3.0])
        ('▁▂▄█', '▄▄')
    """
    low, high = _scale(sorted(value for value in values if math.isfinite(value)))
    return "".join(_bar(value, low, high) for value in values)


@final
class Curve:
    """The values of one metric of one trial, thinned out evenly once there are many.

    Each update takes the new values from the trial's summary, which holds the latest ten: if more
    have been reported since the last update, the others are missing.
    """

    __slots__ = ("_latest", "_num_seen", "_points", "_step")

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._latest = (0, math.nan)
        self._num_seen = 0
        self._step = 1

    def update(self, summary: MetricSummary) -> None:
        """Add the new values of a summary."""
        # It is shorter than before where the trial has begun anew.
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
            # The first point of each slot stays: reversed, it is the last to be written.
            self._points = list(
                {
                    position // self._step: (position, value)
                    for position, value in reversed(self._points)
                }.values()
            )[::-1]

    def averages(self, num_cells: int) -> list[float]:
        """Return the curve as at most `num_cells` values, the means of pieces of equal length."""
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
            # A piece without points is drawn like the one before it.
            means.append(sum(cell) / len(cell) if cell else means[-1])
        return means[1:]


@final
class Curves:
    """Remembers the learning curves of the trials that may be shown.

    They are read from the trials' summaries when a view is drawn, so that a result costs the driver
    nothing. A trial that has ended between two updates has a curve of its ten latest values, like
    one from before a restore. Results that are reported again after a failed attempt are drawn
    twice.

    Args:
        metric: Flattened name of the metric that is drawn, None for none.
    """

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._curves: dict[str, Curve] = {}

    def update(self, trials: Iterable[Trial]) -> None:
        """Add the new results of these trials; if many curves are held, drop all others."""
        is_full = len(self._curves) > _MAX_CURVES
        earlier, self._curves = self._curves, {} if is_full else self._curves
        for trial in trials:
            summary = trial.summary.get(self._metric or "")
            if summary is not None:
                curve = self._curves[trial.trial_id] = earlier.get(trial.trial_id) or Curve()
                curve.update(summary)

    def draw(self, trial: Trial, num_cells: int) -> str:
        """Return a trial's curve as a row of bars, empty if it has no values."""
        if trial.trial_id not in self._curves:
            self.update([trial])
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
    # The difference of two huge values overflows.
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return _LEVELS[round(share * (len(_LEVELS) - 1))]
