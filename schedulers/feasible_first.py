"""Constraints in the ranks of a scheduler: trials that keep them come first.

**Order.** A trial that keeps all constraints ranks before every trial that does not; of two that do
not, the one that misses them by less. Only trials that miss them equally, above all those that keep
all, are compared by their metrics. By how much a trial misses its constraints is the sum of its
violations, each divided by the size of its bound, so that units do not matter. A constraint whose
metric was not reported, or is NaN or infinite, is missed infinitely: such trials rank behind those
that are known to miss it by a finite amount, and are compared with each other by their metrics. So
a constraint that is measured only at the end of the training changes no earlier rank, and trials
that keep it may be stopped before; schedulers remark on that, see `MetricScheduler`.

**What was reported once stays.** The newest number of a metric counts, also where the latest result
has None for it or does not have it: the size of a model is often reported only once.

Reference:
    Deb. An Efficient Constraint Handling Method for Genetic Algorithms. Computer Methods in Applied
    Mechanics and Engineering 186, 2000: feasible first, without penalty factors.

    Deb, Pratap, Agarwal, Meyarivan. A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II.
    IEEE Transactions on Evolutionary Computation 6(2), 2002, section VI: constrained domination.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from searchers.objectives.newest_values import NewestValues
from searchers.objectives.outcome_constraint import Constraints


@final
class FeasibleFirst:
    """By how much each trial misses the constraints, by the newest values that it has reported.

    Args:
        constraints: What trials have to keep; none for every trial to be feasible.

    Example:
        >>> from searchers.objectives import outcome_constraints
        >>> feasible_first = FeasibleFirst(outcome_constraints({"size_mb": "<= 4"}))
        >>> feasible_first.note("a", {"loss": 0.5, "size_mb": 5})
        0.25
        >>> feasible_first.note("a", {"loss": 0.4}), feasible_first.note("b", {"loss": 0.3})
        (0.25, inf)
    """

    def __init__(self, constraints: Constraints = ()) -> None:
        self._constraints = tuple(constraints)
        self._newest = NewestValues(each.metric for each in self._constraints)
        # What a trial that became a clone had before, until the clone reports.
        self._former = NewestValues()

    def note(self, trial_id: str, result: Mapping[str, Any]) -> float:
        """Keep what a result says about constraints, and return the trial's violation."""
        if not self._constraints:
            return 0.0
        self._former.forget(trial_id)
        self._newest.note(trial_id, result)
        return self.violation(trial_id)

    def violation(self, trial_id: str) -> float:
        """Return by how much a trial misses all constraints together; 0 if it keeps them."""
        known = self._newest.of(trial_id)
        return sum(
            each.violation(known.get(each.metric)) / (abs(each.bound) or 1.0)
            for each in self._constraints
        )

    def unreported(self, trial_id: str) -> Constraints:
        """Return the constraints whose metrics a trial has not reported yet."""
        known = self._newest.of(trial_id)
        return [each for each in self._constraints if each.metric not in known]

    def take_over(self, trial_id: str, donor_id: str) -> None:
        """Let a trial, which becomes a clone of another one, count as that one until it reports."""
        if self._constraints:
            self._former.put(trial_id, self._newest.of(trial_id))
            self._newest.put(trial_id, self._newest.of(donor_id))

    def undo_take_over(self, trial_id: str) -> None:
        """Undo `take_over`, since the trial has not become a clone."""
        if trial_id in self._former:
            self._newest.put(trial_id, self._former.of(trial_id))
            self._former.forget(trial_id)

    def state_dict(self) -> dict[str, Any]:
        """Return the newest values, as JSON values; empty without constraints."""
        if not self._constraints:
            return {}
        return {"bounded": self._newest.state_dict(), "formerly": self._former.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._newest.load_state_dict(state.get("bounded", {}))
        self._former.load_state_dict(state.get("formerly", {}))
