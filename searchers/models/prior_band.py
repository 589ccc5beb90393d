"""PriorBand: share suggestions between the user's priors, the best trials, and the model."""

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
SPREADS = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Standard deviation around the prior, in parts of the unit interval, by confidence."""
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
class Belief:
    """A density around one vector: truncated Gaussians for numbers, a favoured category.

    Args:
        encoding: The space.
        centre: Where it is highest; NaN for columns of which nothing is expected.
        confidences: ``"low"``, ``"medium"`` or ``"high"`` for each column.
    """

    def __init__(self, encoding: Encoding, centre: Array, confidences: list[str]) -> None:
        self._encoding = encoding
        self._num_categories = np.array(encoding.num_categories, dtype=int)
        self.centre = centre
        self._spreads = np.array([SPREADS[confidence] for confidence in confidences])
        self._odds = np.array([ODDS[confidence] for confidence in confidences])

    def drawn(self, rng: Generator, num_points: int) -> Array:
        """Return so many vectors, one per row."""
        shape = (num_points, len(self.centre))
        fresh = self._encoding.entries_from_cube(rng.random(shape))
        moved = np.nan_to_num(self.centre, nan=0.5) + self._spreads * rng.normal(size=shape)
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
        """Return how dense it is at each point; 1 everywhere for one that expects nothing."""
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
        """Return the probability of taking the favoured category before a uniform draw."""
        favour: Array = (self._odds - 1) / (self._odds - 1 + self._num_categories)
        return favour


@final
class PriorBand:
    """Draws new points uniformly, around the user's priors, and around the best vector.

    Half of the points of the lowest level are random. The others follow the prior until three
    trials have reached a level above the first, or nine one and the same. From then on prior and
    incumbent divide them: each gets the more, the denser it is where the best third of the trials
    at the highest such level lie. So a good prior is followed on, and a bad one is left behind.

    Args:
        encoding: The space, with the priors of its parameters.

    Reference:
        Mallik, Bergman, Hvarfner, Stoll, Janowski, Lindauer, Nardi, Hutter. PriorBand: Practical
        Hyperparameter Optimization in the Age of Deep Learning. NeurIPS 2023, arXiv 2306.12370.

    Departures:
        The paper's brackets begin at several levels, with fewer random points at higher ones; our
        searchers see trials begin at the lowest alone. Where models come to suggest, these points
        are their candidates.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        centre = np.array(
            [np.nan if column.prior is None else column.prior for column in encoding.columns]
        )
        self.prior = Belief(encoding, centre, [column.confidence for column in encoding.columns])

    def expected(self, rng: Generator) -> Array:
        """Return the vector of the user's priors; entries without a prior are random."""
        fresh = self._encoding.entries_from_cube(rng.random((1, len(self._encoding.columns))))
        return self._encoding.snapped(
            np.where(np.isnan(self.prior.centre), fresh, self.prior.centre)
        )

    def drawn(self, rng: Generator, num_points: int, table: Table) -> Array:
        """Return so many vectors, one per row; without any prior they are random."""
        fresh = self._encoding.from_cube(rng.random((num_points, len(self._encoding.columns))))
        if not self._encoding.has_prior:
            return fresh
        shares = self.shares(table)
        kinds = rng.choice(3, size=num_points, p=shares)[:, None]
        expected = self.prior.drawn(rng, num_points)
        if not shares.incumbent:
            return np.where(kinds == 0, fresh, expected)
        parents = np.repeat(table.vectors[[table.quantiles.argmin()]], num_points, axis=0)
        changed = mutants(
            rng, self._encoding, parents, np.full(num_points, _CHANGE), _CHANGE_PROBABILITY
        )
        return np.where(kinds == 0, fresh, np.where(kinds == 1, expected, changed))

    def shares(self, table: Table) -> Shares:
        """Return how new points are shared out after what is known of trials."""
        judges = _judges(table)
        if not len(judges):
            return Shares(0.5, 0.5, 0.0)
        incumbent = Belief(
            self._encoding, table.vectors[judges[0]], ["medium"] * len(self._encoding.columns)
        )
        points, weights = table.vectors[judges], np.arange(len(judges), 0, -1)
        for_prior, for_incumbent = (
            float(weights @ self.prior.densities(points)),
            float(weights @ incumbent.densities(points)),
        )
        share = for_prior / (for_prior + for_incumbent)
        return Shares(0.5, 0.5 * share, 0.5 * (1 - share))


def _judges(table: Table) -> Array:
    """Return indices of the best third at the highest informative level, the best first."""
    for height in range(int(table.heights.max(initial=0)), -1, -1):
        there = np.flatnonzero(table.heights >= height)
        if len(there) >= (ETA if height else ETA**2):
            ranked: Array = there[np.argsort(table.quantiles[there], kind="stable")]
            return ranked[: max(len(ranked) // ETA, 1)]
    return np.array([], dtype=int)
