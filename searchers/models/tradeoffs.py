"""What trials have reached in several metrics, and in those that constraints bound.

A model of one number is fitted to a scalarisation of the metrics, with weights that are drawn for
each suggestion, so that the suggestions spread over the trade-offs. All of them learn from the
same values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from searchers.objectives.newest_values import NewestValues
from searchers.objectives.outcome_constraint import Constraints

from .observations import (
    SLOTS_PER_OCTAVE,
    Observations,
    finite_or_none,
    number_in,
    number_or_worst,
    slot_of,
)

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]

AUGMENTATION = 0.05
"""Weight of the sum of the metrics beside the largest of them."""


@final
class Tradeoffs:
    """Values of several metrics, by trial and time, and of those that constraints bound.

    The values of metrics that are maximised have their sign turned. A metric that a result lacks,
    or has no number for, has the newest one that the trial has reported, as that of a size is often
    reported only once; results before all metrics are known do not count.

    Args:
        objectives: Metric and mode (``"min"`` or ``"max"``) of each objective.
        constraints: What results have to keep.

    Attributes:
        objectives: See above.
        constraints: See above.
    """

    def __init__(
        self, objectives: Sequence[tuple[str, str]], constraints: Constraints = ()
    ) -> None:
        self.objectives = tuple(objectives)
        self.constraints = tuple(constraints)
        self._signs = [-1.0 if mode == "max" else 1.0 for _, mode in self.objectives]
        self._curves: dict[str, dict[int, list[float]]] = {}
        self._rewards: dict[str, list[float]] = {}
        self._newest = NewestValues(self.metrics)

    def record(self, name: str, time: float, result: Mapping[str, Any]) -> bool:
        """Record a result; return whether all metrics that are optimised are known with it."""
        values = self._taken(name, result)
        if values is not None:
            self._curves.setdefault(name, {})[slot_of(time)] = values
        return values is not None

    def add_evaluated(self, name: str, metrics: Mapping[str, Any]) -> None:
        """Add what a configuration reaches after a full training, as `evaluated` returns it."""
        values = self._taken(name, metrics)
        if values is not None:
            self._rewards[name] = values

    def evaluated(self, given: Any) -> Mapping[str, Any]:
        """Return the metrics of an evaluated point.

        Args:
            given: A dictionary, or without constraints the values in the order of the objectives.

        Raises:
            ValueError: If it is something else, or lacks a number.
        """
        names = [metric for metric, _ in self.objectives]
        is_list = isinstance(given, Sequence) and len(given) == len(names) and not self.constraints
        found = dict(zip(names, given, strict=True)) if is_list else given
        if not isinstance(found, Mapping) or any(
            (value := number_in(found, metric)) is None or math.isnan(value) for metric in names
        ):
            raise ValueError(
                "values of evaluated points must be dictionaries with the numbers of "
                f"{', '.join(map(repr, self.metrics))} where there are several metrics or "
                f"constraints, got {given!r}; leave out points without a result"
            )
        return found

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that count: those of objectives, then those of constraints."""
        bounded = (each.metric for each in self.constraints)
        return tuple(dict.fromkeys((*(metric for metric, _ in self.objectives), *bounded)))

    def _taken(self, name: str, result: Mapping[str, Any]) -> list[float] | None:
        newest = self._newest.note(name, result)
        if any(metric not in newest for metric, _ in self.objectives):
            return None
        return [
            sign * newest[metric] if math.isfinite(newest[metric]) else math.inf
            for sign, (metric, _) in zip(self._signs, self.objectives, strict=True)
        ]

    def forget(self, name: str) -> None:
        """Forget what a trial has reached."""
        self._curves.pop(name, None)
        self._rewards.pop(name, None)
        self._newest.forget(name)

    def excesses(self, names: Sequence[str]) -> Array:
        """Return by how much each trial exceeds each bound, negative where it keeps it.

        Args:
            names: The trials.

        Returns:
            A row for each trial and a column for each constraint; infinite where a trial has not
            reported the metric, or no finite number.
        """
        return np.array(
            [
                [
                    each.excess(value)
                    if math.isfinite(value := self._newest.of(name).get(each.metric, math.nan))
                    else math.inf
                    for each in self.constraints
                ]
                for name in names
            ],
            dtype=float,
        ).reshape(len(names), len(self.constraints))

    def unmeasured(self, names: Sequence[str], observations: Observations) -> Array:
        """Return which constraints each trial may still keep, as far as it is known.

        What is measured only at the end of a training is unknown of trials that were stopped before
        it, or have not come so far. They are neither feasible nor infeasible.

        Args:
            names: The trials.
            observations: All of them.

        Returns:
            A row for each trial and a column for each constraint: whether the trial has not
            reported the metric, has not failed, and was trained less than others.
        """
        reached = {
            name: max(self._curves[name]) // SLOTS_PER_OCTAVE
            for name, trial in observations.trials.items()
            if name in self._curves and not trial.is_failed
        }
        farthest = max(reached.values(), default=0)
        return np.array(
            [
                [
                    reached.get(name, farthest) < farthest
                    and each.metric not in self._newest.of(name)
                    for each in self.constraints
                ]
                for name in names
            ],
            dtype=bool,
        ).reshape(len(names), len(self.constraints))

    def of_objective(self, number: int, observations: Observations) -> Observations:
        """Return the trials of some observations with their values of one objective."""
        one = Observations()
        one.times = observations.times
        for name, trial in observations.trials.items():
            one.copy_trial(
                name,
                trial,
                {slot: self._curves[name][slot][number] for slot in trial.curve},
                self._rewards[name][number] if name in self._rewards else None,
            )
        return one

    def scalarise(self, observations: Observations, weights: Sequence[float]) -> None:
        """Replace the values of all trials by an augmented Chebyshev scalarisation.

        Metrics are scaled to their range on the front of the feasible trials. Infeasible trials
        come after all feasible ones, in the order of their violations. What is unmeasured counts as
        kept.

        Args:
            observations: The trials, whose values are replaced.
            weights: One for each objective, which sum to 1.

        Reference:
            Knowles. ParEGO: A Hybrid Algorithm With On-Line Landscape Approximation for Expensive
            Multiobjective Optimization Problems. IEEE Transactions on Evolutionary Computation
            10(1), 2006, equation 2.
        """
        names = list(observations.trials)
        excesses = np.where(self.unmeasured(names, observations), 0.0, self.excesses(names))
        missed = dict(zip(names, _missed(excesses).tolist(), strict=True))
        # Values are only ever compared within an octave of training time.
        octaves: dict[int, list[tuple[str, int]]] = {}
        for name, trial in observations.trials.items():
            for slot in self._curves.get(name, {}):
                if slot in trial.curve:
                    octaves.setdefault(slot // SLOTS_PER_OCTAVE, []).append((name, slot))
        for entries in octaves.values():
            scores = scalarised(
                np.array([self._curves[name][slot] for name, slot in entries], dtype=float),
                np.array([missed[name] for name, _ in entries]),
                weights,
            )
            for (name, slot), score in zip(entries, scores.tolist(), strict=True):
                observations.trials[name].curve[slot] = score
        self._scalarise_rewards(observations, missed, weights)

    def _scalarise_rewards(
        self, observations: Observations, missed: Mapping[str, float], weights: Sequence[float]
    ) -> None:
        known = [name for name in self._rewards if name in observations.trials]
        if not known:
            return
        points = np.array([self._rewards[name] for name in known], dtype=float)
        scores = scalarised(points, np.array([missed[name] for name in known]), weights)
        for name, score in zip(known, scores.tolist(), strict=True):
            observations.trials[name].reward = score

    def state_dict(self) -> dict[str, Any]:
        """Return all values, as JSON values."""
        return {
            "curves": {
                name: [[slot, *map(finite_or_none, values)] for slot, values in curve.items()]
                for name, curve in self._curves.items()
            },
            "rewards": {
                name: list(map(finite_or_none, each)) for name, each in self._rewards.items()
            },
            "newest": self._newest.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._curves = {
            name: {int(slot): list(map(number_or_worst, values)) for slot, *values in curve}
            for name, curve in state["curves"].items()
        }
        self._rewards = {
            name: list(map(number_or_worst, each)) for name, each in state["rewards"].items()
        }
        self._newest.load_state_dict(state["newest"])


def scalarised(points: Array, missed: Array, weights: Sequence[float]) -> Array:
    """Return the augmented Chebyshev scalarisation of points, feasible ones first.

    Args:
        points: Values that are minimised, one point per row; infinite ones count as worst.
        missed: By how much each point misses the constraints, 0 for feasible ones.
        weights: One for each column, which sum to 1.

    Example:
        >>> points = np.array([[0.0, 1.0], [1.0, 0.0], [0.4, 0.4], [0.0, 0.0]])
        >>> scores = scalarised(points, np.array([0.0, 0.0, 0.0, 2.0]), [0.5, 0.5])
        >>> scores.round(3).tolist()
        [0.525, 0.525, 0.22, 3.525]
    """
    is_known = np.isfinite(points).all(axis=1)
    is_good = is_known & (missed == 0)
    scores = np.full(len(points), np.inf)
    if is_good.any():
        low, width = scale_of_front(points[is_good])
        units = (points[is_good] - low) / width
        weighted = units * np.asarray(weights)
        scores[is_good] = weighted.max(axis=1) + AUGMENTATION * weighted.sum(axis=1)
    worst = max(float(scores[is_good].max()), 0.0) if is_good.any() else 0.0
    is_missed = is_known & (missed > 0) & np.isfinite(missed)
    scores[is_missed] = worst + 1 + missed[is_missed]
    return scores


def scale_of_front(points: Array) -> tuple[Array, Array]:
    """Return the best values of points, and the ranges that their Pareto front has.

    Where the front has no range in a metric, it is that of all points, or 1.
    """
    front = points[is_on_front(points)]
    low = points.min(axis=0)
    width, spread = front.max(axis=0) - low, np.ptp(points, axis=0)
    width = np.where(width > 0, width, np.where(spread > 0, spread, 1.0))
    return low, width


def is_on_front(points: Array) -> Array:
    """Return whether each point is one that no other dominates; smaller is better.

    Example:
        >>> is_on_front(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])).tolist()
        [True, True, False, True]
    """
    is_no_worse = (points[:, None] <= points).all(axis=2)
    is_better = (points[:, None] < points).any(axis=2)
    return np.asarray(~(is_no_worse & is_better).any(axis=0))


def _missed(excesses: Array) -> Array:
    """Return each trial's total violation, with that of each constraint divided by its median."""
    beyond = np.maximum(excesses, 0.0)
    total = np.zeros(len(excesses))
    for column in beyond.T:
        found = column[(column > 0) & np.isfinite(column)]
        total += column / (np.median(found) if len(found) else 1.0)
    return total


def drawn_weights(num_objectives: int, rng: Generator) -> list[float]:
    """Return weights that are spread evenly over all that sum to 1."""
    if num_objectives == 1:
        return [1.0]
    gaps = rng.exponential(size=num_objectives)
    return (gaps / gaps.sum()).tolist()  # type: ignore[no-any-return]
