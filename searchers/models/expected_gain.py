"""What a candidate is expected to add to the front of several metrics, under constraints.

Each metric has a Gaussian process of its own, and so has the excess over each bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .expected_hypervolume import boxes, log_expected_hypervolume, log_feasibility
from .gaussian_process import log_expected_improvement
from .level_rows import spans_levels
from .observations import Table, best_and_others, describe_retention
from .tradeoffs import Tradeoffs, is_on_front, scale_of_front

if TYPE_CHECKING:
    from numpy.random import Generator

    from .encoding import Encoding
    from .gaussian_process import GaussianProcess
    from .gp_search import ProcessSearch

Array = np.ndarray[Any, Any]

MAX_ROWS = 200
"""Most trials that a process is fitted to: half are the best, half drawn from the others."""
CLIP = 2.0
"""Values worse than the median by more than this multiple of its distance from the best count as
that bad: how bad the worst are says nothing about the best."""
TEMPER = 0.3
"""Factor of the deviations when trials have been measured at several levels of training: what is
explored is mostly stopped at the first level."""
MARGIN = 0.1
"""Part of the front's range by which the reference point of the hypervolume lies beyond it."""


def expected_gain(
    searcher: ProcessSearch, table: Table, encoding: Encoding, rng: Generator
) -> tuple[Callable[[Array], Array], Table]:
    """Return a function of candidates, the logarithm of what each is expected to add.

    That is the hypervolume beyond the feasible front, or the improvement of the only metric, times
    the probability that all constraints are kept; that probability alone while no trial is
    feasible.

    Args:
        searcher: A search with several metrics, or constraints.
        table: Its trials, by a scalarisation of the metrics.
        encoding: The space.
        rng: Random number generator.

    Returns:
        The function, and the table.
    """
    tradeoffs = searcher.known_tradeoffs
    excesses = tradeoffs.excesses(table.names)
    is_feasible = (excesses <= 0).all(axis=1) & np.isfinite(table.last_values)
    kept = best_and_others(table, MAX_ROWS, rng)
    processes, points = _objectives(searcher, tradeoffs, kept, is_feasible, encoding)
    limits = [
        searcher.process(
            table.vectors[kept],
            clipped_excesses(column)[kept],
            encoding.num_categories,
            metric=str(each),
        )
        for each, column in zip(tradeoffs.constraints, excesses.T, strict=True)
    ]
    running = searcher.observations.running_vectors()
    if len(running):
        for process in (*processes, *limits):
            process.believe(running)
    searcher.note_model("Gaussian processes", len(kept), describe_retention(table))
    temper = TEMPER if spans_levels(table) else 1.0
    added = _added(points[is_feasible]) if is_feasible.any() else None

    def gain(candidates: Array) -> Array:
        total = np.zeros(len(candidates))
        for limit in limits:
            total += log_feasibility(*limit.predict(candidates))
        if added is not None:
            predicted = [process.predict(candidates) for process in processes]
            means = np.column_stack([mean for mean, _ in predicted])
            deviations = np.column_stack([deviation for _, deviation in predicted])
            total += added(means, deviations * temper)
        return total

    return gain, table


def _objectives(
    searcher: ProcessSearch,
    tradeoffs: Tradeoffs,
    kept: Array,
    is_feasible: Array,
    encoding: Encoding,
) -> tuple[list[GaussianProcess], Array]:
    """Return the process of each objective, and what they expect of the trials, in columns."""
    processes, reached = [], []
    for number, (metric, _) in enumerate(tradeoffs.objectives):
        table = tradeoffs.of_objective(number, searcher.observations).table()
        trials = None
        if spans_levels(table):
            process, _, _ = searcher.process_of_levels(table, encoding.num_categories, metric)
            trials = np.arange(len(table.names))
        else:
            process = searcher.process(
                table.vectors[kept],
                _targets(table.last_values, is_feasible)[kept],
                encoding.num_categories,
                metric=metric,
            )
        processes.append(process)
        reached.append(process.predict(table.vectors, trials)[0])
    return processes, np.column_stack(reached)


def _added(points: Array) -> Callable[[Array, Array], Array]:
    """Return the logarithm of what is expected to be added to points, by mean and deviation."""
    if points.shape[1] == 1:
        best = float(points.min())
        return lambda means, deviations: log_expected_improvement(
            means[:, 0], deviations[:, 0], best
        )
    low, width = scale_of_front(points)
    lows, highs = boxes(points[is_on_front(points)], low + (1 + MARGIN) * width)
    return lambda means, deviations: log_expected_hypervolume(means, deviations, lows, highs)


def _targets(values: Array, is_feasible: Array) -> Array:
    """Return values standardised, those worse than all of the feasible trials as bad as these."""
    is_known = np.isfinite(values)
    if not is_known.any():
        return np.zeros(len(values))
    worst = values[is_known & is_feasible] if is_feasible.any() else values[is_known]
    clipped = np.minimum(values, worst.max())
    targets: Array = (clipped - clipped.mean()) / max(float(clipped.std()), 1e-300)
    return targets


def clipped_excesses(excesses: Array) -> Array:
    """Return excesses over a bound in units of their median size, and clipped.

    How far a trial is beyond the bound says little about where the bound is reached.

    Example:
        >>> clipped_excesses(np.array([-1.0, 0.5, 2.0, 70.0, np.inf])).tolist()
        [-0.6666666666666666, 0.3333333333333333, 1.3333333333333333, 2.0, 2.0]
    """
    known = excesses[np.isfinite(excesses)]
    scale = float(np.median(np.abs(known))) if len(known) else 1.0
    clipped: Array = np.clip(excesses / (scale or 1.0), -CLIP, CLIP)
    return clipped
