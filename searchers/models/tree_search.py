"""Thompson sampling from extremely randomised trees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.learning_searcher import FailedTrials

from .candidates import around_best, spread_out
from .encoding import Encoding
from .linear_trend import LinearTrend
from .model_search import ModelSearch
from .observations import (
    Table,
    best_and_others,
    describe_retention,
    extrapolate_final_scores,
    normal_scores,
)

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]


# Chosen by measurement, with benchmarks/quality.
NUM_FRESH = 300
"""Number of candidates besides the variations of the best configurations."""
NUM_AVERAGED = 5
"""Number of trees whose mean is added to the prediction of the sampled tree."""
NOVELTY = 0.1
"""Least distance of suggestions from earlier ones, see `spread_out`."""
ROWS_PER_LEAF_ROW = 40
MAX_MIN_LEAF = 4
"""Least number of trials per leaf: one, and one more per 40 trials, up to four."""
MAX_ROWS = 400
"""Most trials that the model is fitted to: half are the best, half drawn from the others."""


@final
class TreeSearch(ModelSearch):
    """Suggests candidates by Thompson sampling from randomised trees on final scores.

    Only the order of values counts, so that the search is the same for any increasing function of
    the metric. From the values at all levels of training, the order at the highest level is
    extrapolated (see `extrapolate_final_scores`): trials that are stopped early or learn slowly
    count with their expected final scores. For each suggestion, a linear trend is fitted to the
    ranks as normal scores, and extremely randomised trees to its residuals, which takes some
    milliseconds; the trend of each tree is drawn from the posterior. Candidates are several hundred
    variations of the best configurations and random ones; the one with the best sum of one tree's
    prediction and the mean of five others is suggested: one tree alone would explore too much, the
    mean too little. Failed trials, and values that are not finite, count as worst.

    With several metrics, weights are drawn for each suggestion, and the order of trials is that of
    the weighted metrics (see `Tradeoffs.scalarise`). Trials that miss a constraint come after those
    that keep all, in the order of by how much they miss it.

    Args:
        metric: Name of the metric, flattened; None to take ``TuneConfig(metric=...)``, which may
            name several.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        points_to_evaluate: Configurations to begin with, nested or flattened. Parameters left out
            are drawn at random.
        evaluated_rewards: The metric of each of `points_to_evaluate` after a full training, a
            dictionary where there are several metrics or constraints; they have to be complete and
            are not run.
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
        >>> searcher = TreeSearch(metric="loss", mode="min", n_initial_points=4)
        >>> searcher.set_search_properties(None, None, {"x": uniform(0, 1)}, seed=0)
        True
        >>> for number in range(40):
        ...     x = searcher.suggest(f"t{number}")["x"]
        ...     result = {"loss": (x - 0.3) ** 2, "training_iteration": 1}
        ...     searcher.on_trial_complete(f"t{number}", result)
        >>> min(
        ...     abs(trial.vector[0] - 0.3) for trial in searcher.observations.trials.values()
        ... ) < 0.01
        True

    Reference:
        Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 63, 2006.

        Hutter, Hoos, Leyton-Brown. Sequential Model-Based Optimization for General Algorithm
        Configuration. LION 2011 (forests, and variations of the best as candidates).

        Knowles. ParEGO: A Hybrid Algorithm With On-Line Landscape Approximation for Expensive
        Multiobjective Optimization Problems. IEEE Transactions on Evolutionary Computation 10(1),
        2006 (random weights).

        Thompson. On the likelihood that one unknown probability exceeds another in view of the
        evidence of two samples. Biometrika 25, 1933.

    Departures:
        From SMAC: extrapolated ranks instead of values, trees on the residuals of a linear trend,
        and Thompson sampling tempered by a mean instead of expected improvement.
    """

    takes_several_metrics = True
    takes_constraints = True

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
        """Return candidates, the best first by the sum of a sampled tree and the mean of others."""
        table = extrapolate_final_scores(self.observations.table(), encoding.num_categories)
        return candidates_by_trees(self, table, encoding, rng)


def candidates_by_trees(
    searcher: ModelSearch, table: Table, encoding: Encoding, rng: Generator
) -> Array:
    """Return candidates, the best first by the sum of a sampled tree and the mean of others.

    Args:
        searcher: The search for which they are.
        table: Its trials, with extrapolated scores.
        encoding: The space.
        rng: Random number generator.
    """
    pool = np.concatenate(
        [around_best(table, encoding, rng), searcher.fresh(encoding, rng, NUM_FRESH, table)]
    )
    kept = best_and_others(table, MAX_ROWS, rng)
    searcher.note_model(
        f"randomised trees{searcher.weighing}", len(kept), describe_retention(table)
    )
    scores = normal_scores(table.quantiles[kept])
    predicted = _predictions(table.vectors[kept], scores, pool, encoding, rng)
    # The first tree is the sample of Thompson's; scores are minimised. A stable sort, since trees
    # give many candidates the same value, and a restored search has to choose the same.
    order = np.argsort(predicted[0] + predicted[1:].mean(axis=0), kind="stable")
    return spread_out(pool[order], searcher.observations.vectors(), encoding, NOVELTY)


def _predictions(
    rows: Array, scores: Array, pool: Array, encoding: Encoding, rng: Generator
) -> Array:
    """Return the prediction of each tree, with its trend, for each candidate."""
    trend = LinearTrend(rows, scores, encoding.num_categories)
    weights = trend.sample_weights(rng, 1 + NUM_AVERAGED)
    residuals = scores - trend.predict(rows, weights)
    forest = grow(
        rows,
        residuals,
        encoding.num_categories,
        num_trees=1 + NUM_AVERAGED,
        rng=rng,
        min_leaf=min(1 + len(rows) // ROWS_PER_LEAF_ROW, MAX_MIN_LEAF),
    )
    predicted: Array = forest.predict(pool) + trend.predict(pool, weights)
    return predicted


MAX_DEPTH = 40
"""Greatest depth of a tree; trees of a thousand rows are about twenty deep."""
_NOT_ALLOWED = -math.inf
_ABSENT = -1.0
"""Replaces NaN: below the unit interval, so that early cuts separate missing entries."""


@final
@dataclass(frozen=True, slots=True)
class ExtraTrees:
    """A forest: the nodes of all trees in parallel arrays, with the roots first.

    Categories have no order, so each tree gives those of each column a random order, and cuts that
    like a number.

    Attributes:
        features: The column that a node cuts.
        thresholds: Rows with less than this go to the first child.
        children: Index of a node's first child, which the second follows; of a leaf, its own.
        values: The prediction of a node: the mean of its rows.
        codes: For each tree the code of each category, by column.

    Example:
        >>> import numpy as np
        >>> rows = np.linspace(0, 1, 20)[:, None]
        >>> forest = grow(rows, rows[:, 0] ** 2, (0,), num_trees=3, rng=np.random.default_rng(0))
        >>> bool(np.allclose(forest.predict(rows[[4, 15]]), rows[[4, 15], 0] ** 2))
        True

    Reference:
        Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 63, 2006.

    Departures:
        Every column is tried at each node (their K is the number of columns), and unordered
        categories are cut in a random order that is drawn once per tree rather than once per node.
    """

    features: Array
    thresholds: Array
    children: Array
    values: Array
    codes: tuple[dict[int, Array], ...]

    def predict(self, rows: Array) -> Array:
        """Return the prediction of each tree for each row.

        Args:
            rows: Vectors, one per row; NaN for inactive parameters.

        Returns:
            An array with a row for each tree and a column for each of `rows`.
        """
        # All trees at once, a level per iteration: numpy's overhead is per call, not per row.
        coded = np.concatenate([_coded(rows, codes) for codes in self.codes])
        where = np.arange(len(coded))
        nodes = np.repeat(np.arange(len(self.codes)), len(rows))
        for _ in range(MAX_DEPTH):
            is_inner = self.children[nodes[where]] != nodes[where]
            where = where[is_inner]
            if not len(where):
                break
            at = nodes[where]
            nodes[where] = self.children[at] + (
                coded[where, self.features[at]] >= self.thresholds[at]
            )
        return self.values[nodes].reshape(len(self.codes), len(rows))


def grow(
    rows: Array,
    targets: Array,
    num_categories: tuple[int, ...],
    *,
    num_trees: int,
    rng: Generator,
    min_leaf: int = 1,
) -> ExtraTrees:
    """Return a forest fitted to all rows, without bootstrap.

    Args:
        rows: Vectors, one per row; NaN for inactive parameters.
        targets: The value of each row; the same for all trees, or a row of values for each.
        num_categories: For each column the number of its categories, 0 for numbers.
        num_trees: How many trees to grow.
        rng: Random number generator.
        min_leaf: Least number of rows on each side of a cut.
    """
    codes = tuple(
        {column: rng.permutation(count) for column, count in enumerate(num_categories) if count}
        for _ in range(num_trees)
    )
    coded = np.ascontiguousarray(np.concatenate([_coded(rows, each) for each in codes]).T)
    growth = _Growth(
        coded,
        np.broadcast_to(targets, (num_trees, len(rows))).ravel(),
        np.repeat(np.arange(num_trees), len(rows)),
    )
    for depth in range(MAX_DEPTH):
        if not growth.cut(rng, min_leaf, is_last=depth == MAX_DEPTH - 1):
            break
    return growth.forest(codes)


class _Growth:
    """Trees while they grow, level by level: the rows not yet in a leaf, sorted by node."""

    def __init__(self, coded: Array, targets: Array, nodes: Array) -> None:
        self.coded, self.targets, self.nodes = coded, targets, nodes
        self.parts: list[tuple[Array, Array, Array, Array]] = []
        self.num_nodes = int(nodes[-1]) + 1
        self.first = 0

    def cut(self, rng: Generator, min_leaf: int, *, is_last: bool) -> bool:
        """Cut every node of the lowest level; return whether there is a level below."""
        starts = np.concatenate(([0], np.flatnonzero(np.diff(self.nodes)) + 1))
        sizes = np.diff(np.append(starts, len(self.nodes)))
        lows = np.minimum.reduceat(self.coded, starts, axis=1)
        highs = np.maximum.reduceat(self.coded, starts, axis=1)
        cuts = lows + (highs - lows) * rng.random(lows.shape)
        # A cut at the lower end would leave the first side empty.
        cuts = np.where(cuts > lows, cuts, highs)
        local = np.repeat(np.arange(len(starts)), sizes)
        # `take` needs a third of the time of `cuts[:, local]`.
        is_first = self.coded < cuts.take(local, axis=1)
        totals = np.add.reduceat(self.targets, starts)
        gains = self._gains(is_first, starts, sizes, totals, min_leaf)
        best = gains.argmax(axis=0)
        columns = np.arange(len(starts))
        is_mixed = np.maximum.reduceat(self.targets, starts) > np.minimum.reduceat(
            self.targets, starts
        )
        is_cut = is_mixed & (gains[best, columns] > _NOT_ALLOWED) & (not is_last)
        self._add_level(best, cuts[best, columns], totals / sizes, is_cut)
        return self._descend(is_first[best[local], np.arange(len(local))], is_cut, local)

    def _gains(
        self, is_first: Array, starts: Array, sizes: Array, totals: Array, min_leaf: int
    ) -> Array:
        """Return each cut's reduction of squared error, by column and node; -inf if not allowed."""
        # Of a node and its two sides, (sum of targets)^2 / count: what the split adds to it is by
        # how much the squared error around the means falls.
        first = np.add.reduceat(is_first * self.targets, starts, axis=1)
        first_size = np.add.reduceat(is_first, starts, axis=1, dtype=np.int32)
        second_size = sizes - first_size
        gains = (
            first**2 / np.maximum(first_size, 1)
            + (totals - first) ** 2 / np.maximum(second_size, 1)
            - totals**2 / sizes
        )
        return np.where((first_size >= min_leaf) & (second_size >= min_leaf), gains, _NOT_ALLOWED)

    def _add_level(self, features: Array, thresholds: Array, values: Array, is_cut: Array) -> None:
        below = self.num_nodes + 2 * (np.cumsum(is_cut) - 1)
        children = np.where(is_cut, below, self.first + np.arange(len(values)))
        self.parts.append((features, thresholds, children, values))

    def _descend(self, goes_first: Array, is_cut: Array, local: Array) -> bool:
        children = self.parts[-1][2]
        remaining = np.flatnonzero(is_cut[local])
        nodes = children[local[remaining]] + ~goes_first[remaining]
        by_node = nodes.argsort(kind="stable")
        order = remaining[by_node]
        self.first, self.num_nodes = self.num_nodes, self.num_nodes + 2 * int(is_cut.sum())
        self.nodes, self.targets = nodes[by_node], self.targets[order]
        self.coded = self.coded.take(order, axis=1)
        return len(order) > 0

    def forest(self, codes: tuple[dict[int, Array], ...]) -> ExtraTrees:
        features, thresholds, children, values = (
            np.concatenate(part) for part in zip(*self.parts, strict=True)
        )
        return ExtraTrees(features, thresholds, children, values, codes)


def _coded(rows: Array, codes: dict[int, Array]) -> Array:
    coded = np.array(rows, dtype=float)
    for column, order in codes.items():
        known = ~np.isnan(coded[:, column])
        coded[known, column] = order[coded[known, column].astype(int)]
    return np.where(np.isnan(coded), _ABSENT, coded)
