"""PASHA: ASHA by promotion up to a ceiling that rises while the ranking of trials is unstable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, final

from schedulers.arguments import plain_number
from schedulers.decisions import Decision, Number
from schedulers.scheduler import TrialView

from .halving_scheduler import HalvingScheduler, RungPlan, RungReport, RungRule
from .promotion_rule import PromotionRule
from .promotion_rungs import ValueRung

_FIRST_CEILING = 1
"""Index of the first ceiling: the second level, since rankings are compared between levels."""


@final
class PASHAScheduler(HalvingScheduler):
    """Promotes trials like ASHA, up to a ceiling that rises while the ranking there changes.

    Trials pause at each level they reach, and the best ``floor(n / reduction_factor)`` of it are
    promoted when a slot is free, as with ``ASHAScheduler(type="promotion")``, but none above the
    *ceiling*. Each time a trial reaches the ceiling, the trials there are ranked, and compared with
    how the same trials ranked one level lower. If one has a rank that it did not have there, not
    even within `epsilon`, the ceiling rises by a level. So trials are trained no longer than it
    takes to distinguish good ones from bad ones.

    The noise that `epsilon` stands for is measured: two trials at the ceiling whose curves have
    crossed and crossed back are as good as each other; `epsilon` is the 90th percentile of how far
    apart such pairs are at the ceiling, 0 as long as there is none, and what it was before until
    there is one at a new ceiling.

    **What comes out** is a configuration, not a trained model: train the best one anew, with as
    much as you want to spend. No trial need ever reach `max_t`. All trials have to save and load
    checkpoints. Everything else, rare and repeated reports, missing metrics and how it ends, is as
    with ``ASHAScheduler(type="promotion")``; the last resort takes one trial to the ceiling instead
    of `max_t`.

    Args:
        time_attr: Entry of a result that tells how long the trial has trained; must grow. `max_t`
            and `grace_period` are in its units.
        metric: What to compare, by flattened name; None to take ``TuneConfig(metric=...)``.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised; None to take
            ``TuneConfig(mode=...)``.
        max_t: The highest level; the ceiling never rises above it, and trials that reach it are
            stopped.
        grace_period: The lowest level, between 1 and `max_t`.
        reduction_factor: One trial in this many is promoted from a level, and levels are this
            factor apart; more than 1.
        epsilon: Up to which difference values count as equal, at least 0; None to measure it.

    Attributes:
        levels: Where trials are compared, in units of `time_attr`, ascending.

    Raises:
        TypeError: If a number is not a number.
        ValueError: If an argument is out of range.

    Example:
        >>> scheduler = PASHAScheduler(metric="loss", mode="min", max_t=81)
        >>> scheduler.levels, scheduler.ceiling
        ((1, 3, 9, 27, 81), 3)

    Reference:
        Bohdal, Balles, Wistuba, Ermis, Archambeau, Zappella. PASHA: Efficient HPO and NAS with
        Progressive Resource Allocation. ICLR 2023, arXiv 2207.06940, algorithm 1; sections 4.1 and
        4.2 for ranking and noise.

    Departures:
        The ranking is looked at when a trial reaches the ceiling instead of at each report: nothing
        that it depends on changes in between. Curves count from their beginning. Trials that can
        never be promoted are stopped early, as with ASHA.
    """

    prefix = "pasha"

    def __init__(  # noqa: PLR0917  (positions are as with ASHA)
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: Number = 100,
        grace_period: Number = 1,
        reduction_factor: Number = 3,
        epsilon: float | None = None,
    ) -> None:
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
        )
        self._given_epsilon = None if epsilon is None else plain_number("epsilon", epsilon)
        if self._given_epsilon is not None and not 0 <= self._given_epsilon < math.inf:
            raise ValueError(
                f"epsilon must be at least 0 and finite, got {epsilon}; None measures it"
            )
        self._promotion = PromotionRule(
            RungPlan(self.prefix, self.levels, self._reduction_factor),
            self._value_rung,
        )
        self._promotion.ceiling = min(_FIRST_CEILING, len(self.levels) - 1)
        self._epsilon = float(self._given_epsilon or 0)
        self._curves: dict[str, dict[float, float]] = {}
        # Trials that have ended and whose curves are needed until the ceiling rises.
        self._over: set[str] = set()
        self._at_ceiling: list[str] = []
        self._distances: list[float] = []

    def _value_rung(self) -> ValueRung:
        # A method, since a copy of the scheduler has one of its own.
        return ValueRung(self._get_mode())

    @property
    def _rule(self) -> RungRule:
        return self._promotion

    @property
    def ceiling(self) -> Number:
        """The level above which no trial is promoted at present."""
        return self.levels[self._promotion.ceiling]

    @property
    def epsilon(self) -> float:
        """Up to which difference values count as equal now."""
        return self._epsilon

    def _report(self, trial: TrialView, time: float, result: Mapping[str, Any]) -> RungReport:
        value = self._metrics.finite(result, str(self.metric))
        if value is not None and not math.isnan(value):
            # The first value counts: results that are repeated after a crash may differ.
            self._curves.setdefault(trial.trial_id, {}).setdefault(time, value)
            self._over.discard(trial.trial_id)
        violation = self._feasible.note(trial.trial_id, result)
        return RungReport(trial.trial_id, 0, time, value, violation=violation)

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pause the trial at a level; raise the ceiling if the ranking has changed."""
        decisions = super().on_trial_result(trial, result)
        ranking = self._recorded_at(self._promotion.ceiling)
        if trial.trial_id in ranking and trial.trial_id not in self._at_ceiling:
            # Epsilon first: the ranking of the paper is soft, equal up to the noise seen so far.
            self._measure_noise(trial.trial_id)
            if not self._is_settled(list(ranking)):
                self._raise_ceiling()
        return decisions

    def _measure_noise(self, trial_id: str) -> None:
        for other in self._at_ceiling:
            distance = crossing_distance(
                self._curves.get(trial_id, {}), self._curves.get(other, {}), self.ceiling
            )
            if distance is not None:
                self._distances.append(distance)
        self._at_ceiling.append(trial_id)
        if self._distances and self._given_epsilon is None:
            self._epsilon = percentile(self._distances, 90)

    def _is_settled(self, ranking: Sequence[str]) -> bool:
        # With a single level there is nothing to compare the ranking with.
        below = self._promotion.ceiling - 1
        return below < 0 or is_settled(self._recorded_at(below), ranking, self._epsilon)

    def _recorded_at(self, index: int) -> dict[str, float]:
        """Return all values at a level by trial, the best first; see `ValueRung.values`."""
        rung = self._promotion.rung_at(index)
        return rung.values() if isinstance(rung, ValueRung) else {}

    def _raise_ceiling(self) -> None:
        if self._promotion.ceiling == len(self.levels) - 1:
            return
        self._promotion.ceiling += 1
        # Noise is measured anew at each ceiling; until a pair of curves crosses, the old epsilon
        # holds.
        self._at_ceiling, self._distances = [], []
        for trial_id in self._over:
            self._curves.pop(trial_id, None)
        self._over = set()

    def _handle_end(self, trial_id: str, *, is_trained: bool) -> Sequence[Decision]:
        # Curves of the trials at the ceiling are compared with those that will come there; other
        # ended trials will never get there.
        if trial_id in self._at_ceiling:
            self._over.add(trial_id)
        else:
            self._curves.pop(trial_id, None)
        return super()._handle_end(trial_id, is_trained=is_trained)

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values and decisions, as JSON values."""
        return {
            **super().state_dict(),
            "epsilon": self._epsilon,
            "curves": {
                trial_id: [[time, value] for time, value in curve.items()]
                for trial_id, curve in self._curves.items()
            },
            "over": sorted(self._over),
            "at_ceiling": list(self._at_ceiling),
            "distances": list(self._distances),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            ValueError: If it comes from a scheduler with other arguments: recorded values would not
                compare.
        """
        super().load_state_dict(state)
        self._epsilon = state["epsilon"]
        self._curves = {trial_id: dict(curve) for trial_id, curve in state["curves"].items()}
        self._over = set(state["over"])
        self._at_ceiling = list(state["at_ceiling"])
        self._distances = list(state["distances"])

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "epsilon": self._given_epsilon}

    def debug_string(self) -> str:
        """Return the base class's line, the ceiling and epsilon."""
        return f"{super().debug_string()}; ceiling {self.ceiling:g}, epsilon {self._epsilon:.6g}"


