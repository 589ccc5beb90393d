"""Results of trials as a table to fit models to, with extrapolation of final scores.

Most trials are stopped early, and trials that learn fast lead at the lowest level of training, so a
model fitted to ranks at that level finds fast learners. The few trials that were trained longer
show how much others gain from more training: a trend over configurations and levels is fitted to
them, and gives each stopped trial an expected final score. Trials that were trained to the end keep
their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .linear_trend import features, ridge, stable

if TYPE_CHECKING:
    from numpy.random import Generator

Array = np.ndarray[Any, Any]


SLOTS_PER_OCTAVE = 8
"""Slots per doubling of the training time; the last value of each slot is kept.

With a limited number of them, state and time per suggestion do not grow with each result.
"""
_SHORTEST = 2.0**-60
"""Least time that has a slot of its own: 0 has no logarithm."""


@final
@dataclass(slots=True)
class ObservedTrial:
    """Results of a trial.

    Attributes:
        vector: Its configuration.
        curve: Its values by slot of time; infinite for values that count as worst.
        is_over: Whether no more results will come.
        is_failed: Whether it failed for good, so that it counts as worst.
        reward: Its value after a full training, if that was known from the beginning.
    """

    vector: list[float]
    curve: dict[int, float] = field(default_factory=dict)
    is_over: bool = False
    is_failed: bool = False
    reward: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has a result."""
        return bool(self.curve) or self.is_failed or self.reward is not None

    @property
    def last_slot(self) -> int:
        """The latest slot with a value."""
        return max(self.curve)

    def at(self, slot: int, end: int) -> float | None:
        """Return the value at a slot, or at the next slot before `end` that has one."""
        if slot in self.curve:
            return self.curve[slot]
        later = [each for each in self.curve if slot < each < end]
        return self.curve[min(later)] if later else None


