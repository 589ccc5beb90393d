"""What trials and the next suggestion are expected to reach after a full training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .gaussian_process import GaussianProcess, one_blas_thread
from .level_rows import NUM_STEPS, level_rows, spans_levels
from .linear_trend import stable
from .observations import Table

Array = np.ndarray[Any, Any]

NUM_RECENT = 20
"""Number of the latest trials from which the next suggestion's score is estimated."""


@final
@dataclass(frozen=True, slots=True)
class Expectation:
    """A final score as a normal distribution; smaller is better.

    Attributes:
        mean: The expected score.
        deviation: Its standard deviation.
    """

    mean: float
    deviation: float

    def improvement(self, best: float) -> float:
        """Return by how much the score is expected to be below `best`, 0 where it is above.

        Example:
            >>> round(Expectation(0.0, 1.0).improvement(0.0), 3)
            0.399
            >>> Expectation(-2.0, 0.0).improvement(-1.5)
            0.5
        """
        gap = best - self.mean
        if self.deviation <= 0:
            return max(gap, 0.0)
        z = gap / self.deviation
        density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return gap * 0.5 * math.erfc(-z / math.sqrt(2)) + self.deviation * density


@final
@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected scores after a full training, to weigh trials against each other and new ones.

    A full training is the highest level of training that a trial has reached so far. Scores are
    warped values, as in `level_rows`; they compare within a forecast only.

    Attributes:
        trials: The expected score of each trial whose last value is a number.
        best: The least expected score of the trials at the highest level.
        suggestion: The expected score of the next suggestion.
        logs: Hyperparameters of the process, which a later forecast can keep.

    Reference:
        Swersky, Snoek, Adams. Freeze-Thaw Bayesian Optimization. 2014, arXiv 1406.3896 (continuing
        a trial is weighed against starting a new one).

    Departures:
        There each curve has a process of its own, which decays exponentially; here one process
        covers configurations and levels, and a trial differs from others like it by noise.
    """

    trials: Mapping[str, Expectation]
    best: float
    suggestion: Expectation
    logs: tuple[float, ...] = ()


def forecast_of(
    table: Table,
    num_categories: tuple[int, ...],
    logs: Sequence[float] | None = None,
) -> Forecast | None:
    """Return the forecast for the trials of a table; None if they are few, or at one level.

    A Gaussian process is fitted to the values of all levels (see `level_rows`): it learns from
    those trained further what others with similar configurations would gain.

    What a suggestion will be worth is told by the latest ones: a model's own predictions for the
    candidates it prefers are too good, since it prefers those that it overestimates.

    Args:
        table: The trials, with their values at the levels they have reached.
        num_categories: For each column of their vectors the number of its categories, 0 for
            numbers.
        logs: Hyperparameters of the process; None to fit them.
    """
    if not spans_levels(table):
        return None
    rows = level_rows(table)
    with one_blas_thread():
        process = GaussianProcess(
            table.vectors[rows.places],
            rows.targets,
            num_categories,
            depths=rows.depths,
            trials=rows.places,
            logs=logs,
            num_steps=NUM_STEPS,
        )
        scores, deviations = expected_scores(process, table)
    is_known = np.isfinite(scores)
    trained = table.levels[-1].places
    if not is_known[trained].any():
        return None
    trials = {
        table.names[place]: Expectation(float(scores[place]), float(deviations[place]))
        for place in np.flatnonzero(is_known).tolist()
    }
    # A failed trial counts like the worst of the others.
    latest = np.minimum(scores, scores[is_known].max())[-NUM_RECENT:]
    spread = latest.var() + (deviations[-NUM_RECENT:] ** 2).mean()
    return Forecast(
        trials,
        float(scores[trained].min()),
        Expectation(float(latest.mean()), math.sqrt(float(spread))),
        process.logs,
    )


def expected_scores(process: GaussianProcess, table: Table) -> tuple[Array, Array]:
    """Return each trial's expected final score and its deviation.

    The score of a trial that has failed, or whose last value counts as worst, is infinite.
    """
    means, deviations = process.predict(table.vectors, np.arange(len(table.names)))
    has_value = np.zeros(len(table.names), dtype=bool)
    for level in table.levels:
        has_value[level.places] = np.isfinite(level.values)
    return np.where(has_value, stable(means), np.inf), np.where(has_value, stable(deviations), 0.0)
