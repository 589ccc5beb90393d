"""Learning curves as a dozen characters each, remembered in constant memory at constant cost per result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, final

from tuner.core.summary import MetricSummary
from tuner.core.trial import Trial

from .callback import Callback

_MAX_POINTS = 64
_MAX_CURVES = 1_000
_LEVELS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "!"
_REACH = 4.0
"""Of the middle half of the values, on either side of it: the fall at the beginning stays visible, and what comes after it, too."""


def sparkline(values: Sequence[float], num_cells: int) -> str:
    """Return a curve as a row of bars, from its own minimum to its own maximum.

    Values far outside the middle half of the others, as at the beginning of a training, are cut: beyond four times its extent.

    Args:
        values: In their order; what is not finite is drawn as an exclamation mark.
        num_cells: How many characters it has at most; more values than that are averaged.

    Example:
        >>> sparkline([1.0, 2.0, 4.0, 8.0], 8), sparkline([3.0, 3.0], 8)
        ('▁▂▄█', '▄▄')
    """
    cells = _averaged(values, num_cells)
    low, high = _scale(sorted(value for value in cells if math.isfinite(value)))
    return "".join(_bar(value, low, high) for value in cells)


@final
class Curve:
    """The values of one metric of one trial, thinned out evenly once there are many.

    Attributes:
        num_seen: How many results the trial's summary had when this was last brought up to date.
    """

    __slots__ = ("_kept", "_latest", "_num", "_step", "num_seen")

    def __init__(self) -> None:
        """Create a curve without values."""
        self.num_seen = self._num = 0
        self._step = 1
        self._kept: list[float] = []
        self._latest = math.nan

    def add(self, value: float) -> None:
        """Take in the next value."""
        if self._num % self._step == 0:
            self._kept.append(value)
            if len(self._kept) == _MAX_POINTS:
                del self._kept[1::2]
                self._step *= 2
        self._num += 1
        self._latest = value

    @property
    def values(self) -> list[float]:
        """The values that are kept, and the latest, in their order."""
        is_kept = (len(self._kept) - 1) * self._step == self._num - 1
        return [*self._kept] if is_kept else [*self._kept, self._latest]


@final
class CurveKeeper(Callback):
    """Remembers the learning curves of the trials that may be shown.

    Where an experiment goes on that was interrupted, a curve begins with the ten latest values. Results that are reported again after a
    failed attempt are in it twice.

    Args:
        metric: Flattened name of what is drawn, None for what the experiment optimises.
    """

    def __init__(self, metric: str | None = None) -> None:
        self._metric = metric
        self._curves: dict[str, Curve] = {}

    def setup(self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any) -> None:
        """Learn what the experiment optimises."""
        self._metric = self._metric or info.get("metric")

    def on_trial_result(self, iteration: int, trials: Sequence[Trial], trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Take in the result's value, if it has one."""
        # The trial's summary has it already, by its flattened name.
        summary = trial.summary.get(self._metric)  # type: ignore[arg-type]  # without a metric there is none of that name
        if summary is None:
            return
        curve = self._curves.get(trial.trial_id)
        if curve is None or summary.count != curve.num_seen + 1:
            if curve is not None and summary.count == curve.num_seen:
                return  # this result is without the metric
            curve = self._curves[trial.trial_id] = _curve_of(summary)
        else:
            curve.add(summary.last)
        curve.num_seen = summary.count

    def curve_of(self, trial: Trial) -> Sequence[float]:
        """Return what is remembered of a trial's curve, in the order of its results."""
        curve = self._curves.get(trial.trial_id)
        if curve is not None:
            return curve.values
        summary = trial.summary.get(self._metric or "")
        return summary.recent if summary else ()

    def forget_others(self, shown: Iterable[Trial]) -> None:
        """Forget all but these trials where there are many."""
        if len(self._curves) > _MAX_CURVES:
            ids = {trial.trial_id for trial in shown}
            self._curves = {trial_id: curve for trial_id, curve in self._curves.items() if trial_id in ids}


def _curve_of(summary: MetricSummary) -> Curve:
    curve = Curve()
    for value in summary.recent:
        curve.add(value)
    return curve


def _averaged(values: Sequence[float], num_cells: int) -> list[float]:
    if len(values) <= num_cells:
        return list(values)
    edges = [round(index * len(values) / num_cells) for index in range(num_cells + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)]


def _scale(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    quarter = (len(values) - 1) // 4
    first, third = values[quarter], values[-1 - quarter]
    reach = _REACH * (third - first)
    is_narrow = reach == 0 or math.isinf(reach)
    return (values[0], values[-1]) if is_narrow else (max(values[0], first - reach), min(values[-1], third + reach))


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return _NOT_FINITE
    if low == high:
        return _LEVELS[(len(_LEVELS) - 1) // 2]
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return _LEVELS[round(share * (len(_LEVELS) - 1))]
