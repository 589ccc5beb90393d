"""Values of trials at all levels of training, as rows that one Gaussian process is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .observations import MIN_TRIALS, Table, assign_by_rank, normal_scores

Array = np.ndarray[Any, Any]

NUM_STEPS = 10
"""Most steps of the optimiser that fits the process; more predict final scores no better."""
MAX_ROWS = 200
"""Most rows: half are those at the highest levels, half evenly spaced among the others."""


@final
@dataclass(frozen=True, slots=True)
class LevelRows:
    """Values of trials at levels of training.

    Attributes:
        places: For each row the index of its trial.
        depths: The distance of its level below the highest one, on a logarithmic scale of training
            times: 1 for the lowest level.
        targets: Its warped value; smaller is better.
    """

    places: Array
    depths: Array
    targets: Array


def spans_levels(table: Table) -> bool:
    """Return whether trials have shown what is gained from one level to the next."""
    return len(table.levels) > 1 and len(table.names) >= MIN_TRIALS


def level_rows(table: Table) -> LevelRows:
    """Return the rows of all levels; trials that failed have the worst value at the highest one.

    Args:
        table: The trials, with their values at the levels they have reached.
    """
    levels = table.levels
    failed = np.setdiff1d(np.arange(len(table.names)), np.concatenate([x.places for x in levels]))
    places = np.concatenate([*(level.places for level in levels), failed])
    values = np.concatenate([*(level.values for level in levels), np.full(len(failed), np.inf)])
    slots = np.array([level.slot for level in levels], dtype=float)
    heights = np.repeat(
        np.arange(len(levels) + 1), [*(len(level.places) for level in levels), len(failed)]
    )
    heights = np.minimum(heights, len(levels) - 1)
    depths = (slots[-1] - slots) / max(slots[-1] - slots[0], 1.0)
    kept = _kept(heights, values)
    return LevelRows(places[kept], depths[heights[kept]], half_warped(values)[kept])


def _kept(heights: Array, values: Array) -> Array:
    if len(values) <= MAX_ROWS:
        return np.arange(len(values))
    order = np.lexsort((values, -heights))
    others = np.sort(order[MAX_ROWS // 2 :])
    spaced = np.linspace(0, len(others) - 1, MAX_ROWS - MAX_ROWS // 2).astype(int)
    return np.sort(np.concatenate([order[: MAX_ROWS // 2], others[spaced]]))


def retained_parts(rows: LevelRows, scores: Array) -> tuple[float, ...]:
    """Return for each level the part of a lead there that is expected to remain at the highest one.

    Args:
        rows: The values of all levels.
        scores: The expected final score of each trial, infinite for failed ones.
    """
    parts = []
    for depth in np.unique(rows.depths)[::-1]:
        is_here = (rows.depths == depth) & np.isfinite(scores[rows.places])
        leads, ends = rows.targets[is_here], scores[rows.places[is_here]]
        leads = leads - leads.mean() if len(leads) else leads
        parts.append(float(np.clip(leads @ ends / max(leads @ leads, 1e-12), -1, 1)))
    return tuple(parts)


def half_warped(values: Array) -> Array:
    """Return values with the worse half replaced by normal scores of their ranks.

    Values at low levels, and those of diverging trials, are worse by orders of magnitude: how bad
    they are says nothing about the best. Those better than the median are shifted and scaled only,
    so that a smooth function remains smooth where it is best.

    Example:
        >>> import numpy as np
        >>> half_warped(np.array([1.0, 2.0, 3.0, 70.0, np.inf])).round(2).tolist()
        [-1.34, -0.45, 0.0, 0.52, 1.28]

    Reference:
        Song, Zhang, Lee, Fertig, Huang, Belenki, Kochanski, Ariafar, Vasudevan, Perel, Golovin. The
        Vizier Gaussian Process Bandit Algorithm. 2024, arXiv 2408.11527 (half-rank warping).

    Departures:
        There the better half keeps its values, and the ranks of the others are scaled.
    """
    scores = normal_scores(assign_by_rank(values, (np.arange(len(values)) + 0.5) / len(values)))
    # Neither differences of halves nor squares of parts of the largest overflow.
    halves = values / 2
    middle = float(np.median(halves[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    is_better = halves < middle
    if not is_better.any():
        return scores
    gaps = halves[is_better] - middle
    gaps /= -gaps.min()
    warped = np.maximum(scores, 0.0)
    warped[is_better] = gaps / np.sqrt(np.mean(gaps**2))
    return warped
