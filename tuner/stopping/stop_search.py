"""`StopSearch`: when a search has come to its end, as users declare it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from schedulers.decisions import Reason
from searchers.objectives import Point
from searchers.recorded_arguments import Declared

from .expected_gain import expected_gain
from .reached import Reached, reached_by

EXPECTED_GAIN: Final = "stop_search.expected_gain"
"""Rule for which a search ends whose next trials are expected to gain too little."""
PATIENCE: Final = "stop_search.patience"
"""Rule for which a search ends whose last trials have gained too little."""

# Chosen by measurement, on the development functions of benchmarks/quality.
NUM_NEXT: Final = 20
"""How many further trials are weighed."""
NUM_LAST: Final = 50
"""How many trials have gained next to nothing before a search ends."""
MIN_TRIALS: Final = 60
"""How many trials a search has at least."""
_MIN_FULL: Final = 10
"""How many trials have been trained to the end at least."""


@final
@dataclass(frozen=True)
class StopSearch(Declared):
    """When no further trials are started, since they would gain too little.

    ``TuneConfig(stop_search="auto")`` stands for ``StopSearch()``. It estimates how much better the
    best value would become by 20 further trials (`tuner.stopping.expected_gain`). The search ends
    when the upper end of that estimate's interval, and what the last 50 trials have really gained,
    are both at most `min_delta`. With `patience`, it ends when the last `patience` trials together
    have gained no more than `min_delta`.

    Only trials that were trained to the end have a value. All others, which a scheduler has stopped
    or paused, which failed, whose value is not finite, or which miss a constraint, count like the
    worst of these. With several metrics, what grows is the hypervolume of the Pareto front, to
    which those add nothing (`tuner.stopping.reached.ReachedFront`). The search does not end before
    ten trials were trained to the end, nor before 50 trials beyond those with which the searcher
    begins. Trials that run, or are paused, go on as without this.

    Args:
        patience: How many trials in a row may gain nothing, at least 1; None for the estimate.
        min_delta: Gain that is worth further trials, at least 0: in the unit of the metric, or with
            several metrics as a part of the hypervolume so far, such as 0.01. None, the default, is
            0 with `patience`. Else it is 0.5 % of what the search has gained so far, which is the
            distance of the best trial from the median of the first 20 with a value; or 0.2 % of the
            distance from the median of the newest values of the first 20 trials, if that is more,
            as where a scheduler stops most of them early. With several metrics, it is 3 % of the
            hypervolume.
        min_trials: How many trials have ended or are paused at least before the search ends.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> import tuner as tune
        >>> patient = tune.StopSearch(patience=40)
        >>> config = tune.TuneConfig(metric="loss", mode="min", num_samples=90, stop_search=patient)

    Reference:
        Makarova, Shen, Perrone, Klein, Faddoul, Krause, Seeger, Archambeau. Automatic Termination
        for Hyperparameter Optimization. AutoML 2022, arXiv 2104.08166 (ending a search when what is
        left to gain is smaller than what matters).

    Departures:
        There a Gaussian process bounds what is left to gain anywhere in the space, which is what no
        random search would find soon. Here the order of the trials tells what those to come will
        gain, whatever proposes them. What matters is a part of what the search has gained so far,
        instead of the deviation of a cross-validation, which trials do not report.
    """

    patience: int | None = None
    min_delta: float | None = None
    min_trials: int = MIN_TRIALS

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.patience is not None:
            _check_number("patience", self.patience)
        _check_number("min_trials", self.min_trials)
        delta = self.min_delta
        if delta is not None and not (isinstance(delta, int | float) and 0 <= delta < math.inf):
            raise ValueError(
                f"min_delta must be a finite gain of the metric, at least 0, got {delta!r}; leave "
                "it out for 0.5 % of what was gained so far"
            )

    @property
    def num_watched(self) -> int:
        """How many trials have to come at least after the first ones, or after an earlier end."""
        return self.patience or NUM_NEXT

    def reason_to_stop(
        self, points: Sequence[Point | None], first: Sequence[Point] = ()
    ) -> Reason | None:
        """Return why the search ends after these trials; None if it goes on.

        Args:
            points: The value of each metric for each trial, in the order in which they ended;
                smaller is better. None for a trial that does not count.
            first: The newest values of the first trials, however long these were trained.
        """
        num_last = self.patience or NUM_LAST
        num_known = sum(point is not None for point in points)
        if len(points) <= max(num_last, self.min_trials - 1) or num_known < _MIN_FULL:
            return None
        if not any(points[:-num_last]):
            return None
        reached = reached_by(points, first)
        observed, worth = reached.gain_of_last(num_last), self._worth(reached)
        if not observed <= worth:
            return None
        if self.patience:
            numbers = {"num_last": num_last, "gain": observed, "worth": worth}
            return Reason(PATIENCE, numbers)
        found = expected_gain(reached.costs, NUM_NEXT)
        if not found.upper <= worth:
            return None
        return Reason(
            EXPECTED_GAIN,
            {
                "num_next": NUM_NEXT,
                "gain": found.mean,
                "deviation": found.deviation,
                "observed": observed,
                "worth": worth,
            },
        )

    def _worth(self, reached: Reached) -> float:
        """Return the gain that is worth further trials."""
        if self.min_delta is not None:
            return self.min_delta
        return 0.0 if self.patience else reached.worth


def _check_number(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be a whole number of trials, at least 1, got {number!r}")
