"""Whether a ranking has settled: how trials change places from one level to the next, and how much of that is noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise


def is_settled(lower: Mapping[str, float], upper: Sequence[str], epsilon: float) -> bool:
    """Return whether trials stand on the upper of two rungs as they stood on the lower, but for noise.

    Whoever stands at a place of the upper ranking must have been, on the lower rung, within `epsilon` of whoever stood at that place
    there, among those that are on both.

    Args:
        lower: Values on the lower rung by trial, the best first.
        upper: Trials on the upper rung, the best first.
        epsilon: Values that differ by no more count as equal.

    Example:
        >>> is_settled({"a": 0.1, "b": 0.2, "c": 0.9}, ["b", "a"], epsilon=0.0)
        False
        >>> is_settled({"a": 0.1, "b": 0.2, "c": 0.9}, ["b", "a"], epsilon=0.15)
        True

    Reference:
        Bohdal, Balles, Wistuba, Ermis, Archambeau, Zappella. PASHA: Efficient HPO and NAS with Progressive Resource Allocation.
        ICLR 2023, arXiv 2207.06940, section 4.1 (soft ranking).
    """
    now = [trial_id for trial_id in upper if trial_id in lower]
    on_both = set(now)
    then = [trial_id for trial_id in lower if trial_id in on_both]
    return all(
        new == old or abs(lower[new] - lower[old]) <= epsilon
        for new, old in zip(now, then, strict=True)
    )


def crossing_distance(
    one: Mapping[float, float], other: Mapping[float, float], until: float
) -> float | None:
    """Return how far apart two curves end, if they cross and cross back; None if they do not.

    Curves that change places and change back do so by noise: none of them is truly better by more than what is between them.

    Args:
        one: Values of a trial by time.
        other: Those of another one; only times that both have count.
        until: The last time that counts.

    Example:
        >>> crossing_distance({1: 0.5, 2: 0.3, 3: 0.2}, {1: 0.4, 2: 0.4, 3: 0.1}, until=3)
        0.1
        >>> crossing_distance({1: 0.5, 2: 0.3, 3: 0.2}, {1: 0.4, 2: 0.4, 3: 0.3}, until=3) is None
        True

    Reference:
        As `is_settled`, section 4.2: criss-crossing pairs.
    """
    differences = [
        one[time] - other[time] for time in sorted(one.keys() & other.keys()) if time <= until
    ]
    signs = [math.copysign(1, difference) for difference in differences if difference]
    num_crossings = sum(before != after for before, after in pairwise(signs))
    return abs(differences[-1]) if num_crossings > 1 else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly between the two nearest values.

    Example:
        >>> percentile([4.0, 1.0, 2.0], 50), percentile([0.0, 1.0], 90)
        (2.0, 0.9)
    """
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
