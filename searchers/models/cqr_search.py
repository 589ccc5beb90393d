"""CQR: quantile regression with gradient boosted trees, calibrated by conformal prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.learning_searcher import FailedTrials
from searchers.seeding import generator

from .candidates import around_best, spread_out
from .encoding import Encoding
from .model_search import ModelSearch

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]


NUM_FRESH = 300
"""Number of candidates besides the variations of the best configurations."""
NUM_QUANTILES = 5
MIN_CONFORMAL = 32
"""Number of trials from which on some are held out to calibrate the quantiles."""
HELD_OUT = 0.1
"""Share of trials that are held out."""
REFIT_SHARE = 0.05
"""Number of suggestions after which the model is refitted, as a share of the fitted trials."""
_FITS = 2**33
"""Number of the first fit's generator, beyond those of the suggestions."""


@final
class CQRSearch(ModelSearch):
    """Suggests by Thompson sampling from conformally corrected quantile predictions.

    The quantiles, 1/6 to 5/6, are those of a trial's rank among all trials, which follows from
    their values at every level they have reached (see `observations`). From 32 trials on, a tenth
    is held out, and each pair of quantiles is widened until it covers the right share of these.

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
        >>> searcher = CQRSearch(metric="loss", mode="min", n_initial_points=4)
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
        Salinas, Golebiowski, Klein, Seeger, Archambeau. Optimizing Hyperparameters with Conformal
        Quantile Regression. ICML 2023, arXiv 2305.03623.

    Departures:
        The paper uses each trial's last value, at any level; here it is its rank among trials of
        the same level, so that levels of different scales and metrics that get worse do no harm.
        The trees of all quantiles share their cuts. The model is refitted when the number of trials
        has grown by a twentieth, not after each. Half of the candidates are variations of the best
        trials, and the suggested one keeps a distance from earlier trials.
    """

    def __init__(  # noqa: PLR0917  (the order of its peers)
        self,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        n_initial_points: int | None = None,
        random_fraction: float = 0.0,
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
        self._fitted: _Fitted | None = None

    def propose(self, encoding: Encoding, rng: Generator) -> Array:
        """Return candidates, the one with the best sampled quantile first."""
        fitted = self._up_to_date(encoding)
        table = self.observations.table()
        self.note_model("conformal quantile regression", len(fitted.names))
        pool = np.concatenate(
            [around_best(table, encoding, rng), self.fresh(encoding, rng, NUM_FRESH, table)]
        )
        quantiles = fitted.quantiles(pool)
        drawn = quantiles[rng.integers(NUM_QUANTILES, size=len(pool)), np.arange(len(pool))]
        # Trees give many candidates the same value; ties are broken at random.
        order = np.lexsort((rng.random(len(pool)), drawn))
        return spread_out(pool[order], self.observations.vectors(), encoding)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base class, and the data of the last fit."""
        data = (
            None
            if self._fitted is None
            else [self._fitted.number, list(self._fitted.names), self._fitted.scores]
        )
        return {**super().state_dict(), "fitted": data}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; metric, mode and space must be known already."""
        super().load_state_dict(state)
        self._fitted = None
        if state["fitted"] is not None:
            number, names, scores = state["fitted"]
            self._fitted = self._fit(self._known_encoding, number, tuple(names), list(scores))

    def _up_to_date(self, encoding: Encoding) -> _Fitted:
        if encoding.branch is not None:
            # Only its trials are in the table; the fit to all is kept.
            table = self.observations.table()
            return self._fit(encoding, self._num_suggested, table.names, table.scores.tolist())
        fitted = self._fitted
        if fitted is None or self._num_suggested - fitted.number >= REFIT_SHARE * len(fitted.names):
            table = self.observations.table()
            fitted = self._fitted = self._fit(
                encoding, self._num_suggested, table.names, table.scores.tolist()
            )
        return fitted

    def _fit(
        self, encoding: Encoding, number: int, names: tuple[str, ...], scores: list[float]
    ) -> _Fitted:
        # By the number of the suggestion, so that a restore fits the same model.
        rng = generator(self._seed, _FITS + number)
        rows, targets = (
            np.array([self.observations.trials[name].vector for name in names]),
            np.array(scores),
        )
        levels = np.arange(1, NUM_QUANTILES + 1) / (NUM_QUANTILES + 1)
        order = rng.permutation(len(rows))
        num_held = round(HELD_OUT * len(rows)) if len(rows) >= MIN_CONFORMAL else 0
        held, used = order[:num_held], order[num_held:]
        trees = boost(rows[used], targets[used], encoding.num_categories, levels, rng)
        widening = (
            _widening(trees.predict(rows[held]), targets[held], levels)
            if num_held
            else np.zeros(NUM_QUANTILES)
        )
        return _Fitted(number, names, scores, trees, widening)


@final
@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fitted model with its training data, from which a restore fits it again.

    Attributes:
        number: The suggestion before which it was fitted.
        names: The trials.
        scores: Their scores then.
        trees: The predictor of quantiles.
        widening: The correction of each quantile.
    """

    number: int
    names: tuple[str, ...]
    scores: list[float]
    trees: QuantileTrees
    widening: Array

    def quantiles(self, rows: Array) -> Array:
        """Return the corrected quantiles, a row for each and a column for each of `rows`."""
        quantiles: Array = self.trees.predict(rows) + self.widening[:, None]
        return quantiles


def _widening(predicted: Array, targets: Array, levels: Array) -> Array:
    """Return the conformal correction of each quantile, from data that was held out.

    A pair of quantiles is moved apart until it covers its share of the targets.
    """
    widening = np.zeros(len(levels))
    for low in range(len(levels) // 2):
        high = len(levels) - 1 - low
        # The conformity score of conformalised quantile regression: the distance outside of the
        # interval, negative inside.
        missed = np.maximum(predicted[low] - targets, targets - predicted[high])
        share = min((levels[high] - levels[low]) * (1 + 1 / len(targets)), 1.0)
        widening[high] = np.quantile(missed, share, method="higher")
        widening[low] = -widening[high]
    return widening


NUM_ROUNDS = 40
DEPTH = 3
NUM_CUTS = 12
"""Number of random cuts from which the best is taken at each level of a tree."""
RATE = 0.15
"""Learning rate: the share of a tree's correction that is applied."""
_ABSENT = -1.0
"""Replaces NaN: below the unit interval, and no index of a category."""


@final
@dataclass(frozen=True, slots=True)
class QuantileTrees:
    """Oblivious trees: all nodes of a level share one cut, and the answers are bits of the leaf.

    Attributes:
        base: The quantiles of all targets, which the trees correct.
        features: The column of the cut, by tree and level.
        cuts: The threshold of a number, or the category, by tree and level.
        is_category: Whether it is a category, by tree and level.
        corrections: The corrections, by tree, quantile and leaf.

    Reference:
        Friedman. Greedy function approximation: a gradient boosting machine. Annals of Statistics
        29, 2001.

        Prokhorenkova, Gusev, Vorobev, Dorogush, Gulin. CatBoost: unbiased boosting with categorical
        features. NeurIPS 2018, arXiv 1706.09516 (trees with one question per level).
    """

    base: Array
    features: Array
    cuts: Array
    is_category: Array
    corrections: Array

    def predict(self, rows: Array) -> Array:
        """Return the quantiles, a row for each and a column for each of `rows`."""
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
        rows: Vectors, one per row; NaN for inactive parameters.
        targets: The value of each row.
        num_categories: For each column the number of its categories, 0 for numbers.
        quantiles: Which quantiles to predict, each between 0 and 1.
        rng: Random number generator.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.random((400, 1))
        >>> trees = boost(
        ...     rows, rows[:, 0] + rng.normal(size=400) * 0.1, (0,), np.array([0.1, 0.9]), rng
        ... )
        >>> low, high = trees.predict(np.array([[0.5]]))[:, 0]
        >>> bool(0.2 < low < 0.5 < high < 0.8)
        True
    """
    filled, is_category = np.nan_to_num(rows, nan=_ABSENT), np.array(num_categories, dtype=bool)
    base = np.quantile(targets, quantiles)
    predicted = np.repeat(base[:, None], len(targets), axis=1)
    trees = []
    for _ in range(NUM_ROUNDS):
        residuals = targets - predicted
        # The negative gradient of the pinball loss.
        slopes = quantiles[:, None] - (residuals < 0)
        features, cuts, leaves = _grow_tree(filled, is_category, slopes, rng)
        corrections = RATE * _leaf_quantiles(residuals, leaves, quantiles)
        predicted += corrections[:, leaves]
        trees.append((features, cuts, is_category[features], corrections))
    return QuantileTrees(base, *(np.array(part) for part in zip(*trees, strict=True)))


def _grow_tree(
    rows: Array, is_category: Array, slopes: Array, rng: Generator
) -> tuple[Array, Array, Array]:
    """Return the columns and cuts of one tree, level by level, and the leaf of each row."""
    leaves = np.zeros(len(rows), dtype=int)
    features, cuts = np.empty(DEPTH, dtype=int), np.empty(DEPTH)
    for level in range(DEPTH):
        columns = rng.integers(rows.shape[1], size=NUM_CUTS)
        # A cut between two random rows lies where rows are dense.
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
    """Return by how much each cut reduces the slopes' squared error within leaves, summed up."""
    is_in = (leaves == np.arange(num_leaves)[:, None]).astype(float)
    parts = (is_in[:, None, :] * slopes).reshape(-1, len(leaves))
    yes = answers.astype(float)
    sums, counts = (yes @ parts.T).reshape(len(yes), num_leaves, -1), (yes @ is_in.T)[..., None]
    totals, sizes = parts.sum(axis=1).reshape(num_leaves, -1), is_in.sum(axis=1)[:, None]
    gains = sums**2 / np.maximum(counts, 1) + (totals - sums) ** 2 / np.maximum(sizes - counts, 1)
    summed: Array = gains.sum(axis=(1, 2))
    return summed


def _leaf_quantiles(residuals: Array, leaves: Array, quantiles: Array) -> Array:
    """Return the residuals' quantiles by quantile and leaf; 0 for leaves without rows.

    Each quantile is of its own residuals, which `np.quantile` cannot compute in one call.
    """
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
