"""Figures of a comparison: regrets over time, ranks, and differences with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .record import Record
from .trace import regret_at

SHARES = tuple(round(0.01 * step, 2) for step in range(1, 101))
"""The times at which searches are compared, as shares of their duration."""
FLOOR = 1e-2
"""Smaller regrets count as this: otherwise one lucky hit of the best grid point would outweigh
everything else."""
NUM_RESAMPLES = 10_000

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference with its 95 % interval.

    Attributes:
        mean: The mean; negative where the first of two searches has the smaller regret.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``"ahead"`` or ``"behind"`` if the interval excludes zero, otherwise ``"open"``."""
        return "ahead" if self.high < 0 else "behind" if self.low > 0 else "open"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of searches that ran on the same tasks with the same seeds.

    Attributes:
        regrets: Regrets of each search: tasks by seeds by `SHARES`.
        seconds: Mean CPU seconds per suggestion of each search.
        suggestions: Mean number of suggestions of each search.
        incomplete: Number of runs of each search that is left out, since it has not run on all
            tasks with all seeds.
        num_seeds: Number of seeds of each search on each task.
        floor: Smaller regrets count as this.
    """

    regrets: Mapping[str, Values]
    seconds: Mapping[str, float]
    suggestions: Mapping[str, float]
    incomplete: Mapping[str, int]
    num_seeds: int
    floor: float = FLOOR

    def logs(self, method: str) -> Values:
        """Return log10 of the regrets of a search."""
        return np.log10(np.maximum(self.regrets[method], self.floor))

    def ranks(self) -> dict[str, Values]:
        """Return the mean rank of each search at each of `SHARES`.

        Ranks are averaged over tasks and seeds; 1 is the smallest regret. Searches with equal
        regrets share the mean of their ranks.
        """
        stacked = np.stack([np.maximum(regrets, self.floor) for regrets in self.regrets.values()])
        smaller = (stacked[None] < stacked[:, None]).sum(axis=1)
        equal = (stacked[None] == stacked[:, None]).sum(axis=1)
        means = (1 + smaller + (equal - 1) / 2).mean(axis=(1, 2))
        return dict(zip(self.regrets, means, strict=True))

    def difference(self, first: str, second: str, share: float | None = None) -> Interval:
        """Return the mean difference of log10 of the regrets, the first search minus the second.

        It is paired: runs of both on the same task with the same seed are subtracted.

        Args:
            first: The search that an interval below zero favours.
            second: The search to compare it with.
            share: One of `SHARES`; None for the mean over all of them.
        """
        differences = self.logs(first) - self.logs(second)
        return bootstrap(
            differences.mean(axis=2) if share is None else differences[:, :, SHARES.index(share)]
        )


def compare(
    records: Iterable[Record], tasks: Sequence[str], num_seeds: int, floor: float = FLOOR
) -> Comparison:
    """Return a comparison of the searches that ran on all tasks with all seeds, counted from 0."""
    cells = {kept.key: kept for kept in records if kept.task in tasks and kept.seed < num_seeds}
    methods = list(dict.fromkeys(method for method, _, _ in cells))
    runs = {
        method: [kept for kept in cells.values() if kept.method == method] for method in methods
    }
    enough = [method for method in methods if len(runs[method]) == len(tasks) * num_seeds]
    regrets = {
        method: np.array(
            [[_regrets(cells[method, task, seed]) for seed in range(num_seeds)] for task in tasks]
        )
        for method in enough
    }
    seconds = {
        method: sum(kept.decision_s for kept in runs[method]) / _num_suggestions(runs[method])
        for method in enough
    }
    suggestions = {method: _num_suggestions(runs[method]) / len(runs[method]) for method in enough}
    incomplete = {method: len(runs[method]) for method in methods if method not in enough}
    return Comparison(regrets, seconds, suggestions, incomplete, num_seeds, floor)


def bootstrap(differences: Values, seed: int = 0) -> Interval:
    """Return the mean of paired differences, tasks by seeds, and its 95 % percentile interval.

    Tasks are drawn with replacement, then seeds within each task: the interval covers other tasks
    of this kind, not only these.

    Example:
        >>> bootstrap(np.full((4, 3), -0.5))
        Interval(mean=-0.5, low=-0.5, high=-0.5)
    """
    rng = np.random.default_rng(seed)
    num_tasks, num_seeds = differences.shape
    drawn_tasks = rng.integers(num_tasks, size=(NUM_RESAMPLES, num_tasks, 1))
    drawn_seeds = rng.integers(num_seeds, size=(NUM_RESAMPLES, num_tasks, num_seeds))
    low, high = np.percentile(differences[drawn_tasks, drawn_seeds].mean(axis=(1, 2)), [2.5, 97.5])
    return Interval(float(differences.mean()), float(low), float(high))


def _regrets(kept: Record) -> list[float]:
    return [regret_at(kept.changes, share) for share in SHARES]


def _num_suggestions(runs: Sequence[Record]) -> int:
    return sum(kept.num_suggestions for kept in runs)
