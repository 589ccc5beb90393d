"""Ridge regression on a line and a parabola per number and a step per category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

PENALTY = 5.0
"""Ridge penalty: so many rows move a weight half of the way from 0 to its estimate."""

POSTERIOR_SCALE = 0.5
"""Factor of the posterior's standard deviation for weights that are drawn."""
NUM_DECIMALS = 9
"""Decimals to which `stable` rounds."""


def stable(values: Array) -> Array:
    """Return values rounded so that they are the same on every machine.

    Libraries of linear algebra add in another order on another processor, and the last digits
    differ. Trees make many ties, of cuts and of predictions, and those digits would decide each: a
    search would go another way on every kind of processor. Only a value that lies within such an
    error of the middle between two roundings still differs, one in about a hundred thousand.
    """
    return np.round(values, NUM_DECIMALS)


@final
class LinearTrend:
    """Ridge regression on simple features of each parameter, without interactions.

    Trees predict means of targets, so they need many rows for a trend, and never predict a value
    better than the best. Fitted to the residuals of this regression, they do not have to.

    Args:
        rows: Vectors, one per row; NaN for inactive parameters.
        targets: The value of each row.
        num_categories: For each column the number of its categories, 0 for numbers.

    Example:
        >>> import numpy as np
        >>> rows = np.linspace(0, 1, 50)[:, None]
        >>> trend = LinearTrend(rows, 3 * rows[:, 0], (0,))
        >>> bool(abs(trend.predict(np.array([[0.5]]), trend.weights)[0] - 1.5) < 0.1)
        True

    Reference:
        Hoerl, Kennard. Ridge regression: biased estimation for nonorthogonal problems.
        Technometrics 12, 1970.
    """

    def __init__(self, rows: Array, targets: Array, num_categories: tuple[int, ...]) -> None:
        self._num_categories = num_categories
        inputs = features(rows, num_categories)
        self._precision, self.weights = ridge(inputs, targets, unpenalised=[0])
        self._residual_sd = float(np.std(targets - inputs @ self.weights))

    def sample_weights(self, rng: Generator, num_draws: int) -> Array:
        """Return sets of weights, one per row, drawn from the posterior; see `POSTERIOR_SCALE`."""
        # The scale is less than 1 because trees learn a part of the residuals, so that these
        # overstate the uncertainty of the trend.
        factor = np.linalg.cholesky(self._precision)
        noise = np.linalg.solve(factor.T, rng.normal(size=(len(self.weights), num_draws)))
        weights: Array = self.weights + POSTERIOR_SCALE * self._residual_sd * noise.T
        return weights

    def predict(self, rows: Array, weights: Array) -> Array:
        """Return the trend at each row; for several sets of weights, one row of results per set."""
        return stable(weights @ features(rows, self._num_categories).T)


def ridge(inputs: Array, targets: Array, unpenalised: list[int]) -> tuple[Array, Array]:
    """Return the precision and the mean of the weights of a ridge regression.

    Args:
        inputs: The features, a row for each target.
        targets: The values to predict.
        unpenalised: Columns whose weights are not shrunk to 0, such as the constant.
    """
    penalty = np.full(inputs.shape[1], PENALTY)
    # Not 0, which would leave the matrix singular where a column is constant.
    penalty[unpenalised] = 1e-6
    precision = inputs.T @ inputs + np.diag(penalty)
    return precision, np.linalg.solve(precision, inputs.T @ targets)


def features(rows: Array, num_categories: tuple[int, ...]) -> Array:
    """Return the trend's features: a constant, per number a line and a parabola, categories.

    Args:
        rows: Vectors, one per row; NaN for inactive parameters, which have no effect.
        num_categories: For each column the number of its categories, 0 for numbers.
    """
    is_absent = np.isnan(rows)
    # From -1 to 1; minus 1/3, the parabola has mean 0 there, as the line has.
    lines = np.where(is_absent, 0.0, 2 * rows - 1)
    parabolas = np.where(is_absent, 0.0, lines**2 - 1 / 3)
    columns = [np.ones(len(rows))]
    for place, count in enumerate(num_categories):
        columns += (
            [rows[:, place] == category for category in range(count)]
            if count
            else [lines[:, place], parabolas[:, place]]
        )
    return np.array(columns, dtype=float).T