def is_settled(lower: Mapping[str, float], upper: Sequence[str], epsilon: float) -> bool:
    """Return whether trials rank the same on two rungs, except for noise.

    Among the trials on both rungs, the trial at each place of the upper ranking must
    have been, on the lower rung, within `epsilon` of the trial at the same place there.

    Args:
        lower: Values on the lower rung by trial, the best first.
        upper: Trials on the upper rung, the best first.
        epsilon: Values that differ by no more count as equal.

    Example:
        >>> is_settled({"a": 0.1, "b": 0.2, "c": 0.9}, ["b", "a"], epsilon=0.0)
        False
        >>> is_settled({"a": 0.1, "b": 0.2, "c": 0.9}, ["b", "a"], epsilon=0.15)
        True

    Reference:
        Bohdal, Balles, Wistuba, Ermis, Archambeau, Zappella. PASHA: Efficient HPO and NAS with
        Progressive Resource Allocation. ICLR 2023, arXiv 2207.06940, section 4.1 (soft ranking).
    """
    now = [trial_id for trial_id in upper if trial_id in lower]
    on_both = set(now)
    then = [trial_id for trial_id in lower if trial_id in on_both]
    return all(
        new == old or abs(lower[new] - lower[old]) <= epsilon
        for new, old in zip(now, then, strict=True)
    )


def crossing_distance(
    one: Mapping[float, float], other: Mapping[float, float], until: float
) -> float | None:
    """Return how far apart two curves end, if they cross and cross back; None if they do not.

    Curves that change places and change back do so by noise: none of them is truly better by more
    than what is between them.

    Args:
        one: Values of a trial by time.
        other: Those of another one; only times that both have count.
        until: The last time that counts.

    Example:
        >>> crossing_distance({1: 0.5, 2: 0.3, 3: 0.2}, {1: 0.4, 2: 0.4, 3: 0.1}, until=3)
        0.1
        >>> crossing_distance({1: 0.5, 2: 0.3, 3: 0.2}, {1: 0.4, 2: 0.4, 3: 0.3}, until=3) is None
        True

    Reference:
        As `is_settled`, section 4.2: criss-crossing pairs.
    """
    differences = [
        one[time] - other[time] for time in sorted(one.keys() & other.keys()) if time <= until
    ]
    # Equal values are no crossing; curves that touch and part again have not changed places.
    signs = [math.copysign(1, difference) for difference in differences if difference]
    num_crossings = sum(before != after for before, after in pairwise(signs))
    return abs(differences[-1]) if num_crossings > 1 else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly between the two nearest values.

    Example:
        >>> percentile([4.0, 1.0, 2.0], 50), percentile([0.0, 1.0], 90)
        (2.0, 0.9)
    """
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
