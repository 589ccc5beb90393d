"""A small table for the tests of the quality benchmark."""

import numpy as np

from benchmarks.quality.grid import Grid, axes, log_axis, under
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
    return Table("small", GRID, values[None], costs_s, {"numpy": np.__version__})


CONDITIONAL = Grid(
    (
        *axes(("kind", "choice", ("a", "b", "c")), ("depth", "int", (1, 2))),
        *under("kind", ("a", "c"), log_axis("lr", 1e-3, 1.0, 4)),
        *under("depth", (2,), *axes(("activation", "choice", ("relu", "tanh")))),
        *under("activation", ("tanh",), *axes(("slope", "linear", (0.5, 1.0)))),
    )
)


def noisy_table() -> Table:
    """Return a table of a conditional grid with three training seeds.

    Curves fall. Each seed adds half of its number to the value, or all of it in rows with an odd
    number.
    """
    rows = np.arange(len(CONDITIONAL))
    noise = 0.5 * np.arange(3)[:, None] * (1 + rows % 2)
    values = (rows / 20 + noise)[:, :, None] + 1.0 / np.arange(1, 10)
    return Table("noisy", CONDITIONAL, values, np.ones(len(CONDITIONAL)), {})
