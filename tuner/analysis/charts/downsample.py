"""Choice of the trials and points that are drawn if there are too many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeVar

from tuner.core.trial import Trial

from .source import Source

MAX_TRIALS: Final = 200
"""Default limit of the trials that are drawn."""
MAX_POINTS: Final = 200
"""Default limit of the points of one trial that are drawn."""
_T = TypeVar("_T")


def spread(items: Sequence[_T], count: int) -> list[_T]:
    """Return `count` evenly spaced items, including the first and the last.

    All items are returned if there are no more than that.

    Example:
        >>> spread(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(items) <= count:
        return list(items)
    if count < 2:  # noqa: PLR2004  (one has no distance)
        return list(items[:count])
    return [items[round(place * (len(items) - 1) / (count - 1))] for place in range(count)]


def shown_trials(source: Source, max_trials: int) -> list[Trial]:
    """Return the trials that are drawn, in the order of their creation.

    One half of them are the best trials; the other half is spread evenly over the ranks of the
    rest, in which trials without a value are last.

    Args:
        source: The trials.
        max_trials: Maximum number of trials.
    """
    if len(source.trials) <= max_trials:
        return list(source.trials)
    ranked = source.ranked()
    has_rank = {trial.trial_id for trial in ranked}
    ranked += [trial for trial in source.trials if trial.trial_id not in has_rank]
    num_best = (max_trials + 1) // 2 if source.mode and has_rank else 0
    chosen = {
        trial.trial_id
        for trial in (*ranked[:num_best], *spread(ranked[num_best:], max_trials - num_best))
    }
    return [trial for trial in source.trials if trial.trial_id in chosen]


def shown_places(values: Sequence[float], max_points: int) -> list[int]:
    """Return the indices of the points that are drawn, in ascending order.

    They are the first, last, smallest and largest point, and others evenly spaced between them.

    Example:
        >>> shown_places([5.0, 4.0, 9.0, 3.0, 2.0, 1.0, 1.5, 1.6], 5)
        [0, 2, 4, 5, 7]
    """
    if len(values) <= max_points:
        return list(range(len(values)))
    finite = [place for place, value in enumerate(values) if math.isfinite(value)]
    extremes = (
        {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        if finite
        else set()
    )
    return sorted(extremes.union(spread(range(len(values)), max(2, max_points - len(extremes)))))
