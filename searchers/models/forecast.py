"""What trials and the next suggestion are expected to reach after a full training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from .observations import Table, expected_final_scores

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
    normal scores of ranks, as in `expected_final_scores`; they compare within a forecast only.

    Attributes:
        trials: The expected score of each trial that has a result and has not failed.
        best: The least score of the trials at the highest level.
        suggestion: The expected score of the next suggestion.

    Reference:
        Swersky, Snoek, Adams. Freeze-Thaw Bayesian Optimization. 2014, arXiv 1406.3896 (continuing
        a trial is weighed against starting a new one).
    """

    trials: Mapping[str, Expectation]
    best: float
    suggestion: Expectation


def forecast_of(table: Table, num_categories: tuple[int, ...]) -> Forecast | None:
    """Return the forecast for the trials of a table; None if they are few or at one level.

    What a suggestion will be worth is told by the latest ones: a model's own predictions for the
    candidates it prefers are too good, since it prefers those that it overestimates.

    Args:
        table: The trials, with their values at the levels they have reached.
        num_categories: For each column of their vectors the number of its categories, 0 for
            numbers.
    """
    expected = expected_final_scores(table, num_categories)
    if expected is None:
        return None
    deviations = np.sqrt(np.maximum(expected.noise, 0.0))
    is_known = np.isfinite(expected.scores)
    trials = {
        table.names[place]: Expectation(float(expected.scores[place]), float(deviations[place]))
        for place in np.flatnonzero(is_known).tolist()
    }
    # A failed trial counts like the worst of the others.
    scores = np.minimum(expected.scores, expected.scores[is_known].max())[-NUM_RECENT:]
    spread = math.sqrt(float(scores.var() + (deviations[-NUM_RECENT:] ** 2).mean()))
    best = float(expected.scores[table.levels[-1].places].min())
    return Forecast(trials, best, Expectation(float(scores.mean()), spread))
