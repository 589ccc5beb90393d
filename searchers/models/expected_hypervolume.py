"""Expected gain in hypervolume, weighed with the probability that a configuration is feasible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LEAST = 1e-280


def boxes(front: Array, reference: Array) -> tuple[Array, Array]:
    """Return boxes that together are all that lies before a reference point and behind no other.

    Args:
        front: Points of which none dominates another, one per row; smaller is better.
        reference: A point beyond all of them.

    Returns:
        The lower and the upper corner of each box, which may begin at minus infinity.

    Example:
        >>> lows, highs = boxes(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0]))
        >>> lows.tolist(), highs.tolist()
        ([[-inf, -inf], [1.0, -inf], [2.0, -inf]], [[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    """
    inside = front[(front < reference).all(axis=1)]
    if front.shape[1] == 1:
        high = inside.min(axis=0) if len(inside) else reference
        return np.array([[-math.inf]]), high[None, :]
    if front.shape[1] == 2:  # noqa: PLR2004
        return _steps(inside, reference)
    cuts = np.unique(inside[:, 0])
    starts = [-math.inf, *cuts.tolist()]
    # Of the slabs between two cuts most boxes go on in the next one, and are joined.
    open_since: dict[tuple[float, ...], float] = {}
    found: list[tuple[float, float, tuple[float, ...]]] = []
    for start in starts:
        # Those points count that are no worse in the first metric.
        low, high = boxes(inside[inside[:, 0] <= start][:, 1:], reference[1:])
        current = dict.fromkeys(map(tuple, np.hstack([low, high]).tolist()), start)
        for rest, since in open_since.items():
            if rest in current:
                current[rest] = since
            else:
                found.append((since, start, rest))
        open_since = current
    found += [(since, float(reference[0]), rest) for rest, since in open_since.items()]
    width = front.shape[1] - 1
    lows = np.array([(since, *rest[:width]) for since, _, rest in found])
    highs = np.array([(until, *rest[width:]) for _, until, rest in found])
    return lows, highs


def _steps(points: Array, reference: Array) -> tuple[Array, Array]:
    """Return the boxes before points of two metrics, of which some may dominate others."""
    x, y = points[np.lexsort((points[:, 1], points[:, 0]))].T
    is_step = y < np.minimum.accumulate(np.append(math.inf, y))[:-1]
    cuts, tops = x[is_step], y[is_step]
    lows = np.column_stack([np.append(-math.inf, cuts), np.full(len(cuts) + 1, -math.inf)])
    highs = np.column_stack([np.append(cuts, reference[0]), np.append(reference[1], tops)])
    return lows, highs


def log_expected_hypervolume(means: Array, deviations: Array, lows: Array, highs: Array) -> Array:
    """Return the logarithm of the hypervolume that each candidate is expected to add.

    Args:
        means: Predicted mean of each objective, a row per candidate.
        deviations: Their standard deviations; the objectives are independent.
        lows: Lower corners of the boxes that `boxes` returns.
        highs: Their upper corners.

    Example:
        >>> corners = boxes(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([3.0, 3.0]))
        >>> sure = np.full((2, 2), 1e-9)
        >>> gain = np.exp(log_expected_hypervolume(np.array([[0.0, 0], [1, 1]]), sure, *corners))
        >>> gain.round(6).tolist()
        [6.0, 1.0]

    Reference:
        Daulton, Balandat, Bakshy. Differentiable Expected Hypervolume Improvement for Parallel
        Multi-Objective Bayesian Optimization. NeurIPS 2020, arXiv 2006.05078 (a sum over boxes).
    """
    gains = np.ones((len(means), len(lows)))
    for mean, deviation, low, high in zip(means.T, deviations.T, lows.T, highs.T, strict=True):
        cuts, places = np.unique(np.concatenate([low, high]), return_inverse=True)
        below = _expected_gap(cuts[None, :], mean[:, None], deviation[:, None])
        gains *= below[:, places[len(low) :]] - below[:, places[: len(low)]]
    total: Array = np.log(np.maximum(gains.sum(axis=1), _LEAST))
    return total


def _expected_gap(bound: Array, mean: Array, deviation: Array) -> Array:
    """Return by how much a normal variable is expected to be below a bound, 0 where above."""
    from scipy.special import ndtr  # noqa: PLC0415  (heavy)

    is_open = np.isneginf(bound)
    z = (np.where(is_open, 0.0, bound) - mean) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    gap: Array = np.where(is_open, 0.0, deviation * (z * ndtr(z) + density))
    return gap


def log_feasibility(means: Array, deviations: Array) -> Array:
    """Return the logarithm of the probability that excesses over a bound are at most 0.

    Args:
        means: Their predicted means.
        deviations: Their standard deviations.

    Reference:
        Gardner, Kusner, Xu, Weinberger, Cunningham. Bayesian Optimization with Inequality
        Constraints. ICML 2014, equation 7.
    """
    from scipy.special import log_ndtr  # noqa: PLC0415  (heavy)

    logs: Array = log_ndtr(-means / deviations)
    return logs
