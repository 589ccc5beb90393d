"""Statistics of a trial's metrics: running summaries, and the newest and best value."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from tuner.wire.record import record

from .result import TRAINING_ITERATION, as_float

_NUM_RECENT: Final = 10


class MetricSummary:
    """Minimum, maximum and averages of a metric over a trial's results.

    Minimum and maximum are those of the finite values: what has diverged is never the best.
    Averages are of all values, so that NaN makes them NaN. They weigh each reported value alike,
    however many iterations lie between two of them.

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
        # For each metric of each trial a deque takes 760 bytes, and a list of ten floats 420.
        self._recent = array("d")

    def add(self, value: float) -> None:
        """Add the next value."""
        self.count += 1
        self.last = value
        self._total += value
        recent = self._recent
        recent.append(value)
        if len(recent) > _NUM_RECENT:
            del recent[0]
        # `not (a >= b)` is also true where b is NaN, which is how the first number replaces it.
        if math.isfinite(value):
            if not self.min <= value:
                self.min = value
            if not self.max >= value:
                self.max = value

    def replace(self, before: float, value: float) -> None:
        """Correct a value that was added before.

        Minimum and maximum may keep it if it was either and is none of the latest values.
        """
        if self.count <= len(self._recent) and before in self._recent:
            # All values are known, so nothing is left of the wrong one.
            values = list(self._recent)
            values[_last_index(values, before)] = value
            self.count, self._total = 0, 0.0
            self.last = self.min = self.max = math.nan
            del self._recent[:]
            for known in values:
                self.add(known)
            return
        self._total += value - before
        if before in self._recent:
            position = _last_index(self._recent, before)
            self._recent[position] = as_float(value)
            if position == len(self._recent) - 1:
                self.last = value
        if math.isfinite(value):
            self.min, self.max = min(value, self.min), max(value, self.max)

    def state(self) -> list[float]:
        """Return the state: count, last, minimum, maximum, total, then the latest values."""
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
        """Return the mean of the latest `num_values` values (at most 10), or of all of fewer."""
        values = self._recent[-num_values:]
        return sum(values) / len(values) if values else math.nan

    def by_scope(self, scope: str, mode: str) -> float:
        """Return what ``get_best_result`` compares.

        Args:
            scope: ``last``, ``avg``, ``last-5-avg``, ``last-10-avg``, or ``all`` for the best.
            mode: ``"min"`` or ``"max"``.

        Raises:
            ValueError: If the scope is none of these.
        """
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


@record
class Evaluation:
    """A value of a metric, and the result in which it was reported.

    Attributes:
        value: The value.
        iteration: ``training_iteration`` of that result; None where it is not known, as with a
            metric that has become the objective later.
        row: Position of that result among those of the trial that count, as `Trial.num_rows` counts
            them; 0 where it is not known.
    """

    value: float
    iteration: int | None = None
    row: int = 0


@record
class _Mark:
    """Values when a checkpoint was saved, to which an attempt that continues from it returns."""

    row: int = 0
    last: Evaluation | None = None
    best: Evaluation | None = None


