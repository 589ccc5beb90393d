"""Trace of a search on a table, and the regret of its incumbent over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .table import Table

NUM_WORKERS = 4
NUM_TRAININGS = 40
"""Budget of a search: the cost of this many full trainings of average cost, on all workers."""


class Epoch(NamedTuple):
    """A value that a search has received.

    Attributes:
        at_s: Virtual time.
        row: Row of the table.
        epoch: Number of epochs.
        seed: Number of the training seed; see `Table.seed_of`.
    """

    at_s: float
    row: int
    epoch: int
    seed: int = 0


@dataclass(slots=True)
class Trace:
    """Everything that a search has received, and its statistics.

    Attributes:
        epochs: Values that it has received, in order of time.
        num_suggestions: Number of configurations that it has suggested.
        decision_s: CPU seconds spent inside the search.
        versions: Versions of the libraries of the search.
    """

    epochs: list[Epoch] = field(default_factory=list)
    num_suggestions: int = 0
    decision_s: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def duration_s(table: Table) -> float:
    """Return the duration of a search in virtual seconds: the budget divided by the workers."""
    return table.budget_s(NUM_TRAININGS) / NUM_WORKERS


def incumbents(table: Table, epochs: Iterable[Epoch]) -> list[tuple[float, float]]:
    """Return the times at which the incumbent changed, with the regrets of the new incumbents.

    Times are shares of the duration. The incumbent is the configuration with the best value
    received so far, after any number of epochs; of equal ones the first. Its regret is that of its
    best epoch in the table, as if it were trained to the end, on average over training seeds.
    """
    changes: list[tuple[float, float]] = []
    best, incumbent, end_s = float("inf"), -1, duration_s(table)
    for at_s, row, epoch, seed in epochs:
        value = float(table.curves[seed, row, epoch - 1])
        if value < best:
            best = value
            if row != incumbent:
                incumbent = row
                changes.append((at_s / end_s, table.regret(row)))
    return changes


def regret_at(changes: Sequence[tuple[float, float]], share: float) -> float:
    """Return the regret of the incumbent at a share of the duration.

    Before the first value it is 1, the regret of the median configuration.
    """
    regret = 1.0
    for at, value in changes:
        if at > share:
            break
        regret = value
    return regret
