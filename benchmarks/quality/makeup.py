"""Properties of the tasks: tables of them, and a comparison of the two sets.

Nothing is computed from the curves of `SLOW_CONFIRMATION`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .table import WORST, Table, read_table
from .tasks import CONFIRMATION, DEVELOPMENT, SLOW_DEVELOPMENT, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

EARLY = (1, 3, 9)
_MANY = 3
"""Epochs after which values are compared with the final ones."""
_SETS: Mapping[str, Mapping[str, Task]] = {
    "development": DEVELOPMENT,
    "confirmation": CONFIRMATION,
}


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
        "... among the best tenth",
        "deviation between training seeds",
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
                    _slashed([f"{correlation_among_best(table, epoch):.2f}" for epoch in EARLY]),
                    f"{noise(table):.2f}" if table.num_seeds > 1 else "",
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


def slow_rows() -> Iterator[str]:
    """Yield the lines of a table of the development tasks where slow starters win."""
    headings = (
        "task",
        "what is trained",
        "configurations",
        "epochs",
        "% diverged",
        f"% of the best twentieth that are not among the best third after {_slashed(EARLY)} epochs",
        "rank correlation",
    )
    yield _row(headings)
    yield f"|{'---|' * len(headings)}"
    for name, task in SLOW_DEVELOPMENT.items():
        table = read_table(name)
        yield _row(
            (
                f"`{name}`",
                task.about,
                f"{len(table.grid):,}",
                str(table.num_epochs),
                f"{100 * (~np.isfinite(table.seen[:, :, -1])).mean():.0f}",
                _slashed([f"{100 * share_of_slow(table, epoch):.0f}" for epoch in EARLY]),
                _slashed([f"{rank_correlation(table, epoch):.2f}" for epoch in EARLY]),
            )
        )


def share_of_slow(table: Table, epoch: int) -> float:
    """Return the share of the best twentieth of the configurations that start slowly.

    After this many epochs, their values are not among the best third.
    """
    best = np.argsort(table.qualities, kind="stable")[: max(1, round(len(table.qualities) / 20))]
    ranks = pd.Series(_early(table, epoch)).rank().to_numpy()
    return float((ranks[best] > len(ranks) / 3).mean())


def rank_correlation(table: Table, epoch: int) -> float:
    """Return the rank correlation of the values after an epoch with the final ones.

    Values are means over training seeds.
    """
    return _rank_correlation(_early(table, epoch), table.qualities)


def correlation_among_best(table: Table, epoch: int) -> float:
    """Return the same among the best tenth of the configurations.

    0 means that early values do not help to find the best of the good ones.
    """
    best = np.argsort(table.qualities, kind="stable")[: max(2, len(table.qualities) // 10)]
    return _rank_correlation(_early(table, epoch)[best], table.qualities[best])


def _early(table: Table, epoch: int) -> NDArray[np.float64]:
    """Return the values that searches see after an epoch, means over training seeds."""
    seen = np.where(np.isfinite(table.seen), table.seen, WORST)
    means: NDArray[np.float64] = seen[:, :, epoch - 1].mean(axis=0)
    return means


def _rank_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.corrcoef(pd.Series(first).rank(), pd.Series(second).rank())[0, 1])


def noise(table: Table) -> float:
    """Return the deviation of final values between training seeds, in units of regret.

    It is that of the median configuration, 0 where each is trained once.
    """
    if table.num_seeds == 1:
        return 0.0
    return float(np.median(table.curves[:, :, -1].std(axis=0, ddof=1))) / table.scale


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
    yield (
        "tasks with three or more unordered choices",
        str(sum(_num_choices(table) >= _MANY for table in tables)),
    )
    yield "tasks with conditions", str(sum(table.grid.is_conditional for table in tables))
    yield "tasks with several training seeds", str(sum(table.num_seeds > 1 for table in tables))
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
    for epoch in EARLY:
        yield (
            f"... among the best tenth, {epoch} of 27",
            _range([correlation_among_best(table, epoch) for table in tables], ".2f"),
        )


def _num_choices(table: Table) -> int:
    return sum(axis.scale == "choice" for axis in table.grid.axes)


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
