"""The newest value of metrics that trials need not report each time, such as a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from .objectives.outcome_constraint import number_of


@final
class NewestValues:
    """Remembers the newest number that each running trial has reported of some metrics.

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

    def completed(self, trial_id: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return a result with the newest value of the metrics that it lacks; remember its own."""
        result = result or {}
        reported = {
            name: value
            for name in self.metrics & result.keys()
            if (value := number_of(result[name])) is not None
        }
        if reported:
            self._of_trial.setdefault(trial_id, {}).update(reported)
        return {**result, **self._of_trial.get(trial_id, {})}

    def forget(self, trial_id: str) -> None:
        """Forget a trial that is over."""
        self._of_trial.pop(trial_id, None)

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Return the values by trial and metric, as JSON values."""
        return {trial_id: dict(values) for trial_id, values in self._of_trial.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Restore what `state_dict` returned."""
        self._of_trial = {trial_id: dict(values) for trial_id, values in state.items()}
