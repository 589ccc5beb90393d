"""Trials that are known in advance, in the place of a search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from tuner.core.events import Event, SearchEnded, TrialSuggested


@final
class KnownSuggestions:
    """Suggests trials in their order, as the driver's suggestions; the next ones have their ids.

    Args:
        trials: The trials.
    """

    def __init__(self, trials: Iterable[TrialSuggested]) -> None:
        self._coming = iter(trials)

    def ask(self, trial_ids: list[str], /) -> list[Event]:
        return [next(self._coming, None) or SearchEnded() for _ in trial_ids]

    def take(self) -> list[Event]:
        return []  # `ask` answers at once

    def withdraw(self) -> None:
        pass

    def settle(self, timeout_s: float | None, /) -> bool:
        return True
