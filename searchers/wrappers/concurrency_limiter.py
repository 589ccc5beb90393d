"""ConcurrencyLimiter: limit how many suggestions are unfinished at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from searchers.searcher import Searcher, report_end

from .wrapper import SearcherWrapper


@final
class ConcurrencyLimiter(SearcherWrapper):
    """Passes on a searcher's suggestions while fewer than a limit are unfinished.

    Args:
        searcher: The searcher, which gives metric, mode and space.
        max_concurrent: How many suggestions may be unfinished at a time, at least 1.
        batch: Whether to wait until all unfinished suggestions have ended, report them to the
            searcher in the order they were made, and only then ask for more.

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
        In Ray Tune a batch is reported in the order in which its trials end, which makes the search
        depend on their speed.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        _check_limit(max_concurrent)
        self.max_concurrent = max_concurrent
        self.batch = batch
        # Some searchers plan for the number of trials that run at a time.
        searcher.set_max_concurrency(max_concurrent)
        # Unfinished suggestions in the order they were made; in a batch with their ends, which are
        # kept until all have ended. The end of a discarded one is an empty dictionary.
        self._open: dict[str, dict[str, Any] | None] = {}

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set another limit; suggestions that are unfinished already may exceed it."""
        _check_limit(max_concurrent)
        self.max_concurrent = max_concurrent
        self.searcher.set_max_concurrency(max_concurrent)
        return True

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

    def on_trial_complete(
        self,
        trial_id: str,
        result: Mapping[str, Any] | None = None,
        error: bool = False,
        stopped: bool = False,
    ) -> None:
        """Pass the end on: at once, or with the rest of the batch."""
        if trial_id not in self._open:
            report_end(self.searcher, trial_id, result, error=error, stopped=stopped)
            return
        self._open[trial_id] = {
            "result": None if result is None else dict(result),
            "error": error,
            "stopped": stopped,
        }
        if not self.batch:
            self._report(trial_id)
        else:
            self._report_batch()

    def on_trial_discard(self, trial_id: str) -> None:
        """Pass the end on: at once, or with the rest of the batch."""
        if trial_id not in self._open or not self.batch:
            self._open.pop(trial_id, None)
            self.searcher.on_trial_discard(trial_id)
            return
        self._open[trial_id] = {}
        self._report_batch()

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished suggestions and the searcher's state."""
        return {
            "open": [[trial_id, ending] for trial_id, ending in self._open.items()],
            "searcher": self.searcher.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._open = dict(state["open"])
        self.searcher.load_state_dict(state["searcher"])

    def _report_batch(self) -> None:
        if None not in self._open.values():
            for finished in list(self._open):
                self._report(finished)

    def _report(self, trial_id: str) -> None:
        if ending := self._open.pop(trial_id):
            report_end(self.searcher, trial_id, **ending)
        else:
            self.searcher.on_trial_discard(trial_id)


def _check_limit(max_concurrent: int) -> None:
    if max_concurrent < 1:
        raise ValueError(
            f"max_concurrent must be at least 1, got {max_concurrent}; without a limit, use the "
            "searcher itself"
        )
