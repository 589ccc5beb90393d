"""How long a search has found nothing better, as a part of all its training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from schedulers.decisions import Number
from schedulers.metric import strict

# Chosen by measurement, with benchmarks/quality.
PATIENCE = 0.2
"""Part of all training in which no better value is found in any search that makes progress."""
GROWTH = 0.5
"""Increase of `Stagnation.spared_share` with the part of the training beyond that."""


@final
class Stagnation:
    """Amount of training since the best value, which tells a search to doubt its own rules.

    While better values are found, the rules by which trials are compared serve the search, and
    whatever it tries beside them costs. When none are found any more, either the best possible one
    has been, and trying other ways costs nothing; or the rules drop what would be better. So the
    share of trials that are spared all comparisons grows with the stagnation.

    Example:
        >>> stagnation = Stagnation()
        >>> stagnation.note("a", time=10, value=0.5)
        >>> stagnation.note("b", time=30, value=0.6)
        >>> stagnation.part
        0.75
        >>> round(stagnation.spared_share, 3)
        0.275
    """

    def __init__(self) -> None:
        self._spent: Number = 0
        self._spent_at_best: Number = 0
        # Violation of the constraints and value.
        self._best: tuple[float, float] | None = None
        # How long each trial has trained that is not over.
        self._times: dict[str, Number] = {}

    def note(self, trial_id: str, time: Number, value: float, violation: float = 0.0) -> None:
        """Count a trial's training up to a result.

        Args:
            trial_id: The trial.
            time: How long it has trained; of repeated results, none is counted twice.
            value: Smaller is better; NaN is no improvement.
            violation: By how much the trial misses the constraints; less of it is better than any
                value.
        """
        before = self._times.get(trial_id, 0)
        if time > before:
            self._times[trial_id] = time
            self._spent += time - before
        found = (violation, value)
        if not math.isnan(value) and (self._best is None or found < self._best):
            self._best = found
            self._spent_at_best = self._spent

    def forget(self, trial_id: str) -> None:
        """Forget how long a trial has trained, which is over."""
        self._times.pop(trial_id, None)

    @property
    def part(self) -> float:
        """The part of all training since the best value, from 0 to 1."""
        return 1 - self._spent_at_best / self._spent if self._spent else 0.0

    @property
    def spared_share(self) -> float:
        """The share of new trials that are to be trained to the end without a comparison."""
        return GROWTH * max(0.0, self.part - PATIENCE)

    def state_dict(self) -> dict[str, Any]:
        """Return all counts, as JSON values."""
        return {
            "spent": self._spent,
            "spent_at_best": self._spent_at_best,
            "best": self._best and self._best[1],
            **({"violation_of_best": strict(self._best[0])} if self._best else {}),
            "times": dict(self._times),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._spent = state["spent"]
        self._spent_at_best = state["spent_at_best"]
        best = state["best"]
        # Earlier versions knew no constraints.
        violation = float(state.get("violation_of_best", 0.0))
        self._best = None if best is None else (violation, best)
        self._times = dict(state["times"])
