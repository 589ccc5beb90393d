"""Search by extremely randomised trees over ranks: our searcher for want of a better reason to take another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from .candidates import pool_of, spread_out
from .encoding import Encoding
from .extra_trees import grow
from .model_search import ModelSearch
from .observations import Table
from .trend import Trend

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator  # numpy itself is imported where it is used: the space words do without it

    Array = ndarray[Any, Any]

NUM_TREES = 10
MIN_LEAF = 1
MAX_ROWS = 400
"""To how many trials the model is fitted: the best half of so many, and as many of the others by chance."""


@final
class TreeSearch(ModelSearch):
    """Suggests what trees expect to improve most on the best.

    Every trial has one score: the place of its value among those of the same level of training, as a normal score. Trials that got
    further divide among themselves the places that they had below, so that all levels count and no metric's scale does: the search is
    the same for any increasing function of the metric. To the scores a simple trend and extremely randomised trees on what it leaves are
    fitted anew for each suggestion, which takes some milliseconds; each tree has a trend of its own, drawn from those that are likely.
    Of some hundred changes of the best configurations and random ones, the one is suggested from which the trees expect the largest
    improvement, that keeps its distance from everything suggested before. Failed trials, and values that are not finite, count as worst.

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
        Optimization for General Algorithm Configuration. LION 2011 (expected improvement by a forest, and changes of the best). Jones,
        Schonlau, Welch. Efficient Global Optimization of Expensive Black-Box Functions. Journal of Global Optimization 13, 1998.

    Departures:
        From SMAC: ranks within levels in place of values, a trend below the trees, and a least distance from earlier suggestions.
    """

    def __init__(  # noqa: PLR0917  (the order of its peers)
        self,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        n_initial_points: int | None = None,
        random_fraction: float = 0.1,
        time_attr: str = "training_iteration",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            metric=metric,
            mode=mode,
            points_to_evaluate=points_to_evaluate,
            evaluated_rewards=evaluated_rewards,
            n_initial_points=n_initial_points,
            random_fraction=random_fraction,
            time_attr=time_attr,
            seed=seed,
        )

    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return candidates, the one with the largest expected improvement first."""
        import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

        table = self.observations.table()
        pool = pool_of(table, encoding, rng)
        rows, scores = _learnt(table, rng)
        told = _told(rows, scores, pool, encoding, rng)
        order = np.argsort(-log_improvements(told, float(scores.min())), kind="stable")
        return spread_out(pool[order], self.observations.vectors(), encoding)


def log_improvements(told: Array, best: float) -> Array:
    """Return the logarithm of how far each candidate is expected to fall below the best score, if what trees say of it is normal.

    Args:
        told: What each tree says, a row for each and a column for each candidate.
        best: The best score so far; smaller is better.

    Example:
        >>> import numpy as np
        >>> log_improvements(np.array([[1.0, -1.0], [1.2, 1.0]]), best=0.0).round(2).tolist()
        [-68.54, -0.92]

    Reference:
        Sampford. Some inequalities on Mill's ratio and related functions. Annals of Mathematical Statistics 24, 1953: here the ratio's
        upper bound stands for it, which errs by a few percent.
    """
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    spread = np.maximum(told.std(axis=0), 1e-6)
    gap = (best - told.mean(axis=0)) / spread
    far = np.abs(gap)
    root = np.sqrt(far**2 + 8)
    # One less the gap times the ratio, written without a difference of nearly equal numbers.
    log_below = np.log(8 / ((3 * far + root) * (far + root))) - far**2 / 2 - np.log(2 * np.pi) / 2
    expected: Array = np.log(spread) + np.where(gap > 0, np.logaddexp(np.log(np.maximum(gap, 1e-300)), log_below), log_below)
    return expected


def _learnt(table: Table, rng: Generator) -> tuple[Array, Array]:
    """Return the vectors and scores of the trials that the model is fitted to."""
    import numpy as np  # noqa: PLC0415  (keeps the import of the face light)

    scores = table.scores
    if len(scores) <= MAX_ROWS:
        return table.vectors, scores
    order = np.argsort(table.quantiles, kind="stable")
    others = rng.permutation(order[MAX_ROWS // 2 :])[: MAX_ROWS // 2]
    kept = np.concatenate([order[: MAX_ROWS // 2], others])
    return table.vectors[kept], scores[kept]


def _told(rows: Array, scores: Array, pool: Array, encoding: Encoding, rng: Generator) -> Array:
    """Return what each tree, with its trend, says of each candidate."""
    trend = Trend(rows, scores, encoding.num_categories)
    weights = trend.drawn(rng, NUM_TREES)
    left = scores - trend.of(rows, weights)
    forest = grow(rows, left, encoding.num_categories, num_trees=NUM_TREES, rng=rng, min_leaf=MIN_LEAF)
    told: Array = forest.predict(pool) + trend.of(pool, weights)
    return told
