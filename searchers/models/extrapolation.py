"""Where trials would stand if all were trained to the end: what a model learns in place of where they stand now.

Most trials are stopped early, and those that learn fast lead there. So a model that is fitted to places at the lowest level looks for fast
learners. What others gain by more training is known of the few that were trained further, and a trend over configurations and levels tells
it of the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .linear_trend import features, ridge
from .observations import Level, Table, dealt, normal_scores

if TYPE_CHECKING:
    from numpy import (
        ndarray,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

RETAINED = 0.9
"""Which part of what sets a trial apart from the trend is still there one level higher."""
MIN_TRIALS = 8
"""With fewer trials there is no trend to be learnt, and places are taken as they are."""


def forecast(table: Table, num_categories: tuple[int, ...]) -> Table:
    """Return the trials in the order in which they are expected to stand after a full training.

    Every value at every level has a score, its place among all values of all levels as a normal score, so that only order counts. A ridge
    regression of scores on the features of configurations, alone and times the distance to the highest level on a logarithmic scale,
    tells what is to be expected at each level. A trial's forecast is what is expected at the highest level, and of what sets its last value
    apart from expectations as much as is retained on the way there. Failed trials stay last.

    Args:
        table: The trials, with their values at the levels they have reached.
        num_categories: For each column of their vectors the number of its categories, 0 for numbers.

    Returns:
        The same trials with other quantiles; the table as it is while there are few trials or only one level.
    """
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    levels = table.levels
    if len(levels) < 2 or len(table.names) < MIN_TRIALS:  # noqa: PLR2004  (what is gained from level to level takes two)
        return table
    places = np.concatenate([level.places for level in levels])
    heights = np.repeat(np.arange(len(levels)), [len(level.places) for level in levels])
    values = np.concatenate([level.values for level in levels])
    scores = normal_scores(dealt(values, (np.arange(len(values)) + 0.5) / len(values)))
    distances = _distances(levels)
    single = features(table.vectors, num_categories)
    both = np.hstack([single[places], single[places] * distances[heights][:, None]])
    _, weights = ridge(both, scores, means=[0, single.shape[1]])
    expected = np.full(len(table.names), np.inf)
    kept = RETAINED ** (len(levels) - 1 - heights)
    # Of several values of a trial the last one, at the highest level, overwrites the others.
    expected[places] = (single @ weights[: single.shape[1]])[places] + kept * (
        scores - both @ weights
    )
    order = np.argsort(np.argsort(expected, kind="stable"), kind="stable")
    quantiles = np.where(np.isfinite(expected), (order + 0.5) / len(order), 1 - 0.5 / len(order))
    return replace(table, quantiles=quantiles)


def _distances(levels: tuple[Level, ...]) -> Array:
    """Return for each level how far it lies below the highest one: -1 for the lowest, 0 for the highest."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    slots = np.array([level.slot for level in levels], dtype=float)
    distances: Array = (slots - slots[-1]) / max(slots[-1] - slots[0], 1.0)
    return distances
