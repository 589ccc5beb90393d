"""Gradient-boosted trees that predict several quantiles at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

NUM_ROUNDS = 40
DEPTH = 3
NUM_CUTS = 12
"""Among how many random cuts the best is taken at each level of a tree."""
RATE = 0.15
"""What share of a tree's correction is applied."""
_ABSENT = -1.0
"""Stands for NaN, which no cut of a number or category mistakes for anything else."""


@final
@dataclass(frozen=True, slots=True)
class QuantileTrees:
    """Trees that cut all rows of one level by the same question, so that the answers to its questions number the leaf of a row.

    Attributes:
        base: The quantiles of all targets, from which the trees correct.
        features: The column that is asked for, by tree and level.
        cuts: What a number is less than, or the category, by tree and level.
        is_category: Whether it is a category, by tree and level.
        corrections: What is added, by tree, quantile and leaf.

    Reference:
        Friedman. Greedy function approximation: a gradient boosting machine. Annals of Statistics 29, 2001.
        Prokhorenkova, Gusev, Vorobev, Dorogush, Gulin. CatBoost: unbiased boosting with categorical features. NeurIPS 2018,
        arXiv 1706.09516 (trees with one question per level).
    """

    base: Array
    features: Array
    cuts: Array
    is_category: Array
    corrections: Array

    def predict(self, rows: Array) -> Array:
        """Return the quantiles, a row for each and a column for each of `rows`."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        asked = np.nan_to_num(rows, nan=_ABSENT).T[self.features]
        answers = np.where(
            self.is_category[..., None], asked == self.cuts[..., None], asked < self.cuts[..., None]
        )
        leaves = (answers << np.arange(self.features.shape[1])[:, None]).sum(axis=1)
        found = np.take_along_axis(self.corrections, leaves[:, None, :], axis=2).sum(axis=0)
        quantiles: Array = self.base[:, None] + found
        return quantiles


def boost(
    rows: Array, targets: Array, num_categories: tuple[int, ...], quantiles: Array, rng: Generator
) -> QuantileTrees:
    """Return trees that are fitted to the rows.

    Args:
        rows: Vectors, one per row; NaN for what is not there.
        targets: The value of each row.
        num_categories: For each column the number of its categories, 0 for numbers.
        quantiles: Which quantiles to predict, each between 0 and 1.
        rng: Source of chance.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.random((400, 1))
        >>> trees = boost(rows, rows[:, 0] + rng.normal(size=400) * 0.1, (0,), np.array([0.1, 0.9]), rng)
        >>> low, high = trees.predict(np.array([[0.5]]))[:, 0]
        >>> bool(0.2 < low < 0.5 < high < 0.8)
        True
    """
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    filled, is_category = np.nan_to_num(rows, nan=_ABSENT), np.array(num_categories, dtype=bool)
    base = np.quantile(targets, quantiles)
    predicted = np.repeat(base[:, None], len(targets), axis=1)
    trees = []
    for _ in range(NUM_ROUNDS):
        residuals = targets - predicted
        slopes = quantiles[:, None] - (residuals < 0)
        features, cuts, leaves = _questions(filled, is_category, slopes, rng)
        corrections = RATE * _leaf_quantiles(residuals, leaves, quantiles)
        predicted += corrections[:, leaves]
        trees.append((features, cuts, is_category[features], corrections))
    return QuantileTrees(base, *(np.array(part) for part in zip(*trees, strict=True)))


def _questions(
    rows: Array, is_category: Array, slopes: Array, rng: Generator
) -> tuple[Array, Array, Array]:
    """Return the columns and cuts of one tree, level by level, and the leaf of each row."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    leaves = np.zeros(len(rows), dtype=int)
    features, cuts = np.empty(DEPTH, dtype=int), np.empty(DEPTH)
    for level in range(DEPTH):
        columns = rng.integers(rows.shape[1], size=NUM_CUTS)
        # A cut between two rows that were drawn lies where rows are.
        first, second = rows[rng.integers(len(rows), size=(2, NUM_CUTS)), columns]
        places = np.where(is_category[columns], first, (first + second) / 2)
        asked = rows.T[columns]
        answers = np.where(
            is_category[columns][:, None], asked == places[:, None], asked < places[:, None]
        )
        best = _gains(answers, leaves, 2**level, slopes).argmax()
        features[level], cuts[level] = columns[best], places[best]
        leaves |= answers[best].astype(int) << level
    return features, cuts, leaves


def _gains(answers: Array, leaves: Array, num_leaves: int, slopes: Array) -> Array:
    """Return by how much each cut makes the slopes within leaves agree, all quantiles together."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    is_in = (leaves == np.arange(num_leaves)[:, None]).astype(float)
    parts = (is_in[:, None, :] * slopes).reshape(-1, len(leaves))
    yes = answers.astype(float)
    sums, counts = (yes @ parts.T).reshape(len(yes), num_leaves, -1), (yes @ is_in.T)[..., None]
    totals, sizes = parts.sum(axis=1).reshape(num_leaves, -1), is_in.sum(axis=1)[:, None]
    gains = sums**2 / np.maximum(counts, 1) + (totals - sums) ** 2 / np.maximum(sizes - counts, 1)
    summed: Array = gains.sum(axis=(1, 2))
    return summed


def _leaf_quantiles(residuals: Array, leaves: Array, quantiles: Array) -> Array:
    """Return the quantiles of the residuals in each leaf, by quantile and leaf; 0 for leaves without rows."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    found = np.zeros((len(quantiles), 2**DEPTH))
    for leaf in np.unique(leaves):
        inside = np.sort(residuals[:, leaves == leaf], axis=1)
        place = quantiles * (inside.shape[1] - 1)
        below = place.astype(int)
        above = np.minimum(below + 1, inside.shape[1] - 1)
        number = np.arange(len(quantiles))
        found[:, leaf] = inside[number, below] + (place - below) * (
            inside[number, above] - inside[number, below]
        )
    return found
