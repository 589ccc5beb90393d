"""How much further trials are expected to gain, estimated from the order of those so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Gain(NamedTuple):
    """By how much further trials are expected to be better than the best so far.

    Attributes:
        mean: The expected gain, at least 0.
        deviation: Its standard deviation: one more trial may be lucky, or none.
    """

    mean: float
    deviation: float

    @property
    def upper(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.deviation


def expected_gain(costs: Sequence[Sequence[float]] | Array, num_next: int) -> Gain:
    """Return what `num_next` further trials are expected to gain, or somewhat more.

    It is what the last `num_next` of these trials have gained, on average over all orders in which
    they might have come. Since the expected best of `n` draws grows ever more slowly with `n`, as
    many further ones gain no more than that on average.

    Args:
        costs: A row for each trial and a column for each cost, smaller is better, all finite. The
            gain is the mean of those in each column.
        num_next: How many trials are to come, fewer than there are.

    Raises:
        ValueError: If there are too few trials.

    Example:
        >>> expected_gain([[3.0], [1.0], [2.0]], 1)  # in a third of the orders it was last
        Gain(mean=0.333..., deviation=0.471...)
        >>> expected_gain([[0.0, 9.0], [9.0, 0.0], [4.0, 4.0], [4.0, 4.0]], 1)
        Gain(mean=1.0, deviation=1.0)

    Reference:
        Tang, Lee, Xin, Liu, Yu, Lin. Showing Your Work Doesn't Always Work. ACL 2020, arXiv
        2004.13705 (the unbiased estimate of the best of fewer draws).

    Departures:
        There the estimate looks back, at the best of fewer trials. Here its difference to the best
        of all bounds what is to come.
    """
    values = np.asarray(costs, dtype=float)
    num = len(values)
    if not 1 <= num_next < num:
        raise ValueError(f"num_next must be from 1 to {num - 1}, got {num_next}; wait for trials")
    best = np.argsort(values, axis=0, kind="stable")[: num_next + 1]
    # A column gains one step more for each of its best trials that is among the last ones, together
    # with all better ones.
    steps = np.diff(np.take_along_axis(values, best, axis=0), axis=0)
    chances = _chances(num, num_next)
    mean = float(np.mean(chances[1 : num_next + 1] @ steps))
    square = _mean_square(best[:num_next], steps, chances)
    return Gain(mean, math.sqrt(max(square - mean * mean, 0.0)))


def _chances(num: int, num_last: int) -> Array:
    """Return the probability that 0, 1, ... given trials are all among the last ones."""
    sizes = np.arange(2 * num_last)
    left = np.maximum(num_last - sizes, 0) / np.maximum(num - sizes, 1)
    return np.concatenate([[1.0], np.cumprod(left)])


def _mean_square(best: Array, steps: Array, chances: Array) -> float:
    """Return the expected square of the mean gain of all columns.

    Two steps are gained together if the trials that either of them needs are among the last ones.

    Args:
        best: Rows of the best trials of each column, best first.
        steps: By how much the cost of each column grows from one of them to the next.
        chances: See `_chances`.
    """
    num, num_columns = steps.shape
    sizes = np.arange(1, num + 1)
    total = 0.0
    for number in range(num_columns):
        is_same = best[:, number, None, None] == best[None]
        num_shared = is_same.cumsum(axis=0).cumsum(axis=1)
        num_needed = sizes[:, None, None] + sizes[None, :, None] - num_shared
        total += float(np.einsum("a,abe,be->", steps[:, number], chances[num_needed], steps))
    return float(total / num_columns**2)
