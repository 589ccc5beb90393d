"""A limit on how many suggestions may be open at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from .searcher import Searcher


@final
class ConcurrencyLimiter(Searcher):
    """Passes a searcher's suggestions on only while few of them are unfinished, so that it learns before it proposes more.

    Args:
        searcher: The searcher, which gives metric, mode and space.
        max_concurrent: How many suggestions may be unfinished at a time, at least 1.
        batch: Whether to wait until all open suggestions are finished, then tell the searcher of them in the order they were made, and
            only then ask for more.

    Raises:
        TypeError: If `searcher` is no searcher.
        ValueError: If `max_concurrent` is less than 1.

    Example:
        >>> from searchers import BasicVariantGenerator
        >>> searcher = ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=1)
        >>> searcher.set_search_properties(None, None, {"epochs": 5}, num_samples=2)
        True
        >>> searcher.suggest("a"), searcher.suggest("b")
        ({'epochs': 5}, None)
        >>> searcher.on_trial_complete("a")
        >>> searcher.suggest("b")
        {'epochs': 5}

    Departures:
        In Ray Tune a batch is told in the order in which its trials end, which makes the search depend on their speed.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"searcher must be a Searcher, got {searcher!r}; construct it first")
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, got {max_concurrent}; without a limit, use the searcher itself")
        self.searcher = searcher
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.metric = searcher.metric
        self.mode = searcher.mode
        # Open suggestions in the order they were made; in a batch each keeps how it ended until the others have, too.
        self._open: dict[str, dict[str, Any] | None] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any) -> bool:
        """Hand everything to the searcher."""
        is_taken = self.searcher.set_search_properties(metric, mode, config, **spec)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return is_taken

    def total_samples(self, num_samples: int) -> int | None:
        """Return what the searcher says."""
        return self.searcher.total_samples(num_samples)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the searcher's suggestion, or None while too many are unfinished."""
        if len(self._open) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self._open[trial_id] = None
        return suggestion

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass the result on."""
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_pause(self, trial_id: str, result: Mapping[str, Any] | None = None) -> None:
        """Pass it on; a paused trial is still unfinished."""
        self.searcher.on_trial_pause(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False, stopped: bool = False) -> None:
        """Pass the end on: at once, or with the rest of the batch."""
        if trial_id not in self._open:
            self.searcher.on_trial_complete(trial_id, result, error, stopped)
            return
        self._open[trial_id] = {"result": None if result is None else dict(result), "error": error, "stopped": stopped}
        if not self.batch:
            self._tell(trial_id)
        elif None not in self._open.values():
            for finished in list(self._open):
                self._tell(finished)

    @property
    def keeps_state(self) -> bool:
        """Whether the wrapped searcher does."""
        return self.searcher.keeps_state

    def state_dict(self) -> dict[str, Any]:
        """Return the open suggestions and the searcher's state."""
        return {"open": [[trial_id, ending] for trial_id, ending in self._open.items()], "searcher": self.searcher.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._open = {trial_id: ending for trial_id, ending in state["open"]}  # noqa: C416  (pairs come back as lists)
        self.searcher.load_state_dict(state["searcher"])

    def _tell(self, trial_id: str) -> None:
        ending = self._open.pop(trial_id)
        self.searcher.on_trial_complete(trial_id, **(ending or {}))
