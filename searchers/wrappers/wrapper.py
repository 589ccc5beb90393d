"""The base class of searchers that wrap another one."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from searchers.searcher import Searcher, pass_search_properties


class SearcherWrapper(Searcher, ABC):
    """Base class of searchers that wrap another one and pass on what they do not change.

    Args:
        searcher: The searcher, which gives metric, mode and space.

    Raises:
        TypeError: If `searcher` is no searcher.
    """

    # Whether the wrapped one does is another question.
    takes_several_metrics = True
    takes_constraints = True
    takes_where = True

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"searcher must be a Searcher, got {searcher!r}; construct it first")
        self.searcher = self._wrapped = searcher
        self.metric = searcher.metric
        self.mode = searcher.mode

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective of the wrapped searcher."""
        return self.searcher.objectives

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set the properties of the wrapped searcher."""
        is_taken = pass_search_properties(self.searcher, metric, mode, config, spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return is_taken

    def explain_suggestion(self) -> str:
        """Return the wrapped searcher's explanation."""
        return self.searcher.explain_suggestion()

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return the wrapped searcher's number."""
        return self.searcher.num_trials_for(num_samples)

    def on_trial_replaced(self, trial_id: str, config: Mapping[str, Any] | None) -> bool:
        """Pass on what the trial runs."""
        return self.searcher.on_trial_replaced(trial_id, config)

    def surplus_trials(self, num_samples: int) -> Collection[str]:
        """Return those of the wrapped searcher."""
        return self.searcher.surplus_trials(num_samples)

    def num_points_left(self, num_samples: int) -> int:
        """Return the wrapped searcher's number."""
        return self.searcher.num_points_left(num_samples)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the limit of the wrapped searcher."""
        return self.searcher.set_max_concurrency(max_concurrent)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Add the point to the wrapped searcher."""
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Pass the pause on."""
        self.searcher.on_trial_pause(trial_id, result)

    @property
    def keeps_state(self) -> bool:
        """Whether the wrapped searcher keeps its state."""
        return self.searcher.keeps_state
