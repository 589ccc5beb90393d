"""Contract tests for stoppers."""
# ruff: noqa: S101  (these are tests)

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any

from tuner.core.stoppers import Stopper


class StopperContract(ABC):
    """Tests that every stopper has to pass; name a subclass ``Test...``.

    The trials of the contract report ``loss``, nested ``val/loss`` and ``training_iteration``.

    Example:
        >>> from tuner.core.stoppers import NoopStopper
        >>> class TestNoop(StopperContract):
        ...     def make_stopper(self):
        ...         return NoopStopper()
        >>> TestNoop().test_the_same_facts_give_the_same_answers()
    """

    @abstractmethod
    def make_stopper(self) -> Stopper:
        """Return a new stopper."""

    def _answers(self, *spoilt: Any) -> list[tuple[bool, bool]]:
        """Return a new stopper's answers to a series of results, and whether it then stops all."""
        stopper = self.make_stopper()
        answers = []
        for second, (trial_id, result) in enumerate(_results(*spoilt)):
            stop = stopper(trial_id, result)
            stopper.on_tick(float(second))
            answers.append((stop, stopper.stop_all()))
        return answers

    def test_answers_are_booleans(self) -> None:
        """Return True or False, not a value that is merely truthy."""
        for answer in self._answers():
            assert all(type(part) is bool for part in answer), (
                f"a stopper must answer True or False, got {answer}"
            )

    def test_the_same_facts_give_the_same_answers(self) -> None:
        """Read no clock and draw no random numbers."""
        assert self._answers() == self._answers(), (
            "a stopper's answers must follow from its results"
        )

    def test_nothing_is_stopped_before_anything_happened(self) -> None:
        """Do not stop an experiment before its first result."""
        assert self.make_stopper().stop_all() is False, "a new stopper must not stop the experiment"

    def test_the_end_of_the_experiment_is_final(self) -> None:
        """Do not revoke a stop of the experiment while nothing new is reported."""
        stopper = self.make_stopper()
        for second, (trial_id, result) in enumerate(_results()):
            stopper(trial_id, result)
            stopper.on_tick(float(second))
            asked = [stopper.stop_all() for _ in range(3)]
            assert len(set(asked)) == 1, (
                f"stop_all must answer the same when asked again, got {asked}"
            )

    def test_odd_results_never_raise(self) -> None:
        """Accept values that are missing, None, infinite or not numbers."""
        for odd in (math.nan, math.inf, -math.inf, None, "0.5", [1.0]):
            self._answers(odd)
        self.make_stopper()("t00000", {})

    def test_results_are_not_changed(self) -> None:
        """Do not change the result, which others read after it."""
        stopper = self.make_stopper()
        for trial_id, result in _results():
            before = copy.deepcopy(result)
            stopper(trial_id, result)
            assert result == before, "a stopper must not change the result it looks at"


def _results(*spoilt: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return results of three trials, with odd values in every fourth one if any are given."""
    results = []
    for time in range(1, 13):
        for number in range(3):
            loss = (
                spoilt[0] if spoilt and (time + number) % 4 == 0 else 0.1 * number + 1.0 / time**3
            )
            results.append(
                (
                    f"t{number:05d}",
                    {"loss": loss, "val": {"loss": loss}, "training_iteration": time},
                )
            )
    return results
