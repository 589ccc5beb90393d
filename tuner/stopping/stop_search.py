"""`StopSearch`: when a search has come to its end, as users declare it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from schedulers.decisions import Reason
from searchers.recorded_arguments import Declared

from .expected_gain import Gain, expected_gain

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
MIN_SHARE: Final = 0.005
"""Part of what the search has gained so far that a further gain has to reach."""
_NUM_TYPICAL: Final = 20
"""The search has gained the distance of the best trial from the median of so many first ones: later
ones come closer to the best, if a model proposes them."""
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
    worst of these. The search does not end before ten trials were trained to the end, nor before 50
    trials beyond those with which the searcher begins. Trials that run, or are paused, go on as
    without this.

    Args:
        patience: How many trials in a row may gain nothing, at least 1; None for the estimate.
        min_delta: Gain of the metric that is worth further trials, at least 0, in its own unit.
            None, the default, is 0 with `patience`, else 0.5 % of what the search has gained so
            far: the distance of the best trial from the median of the first 20 with a value.
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

    def reason_to_stop(self, costs: Sequence[float]) -> Reason | None:
        """Return why the search ends after these trials; None if it goes on.

        Args:
            costs: The value of each trial, in the order in which they ended; smaller is better,
                infinity is none.
        """
        known = [cost for cost in costs if cost < math.inf]
        num_last = self.patience or NUM_LAST
        if len(costs) <= max(num_last, self.min_trials - 1) or len(known) < _MIN_FULL:
            return None
        best = min(known)
        observed = min(costs[:-num_last]) - best
        if self.patience:
            worth = self.min_delta or 0.0
            numbers = {"num_last": num_last, "gain": observed, "worth": worth}
            return Reason(PATIENCE, numbers) if observed <= worth else None
        worth = (
            MIN_SHARE * (statistics.median(known[:_NUM_TYPICAL]) - best)
            if self.min_delta is None
            else self.min_delta
        )
        worst = max(known)
        found = expected_gain([min(cost, worst) for cost in costs], NUM_NEXT)
        if max(found.upper, observed) > worth:
            return None
        return Reason(EXPECTED_GAIN, _numbers(found, observed, worth))


def _check_number(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be a whole number of trials, at least 1, got {number!r}")


def _numbers(found: Gain, observed: float, worth: float) -> dict[str, float | str]:
    return {
        "num_next": NUM_NEXT,
        "gain": found.mean,
        "deviation": found.deviation,
        "observed": observed,
        "worth": worth,
    }
