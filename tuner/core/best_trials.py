"""Ranking of trials by the newest value of the experiment's metric.

The best trial is the one whose newest value is best; of equal ones, the one that was created first.
A trial whose newest value is not finite is not ranked, nor is one that misses a constraint.
`ResultGrid.get_best_result` uses the same definition, and everything that shows a best trial asks
here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from searchers.objectives.outcome_constraint import Constraints

from .feasibility import is_feasible
from .result import flatten
from .trial import Trial
from .trial_metrics import sign_of

NUM_LEADERS: Final = 5
_NUM_STALE: Final = 64
"""The heap is rebuilt once it holds this many superseded entries more than there are trials."""


class BestTrials:
    """Keeps the trials in the order of their newest values, in O(log n) for each result."""

    __slots__ = ("_constraints", "_heap", "_metric", "_mode", "_ranked", "_sign")

    def __init__(self, metric: str | None, mode: str | None, constraints: Constraints = ()) -> None:
        """Create an empty board for a metric that is minimised or maximised."""
        self._constraints = constraints
        self._metric = metric
        self._mode = mode
        self._sign = sign_of(mode)
        self._ranked: dict[int, tuple[float, Trial]] = {}
        self._heap: list[tuple[float, int]] = []
        """Cost and number of each ranked trial; later results have superseded some entries."""

    @property
    def trial(self) -> Trial | None:
        """The best trial, None while none has a finite value."""
        return next(iter(self._first(1)), None)

    @property
    def value(self) -> float:
        """The newest value of the best trial, NaN while there is none."""
        best = self.trial
        return best.objective.last.value if best and best.objective.last else math.nan

    @property
    def leaders(self) -> Sequence[Trial]:
        """The best trials, best first, at most five."""
        return tuple(self._first(NUM_LEADERS))

    def load(self, trials: Sequence[Trial]) -> None:
        """Rank the trials of a restored experiment."""
        for trial in trials:
            self._rank(trial)

    def rebuild(self, trials: Sequence[Trial]) -> None:
        """Rank trials by another metric than before.

        Their summaries hold its values, but not all of their iterations.
        """
        for trial in trials:
            if self._metric and (summary := trial.summary.get(self._metric)):
                self._track(trial)
                trial.objective.recall(summary, flatten(trial.last_result), trial.num_rows)
        self.load(trials)

    def update(self, trial: Trial, flat: Mapping[str, Any]) -> None:
        """Rank a trial by its flattened result, which its summary contains already."""
        if self._metric is None:
            return
        self._track(trial)
        trial.objective.take(flat, trial.num_rows)
        self._rank(trial)

    def correct(
        self, trial: Trial, flat: Mapping[str, Any], row: int, checkpoint_index: int
    ) -> None:
        """Rank a trial anew, one of whose earlier results a validation has supplemented.

        Args:
            trial: The trial.
            flat: That result, flattened.
            row: Its position among the trial's results that count.
            checkpoint_index: Its checkpoint.
        """
        if self._metric is None:
            return
        self._track(trial)
        trial.objective.correct(flat, row, checkpoint_index)
        self._rank(trial)

    def forget(self, trial: Trial) -> None:
        """Take a trial off the board whose results no longer count."""
        self._ranked.pop(trial.number, None)

    def _track(self, trial: Trial) -> None:
        if trial.objective.metric is None:
            trial.objective.metric, trial.objective.mode = self._metric, self._mode

    def _rank(self, trial: Trial) -> None:
        last = trial.objective.last
        if (
            last is None
            or not math.isfinite(last.value)
            or not is_feasible(trial, self._constraints)
        ):
            self._ranked.pop(trial.number, None)
            return
        cost = self._sign * last.value
        if trial.number in self._ranked and self._ranked[trial.number][0] == cost:
            return
        self._ranked[trial.number] = cost, trial
        heapq.heappush(self._heap, (cost, trial.number))
        if len(self._heap) > 2 * len(self._ranked) + _NUM_STALE:
            self._heap = [(cost, number) for number, (cost, _) in self._ranked.items()]
            heapq.heapify(self._heap)

    def _first(self, count: int) -> list[Trial]:
        found: list[tuple[float, int]] = []
        while self._heap and len(found) < count:
            entry = heapq.heappop(self._heap)
            cost, number = entry
            is_current = number in self._ranked and self._ranked[number][0] == cost
            # A value that came back after another one is in the heap twice, and equal entries lie
            # side by side.
            if is_current and (not found or found[-1] != entry):
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [self._ranked[number][1] for _, number in found]
