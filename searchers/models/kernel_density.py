"""Kernel densities over vectors of configurations: numbers under truncated Gaussian kernels, categories under Aitchison-Aitken kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from .encoding import Encoding

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

MIN_BANDWIDTH = 1e-3
_MISMATCH = 1e-3
"""The kernel between a parameter that exists and one that does not."""


@final
class Density:
    """A product-kernel density on the vectors of a space.

    Args:
        rows: The vectors it is built on, one at least; NaN for what does not exist.
        encoding: The space.

    Attributes:
        bandwidths: For each column the standard deviation of its kernel, or how likely it is that a category changes.

    Example:
        >>> import numpy as np
        >>> from searchers.space import uniform
        >>> density = Density(np.array([[0.2], [0.3]]), Encoding({"x": uniform(0, 1)}, "me"))
        >>> bool(np.diff(density.logs(np.array([[0.25], [0.9]])))[0] < 0)
        True

    Reference:
        Falkner, Klein, Hutter. BOHB: Robust and Efficient Hyperparameter Optimization at Scale. ICML 2018, arXiv 1807.01774.
        Aitchison, Aitken. Multivariate binary discrimination by the kernel method. Biometrika 63, 1976.
    """

    def __init__(self, rows: Array, encoding: Encoding) -> None:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        self._rows = rows
        self._num_categories = np.array(encoding.num_categories, dtype=int)
        self._is_category = self._num_categories > 0
        self.bandwidths = self._reference_bandwidths()

    def logs(self, points: Array) -> Array:
        """Return the logarithm of the density at each point, up to a constant that densities of one space share."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        kernels = np.zeros((len(points), len(self._rows)))
        for place, bandwidth in enumerate(self.bandwidths):
            kernels += np.log(
                np.maximum(self._kernel(points[:, place, None], place, bandwidth), 1e-300)
            )
        highest = kernels.max(axis=1, keepdims=True)
        logs: Array = highest[:, 0] + np.log(np.exp(kernels - highest).mean(axis=1))
        return logs

    def drawn(self, rng: Generator, encoding: Encoding, num_points: int, factor: float) -> Array:
        """Return points drawn from the density.

        Args:
            rng: Source of chance.
            encoding: The space.
            num_points: How many.
            factor: By how much the kernels are widened.
        """
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        centres = self._rows[rng.integers(len(self._rows), size=num_points)]
        fresh = encoding.entries_from_cube(rng.random(centres.shape))
        moved = _truncated(rng, np.nan_to_num(centres, nan=0.5), self.bandwidths * factor)
        keeps = rng.random(centres.shape) >= np.minimum(self.bandwidths * factor, 1.0)
        points = np.where(self._is_category, np.where(keeps, centres, fresh), moved)
        return encoding.snapped(np.where(np.isnan(centres), fresh, points))

    def _kernel(self, points: Array, place: int, bandwidth: float) -> Array:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        rows = self._rows[:, place]
        if self._is_category[place]:
            others = max(int(self._num_categories[place]) - 1, 1)
            kernel = np.where(points == rows, 1 - bandwidth, bandwidth / others)
        else:
            kernel = np.exp(-0.5 * ((points - rows) / bandwidth) ** 2) / bandwidth
        is_absent, are_absent = np.isnan(points), np.isnan(rows)
        known: Array = np.where(
            is_absent & are_absent, 1.0, np.where(is_absent | are_absent, _MISMATCH, kernel)
        )
        return known

    def _reference_bandwidths(self) -> Array:
        """Return the normal-reference bandwidths of numbers; of categories the share that a column's spread leaves to the others."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        num_rows, num_columns = self._rows.shape
        shrinking = num_rows ** (-1 / (4 + num_columns))
        widths = np.empty(num_columns)
        for place in range(num_columns):
            known = self._rows[~np.isnan(self._rows[:, place]), place]
            if self._is_category[place]:
                count = int(self._num_categories[place])
                shares = np.bincount(known.astype(int), minlength=count) / max(len(known), 1)
                widths[place] = min(shrinking * (1 - (shares**2).sum()), (count - 1) / count)
            else:
                widths[place] = 1.06 * shrinking * (known.std() if len(known) else 0.3)
        return np.maximum(widths, MIN_BANDWIDTH)


def _truncated(rng: Generator, centres: Array, widths: Array) -> Array:
    """Return normal draws around the centres that lie in the unit interval: others are drawn again, and at last uniformly."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    drawn = rng.normal(centres, widths)
    for _ in range(20):
        is_out = (drawn < 0) | (drawn > 1)
        if not is_out.any():
            break
        drawn = np.where(is_out, rng.normal(centres, widths), drawn)
    return np.where((drawn < 0) | (drawn > 1), rng.random(drawn.shape), drawn)
