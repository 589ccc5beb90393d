"""What a candidate is expected to add to the front of several metrics, under constraints.

Each metric has a Gaussian process of its own, and so has the excess over each bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

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
    from .process_search import ProcessSearch

Array = np.ndarray[Any, Any]

MAX_ROWS = 200
"""Most trials that a process is fitted to: half are the best, half drawn from the others."""
CLIP = 2.0
"""Values worse than the median by more than this multiple of its distance from the best count as
that bad: how bad the worst are says nothing about the best."""
TEMPER = 0.3
"""Factor of the deviations when trials have been measured at several levels of training: what is
explored is mostly stopped at the first level."""
MARGIN = 0.5
"""Part of the front's range by which the reference point of the hypervolume lies beyond it. With a
tenth, the ends of the front were found late."""


@final
class ExpectedGain:
    """The logarithm of what each candidate is expected to add.

    That is the hypervolume beyond the feasible front, or the improvement of the only metric, times
    the probability that all constraints are kept; that probability alone while no trial is
    feasible.

    Args:
        searcher: A search with several metrics, or constraints.
        table: Its trials, by a scalarisation of the metrics.
        encoding: The space.
        rng: Random number generator.

    Reference:
        Gelbart, Snoek, Adams. Bayesian Optimization with Unknown Constraints. UAI 2014, arXiv
        1403.5607 (the probability of feasibility alone while nothing is feasible).
    """

    def __init__(
        self, searcher: ProcessSearch, table: Table, encoding: Encoding, rng: Generator
    ) -> None:
        tradeoffs = searcher.known_tradeoffs
        excesses = tradeoffs.excesses(table.names)
        is_feasible = (excesses <= 0).all(axis=1) & np.isfinite(table.last_values)
        kept = best_and_others(table, MAX_ROWS, rng)
        self._processes, points = _objectives(searcher, tradeoffs, kept, is_feasible, encoding)
        is_open = tradeoffs.unmeasured(table.names, searcher.observations)
        measured = [kept[~column[kept]] for column in is_open.T]
        self._limits = [
            searcher.process(
                table.vectors[rows],
                clipped_excesses(column)[rows],
                encoding.num_categories,
                metric=str(each),
            )
            for each, column, rows in zip(tradeoffs.constraints, excesses.T, measured, strict=True)
            if len(rows)
        ]
        running = searcher.observations.running_vectors()
        if len(running):
            for process in (*self._processes, *self._limits):
                process.believe(running)
        self._temper = TEMPER if spans_levels(table) else 1.0
        self._added = _added(points[is_feasible]) if is_feasible.any() else None
        self._num_fitted, self._retention = len(kept), describe_retention(table)

    def __call__(self, candidates: Array) -> Array:
        """Return it for each row."""
        total = self._log_feasibility(candidates)
        if self._added is not None:
            predicted = [process.predict(candidates) for process in self._processes]
            means = np.column_stack([mean for mean, _ in predicted])
            deviations = np.column_stack([deviation for _, deviation in predicted])
            total += self._added(means, deviations * self._temper)
        return total

    def explain(self, searcher: ProcessSearch, candidate: Array) -> None:
        """Note how a candidate has been chosen, for `explain_suggestion`."""
        sought = "improvement" if len(self._processes) == 1 else "hypervolume"
        if self._added is None:
            sought = "feasibility, since no trial is feasible"
        feasible = ""
        if self._limits:
            chance = float(np.exp(self._log_feasibility(candidate[None, :]))[0])
            feasible = f"feasible with probability {chance:.2f}"
        searcher.note_model(
            f"Gaussian processes for {sought}",
            self._num_fitted,
            "; ".join(filter(None, (feasible, self._retention))),
        )

    def _log_feasibility(self, candidates: Array) -> Array:
        total = np.zeros(len(candidates))
        for limit in self._limits:
            total += log_feasibility(*limit.predict(candidates))
        return total


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
    """Return values standardised, the worst clipped, but none that a feasible trial has."""
    known = values[np.isfinite(values)]
    if not len(known):
        return np.zeros(len(values))
    middle = float(np.median(known))
    worst = middle + CLIP * (middle - float(known.min()))
    if is_feasible.any():
        worst = max(worst, float(values[is_feasible].max()))
    clipped = np.minimum(values, min(worst, float(known.max())))
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