class TrackedMetric:
    """The newest and the best value of one metric among the results of a trial that count.

    Where an attempt continues from an earlier checkpoint, values that it reports again replace
    those of the attempt before.

    Attributes:
        metric: Which metric, flattened; None until the first result.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised, by which `best` is
            chosen.
        last: The newest value, which need not be finite; None while there is none.
        best: The best finite value, the newest of equal ones; None while there is none.
    """

    __slots__ = ("_base", "_marks", "_row", "best", "last", "metric", "mode")

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        """Create the record of no values."""
        self.metric = metric
        self.mode = mode
        self.last: Evaluation | None = None
        self.best: Evaluation | None = None
        self._row = 0
        self._base = _Mark()
        self._marks: dict[int, _Mark] = {}

    def take(self, flat: Mapping[str, Any], row: int) -> None:
        """Add the next result.

        Args:
            flat: The result, flattened.
            row: Its position among the results that count; one that is not above the last replaces
                what came after.
        """
        if row <= self._row:
            self._go_back_before(row)
        self._row = row
        value = number_in(flat, self.metric) if self.metric else None
        if value is None:
            return
        self.last = Evaluation(value, int(flat.get(TRAINING_ITERATION, row)), row)
        sign = sign_of(self.mode)
        if math.isfinite(value) and (self.best is None or sign * value <= sign * self.best.value):
            self.best = self.last

    def correct(self, flat: Mapping[str, Any], row: int, checkpoint_index: int) -> None:
        """Take the value that the validation of a checkpoint has supplied or changed.

        Args:
            flat: The checkpoint's result with it, flattened.
            row: The position of that result among those that count.
            checkpoint_index: The checkpoint.
        """
        value = number_in(flat, self.metric) if self.metric else None
        if value is None:
            return
        found = Evaluation(value, int(flat.get(TRAINING_ITERATION, row)), row)
        marked = [
            evaluation
            for mark in (self._base, *self._marks.values())
            for evaluation in (mark.last, mark.best)
            if evaluation is not None and evaluation.row != row
        ]
        earlier = (mark for mark in self._marks.values() if mark.row <= row)
        before = max(earlier, key=lambda mark: mark.row, default=self._base)
        if before.row <= row:
            # An attempt that continues from the checkpoint begins with this value.
            self._marks[checkpoint_index] = self._corrected(
                _Mark(row, before.last, before.best), found, marked
            )
        self._marks = {
            index: self._corrected(mark, found, marked) for index, mark in self._marks.items()
        }
        self._base = self._corrected(self._base, found, marked)
        now = self._corrected(_Mark(max(self._row, row), self.last, self.best), found, marked)
        self.last, self.best = now.last, now.best

    def _corrected(self, mark: _Mark, found: Evaluation, marked: Sequence[Evaluation]) -> _Mark:
        if mark.row < found.row:
            return mark
        is_newest = mark.last is None or mark.last.row <= found.row
        last = found if is_newest else mark.last
        sign = sign_of(self.mode)
        best = None if mark.best is None or mark.best.row == found.row else mark.best
        # Of the values behind the one that is replaced, those at checkpoints are known.
        others = [] if best else [other for other in marked if other.row <= mark.row]
        for candidate in (found, *others, last):
            if (
                candidate is not None
                and math.isfinite(candidate.value)
                and (best is None or _is_no_worse(candidate, best, sign))
            ):
                best = candidate
        return _Mark(mark.row, last, best)

    def recall(self, summary: MetricSummary, latest: Mapping[str, Any], row: int) -> None:
        """Set the values from a summary, which does not hold their iterations.

        Args:
            summary: The metric's summary.
            latest: The trial's latest result, flattened.
            row: Its position among the results that count.
        """
        best = summary.max if self.mode == "max" else summary.min
        newest = Evaluation(summary.last)
        if self.metric and number_in(latest, self.metric) is not None:
            newest = Evaluation(summary.last, int(latest.get(TRAINING_ITERATION, row)), row)
        self.last, self._row = newest, row
        if math.isfinite(best):
            self.best = newest if newest.value == best and newest.row else Evaluation(best)

    def mark(self, checkpoint_index: int) -> None:
        """Remember the values for attempts that continue from a checkpoint saved now."""
        if self.last is not None:
            self._marks[checkpoint_index] = _Mark(self._row, self.last, self.best)

    def unmark(self, checkpoint_indices: Iterable[int]) -> None:
        """Forget checkpoints that are gone."""
        for index in checkpoint_indices:
            self._marks.pop(index, None)

    def settle(self) -> None:
        """Make all values so far final, since an exploit is applied."""
        self._base = _Mark(self._row, self.last, self.best)
        self._marks.clear()

    def state(self) -> list[Any]:
        """Return the record as JSON values."""
        marks = {str(index): _mark_fields(mark) for index, mark in self._marks.items()}
        return [
            self.metric,
            self.mode,
            _fields(self.last),
            _fields(self.best),
            self._row,
            _mark_fields(self._base),
            marks,
        ]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> Self:
        """Return the record whose `state` this is."""
        metric, mode, last, best, row, base, marks = state
        tracked = cls(metric, mode)
        tracked._row = row
        tracked.last, tracked.best = _evaluation(last), _evaluation(best)
        tracked._base = _mark(base)
        tracked._marks = {int(index): _mark(fields) for index, fields in marks.items()}
        return tracked

    @classmethod
    def of_results(
        cls, results: Iterable[Mapping[str, Any]], metric: str, mode: str | None
    ) -> Self:
        """Return the record of flattened results, all of which count."""
        tracked = cls(metric, mode)
        for row, result in enumerate(results, start=1):
            tracked.take(result, row)
        return tracked

    def __repr__(self) -> str:
        """Return all that is known."""
        return f"TrackedMetric.from_state({self.state()!r})"

    def _go_back_before(self, row: int) -> None:
        self._marks = {index: mark for index, mark in self._marks.items() if mark.row < row}
        mark = max(self._marks.values(), key=lambda mark: mark.row, default=self._base)
        if self.last is not None and self.last.row >= row:
            self.last = mark.last
        if self.best is not None and self.best.row >= row:
            self.best = mark.best


def _last_index(values: Sequence[float], value: float) -> int:
    return len(values) - 1 - list(reversed(values)).index(value)


def sign_of(mode: str | None) -> float:
    """Return the factor that makes a metric one to be minimised."""
    return -1.0 if mode == "max" else 1.0


def _is_no_worse(one: Evaluation, other: Evaluation, sign: float) -> bool:
    """Return whether a value is better than another one, or as good and newer."""
    costs = sign * one.value, sign * other.value
    return costs[0] < costs[1] or (costs[0] == costs[1] and one.row >= other.row)


def number_in(flat: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric of a flattened result as a float, None where it is no number there."""
    value = flat.get(metric)
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        return None
    return as_float(value)


def _fields(evaluation: Evaluation | None) -> list[Any] | None:
    return None if evaluation is None else [evaluation.value, evaluation.iteration, evaluation.row]


def _evaluation(fields: Sequence[Any] | None) -> Evaluation | None:
    return None if fields is None else Evaluation(*fields)


def _mark_fields(mark: _Mark) -> list[Any]:
    return [mark.row, _fields(mark.last), _fields(mark.best)]


def _mark(fields: Sequence[Any]) -> _Mark:
    row, last, best = fields
    return _Mark(row, _evaluation(last), _evaluation(best))
