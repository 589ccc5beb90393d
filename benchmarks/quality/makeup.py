"""What the tasks are made of: a table of them all, and one that shows how alike the two sets are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from .table import Table, read_table
from .tasks import DEVELOPMENT, REPORTING, Task

EARLY = (1, 3, 9)
"""After how many epochs values are compared with the last ones."""
_SETS: Mapping[str, Mapping[str, Task]] = {"development": DEVELOPMENT, "reporting": REPORTING}


def task_rows() -> Iterator[str]:
    """Yield a table of the tasks."""
    correlations = f"rank correlation after {_slashed(EARLY)} epochs"
    yield f"| task | set | what is trained | configurations | hyperparameters | best | median | {correlations} | dearest / cheapest |"
    yield f"|{'---|' * 9}"
    for group, tasks in _SETS.items():
        for name, task in tasks.items():
            table = read_table(name)
            names = ", ".join(axis.name for axis in table.grid.axes)
            worth = f"{table.best:.4f} | {table.best + table.scale:.4f}"
            foretold = _slashed([f"{foretelling(table, epoch):.2f}" for epoch in EARLY])
            yield f"| `{name}` | {group} | {task.about} | {len(table.grid):,} | {names} | {worth} | {foretold} | {_spread(table):.1f} |"


def makeup_rows() -> Iterator[str]:
    """Yield a table of what is in each set: numbers of tasks, or least, median and greatest value."""
    columns = [dict(_makeup(tasks)) for tasks in _SETS.values()]
    yield f"| | {' | '.join(_SETS)} |"
    yield f"|{'---|' * (1 + len(_SETS))}"
    for name in dict.fromkeys(name for column in columns for name in column):
        yield f"| {name} | {' | '.join(column.get(name, '0') for column in columns)} |"


def foretelling(table: Table, epoch: int) -> float:
    """Return the rank correlation of what configurations are worth with their values after so many epochs."""
    ranks = [pd.Series(values).rank() for values in (table.curves[:, epoch - 1], table.qualities)]
    return float(np.corrcoef(ranks)[0, 1])


def _makeup(tasks: Mapping[str, Task]) -> Iterator[tuple[str, str]]:
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
            _range([foretelling(table, epoch) for table in tables], ".2f"),
        )


def _spread(table: Table) -> float:
    return float(table.costs_s.max() / table.costs_s.min())


def _share_of_good(table: Table) -> float:
    return 100 * float((table.qualities < table.best + 0.1 * table.scale).mean())


def _range(values: Sequence[float], form: str) -> str:
    middle = sorted(values)[len(values) // 2]
    return _slashed([format(value, form) for value in (min(values), middle, max(values))])


def _slashed(words: Sequence[object]) -> str:
    return " / ".join(map(str, words))
