"""What an experiment came to, counted the same way for one that was run and one that was replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from tuner.analysis.frames import value_at
from tuner.analysis.ranking import Mode, is_number, rank


@dataclass(frozen=True, slots=True)
class Moment:
    """A result that was better than all before it.

    Attributes:
        time_s: Running time of the experiment, in seconds.
        value: The metric's value.
        trial_id: Who reported it.
    """

    time_s: float
    value: float
    trial_id: str


@final
@dataclass(frozen=True, slots=True)
class Account:
    """What an experiment took and what it found.

    The best trial is the one whose last value is best, as in `ResultGrid.get_best_result`.

    Attributes:
        wall_clock_s: Its running time, in seconds.
        worker_s: How long its trials had a worker, all together, in seconds.
        num_iterations: How many results its trials reported.
        best_trial_id: The trial with the best last value; of equal ones the one created first. None where no last value is finite.
        best_value: That value.
        progress: Each result that was better than all before it, in order; a value that is not finite is never one.
    """

    wall_clock_s: float
    worker_s: float
    num_iterations: int
    best_trial_id: str | None
    best_value: float | None
    progress: Sequence[Moment]

    @property
    def best_at_any_iteration(self) -> float | None:
        """The best value that any trial reported at any iteration; None where no result had a finite one."""
        return self.progress[-1].value if self.progress else None


def last_of(results: Iterable[Mapping[str, Any]], metric: str) -> float | None:
    """Return the newest value of a metric, by which trials are compared; None where there is none, or it is not finite."""
    value = None
    for result in results:
        if is_number(found := value_at(result, metric)):
            value = found
    return value if value is not None and math.isfinite(value) else None


def best_last(
    lasts: Iterable[tuple[str, float | None]], mode: Mode
) -> tuple[str, float] | tuple[None, None]:
    """Return the trial with the best last value, and that value; of equal ones the first; None and None where there is none.

    Args:
        lasts: Each trial with its last value, None for none, in the order of their creation.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are.

    Example:
        >>> best_last([("a", 0.5), ("b", None), ("c", 0.5)], "min")
        ('a', 0.5)
    """
    known = [(trial_id, value) for trial_id, value in lasts if value is not None]
    return max(known, key=lambda pair: rank(pair[1], mode), default=(None, None))


def improvements(moments: Iterable[Moment], mode: Mode) -> tuple[Moment, ...]:
    """Return the moments that were better than all before them.

    Args:
        moments: In the order of their times; with finite values.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are.

    Example:
        >>> [moment.value for moment in improvements([Moment(1, 0.5, "a"), Moment(2, 0.7, "b"), Moment(3, 0.2, "a")], "min")]
        [0.5, 0.2]
    """
    found: list[Moment] = []
    for moment in moments:
        if not found or rank(moment.value, mode) > rank(found[-1].value, mode):
            found.append(moment)
    return tuple(found)
