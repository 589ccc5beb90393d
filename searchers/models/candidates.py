"""Candidate configurations for a model to choose from: initial designs, variations of the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .encoding import Encoding
from .observations import Table

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

# Chosen by measurement, with benchmarks/quality.
NUM_LOCAL = 400
"""Number of variations of the best trials."""
NUM_BEST = 8
"""Number of trials that are varied."""
STEPS = (0.3, 0.2, 0.1, 0.05)
"""Standard deviations of changes, as parts of the unit interval."""
CHANGE_PROBABILITY = 0.3
NOVELTY = 0.3
"""Least distance from earlier trials, as a part of that of evenly spread ones."""
LEAST_STEP = 0.01
"""Least difference from the numbers of earlier trials, as a part of the unit interval."""
_SAME = 1e-9
MAX_CHECKED = 200
"""Number of candidates whose distance from earlier trials is checked."""
NUM_AT_ONCE = 10
"""Number of them that are checked at the same time."""


def latin(rng: Generator, num_points: int, num_columns: int, num_tries: int = 16) -> Array:
    """Return a Latin hypercube sample: of several designs the one with the widest gaps.

    Args:
        rng: Random number generator.
        num_points: Number of points, and of slices of each side.
        num_columns: Number of dimensions.
        num_tries: Number of designs; the one whose nearest two points are farthest apart is taken.

    Reference:
        McKay, Beckman, Conover. A comparison of three methods for selecting values of input
        variables. Technometrics 21, 1979.

        Morris, Mitchell. Exploratory designs for computational experiments. Journal of Statistical
        Planning and Inference 43, 1995.
    """
    slices = np.tile(np.arange(num_points)[:, None], (num_tries, 1, num_columns))
    designs = (rng.permuted(slices, axis=1) + rng.random(slices.shape)) / num_points
    if num_points == 1 or num_columns == 0:
        only: Array = designs[0]
        return only
    # The diagonal, distances of points from themselves, is made greater than any other distance.
    gaps = ((designs[:, :, None] - designs[:, None]) ** 2).sum(axis=-1) + 2 * num_columns * np.eye(
        num_points
    )
    widest: Array = designs[gaps.min(axis=(1, 2)).argmax()]
    return widest


def around_best(table: Table, encoding: Encoding, rng: Generator) -> Array:
    """Return variations of the best trials, with steps of several sizes."""
    # Of equal trials, those measured at higher levels come first.
    best = table.vectors[np.lexsort((-table.heights, table.quantiles))[:NUM_BEST]]
    parents = best[rng.integers(len(best), size=NUM_LOCAL)]
    steps = np.array(STEPS)[rng.integers(len(STEPS), size=NUM_LOCAL)]
    return mutants(rng, encoding, parents, steps, CHANGE_PROBABILITY)


def spread_out(
    candidates: Array, known: Array, encoding: Encoding, novelty: float = NOVELTY
) -> Array:
    """Return the candidates, first the best one that keeps a distance from all trials.

    It differs from each of them in a category, or in one number by ``novelty * n ** (-1 / d)``, a
    part of the distance at which `n` trials would lie if they filled the space evenly. A
    configuration very near to a trial adds little information, and a model that ignores noise would
    propose the surroundings of a lucky trial for ever.

    Args:
        candidates: Vectors, the best first.
        known: The vectors of all trials.
        encoding: The space.
        novelty: The required part of the distance in an even filling.
    """
    radius = novelty * (len(known) + 1) ** (-1 / max(len(encoding.columns), 1))
    # Two inactive entries have no distance; an active and an inactive one are at least 1 apart.
    filled, trials = (
        np.nan_to_num(candidates[:MAX_CHECKED], nan=-1.0),
        np.nan_to_num(known, nan=-1.0),
    )
    # Mostly one of the first is far enough.
    for start in range(0, len(filled), NUM_AT_ONCE):
        some = filled[start : start + NUM_AT_ONCE]
        is_near = np.ones((len(some), len(trials)), dtype=bool)
        for place, is_one in enumerate(encoding.is_category):
            gaps = np.abs(some[:, place, None] - trials[:, place])
            is_near &= gaps == 0 if is_one else gaps < radius
        is_taken = is_near.any(axis=1)
        if not is_taken.all():
            return np.concatenate([candidates[[start + is_taken.argmin()]], candidates])
    return candidates


def mutants(
    rng: Generator, encoding: Encoding, parents: Array, steps: Array, probability: float
) -> Array:
    """Return one changed vector for each parent.

    Args:
        rng: Random number generator.
        encoding: The space.
        parents: Vectors, one per row; inactive entries that become active are drawn at random.
        steps: The standard deviation of a change for each parent, as a part of the unit interval.
        probability: The probability that an entry changes; at least one does.
    """
    shape: tuple[int, ...] = parents.shape
    cube: Array = rng.random(shape)
    fresh = encoding.entries_from_cube(cube)
    is_changed: Array = rng.random(shape) < probability
    chosen = rng.integers(max(shape[1], 1), size=shape[0])
    is_active = ~np.isnan(parents)
    if not is_active.all():
        # Only a change of an active entry makes another configuration.
        chosen = np.where(is_active, rng.random(shape), -1.0).argmax(axis=1)
    is_changed[np.arange(shape[0]), chosen] = True
    # Reflected rather than clipped, which would pile candidates up at the ends.
    moved = _reflected(
        parents + rng.normal(size=shape) * np.maximum(steps[:, None], encoding.least_steps)
    )
    changed = np.where(encoding.is_category, fresh, moved)
    children = np.where(is_changed, changed, parents)
    return encoding.snapped(np.where(np.isnan(children), fresh, children), parents)


def without_repeated_numbers(
    vector: Sequence[float], known: Array, encoding: Encoding, rng: Generator
) -> list[float]:
    """Return the vector with continuous entries moved a little where a trial has the same.

    Variations of the best trials leave most entries as they are. A range is searched at few places
    then, although every new one would tell more.

    Args:
        vector: A vector of the space.
        known: The vectors of all trials.
        encoding: The space.
        rng: Random number generator.
    """
    moved = list(vector)
    if not len(known):
        return moved
    for place, column in enumerate(encoding.columns):
        if column.entries is None and (np.abs(known[:, place] - vector[place]) < _SAME).any():
            step = LEAST_STEP * (1 + abs(rng.normal())) * rng.choice([-1.0, 1.0])
            moved[place] = float(_reflected(np.array(vector[place] + step)))
    values = encoding.decoded(moved)
    settled = encoding.encoded(values)
    # Where conditions depend on a number, others may have become active or inactive.
    is_valid = not encoding.missing(values) and np.isnan(settled).sum() == np.isnan(vector).sum()
    return settled if is_valid and encoding.allows(settled) else list(vector)


def _reflected(places: Array) -> Array:
    """Return the places reflected at the ends of the unit interval."""
    reflected: Array = np.abs((places - 1) % 2 - 1)
    return reflected
