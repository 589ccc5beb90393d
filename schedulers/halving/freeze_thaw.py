"""Which paused trial is worth continuing rather than starting a new one, by forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from schedulers.decisions import Number
from schedulers.scheduler import TrialView

# Chosen by measurement, with benchmarks/quality.
REQUIRED_RATIO = 4.0
"""A paused trial continues if it promises more than so many times what a new one does."""
REFIT = 1.2
"""Factor of the number of values after which the process is fitted again; in between it keeps its
hyperparameters."""


class PausedTrial(NamedTuple):
    """A trial that waits at a level.

    Attributes:
        trial_id: The trial.
        cost: The training to the next level.
    """

    trial_id: str
    cost: Number


class Promise(NamedTuple):
    """What a paused trial is chosen for.

    Attributes:
        trial_id: The trial.
        ratio: The improvement that it promises per training, in units of what a new one does.
    """

    trial_id: str
    ratio: float


@final
class FreezeThaw:
    """Forecasts of final values, by a Gaussian process over configurations and levels.

    A trial that waits for a promotion was not among the best of its level, and perhaps never will
    be. But trials with similar configurations that were trained on may have shown that those which
    start like it end well. The process learns that from the values of all trials at all levels.
    Trials are weighed by expected improvement on the best, per training: that of a paused trial on
    the way to its next level, and that of a new one on the way to the level where it is compared
    first.

    Args:
        levels: Ascending amounts of training.

    Reference:
        Swersky, Snoek, Adams. Freeze-Thaw Bayesian Optimization. 2014, arXiv 1406.3896.

        Rakotoarison and others. In-Context Freeze-Thaw Bayesian Optimization for Hyperparameter
        Optimization. ICML 2024, arXiv 2404.16795 (which trial to continue as a choice of its own).

    Departures:
        There every step of training is chosen so. Here the best trials of a level are promoted
        without a forecast, and a paused trial has to promise `REQUIRED_RATIO` times as much as a
        new one, since the largest of many forecasts is likely to be too good.
    """

    def __init__(self, levels: Sequence[Number]) -> None:
        self._levels = levels
        self._space: Mapping[str, Any] = {}
        self._encoding: Any = None
        self._vectors: dict[str, Any] = {}
        self._logs: tuple[float, ...] = ()
        self._num_fitted = 0
        # The latest trial of that fit: once it is forgotten, so are all others of it.
        self._last_fitted: str | None = None
        self._latest: tuple[Any, Promise | None] | None = None

    def take_space(self, space: Mapping[str, Any]) -> None:
        """Set the search space; without one there are no forecasts."""
        self._space, self._encoding, self._vectors = space, None, {}
        self._logs, self._num_fitted, self._latest = (), 0, None

    def most_promising(
        self,
        paused: Sequence[PausedTrial],
        values: Mapping[str, Mapping[int, float]],
        trials: Mapping[str, TrialView],
        first: Number,
    ) -> Promise | None:
        """Return the paused trial that is worth continuing rather than starting a new one.

        Args:
            paused: The trials that could continue.
            values: The values of all trials by number of the level; smaller is better, infinity
                counts as worst.
            trials: The trials, some of which may have been forgotten.
            first: The level where a new trial would be compared first.

        Returns:
            None if no trial is, or too little is known for a forecast.
        """
        if not self._space or not paused:
            return None
        # While a slot stays free, the same is asked at every report of every trial.
        question = (tuple(paused), first, {name: dict(found) for name, found in values.items()})
        if self._latest is None or self._latest[0] != question:
            self._latest = question, self._forecast(paused, values, trials, first)
        return self._latest[1]

    def _forecast(
        self,
        paused: Sequence[PausedTrial],
        values: Mapping[str, Mapping[int, float]],
        trials: Mapping[str, TrialView],
        first: Number,
    ) -> Promise | None:
        # Heavy, and needed only where trials are paused.
        from searchers.models.encoding import Encoding  # noqa: PLC0415  (see above)
        from searchers.models.forecast import forecast_of  # noqa: PLC0415  (see above)
        from searchers.models.observations import Observations  # noqa: PLC0415  (see above)

        if self._encoding is None:
            try:
                self._encoding = Encoding(self._space, "ASHAScheduler")
            except ValueError:  # it has parts that no model of ours can search
                self._space = {}
                return None
        observations = Observations()
        for trial_id, by_level in values.items():
            if trial_id not in self._vectors:
                known = trials.get(trial_id)
                self._vectors[trial_id] = known and _vector(self._encoding, known.config)
            if (vector := self._vectors[trial_id]) is not None:
                observations.add(trial_id, vector)
                for index, value in by_level.items():
                    observations.record(trial_id, float(self._levels[index]), value)
        table, num_categories = observations.table(), self._encoding.num_categories
        num_values = sum(map(len, values.values()))
        # A restore may have changed the space.
        is_other_space = len(self._logs) != len(num_categories) + 1
        is_due = (
            is_other_space
            or num_values >= REFIT * self._num_fitted
            or self._last_fitted not in values
        )
        forecast = forecast_of(table, num_categories, None if is_due else self._logs)
        if forecast is None:
            return None
        if is_due:
            self._num_fitted, self._logs = num_values, forecast.logs
            self._last_fitted = list(values)[-1]
        new = forecast.suggestion.improvement(forecast.best) / first
        promises = [
            Promise(trial.trial_id, found.improvement(forecast.best) / trial.cost / max(new, 1e-12))
            for trial in paused
            if (found := forecast.trials.get(trial.trial_id))
        ]
        best = max(promises, key=lambda promise: promise.ratio, default=None)
        return best if best is not None and best.ratio > REQUIRED_RATIO else None

    def state_dict(self) -> dict[str, Any]:
        """Return the last fit, as JSON values."""
        return {
            "logs": list(self._logs),
            "num_fitted": self._num_fitted,
            "last_fitted": self._last_fitted,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._logs, self._num_fitted = tuple(state["logs"]), state["num_fitted"]
        self._last_fitted = state.get("last_fitted")
        self._latest = None


def _vector(encoding: Any, config: Mapping[str, Any]) -> list[float] | None:
    """Return the vector of a configuration, None if it is of another space.

    A searcher may add what is not in the space.
    """
    try:
        values = encoding.values_in(config)
        return None if encoding.missing(values) else list(encoding.encoded(values))
    except (TypeError, ValueError):
        return None
