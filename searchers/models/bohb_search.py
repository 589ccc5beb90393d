"""BOHB's searcher: two kernel densities, of the good configurations and of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from searchers.searcher import FailedTrials

from .encoding import Encoding
from .kernel_density import Density
from .model_search import ModelSearch
from .observations import Table

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

GOOD_SHARE = 0.15
NUM_CANDIDATES = 64
BANDWIDTH_FACTOR = 3.0


@final
class BOHBSearch(ModelSearch):
    """Draws configurations that are likely among the good ones and unlikely among the others.

    All trials are put into one order, from their values at every level they have reached (see `observations`): the best 15 % of them make
    the first density, the others the second. Of 64 configurations drawn from the first, with kernels three times as wide, the one with
    the largest ratio of the densities is suggested.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out are drawn at random.
        evaluated_rewards: The metric of each of `points_to_evaluate` after a full training; they have to be complete and are not run.
        n_initial_points: How many suggestions are spread evenly over the space before the model is asked; None for 10, or a quarter of
            ``num_samples`` if that is less.
        random_fraction: How many of the later suggestions are random, between 0 and 1.
        time_attr: Which entry of a result tells how long the trial has trained.
        seed: Seed of all chance; None to take the experiment's.
        space: What to search, where ``param_space`` does not say it: a dictionary with search-space words.
        failed_trials: ``"worst"`` counts trials that failed or ended without a value, and values that are NaN or infinite, as worse than
            all others; ``"ignore"`` learns nothing from them.

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
        ...     searcher.on_trial_complete(f"t{number}", {"loss": (x - 0.3) ** 2, "training_iteration": 1})
        >>> min(abs(trial.vector[0] - 0.3) for trial in searcher.observations.trials.values()) < 0.05
        True

    Reference:
        Falkner, Klein, Hutter. BOHB: Robust and Efficient Hyperparameter Optimization at Scale. ICML 2018, arXiv 1807.01774.

    Departures:
        The paper fits the highest level that has enough trials and forgets the others; here all levels make one order, so that the model
        begins after a handful of results, with half of them good where 15 % would be fewer than the paper's ``d + 1``. The first points
        are spread evenly. Nothing is suggested twice.
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
        """Return configurations drawn from the density of the good ones, the most promising first."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        table = self.observations.table()
        good, others = self._densities(table, encoding)
        candidates = good.drawn(rng, encoding, NUM_CANDIDATES, BANDWIDTH_FACTOR)
        if encoding.has_prior:
            candidates = np.concatenate(
                [candidates, self.fresh(encoding, rng, NUM_CANDIDATES, table)]
            )
        ratios = good.logs(candidates) - others.logs(candidates)
        proposed: Array = candidates[np.argsort(-ratios, kind="stable")]
        return proposed

    @staticmethod
    def _densities(table: Table, encoding: Encoding) -> tuple[Density, Density]:
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        order = np.argsort(table.quantiles, kind="stable")
        num_good = num_good_of(len(order), len(encoding.columns))
        return Density(table.vectors[order[:num_good]], encoding), Density(
            table.vectors[order[num_good:]], encoding
        )


def num_good_of(num_trials: int, num_columns: int) -> int:
    """Return how many trials count as good: 15 %, but ``d + 1``, and of few trials half.

    Example:
        >>> num_good_of(10, 7), num_good_of(30, 7), num_good_of(200, 7)
        (5, 8, 30)
    """
    return max(math.ceil(GOOD_SHARE * num_trials), min(num_columns + 1, num_trials // 2))
