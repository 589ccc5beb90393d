"""Search by extremely randomised trees over ranks; the default searcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from searchers.searcher import FailedTrials

from .candidates import around_best, spread_out
from .encoding import Encoding
from .extra_trees import grow
from .extrapolation import forecast
from .linear_trend import Trend
from .model_search import ModelSearch
from .observations import Table, normal_scores

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import (
        Generator,
    )  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

NUM_FRESH = 300
"""How many candidates are no changes of the best."""
NUM_AVERAGED = 5
"""How many trees are averaged to temper the one that is drawn."""
NOVELTY = 0.1
"""How far suggestions keep from earlier ones, see `spread_out`; trees that are drawn look elsewhere by themselves."""
ROWS_PER_LEAF_ROW = 40
MAX_MIN_LEAF = 4
"""Leaves hold one trial at least, and one more for every 40 trials, up to four: few trials must each count, many average out chance."""
MAX_ROWS = 400
"""To how many trials the model is fitted: the best half of so many, and as many of the others by chance."""


@final
class TreeSearch(ModelSearch):
    """Suggests what trees like best that were grown, by chance, on where trials would stand after a full training.

    Only the order of values counts, so that the search is the same for any increasing function of the metric. From the values at all
    levels of training it is forecast in which order all trials would stand at the highest one (`forecast` says how): those that are stopped
    early, and those that learn slowly, count for what they would come to. To the places in this order, as normal scores, a simple trend
    and extremely randomised trees on what it leaves are fitted anew for each suggestion, which takes some milliseconds; each tree has a
    trend of its own, drawn from those that are likely. Of some hundred changes of the best configurations and random ones, the one is
    suggested that one of the trees and the mean of five others together like best: one alone would explore too much, the mean too little.
    Failed trials, and values that are not finite, count as worst.

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
        >>> searcher = TreeSearch(metric="loss", mode="min", n_initial_points=4)
        >>> searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
        True
        >>> for number in range(40):
        ...     x = searcher.suggest(f"t{number}")["x"]
        ...     searcher.on_trial_complete(f"t{number}", {"loss": (x - 0.3) ** 2, "training_iteration": 1})
        >>> min(abs(trial.vector[0] - 0.3) for trial in searcher.observations.trials.values()) < 0.01
        True

    Reference:
        Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 63, 2006. Hutter, Hoos, Leyton-Brown. Sequential Model-Based
        Optimization for General Algorithm Configuration. LION 2011 (forests, and changes of the best as candidates). Thompson. On the
        likelihood that one unknown probability exceeds another in view of the evidence of two samples. Biometrika 25, 1933.

    Departures:
        From SMAC: forecast ranks in place of values, a trend below the trees, and a draw tempered by a mean for want of
        expected improvement.
    """

    def __init__(  # noqa: PLR0917  (the order of its peers)
        self,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        n_initial_points: int | None = None,
        random_fraction: float = 0.05,
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
        """Return candidates, the one first that one tree, drawn by chance, and the mean of some others together like best."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        table = forecast(self.observations.table(), encoding.num_categories)
        pool = np.concatenate(
            [around_best(table, encoding, rng), self.fresh(encoding, rng, NUM_FRESH, table)]
        )
        rows, scores = _learnt(table, rng)
        told = _told(rows, scores, pool, encoding, rng)
        drawn, others = told[0], told[1 : 1 + NUM_AVERAGED]
        order = np.argsort(drawn + others.mean(axis=0), kind="stable")
        return spread_out(pool[order], self.observations.vectors(), encoding, NOVELTY)


def _learnt(table: Table, rng: Generator) -> tuple[Array, Array]:
    """Return the vectors and scores of the trials that the model is fitted to."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    if len(table.quantiles) <= MAX_ROWS:
        return table.vectors, table.scores
    order = np.argsort(table.quantiles, kind="stable")
    others = rng.permutation(order[MAX_ROWS // 2 :])[: MAX_ROWS // 2]
    kept = np.concatenate([order[: MAX_ROWS // 2], others])
    return table.vectors[kept], normal_scores(table.quantiles[kept])


def _told(rows: Array, scores: Array, pool: Array, encoding: Encoding, rng: Generator) -> Array:
    """Return what each tree, with its trend, says of each candidate."""
    trend = Trend(rows, scores, encoding.num_categories)
    weights = trend.drawn(rng, 1 + NUM_AVERAGED)
    left = scores - trend.of(rows, weights)
    min_leaf = min(1 + len(rows) // ROWS_PER_LEAF_ROW, MAX_MIN_LEAF)
    forest = grow(
        rows, left, encoding.num_categories, num_trees=1 + NUM_AVERAGED, rng=rng, min_leaf=min_leaf
    )
    told: Array = forest.predict(pool) + trend.of(pool, weights)
    return told