@final
class Observations:
    """All trials in the order they were suggested.

    Attributes:
        trials: The results of each, by trial id.
        times: The last recorded time of each slot; not in the state, and a slot may be missing.

    Example:
        >>> observations = Observations()
        >>> for name, loss in [("a", 0.3), ("b", 0.1), ("c", 0.2)]:
        ...     observations.add(name, [0.5])
        ...     observations.record(name, 1, loss)
        >>> observations.record("b", 3, 0.05)
        >>> observations.table().quantiles.round(2).tolist()
        [0.83, 0.17, 0.5]
    """

    def __init__(self) -> None:
        self.trials: dict[str, ObservedTrial] = {}
        self.times: dict[int, float] = {}
        # Vectors of the first trials; the others are appended on access, since converting all of
        # them takes longer with each suggestion.
        self._vectors: Array | None = None

    def add(self, name: str, vector: list[float]) -> None:
        """Add a new trial."""
        self._add(name, ObservedTrial(vector))

    def add_evaluated(self, name: str, vector: list[float], reward: float) -> None:
        """Add a trial of another experiment; smaller rewards are better."""
        self._add(
            name,
            ObservedTrial(
                vector, is_over=True, reward=reward if math.isfinite(reward) else math.inf
            ),
        )

    def _add(self, name: str, trial: ObservedTrial) -> None:
        if name in self.trials:
            self._vectors = None
        self.trials[name] = trial

    def copy_trial(
        self, name: str, trial: ObservedTrial, curve: dict[int, float], reward: float | None
    ) -> None:
        """Add a trial that is as another, with other values."""
        self._add(name, ObservedTrial(trial.vector, curve, trial.is_over, trial.is_failed, reward))

    def remove(self, name: str) -> None:
        """Remove a trial."""
        del self.trials[name]
        self._vectors = None

    def restricted_to(self, place: int, entry: float) -> Observations:
        """Return the observations of the trials that have this entry in a column; read-only."""
        part = Observations()
        part.times = self.times
        part.trials = {
            name: trial for name, trial in self.trials.items() if trial.vector[place] == entry
        }
        return part

    def record(self, name: str, time: float, value: float) -> None:
        """Record a value; a later one for the same time replaces it.

        Args:
            name: The trial; results of unknown ones are ignored.
            time: How long it has trained.
            value: Smaller is better; NaN and infinity count as worst.
        """
        if name in self.trials:
            slot = slot_of(time)
            self.times[slot] = time
            self.trials[name].curve[slot] = value if math.isfinite(value) else math.inf

    def is_known(self, name: str) -> bool:
        """Return whether a trial has a result."""
        return name in self.trials and self.trials[name].is_known

    def end(self, name: str, *, is_failed: bool, drops_values: bool = False) -> None:
        """Record that a trial has ended.

        Args:
            name: The trial; the end of an unknown one is ignored.
            is_failed: Whether it failed for good, so that it counts as worst.
            drops_values: Whether to forget its values.
        """
        if name in self.trials:
            trial = self.trials[name]
            if drops_values:
                trial.curve.clear()
            trial.is_over = True
            trial.is_failed = is_failed

    @property
    def num_observed(self) -> int:
        """Number of trials with a result, failures included."""
        return sum(1 for trial in self.trials.values() if trial.is_known)

    def vectors(self) -> Array:
        """Return all trials' configurations, one per row, with or without results; read-only."""
        before = self._vectors
        added = np.array(
            [
                trial.vector
                for trial in islice(
                    self.trials.values(), 0 if before is None else len(before), None
                )
            ],
            dtype=float,
        )
        if len(added):
            self._vectors = added if before is None else np.concatenate([before, added])
        return added if self._vectors is None else self._vectors

    def running_vectors(self) -> Array:
        """Return the configurations of trials without a result that may still get one."""
        is_running = np.array(
            [not (trial.is_over or trial.is_known) for trial in self.trials.values()], dtype=bool
        )
        return self.vectors()[is_running] if len(is_running) else self.vectors()

    def table(self) -> Table:
        """Return the table to fit a model to: trials with a result, ranked over all levels."""
        is_known = np.array([trial.is_known for trial in self.trials.values()], dtype=bool)
        names = tuple(compress(self.trials, is_known))
        known = list(compress(self.trials.values(), is_known))
        # Failed trials keep this last rank.
        quantiles = np.full(len(known), 1 - 0.5 / max(len(known), 1))
        heights = np.zeros(len(known), dtype=int)
        levels = tuple(self._levels_with_values(known))
        for height, level in enumerate(levels):
            places, values = level.places, level.values
            # At the first level all trials share the best ranks. Those that reach a higher level
            # share the ranks that they had among them so far, in the order of their values there:
            # values are only ever compared within a level.
            shares = (
                np.sort(quantiles[places])
                if height
                else (np.arange(len(places)) + 0.5) / len(known)
            )
            quantiles[places] = assign_by_rank(values, shares)
            heights[places] = height
        return Table(names, self.vectors()[is_known], quantiles, heights, levels)

    def _levels_with_values(self, known: list[ObservedTrial]) -> Iterator[Level]:
        """Yield the levels with the values there, from the lowest to the highest."""
        climbing = [
            (place, trial, trial.last_slot)
            for place, trial in enumerate(known)
            if trial.curve and not trial.is_failed
        ]
        rewards = {
            place: trial.reward for place, trial in enumerate(known) if trial.reward is not None
        }
        levels = self._levels(last for _, _, last in climbing)
        for height, (slot, end) in enumerate(levels):
            if height:
                climbing = [(place, trial, last) for place, trial, last in climbing if last >= slot]
            found = {place: trial.at(slot, end) for place, trial, _ in climbing}
            if not height:  # a trial that ended before the first level counts with its last value
                found |= {
                    place: trial.curve[last]
                    for place, trial, last in climbing
                    if found[place] is None
                }
            values = {place: value for place, value in found.items() if value is not None}
            if height == len(levels) - 1:
                values |= rewards
            yield Level.of(slot, self.times.get(slot, _start_of(slot)), values)
        if not levels:
            yield Level.of(0, 1.0, rewards)

    def _levels(self, last_slots: Iterable[int]) -> list[tuple[int, int]]:
        """Return the slots at which trials are compared, each with the start of the next octave.

        Of each octave it is the slot at which most trials have stopped: a rung of a scheduler, or
        the end of training.
        """
        counts = Counter(last_slots)
        octaves: dict[int, int] = {}
        for slot, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            octaves.setdefault(slot // SLOTS_PER_OCTAVE, slot)
        return [(slot, (octave + 1) * SLOTS_PER_OCTAVE) for octave, slot in sorted(octaves.items())]

    def state_dict(self) -> list[Any]:
        """Return all results, as JSON values."""
        return [
            [
                name,
                _plain(trial.vector),
                [[slot, finite_or_none(value)] for slot, value in trial.curve.items()],
                trial.is_over,
                trial.is_failed,
            ]
            if trial.reward is None
            else [name, _plain(trial.vector), finite_or_none(trial.reward)]
            for name, trial in self.trials.items()
        ]

    def load_state_dict(self, state: list[Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for name, entries, *known in state:
            vector = [math.nan if entry is None else entry for entry in entries]
            if len(known) == 1:
                self.add_evaluated(name, vector, number_or_worst(known[0]))
            else:
                curve, is_over, is_failed = known
                values = {slot: number_or_worst(value) for slot, value in curve}
                self._add(name, ObservedTrial(vector, values, is_over, is_failed))


@final
@dataclass(frozen=True, slots=True)
class Level:
    """Values of trials at a level of training.

    Attributes:
        slot: Its slot of time.
        time: A time of this slot at which a value was recorded.
        places: Indices of the trials that have reached it.
        values: Their values there; smaller is better.
    """

    slot: int
    time: float
    places: Array
    values: Array

    @classmethod
    def of(cls, slot: int, time: float, values: Mapping[int, float]) -> Level:
        """Return a level from values by the index of the trial."""
        return cls(
            slot,
            time,
            np.fromiter(values, dtype=int, count=len(values)),
            np.fromiter(values.values(), dtype=float, count=len(values)),
        )


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Trials and their ranks, which a model is fitted to.

    Attributes:
        names: Their names, in the order they were suggested.
        vectors: Their configurations, one per row.
        quantiles: Rank of each among all trials, from near 0 for the best to near 1 for the worst.
        heights: The number of the highest level that each has reached, from 0.
        levels: The levels, from the lowest to the highest.
        retained: For each level the part of a trial's lead over what is usual for such
            configurations that is expected to remain at the highest level; empty where final scores
            are not extrapolated.
    """

    names: tuple[str, ...]
    vectors: Array
    quantiles: Array
    heights: Array
    levels: tuple[Level, ...]
    retained: tuple[float, ...] = ()

    @property
    def last_values(self) -> Array:
        """Each trial's value at the highest level it has reached; infinite for failed trials."""
        values = np.full(len(self.names), np.inf)
        for level in self.levels:
            values[level.places] = level.values
        return values

    @property
    def scores(self) -> Array:
        """The quantiles as normal scores; smaller is better."""
        return normal_scores(self.quantiles)


def best_and_others(table: Table, num_rows: int, rng: Generator) -> Array:
    """Return the indices of the trials that a model is fitted to, at most `num_rows`.

    Of more trials than that, half are the best, and half drawn from the others.
    """
    if len(table.quantiles) <= num_rows:
        return np.arange(len(table.quantiles))
    order = np.argsort(table.quantiles, kind="stable")
    others = rng.permutation(order[num_rows // 2 :])[: num_rows - num_rows // 2]
    return np.concatenate([order[: num_rows // 2], others])


def slot_of(time: float) -> int:
    """Return the slot of a training time; all times from 0 down share one."""
    return math.floor(SLOTS_PER_OCTAVE * math.log2(max(time, _SHORTEST)))


def _start_of(slot: int) -> float:
    """Return the least time of a slot."""
    return float(2.0 ** (slot / SLOTS_PER_OCTAVE))


def number_in(result: Mapping[str, Any], name: str) -> float | None:
    """Return an entry of a result: NaN if it is not a number, None if it is missing."""
    if name not in result:
        return None
    value = result[name]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def normal_scores(quantiles: Array) -> Array:
    """Return the quantiles of the standard normal distribution at these probabilities."""
    score_of = NormalDist().inv_cdf
    return np.array([score_of(quantile) for quantile in quantiles.tolist()])


def assign_by_rank(values: Array, shares: Array) -> Array:
    """Return for each value the share at its rank; equal values get the mean of their shares.

    Args:
        values: The values.
        shares: As many numbers, in ascending order.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    sums = np.concatenate(([0.0], np.cumsum(shares)))
    ends = np.cumsum(counts)
    assigned: Array = ((sums[ends] - sums[ends - counts]) / counts)[inverse]
    return assigned


def _plain(vector: list[float]) -> list[float | None]:
    return [None if math.isnan(entry) else entry for entry in vector]


def finite_or_none(value: float) -> float | None:
    """Return a value as states have it: None for one that counts as worst, which JSON lacks."""
    return value if math.isfinite(value) else None


def number_or_worst(value: float | None) -> float:
    """Return the value that `finite_or_none` has written."""
    return math.inf if value is None else value


RETAINED = 0.9
"""Part of a trial's residual from the trend that is expected to remain one level higher, as long as
few trials have been trained to the end."""
PRIOR_TRIALS = 5
"""The expectation counts like so many trials that were trained to the end."""
MIN_TRIALS = 8
"""With fewer trials no trend is fitted, and the observed ranks are used."""


def extrapolate_final_scores(table: Table, num_categories: tuple[int, ...]) -> Table:
    """Return the table with the ranks that trials are expected to have after a full training.

    The score of a value is its rank among all values of all levels, as a normal score, so that only
    order counts. A ridge regression predicts scores from the features of configurations, alone and
    multiplied by the distance to the highest level on a logarithmic scale. A trial's extrapolated
    score is its prediction at the highest level plus a part of the residual of its last value. That
    part is estimated for each level from the trials that have been trained to the end, and begins
    with `RETAINED` to the power of the number of levels in between: it is small where the level
    says little about the end, and negative where it misleads. Failed trials stay last.

    Args:
        table: The trials, with their values at the levels they have reached.
        num_categories: For each column of their vectors the number of its categories, 0 for
            numbers.

    Returns:
        The same trials with other quantiles; `table` itself if there are few trials or only one
        level.
    """
    levels = table.levels
    # What trials gain from level to level is only seen with two.
    if len(levels) < 2 or len(table.names) < MIN_TRIALS:  # noqa: PLR2004
        return table
    places = np.concatenate([level.places for level in levels])
    heights = np.repeat(np.arange(len(levels)), [len(level.places) for level in levels])
    values = np.concatenate([level.values for level in levels])
    scores = normal_scores(assign_by_rank(values, (np.arange(len(values)) + 0.5) / len(values)))
    single = features(table.vectors, num_categories)
    both = np.hstack([single[places], single[places] * _distances(levels)[heights][:, None]])
    # Neither the mean at the highest level nor the mean gain is shrunk: both are constants.
    _, weights = ridge(both, scores, unpenalised=[0, single.shape[1]])
    expected = np.full(len(table.names), np.inf)
    residuals = scores - stable(both @ weights)
    retained = _retention(residuals, places, heights, len(levels))
    # A trial has several values in `places`; the last one, at its highest level, overwrites the
    # others. At the highest level the distance is 0, so that its half of the weights drops out.
    final = stable(single @ weights[: single.shape[1]])
    expected[places] = final[places] + retained[heights] * residuals
    return replace(table, quantiles=ranks(expected), retained=tuple(retained.tolist()))


def ranks(scores: Array) -> Array:
    """Return the ranks of scores as quantiles; infinite ones share the last."""
    order = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    quantiles: Array = np.where(np.isfinite(scores), order + 0.5, len(order) - 0.5) / len(order)
    return quantiles


def describe_retention(table: Table) -> str:
    """Return in words which parts of residuals are expected to remain, empty if not estimated.

    Example:
        >>> levels = tuple(
        ...     Level.of(slot_of(time), time, dict.fromkeys(range(count), 0.5))
        ...     for time, count in [(1, 20), (9, 8), (27, 5)]
        ... )
        >>> no = np.zeros(0)
        >>> describe_retention(Table((), no, no, no, levels, (0.2, 0.85, 1.0)))
        'share of a lead expected to last until 27: 0.20 from 1, 0.85 from 9; 5 trials reached 27'
    """
    if not table.retained:
        return ""
    *lower, highest = table.levels
    shares = ", ".join(
        f"{share:.2f} from {level.time:g}"
        for share, level in zip(table.retained, lower, strict=False)
    )
    return (
        f"share of a lead expected to last until {highest.time:g}: {shares}; "
        f"{len(highest.places)} trials reached {highest.time:g}"
    )


def _retention(residuals: Array, places: Array, heights: Array, num_levels: int) -> Array:
    """Return for each level the part of a residual that remains at the highest one, from -1 to 1.

    It comes from the trials that have values at both. That only the best are trained to the end
    does not bias a regression on what they were chosen by.

    Args:
        residuals: Scores minus the trend, one per value.
        places: The trial of each.
        heights: The level of each.
        num_levels: How many levels there are.
    """
    by_level = np.full((num_levels, places.max() + 1), np.nan)
    by_level[heights, places] = residuals
    last = by_level[-1]
    retained = np.ones(num_levels)
    for level, own in enumerate(by_level[:-1]):
        expected = RETAINED ** (num_levels - 1 - level)
        own_variance = np.nanmean(own**2)
        has_both = ~np.isnan(own + last)
        x, y = own[has_both], last[has_both]
        # As if PRIOR_TRIALS more trials had shown what is expected.
        slope = (x @ y + PRIOR_TRIALS * own_variance * expected) / (
            x @ x + PRIOR_TRIALS * own_variance + 1e-12
        )
        retained[level] = np.clip(slope, -1.0, 1.0)
    return stable(retained)


def _distances(levels: tuple[Level, ...]) -> Array:
    """Return each level's distance below the highest: -1 for the lowest, 0 for the highest."""
    slots = np.array([level.slot for level in levels], dtype=float)
    distances: Array = (slots - slots[-1]) / max(slots[-1] - slots[0], 1.0)
    return distances
