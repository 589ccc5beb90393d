"""Searchers whose library keeps a search of its own, and hears piece by piece of what was tried."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from searchers.searcher import FailedTrials
from searchers.space.domains import Domain

from .library_search import HistorySearch, Values


class LiveSearch(HistorySearch, ABC):
    """A `HistorySearch` that does not tell its library the whole history each time, but what it does not know yet.

    What has become of the library's search is not put into words, so that a restore lives through all suggestions and results again.

    A subclass says in `_attach` and `_finish` how the library hears of a configuration and of its value; in `_propose` it calls `_tell`
    before it asks, and `_take_note` of what it gets.

    Args:
        space: See `HistorySearch`, as for the others.
        metric: See there.
        mode: See there.
        points_to_evaluate: See there.
        evaluated_rewards: See there.
        seed: See there.
        failed_trials: See there.
    """

    def __init__(  # noqa: PLR0917  (the order of its base)
        self,
        space: Mapping[str, Any] | None,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        evaluated_rewards: Sequence[float] | None,
        seed: int | None,
        failed_trials: FailedTrials = "worst",
    ) -> None:
        super().__init__(
            space, metric, mode, points_to_evaluate, evaluated_rewards, seed, failed_trials
        )
        self._unfinished: dict[int, Any] = {}
        """What the library knows configurations by whose values it has not heard, by their place in the history."""
        self._num_known = 0
        """How much of the history the library knows of."""

    @property
    def keeps_state(self) -> bool:
        """False: what has become of the library's search is not put into words."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return nothing, see `keeps_state`."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back nothing, see `keeps_state`."""

    def get_state(self) -> dict[str, Any]:
        """Return the whole history, which `save` puts down: the library is told all of it at once when it is taken back."""
        return super().state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back a history. What the library then proposes may differ from what it would have proposed without a break."""
        super().load_state_dict(state)
        self._unfinished, self._num_known = {}, 0

    @abstractmethod
    def _attach(self, values: Values) -> Any:
        """Tell the library of a configuration that it has not proposed, and return what it knows that one by."""

    @abstractmethod
    def _finish(self, place: int | None, known_as: Any) -> None:
        """Tell the library what a configuration has come to.

        Args:
            place: Where in the history its value stands: its own place, that of the worst value if it failed, or None for nothing.
            known_as: What the library knows it by.
        """

    def _tell(self) -> None:
        """Tell the library what has happened since it was asked last, in the order of the suggestions."""
        for place in range(self._num_known, len(self._history)):
            self._unfinished[place] = self._attach(self._history[place].values)
        self._num_known = len(self._history)
        worst = self._worst_place()
        for place in [place for place in self._unfinished if self._history[place].is_over]:
            observation = self._history[place]
            if self._tells_nothing(observation):
                self._finish(None, self._unfinished.pop(place))
            elif not observation.is_failed:
                self._finish(place, self._unfinished.pop(place))
            elif worst is not None:  # else it waits until there is a value that it can count like
                self._finish(worst, self._unfinished.pop(place))

    def _take_note(self, known_as: Any) -> None:
        """Take note of what the library knows its proposal by, which will stand in the history next."""
        self._unfinished[len(self._history)] = known_as
        self._num_known = len(self._history) + 1

    def _check_parameters(self, parameters: Mapping[str, Domain]) -> None:
        """Check that there is something to search.

        Raises:
            ValueError: If there is not.
        """
        if not parameters:
            kind, given = type(self).__name__, list(self._space.space)
            raise ValueError(
                f"space must hold a parameter to search for {kind}, got {given}; give one at least a range"
            )
