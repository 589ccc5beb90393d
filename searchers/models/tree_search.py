"""TreeSearch: extremely randomised trees with Thompson sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.searcher import FailedTrials

from .candidates import around_best, spread_out
from .encoding import Encoding
from .linear_trend import LinearTrend
from .model_search import ModelSearch
from .observations import Table, extrapolate_final_scores, normal_scores

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]


NUM_FRESH = 300
"""How many candidates are no changes of the best."""
NUM_AVERAGED = 5
"""How many trees are averaged to temper the one that is drawn."""
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
    the metric. From the values at all levels of training their order at the highest level is
    extrapolated (see `extrapolate_final_scores`): trials that are stopped early or learn slowly
    count with their expected final scores. For each suggestion, a linear trend is fitted to the
    ranks as normal scores, and extremely randomised trees to its residuals, which takes some
    milliseconds; each tree has a trend of its own, drawn from the posterior. Candidates are some
    hundred variations of the best configurations and random ones; the one with the best sum of one
    tree's prediction and the mean of five others is suggested: one tree alone would explore too
    much, the mean too little. Failed trials, and values that are not finite, count as worst.

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
        random_fraction: How many of the later suggestions are random, between 0 and 1.
        time_attr: Entry of a result that tells how long the trial has trained.
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
        Geurts, Ernst, Wehenkel. Extremely randomized trees. Machine Learning 63, 2006. Hutter,
        Hoos, Leyton-Brown. Sequential Model-Based Optimization for General Algorithm Configuration.
        LION 2011 (forests, and changes of the best as candidates). Thompson. On the likelihood that
        one unknown probability exceeds another in view of the evidence of two samples. Biometrika
        25, 1933.

    Departures:
        From SMAC: extrapolated ranks in place of values, a trend below the trees, and a
        draw tempered by a mean for want of expected improvement.
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
        """Return candidates, the best first by one random tree and the mean of some others."""
        table = extrapolate_final_scores(self.observations.table(), encoding.num_categories)
        pool = np.concatenate(
            [around_best(table, encoding, rng), self.fresh(encoding, rng, NUM_FRESH, table)]
        )
        rows, scores = _learnt(table, rng)
        predicted = _predicted(rows, scores, pool, encoding, rng)
        drawn, others = predicted[0], predicted[1 : 1 + NUM_AVERAGED]
        order = np.argsort(drawn + others.mean(axis=0), kind="stable")
        return spread_out(pool[order], self.observations.vectors(), encoding, NOVELTY)


def _learnt(table: Table, rng: Generator) -> tuple[Array, Array]:
    """Return the vectors and scores of the trials that the model is fitted to."""
    if len(table.quantiles) <= MAX_ROWS:
        return table.vectors, table.scores
    order = np.argsort(table.quantiles, kind="stable")
    others = rng.permutation(order[MAX_ROWS // 2 :])[: MAX_ROWS // 2]
    kept = np.concatenate([order[: MAX_ROWS // 2], others])
    return table.vectors[kept], normal_scores(table.quantiles[kept])


def _predicted(
    rows: Array, scores: Array, pool: Array, encoding: Encoding, rng: Generator
) -> Array:
    """Return the prediction of each tree, with its trend, for each candidate."""
    trend = LinearTrend(rows, scores, encoding.num_categories)
    weights = trend.drawn(rng, 1 + NUM_AVERAGED)
    left = scores - trend.of(rows, weights)
    min_leaf = min(1 + len(rows) // ROWS_PER_LEAF_ROW, MAX_MIN_LEAF)
    forest = grow(
        rows, left, encoding.num_categories, num_trees=1 + NUM_AVERAGED, rng=rng, min_leaf=min_leaf
    )
    predicted: Array = forest.predict(pool) + trend.of(pool, weights)
    return predicted


MAX_DEPTH = 40
"""Where growing ends at the latest; trees of a thousand rows are about twenty deep."""
_NOT_ALLOWED = -math.inf
_ABSENT = -1.0
"""Replaces NaN: below the unit interval, so that early cuts separate missing entries."""


@final
@dataclass(frozen=True, slots=True)
class ExtraTrees:
    """A forest: for each node its cut and its children, all trees in one list of nodes.

    Categories have no order, so each tree puts those of each column into a random order of its own
    and cuts that like a number.

    Attributes:
        features: The column that a node cuts.
        thresholds: Rows with less than this go to the first child.
        children: The first child of a node, the second follows it; a leaf is its own child.
        values: What a node predicts, the mean of its rows.
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
            rows: Vectors, one per row; NaN for what is not there.

        Returns:
            An array with a row for each tree and a column for each of `rows`.
        """
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
        rows: Vectors, one per row; NaN for what is not there.
        targets: The value of each row, the same for all trees or, with a row for each tree, its
            own.
        num_categories: For each column the number of its categories, 0 for numbers.
        num_trees: How many trees to grow.
        rng: Random number generator.
        min_leaf: How many rows each side of a cut has at least.
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
    """Trees while they grow: the rows not yet in a leaf, in the order of their nodes."""

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
        # Which takes a third of the time of an index.
        is_first = self.coded < cuts.take(local, axis=1)
        totals = np.add.reduceat(self.targets, starts)
        gains = self._gains(is_first, starts, sizes, totals, min_leaf)
        best = gains.argmax(axis=0)
        columns = np.arange(len(starts))
        is_mixed = np.maximum.reduceat(self.targets, starts) > np.minimum.reduceat(
            self.targets, starts
        )
        is_cut = is_mixed & (gains[best, columns] > _NOT_ALLOWED) & (not is_last)
        self._note(best, cuts[best, columns], totals / sizes, is_cut)
        return self._descend(is_first[best[local], np.arange(len(local))], is_cut, local)

    def _gains(
        self, is_first: Array, starts: Array, sizes: Array, totals: Array, min_leaf: int
    ) -> Array:
        """Return each cut's reduction of squared error, by column and node; -inf if not allowed."""
        first = np.add.reduceat(is_first * self.targets, starts, axis=1)
        first_size = np.add.reduceat(is_first, starts, axis=1, dtype=np.int32)
        second_size = sizes - first_size
        gains = (
            first**2 / np.maximum(first_size, 1)
            + (totals - first) ** 2 / np.maximum(second_size, 1)
            - totals**2 / sizes
        )
        return np.where((first_size >= min_leaf) & (second_size >= min_leaf), gains, _NOT_ALLOWED)

    def _note(self, features: Array, thresholds: Array, values: Array, is_cut: Array) -> None:
        below = self.num_nodes + 2 * (np.cumsum(is_cut) - 1)
        children = np.where(is_cut, below, self.first + np.arange(len(values)))
        self.parts.append((features, thresholds, children, values))

    def _descend(self, goes_first: Array, is_cut: Array, local: Array) -> bool:
        children = self.parts[-1][2]
        goes_on = np.flatnonzero(is_cut[local])
        nodes = children[local[goes_on]] + ~goes_first[goes_on]
        by_node = nodes.argsort(kind="stable")
        order = goes_on[by_node]
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
