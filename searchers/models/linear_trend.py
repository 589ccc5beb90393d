"""Linear trend fitted below a forest: a line and a parabola per number, a step per category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

STIFFNESS = 5.0
"""How many rows it takes to move a weight half of the way from 0 to what they say."""

CAUTION = 0.5
"""By how much of their deviation weights that are drawn differ from the likeliest ones."""


@final
class LinearTrend:
    """Ridge regression on simple features of each parameter, without interactions.

    Trees predict means of what they have seen, so they learn slowly what is true everywhere; and
    they never predict anything better than the best. With the trend taken off before, and put on
    afterwards, they do both.

    Args:
        rows: Vectors, one per row; NaN for what is not there.
        targets: The value of each row.
        num_categories: For each column the number of its categories, 0 for numbers.

    Example:
        >>> import numpy as np
        >>> rows = np.linspace(0, 1, 50)[:, None]
        >>> trend = LinearTrend(rows, 3 * rows[:, 0], (0,))
        >>> bool(abs(trend.of(np.array([[0.5]]), trend.weights)[0] - 1.5) < 0.1)
        True

    Reference:
        Hoerl, Kennard. Ridge regression: biased estimation for nonorthogonal problems.
        Technometrics 12, 1970.
    """

    def __init__(self, rows: Array, targets: Array, num_categories: tuple[int, ...]) -> None:
        self._num_categories = num_categories
        known = features(rows, num_categories)
        self._precision, self.weights = ridge(known, targets, means=[0])
        self._spread = float(np.std(targets - known @ self.weights))

    def drawn(self, rng: Generator, num_draws: int) -> Array:
        """Return sets of weights, one per row, drawn from their posterior distribution.

        Their deviation is scaled by `CAUTION`.

        What they leave is learnt by trees, so that the residuals, from which the deviation is
        known, overstate the doubt.
        """
        factor = np.linalg.cholesky(self._precision)
        noise = np.linalg.solve(factor.T, rng.normal(size=(len(self.weights), num_draws)))
        drawn: Array = self.weights + CAUTION * self._spread * noise.T
        return drawn

    def of(self, rows: Array, weights: Array) -> Array:
        """Return the trend at each row; for several sets of weights, one row of results per set."""
        found: Array = weights @ features(rows, self._num_categories).T
        return found


def ridge(known: Array, targets: Array, means: list[int]) -> tuple[Array, Array]:
    """Return the precision and the mean of the weights by which features give the targets.

    Args:
        known: The features, a row for each target.
        targets: What they are to give.
        means: The columns that are no effects to be doubted, and not drawn to 0.
    """
    penalty = np.full(known.shape[1], STIFFNESS)
    penalty[means] = 1e-6
    precision = known.T @ known + np.diag(penalty)
    return precision, np.linalg.solve(precision, known.T @ targets)


def features(rows: Array, num_categories: tuple[int, ...]) -> Array:
    """Return the trend's features: a constant, per number a line and a parabola, categories.

    Args:
        rows: Vectors, one per row; NaN for what is not there, which has no effect.
        num_categories: For each column the number of its categories, 0 for numbers.
    """
    columns = [np.ones(len(rows))]
    for place, count in enumerate(num_categories):
        if count:
            columns += [np.where(rows[:, place] == category, 1.0, 0.0) for category in range(count)]
        else:
            centred = np.nan_to_num(2 * rows[:, place] - 1, nan=0.0)
            columns += [centred, np.where(np.isnan(rows[:, place]), 0.0, centred**2 - 1 / 3)]
    return np.array(columns).T
