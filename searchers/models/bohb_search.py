"""BOHB: kernel densities of good trials and of the others, at the highest informative level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.learning_searcher import FailedTrials

from .encoding import Encoding
from .model_search import ModelSearch
from .observations import Table

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]


# The defaults of the paper's implementation, HpBandSter.
GOOD_SHARE = 0.15
NUM_CANDIDATES = 64
BANDWIDTH_FACTOR = 3.0


@final
class BOHBSearch(ModelSearch):
    """Suggests configurations that are likely among good ones and unlikely among the others.

    All trials are ranked by their values at every level they have reached (see `observations`):
    the first density is that of the best 15 %, the second that of the others. Of 64
    configurations drawn from the first, with kernels three times as wide, the one with the largest
    ratio of the densities is suggested.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are drawn at random.
        evaluated_rewards: The metric of each of `points_to_evaluate` after a full training; they
            have to be complete and are not run.
        n_initial_points: How many suggestions are spread evenly over the space before the model is
            asked; None for 10, or a quarter of ``num_samples`` if that is less.
        random_fraction: Share of the later suggestions that are random, between 0 and 1.
        time_attr: Entry of a result that says how long the trial has trained.
        seed: Seed of all random numbers; None to take the experiment's.
        space: The search space, if ``param_space`` does not define it: a dictionary
            with domains.
        failed_trials: ``"worst"`` counts trials that failed or ended without a value, and values
            that are NaN or infinite, as worse than all others; ``"ignore"`` learns nothing from
            them.

    Raises:
        TypeError: If `seed` is no integer.
        ValueError: If an argument is out of range or two contradict each other.

    Example:
        >>> from searchers.space import uniform
        >>> searcher = BOHBSearch(metric="loss", mode="min", n_initial_points=4)
        >>> searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
        True
        >>> for number in range(40):
        ...     x = searcher.suggest(f"t{number}")["x"]
        ...     result = {"loss": (x - 0.3) ** 2, "training_iteration": 1}
        ...     searcher.on_trial_complete(f"t{number}", result)
        >>> min(
        ...     abs(trial.vector[0] - 0.3) for trial in searcher.observations.trials.values()
        ... ) < 0.05
        True

    Reference:
        Falkner, Klein, Hutter. BOHB: Robust and Efficient Hyperparameter Optimization at Scale.
        ICML 2018, arXiv 1807.01774.

    Departures:
        The paper fits the highest level that has enough trials and ignores the others; here the
        trials of all levels are ranked together, so that the model begins after a few results. Of
        few trials half count as good, where 15 % would be fewer than the paper's ``d + 1``. The
        initial points are spread evenly. Nothing is suggested twice.
    """

    def __init__(  # noqa: PLR0917  (the order of its peers)
        self,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        n_initial_points: int | None = None,
        random_fraction: float = 1 / 3,
        time_attr: str = "training_iteration",
        seed: int | None = None,
        *,
        space: Mapping[str, Any] | None = None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        super().__init__(
            space=space,
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            n_initial_points=n_initial_points,
            random_fraction=random_fraction,
            time_attr=time_attr,
            seed=seed,
            failed_trials=failed_trials,
        )

    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return configurations drawn from the good ones' density, most promising first."""
        table = self.observations.table()
        self.note_model("kernel densities", len(table.names))
        good, others = self._densities(table, encoding)
        candidates = good.sample(rng, encoding, NUM_CANDIDATES, BANDWIDTH_FACTOR)
        if encoding.has_prior:
            candidates = np.concatenate(
                [candidates, self.fresh(encoding, rng, NUM_CANDIDATES, table)]
            )
        ratios = good.log_densities(candidates) - others.log_densities(candidates)
        proposed: Array = candidates[np.argsort(-ratios, kind="stable")]
        return proposed

    @staticmethod
    def _densities(table: Table, encoding: Encoding) -> tuple[Density, Density]:
        order = np.argsort(table.quantiles, kind="stable")
        num_good = num_good_of(len(order), len(encoding.columns))
        return Density(table.vectors[order[:num_good]], encoding), Density(
            table.vectors[order[num_good:]], encoding
        )


