"""What searchers have in common that stand around another one."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

from searchers.searcher import Searcher, tell_properties


class SearcherWrapper(Searcher, ABC):
    """Stands between the experiment and a searcher, to which it hands everything that it does not change.

    Args:
        searcher: The searcher, which gives metric, mode and space.

    Raises:
        TypeError: If `searcher` is no searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"searcher must be a Searcher, got {searcher!r}; construct it first")
        self.searcher = searcher
        self.metric = searcher.metric
        self.mode = searcher.mode

    @property
    def objectives(self) -> tuple[tuple[str, str], ...]:
        """Metric and mode of each objective of the wrapped searcher."""
        return self.searcher.objectives

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Hand everything to the searcher."""
        is_taken = tell_properties(self.searcher, metric, mode, config, spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return is_taken

    def num_trials_for(self, num_samples: int) -> int | None:
        """Return what the searcher says."""
        return self.searcher.num_trials_for(num_samples)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Return what the searcher says."""
        return self.searcher.set_max_concurrency(max_concurrent)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Hand the point to the searcher."""
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Pass it on."""
        self.searcher.on_trial_pause(trial_id, result)

    @property
    def keeps_state(self) -> bool:
        """Whether the wrapped searcher does."""
        return self.searcher.keeps_state
