"""The newest value of metrics that trials need not report each time, such as a size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, final

from .outcome_constraint import number_of


@final
class NewestValues:
    """Remembers the newest number that each trial has reported of some metrics.

    Args:
        metrics: Their flattened names.

    Example:
        >>> newest = NewestValues(["size"])
        >>> newest.completed("a", {"loss": 2.0, "size": 3}), newest.completed("a", {"loss": 1.0})
        ({'loss': 2.0, 'size': 3.0}, {'loss': 1.0, 'size': 3.0})
    """

    def __init__(self, metrics: Iterable[str] = ()) -> None:
        self.metrics = frozenset(metrics)
        self._of_trial: dict[str, dict[str, float]] = {}

    def note(self, trial_id: str, result: Mapping[str, Any]) -> Mapping[str, float]:
        """Remember the numbers in a result, and return all that are known of the trial."""
        for name in self.metrics & result.keys():
            if (value := number_of(result[name])) is not None:
                self._of_trial.setdefault(trial_id, {})[name] = value
        return self.of(trial_id)

    def completed(self, trial_id: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return a result with the newest value of the metrics that it lacks; remember its own."""
        result = result or {}
        return {**result, **self.note(trial_id, result)}

    def of(self, trial_id: str) -> Mapping[str, float]:
        """Return the newest value of each metric that the trial has reported."""
        return self._of_trial.get(trial_id, {})

    def put(self, trial_id: str, values: Mapping[str, float]) -> None:
        """Replace what is known of a trial."""
        self._of_trial[trial_id] = dict(values)

    def __contains__(self, trial_id: object) -> bool:
        """Return whether anything was put or noted for a trial."""
        return trial_id in self._of_trial

    def forget(self, trial_id: str) -> None:
        """Forget a trial."""
        self._of_trial.pop(trial_id, None)

    def state_dict(self) -> dict[str, dict[str, float | None]]:
        """Return the values by trial and metric, as JSON values: None for what is not finite."""
        return {
            trial_id: {
                name: value if math.isfinite(value) else None for name, value in values.items()
            }
            for trial_id, values in self._of_trial.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, float | None]]) -> None:
        """Restore what `state_dict` returned."""
        self._of_trial = {
            trial_id: {name: math.nan if value is None else value for name, value in values.items()}
            for trial_id, values in state.items()
        }