def num_good_of(num_trials: int, num_columns: int) -> int:
    """Return how many trials count as good: 15 %, but at least ``d + 1``, of few trials half.

    Example:
        >>> num_good_of(10, 7), num_good_of(30, 7), num_good_of(200, 7)
        (5, 8, 30)
    """
    return max(math.ceil(GOOD_SHARE * num_trials), min(num_columns + 1, num_trials // 2))


MIN_BANDWIDTH = 1e-3
_MISMATCH = 1e-3
"""The kernel between an active and an inactive parameter."""


@final
class Density:
    """A product-kernel density on the vectors of a space.

    Args:
        rows: The vectors it is built on, at least one; NaN for inactive parameters.
        encoding: The space.

    Attributes:
        bandwidths: For each column the standard deviation of its kernel, or the probability that a
            category changes.

    Example:
        >>> import numpy as np
        >>> from searchers.space import uniform
        >>> density = Density(np.array([[0.2], [0.3]]), Encoding({"x": uniform(0, 1)}, "me"))
        >>> bool(np.diff(density.log_densities(np.array([[0.25], [0.9]])))[0] < 0)
        True

    Reference:
        Falkner, Klein, Hutter. BOHB: Robust and Efficient Hyperparameter Optimization at Scale.
        ICML 2018, arXiv 1807.01774.

        Aitchison, Aitken. Multivariate binary discrimination by the kernel method. Biometrika 63,
        1976.
    """

    def __init__(self, rows: Array, encoding: Encoding) -> None:
        self._rows = rows
        self._num_categories = np.array(encoding.num_categories, dtype=int)
        self._is_category = self._num_categories > 0
        self.bandwidths = self._reference_bandwidths()

    def log_densities(self, points: Array) -> Array:
        """Return the log density at each point, up to a constant shared within a space."""
        kernels = np.zeros((len(points), len(self._rows)))
        for place, bandwidth in enumerate(self.bandwidths):
            kernels += np.log(
                np.maximum(self._kernel(points[:, place, None], place, bandwidth), 1e-300)
            )
        # The logarithm of a mean of exponentials, without underflow.
        highest = kernels.max(axis=1, keepdims=True)
        logs: Array = highest[:, 0] + np.log(np.exp(kernels - highest).mean(axis=1))
        return logs

    def sample(self, rng: Generator, encoding: Encoding, num_points: int, factor: float) -> Array:
        """Return points drawn from the density, with bandwidths multiplied by a factor."""
        centres = self._rows[rng.integers(len(self._rows), size=num_points)]
        fresh = encoding.entries_from_cube(rng.random(centres.shape))
        moved = _truncated(rng, np.nan_to_num(centres, nan=0.5), self.bandwidths * factor)
        keeps = rng.random(centres.shape) >= np.minimum(self.bandwidths * factor, 1.0)
        points = np.where(self._is_category, np.where(keeps, centres, fresh), moved)
        return encoding.snapped(np.where(np.isnan(centres), fresh, points))

    def _kernel(self, points: Array, place: int, bandwidth: float) -> Array:
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
        """Return bandwidths: normal-reference for numbers, probability of change for categories."""
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
                # Scott's normal-reference rule.
                widths[place] = 1.06 * shrinking * (known.std() if len(known) else 0.3)
        return np.maximum(widths, MIN_BANDWIDTH)


def _truncated(rng: Generator, centres: Array, widths: Array) -> Array:
    """Return truncated normal draws around the centres, by rejection; after 20 rounds uniform."""
    drawn = rng.normal(centres, widths)
    for _ in range(20):
        is_out = (drawn < 0) | (drawn > 1)
        if not is_out.any():
            break
        drawn = np.where(is_out, rng.normal(centres, widths), drawn)
    return np.where((drawn < 0) | (drawn > 1), rng.random(drawn.shape), drawn)
