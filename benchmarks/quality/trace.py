"""What a search did on a table, and how good its choice was at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .table import Table

NUM_WORKERS = 4
NUM_TRAININGS = 40
"""The budget of a search: so many full trainings of average cost, shared by all workers."""


class Epoch(NamedTuple):
    """A search has seen a value: at which virtual second, of which row of the table, after how many epochs."""

    at_s: float
    row: int
    epoch: int


@dataclass(slots=True)
class Trace:
    """Everything a search has seen.

    Attributes:
        epochs: What it has seen, in order of time.
        num_suggestions: How many configurations it has proposed.
        decision_s: CPU seconds in which it thought.
        versions: Of the libraries that searched.
    """

    epochs: list[Epoch] = field(default_factory=list)
    num_suggestions: int = 0
    decision_s: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def duration_s(table: Table) -> float:
    """Return how long a search lasts in virtual time: what the budget makes for each worker."""
    return table.budget_s(NUM_TRAININGS) / NUM_WORKERS


def incumbents(table: Table, epochs: Iterable[Epoch]) -> list[tuple[float, float]]:
    """Return when the choice of a search changed, as a share of its time, and the regret of the new choice.

    The choice is the configuration with the best value seen so far, after any number of epochs; the
    first of several as good. Its regret is that of its own best epoch in the table, seen or not:
    what one would get by training it to the end.
    """
    changes: list[tuple[float, float]] = []
    best, chosen, end_s = float("inf"), -1, duration_s(table)
    for at_s, row, epoch in epochs:
        value = float(table.curves[row, epoch - 1])
        if value < best:
            best = value
            if row != chosen:
                chosen = row
                changes.append((at_s / end_s, table.regret(row)))
    return changes


def regret_at(changes: Sequence[tuple[float, float]], share: float) -> float:
    """Return the regret of the choice at a share of the time; 1, that of the median configuration, where nothing has been seen."""
    regret = 1.0
    for at, value in changes:
        if at > share:
            break
        regret = value
    return regret
