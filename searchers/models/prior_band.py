"""PriorBand: random configurations, drawn in part from the user's priors and around the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from .candidates import mutants
from .encoding import Encoding
from .observations import Table

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

ETA = 3
"""The paper's eta, also the reciprocal of the share of trials that count as the best."""
SPREADS = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Standard deviation around the prior, as a part of the unit interval, by confidence."""
ODDS = {"low": 2.0, "medium": 4.0, "high": 8.0}
"""Odds of the expected category against each other one, by confidence."""
_CHANGE_PROBABILITY = 0.5
_CHANGE = 0.25


class Shares(NamedTuple):
    """Shares of new points by origin; they add up to 1.

    Attributes:
        random: Drawn uniformly from the space.
        prior: Drawn from the user's priors.
        incumbent: Variations of the best configuration.
    """

    random: float
    prior: float
    incumbent: float


@final
class LocalDensity:
    """A density around one vector: truncated Gaussians for numbers, a favoured category.

    Args:
        encoding: The space.
        centre: The vector of the highest density; NaN for columns without a prior.
        confidences: ``"low"``, ``"medium"`` or ``"high"`` for each column.
    """

    def __init__(self, encoding: Encoding, centre: Array, confidences: list[str]) -> None:
        self._encoding = encoding
        self._num_categories = np.array(encoding.num_categories, dtype=int)
        self.centre = centre
        self._spreads = np.array([SPREADS[confidence] for confidence in confidences])
        self._odds = np.array([ODDS[confidence] for confidence in confidences])

    def sample(self, rng: Generator, num_points: int) -> Array:
        """Return random vectors, one per row."""
        shape = (num_points, len(self.centre))
        fresh = self._encoding.entries_from_cube(rng.random(shape))
        moved = np.nan_to_num(self.centre, nan=0.5) + self._spreads * rng.normal(size=shape)
        # Truncated by rejection; the few that are still outside after 20 rounds are clipped.
        for _ in range(20):
            moved = np.where(
                (moved < 0) | (moved > 1),
                self.centre + self._spreads * rng.normal(size=shape),
                moved,
            )
        is_favoured = rng.random(shape) < self._favour()
        points = np.where(
            self._num_categories > 0,
            np.where(is_favoured, self.centre, fresh),
            np.clip(moved, 0, 1),
        )
        return self._encoding.snapped(np.where(np.isnan(self.centre), fresh, points))

    def densities(self, points: Array) -> Array:
        """Return the density at each point; columns without a prior contribute a factor of 1."""
        # The mass of each Gaussian within the unit interval, by the midpoint rule.
        grid = np.linspace(0.005, 0.995, 100)
        masses = np.exp(-0.5 * ((grid[:, None] - self.centre) / self._spreads) ** 2).mean(axis=0)
        numbers = np.exp(-0.5 * ((points - self.centre) / self._spreads) ** 2) / masses
        favour, counts = self._favour(), np.maximum(self._num_categories, 1)
        categories = (1 - favour) + favour * counts * (points == self.centre)
        found: Array = np.where(self._num_categories > 0, categories, numbers)
        found = np.where(np.isnan(self.centre) | np.isnan(points), 1.0, found)
        product: Array = found.prod(axis=1)
        return product

    def _favour(self) -> Array:
        """Return the probability of the favoured category beyond that of a uniform draw."""
        favour: Array = (self._odds - 1) / (self._odds - 1 + self._num_categories)
        return favour


@final
class PriorBand:
    """Draws vectors uniformly, from the user's priors, and around the best vector so far.

    Half of the vectors are uniform. The others are drawn from the prior until three trials have
    reached a level above the first, or nine the first one. From then on they are divided between
    prior and incumbent by their densities at the best third of the trials at the highest such
    level. So a good prior stays in use, and a bad one is abandoned.

    Args:
        encoding: The space, with the priors of its parameters.

    Reference:
        Mallik, Bergman, Hvarfner, Stoll, Janowski, Lindauer, Nardi, Hutter. PriorBand: Practical
        Hyperparameter Optimization in the Age of Deep Learning. NeurIPS 2023, arXiv 2306.12370.

    Departures:
        The paper's brackets begin at several levels, with fewer random points at higher ones; here
        all trials begin at the lowest. Once a model makes the suggestions, these points are its
        candidates.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        centre = np.array(
            [np.nan if column.prior is None else column.prior for column in encoding.columns]
        )
        self.prior = LocalDensity(
            encoding, centre, [column.confidence for column in encoding.columns]
        )

    def expected(self, rng: Generator) -> Array:
        """Return the vector of the user's priors; entries without a prior are random."""
        fresh = self._encoding.entries_from_cube(rng.random((1, len(self._encoding.columns))))
        return self._encoding.snapped(
            np.where(np.isnan(self.prior.centre), fresh, self.prior.centre)
        )

    def sample(self, rng: Generator, num_points: int, table: Table) -> Array:
        """Return random vectors, one per row; uniform ones if there is no prior."""
        fresh = self._encoding.from_cube(rng.random((num_points, len(self._encoding.columns))))
        if not self._encoding.has_prior:
            return fresh
        shares = self.shares(table)
        kinds = rng.choice(3, size=num_points, p=shares)[:, None]
        expected = self.prior.sample(rng, num_points)
        if not shares.incumbent:
            return np.where(kinds == 0, fresh, expected)
        parents = np.repeat(table.vectors[[table.quantiles.argmin()]], num_points, axis=0)
        changed = mutants(
            rng, self._encoding, parents, np.full(num_points, _CHANGE), _CHANGE_PROBABILITY
        )
        return np.where(kinds == 0, fresh, np.where(kinds == 1, expected, changed))

    def shares(self, table: Table) -> Shares:
        """Return the shares of new points, given the results so far."""
        best = _best_third(table)
        if not len(best):
            return Shares(0.5, 0.5, 0.0)
        incumbent = LocalDensity(
            self._encoding, table.vectors[best[0]], ["medium"] * len(self._encoding.columns)
        )
        # As in the paper, the better a trial, the greater its weight.
        points, weights = table.vectors[best], np.arange(len(best), 0, -1)
        for_prior, for_incumbent = (
            float(weights @ self.prior.densities(points)),
            float(weights @ incumbent.densities(points)),
        )
        share = for_prior / (for_prior + for_incumbent)
        return Shares(0.5, 0.5 * share, 0.5 * (1 - share))


def _best_third(table: Table) -> Array:
    """Return indices of the best third at the highest informative level, the best first."""
    for height in range(int(table.heights.max(initial=0)), -1, -1):
        there = np.flatnonzero(table.heights >= height)
        if len(there) >= (ETA if height else ETA**2):
            ranked: Array = there[np.argsort(table.quantiles[there], kind="stable")]
            return ranked[: max(len(ranked) // ETA, 1)]
    return np.array([], dtype=int)
