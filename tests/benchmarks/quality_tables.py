"""A small table for the tests of the quality benchmark."""

import numpy as np

from benchmarks.quality.grid import Grid, axes, log_axis
from benchmarks.quality.table import Table

GRID = Grid(
    (
        log_axis("lr", 1e-3, 1.0, 4),
        *axes(("width", "log_int", (8, 16, 32)), ("kind", "choice", ("a", "b"))),
    )
)


def small_table(num_epochs: int = 9) -> Table:
    """Return a table of curves that fall towards limits, of which number 8 is the best.

    An epoch takes one second, or two with the largest width.
    """
    limits = np.array([abs(number - 8) / 10 for number in range(len(GRID))])
    values = limits[:, None] + 1.0 / np.arange(1, num_epochs + 1)
    costs_s = np.array([2.0 if config["width"] == 32 else 1.0 for config in GRID.configs()])
    return Table("small", GRID, values, costs_s, {"numpy": np.__version__})
