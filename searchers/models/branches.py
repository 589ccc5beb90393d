"""Branches of a joint space: options of a choice that have parameters of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .encoding import Encoding
from .observations import Table

Array = np.ndarray[Any, Any]

# Chosen by measurement, with benchmarks/quality.
GUARANTEED = 0.6
"""Share of the suggestions that is guaranteed to the branches of a choice, in equal parts."""
SPREAD = 3.4
"""Divided by the square root of a branch's trials, the difference of its best score from that of
the leading one that makes it a bad branch: its part falls to exp(-0.5)."""


def starved_branch(table: Table, suggested: Array, encoding: Encoding) -> tuple[int, float] | None:
    """Return the branch that lacks most suggestions of its guaranteed share.

    Two kinds of models, each with parameters of its own, are spaces of their own. A search soon
    knows much of the one that gave the first good trials and expects more of their variations,
    although another, which needs more tuning or longer training, might be better. How good a branch
    can be is only seen after some trials in it.

    Args:
        table: The trials so far, with their expected final ranks.
        suggested: The vectors of all suggestions so far.
        encoding: The space.

    Returns:
        One of the encoding's branches; None if all have their shares.
    """
    starved, most = None, 1.0
    for place, entry in encoding.branches:
        part = GUARANTEED / encoding.num_categories[place] * _promise(table, place, entry)
        lacking = part * len(suggested) - np.count_nonzero(suggested[:, place] == entry)
        if lacking >= most:
            starved, most = (place, entry), lacking
    return starved


def _promise(table: Table, place: int, entry: float) -> float:
    """Return the part of its share that a branch has, given the best trials.

    It is 1 until the best of its trials is worse than that of the leading branch was after as many,
    and the more surely it is worse, the less.
    """
    options, scores = table.vectors[:, place], table.scores
    own = scores[options == entry]
    if not len(own):
        return 1.0
    leading = scores[options == options[scores.argmin()]][: len(own)]
    gap = max(float(own.min() - leading.min()), 0.0) / SPREAD
    return math.exp(-0.5 * gap**2 * len(own))
