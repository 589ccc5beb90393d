"""Properties of the tasks: a table of all of them, and a comparison of the two sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from .table import Table, read_table
from .tasks import DEVELOPMENT, REPORTING, Task

EARLY = (1, 3, 9)
"""Epochs after which values are compared with the final ones."""
_SETS: Mapping[str, Mapping[str, Task]] = {"development": DEVELOPMENT, "reporting": REPORTING}


def task_rows() -> Iterator[str]:
    """Yield the lines of a table of the tasks."""
    headings = (
        "task",
        "set",
        "what is trained",
        "configurations",
        "hyperparameters",
        "best",
        "median",
        f"rank correlation after {_slashed(EARLY)} epochs",
        "dearest / cheapest",
    )
    yield _row(headings)
    yield f"|{'---|' * len(headings)}"
    for group, tasks in _SETS.items():
        for name, task in tasks.items():
            table = read_table(name)
            yield _row(
                (
                    f"`{name}`",
                    group,
                    task.about,
                    f"{len(table.grid):,}",
                    ", ".join(axis.name for axis in table.grid.axes),
                    f"{table.best:.4f}",
                    f"{table.best + table.scale:.4f}",
                    _slashed([f"{rank_correlation(table, epoch):.2f}" for epoch in EARLY]),
                    f"{_spread(table):.1f}",
                )
            )


def makeup_rows() -> Iterator[str]:
    """Yield the lines of a table of the two sets: counts, or minimum, median and maximum."""
    columns = [dict(_properties(tasks)) for tasks in _SETS.values()]
    yield f"| {_row(tuple(_SETS))}"
    yield f"|{'---|' * (1 + len(_SETS))}"
    for name in dict.fromkeys(name for column in columns for name in column):
        yield _row((name, *(column.get(name, "0") for column in columns)))


def rank_correlation(table: Table, epoch: int) -> float:
    """Return the rank correlation of the values after an epoch with the final ones."""
    ranks = [pd.Series(values).rank() for values in (table.curves[:, epoch - 1], table.qualities)]
    return float(np.corrcoef(ranks)[0, 1])


def _properties(tasks: Mapping[str, Task]) -> Iterator[tuple[str, str]]:
    tables = [read_table(name) for name in tasks]
    yield "tasks", str(len(tasks))
    yield from (
        (family, str(num))
        for family, num in sorted(Counter(task.model.family for task in tasks.values()).items())
    )
    yield "hyperparameters", _range([len(table.grid.axes) for table in tables], "d")
    yield (
        "tasks with categorical ones",
        str(sum(any(axis.scale == "choice" for axis in table.grid.axes) for table in tables)),
    )
    yield "configurations", _range([len(table.grid) for table in tables], ",d")
    yield (
        "most expensive to cheapest configuration",
        _range([_spread(table) for table in tables], ".1f"),
    )
    yield (
        "% of configurations with a regret below 0.1",
        _range([_share_of_good(table) for table in tables], ".1f"),
    )
    for epoch in EARLY:
        yield (
            f"rank correlation, {epoch} of 27 epochs with all",
            _range([rank_correlation(table, epoch) for table in tables], ".2f"),
        )


def _spread(table: Table) -> float:
    return float(table.costs_s.max() / table.costs_s.min())


def _share_of_good(table: Table) -> float:
    return 100 * float((table.qualities < table.best + 0.1 * table.scale).mean())


def _range(values: Sequence[float], form: str) -> str:
    median = sorted(values)[len(values) // 2]
    return _slashed([format(value, form) for value in (min(values), median, max(values))])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _slashed(parts: Sequence[object]) -> str:
    return " / ".join(map(str, parts))
