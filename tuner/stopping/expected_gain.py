"""How much further trials are expected to gain, estimated from the order of those so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


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


def expected_gain(costs: Sequence[float], num_next: int) -> Gain:
    """Return what `num_next` further trials are expected to gain, or somewhat more.

    It is what the last `num_next` of these trials have gained, on average over all orders in which
    they might have come. Since the expected best of `n` draws grows ever more slowly with `n`, as
    many further ones gain no more than that on average.

    Args:
        costs: The value of each trial; smaller is better, all finite.
        num_next: How many trials are to come, fewer than there are.

    Raises:
        ValueError: If there are too few trials.

    Example:
        >>> expected_gain([3.0, 1.0, 2.0], 1)  # the best one was the last in a third of the orders
        Gain(mean=0.333..., deviation=0.471...)
        >>> expected_gain([1.0] * 30, 20)
        Gain(mean=0.0, deviation=0.0)

    Reference:
        Tang, Lee, Xin, Liu, Yu, Lin. Showing Your Work Doesn't Always Work. ACL 2020, arXiv
        2004.13705 (the unbiased estimate of the best of fewer draws).

    Departures:
        There the estimate looks back, at the best of fewer trials. Here its difference to the best
        of all bounds what is to come.
    """
    num, num_before = len(costs), len(costs) - num_next
    if num_next < 1 or num_before < 1:
        raise ValueError(f"num_next must be from 1 to {num - 1}, got {num_next}; wait for trials")
    ordered = sorted(costs)
    # That the best of the trials before is the one of this rank.
    probability = num_before / num
    mean = square = 0.0
    for rank in range(num_next + 1):
        gap = ordered[rank] - ordered[0]
        mean += probability * gap
        square += probability * gap * gap
        if rank < num_next:
            probability *= (num_next - rank) / (num - 1 - rank)
    return Gain(mean, math.sqrt(max(square - mean * mean, 0.0)))
