"""Number of suggestions requested from the searcher, and whether more will come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class SuggestionBudget:
    """Counts the suggestions requested from the searcher, and decides whether to request more.

    Attributes:
        is_postponed: Whether the searcher wants to see another result first.
        num_outstanding: How many configurations were asked for and have not yet come.
        has_news: Whether there has been progress since the last one was asked for.
    """

    def __init__(self, max_trials: int | None) -> None:
        """Create a budget of at most `max_trials` configurations, None for no limit."""
        self._max_trials = max_trials
        self._num_asked = 0
        self._num_refused = 0
        self._has_ended = False
        self._ended_for = ""
        self._is_suspended = False
        self.has_news = False
        self.num_outstanding = 0
        self.is_postponed = False

    @property
    def is_over(self) -> bool:
        """Whether no further configuration is going to be asked for in this session."""
        return self._is_suspended or self.is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether no further configuration is going to be asked for, in a later session either."""
        return self._has_ended or self._num_remaining <= 0

    @property
    def is_open(self) -> bool:
        """Whether a configuration may be asked for now."""
        return not (self.is_postponed or self.is_over)

    def num_left(self, limit: int) -> int:
        """Return how many may be asked for now, counting no further than `limit`."""
        if not self.is_open:
            return 0
        return int(min(self._num_remaining, limit))

    @property
    def _num_remaining(self) -> float:
        """How many may still be asked for; a question that ended the search has used up none."""
        if self._max_trials is None:
            return math.inf
        return self._max_trials - (self._num_asked - self._num_refused)

    @property
    def is_closed(self) -> bool:
        """Whether no further configuration will come."""
        return self.is_over and not self.num_outstanding

    def request(self, num_wanted: int) -> list[str]:
        """Return the ids of the trials whose configurations are to be asked for now."""
        if not self.is_open:
            return []
        # News since the first outstanding request still count for that one.
        if not self.num_outstanding:
            self.has_news = False
        num = int(min(max(num_wanted - self.num_outstanding, 0), self._num_remaining))
        first = self._num_asked
        self._num_asked += num
        self.num_outstanding += num
        return [f"t{index:05d}" for index in range(first, first + num)]

    def on_progress(self) -> bool:
        """Record news for the searcher; return whether it had postponed its suggestion."""
        had_waited, self.is_postponed = self.is_postponed, False
        self.has_news = True
        return had_waited

    def on_suggested(self) -> None:
        """Record that a configuration has come."""
        self.num_outstanding -= 1

    def on_postponed(self) -> None:
        """Ask again only after another result, unless one has come since the searcher was asked.

        The id is given out again, so all younger ids that are still outstanding have to be
        postponed as well.
        """
        self.num_outstanding -= 1
        self._num_asked -= 1
        # A result that came while the searcher was thinking may be the one that it waits for.
        self.is_postponed = not self.has_news

    def on_search_ended(self, declaration: str = "") -> None:
        """Record that the searcher has nothing more to propose, as it was declared."""
        self.num_outstanding -= 1
        self._num_refused += 1
        self._has_ended = True
        self._ended_for = declaration

    def suspend(self) -> None:
        """Ask for nothing more in this session."""
        self._is_suspended = True

    def begin_session(self, max_trials: int | None, declaration: str = "") -> None:
        """Ask again, for at most `max_trials` configurations in all: another session has begun.

        What the last session asked for and has not got will never come, and its ids are given out
        again. Another declaration than that for which the search has ended may have more to
        propose.
        """
        self._max_trials = max_trials
        self._has_ended &= declaration == self._ended_for
        self._is_suspended = False
        self._num_asked -= self.num_outstanding
        self.num_outstanding = 0
        self.is_postponed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the account as JSON values."""
        return {
            "max_trials": self._max_trials,
            "num_asked": self._num_asked,
            "num_refused": self._num_refused,
            "has_ended": self._has_ended,
            "ended_for": self._ended_for,
            "is_suspended": self._is_suspended,
            "has_heard": self.has_news,
            "num_outstanding": self.num_outstanding,
            "is_postponed": self.is_postponed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._max_trials = state["max_trials"]
        self._num_asked = state["num_asked"]
        self._num_refused = state["num_refused"]
        self._has_ended = state["has_ended"]
        self._ended_for = state["ended_for"]
        self._is_suspended = state["is_suspended"]
        self.has_news = state["has_heard"]
        self.num_outstanding = state["num_outstanding"]
        self.is_postponed = state["is_postponed"]
