"""Make the tables: ``python -m benchmarks.quality.tables [NAME ...]``.

All of them take less than an hour on one core. Some need Pillow, others statsmodels.
"""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version

import numpy as np

from .table import Table, write_table
from .tasks import TASKS

# Tasks have seeds of their own, far below this.
_SEED_STEP = 1000
LIBRARIES = ("numpy", "scikit-learn", "torch")


def make_table(name: str) -> Table:
    """Train all configurations of a task and return its table."""
    task = TASKS[name]
    problem = task.problem()
    configs = list(task.grid.configs())
    values = np.stack(
        [
            task.model.train(problem, configs, task.num_epochs, task.seed + _SEED_STEP * number)
            for number in range(task.num_seeds)
        ]
    )
    costs_s = np.array([task.model.cost_s(problem, config) for config in configs])
    versions = {library: version(library) for library in LIBRARIES}
    return Table(name, task.grid, values, costs_s, versions, task.is_raw)


def main() -> None:
    """Make the given tables, or all, and print their sizes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.tables", description=__doc__
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"tables to make: {', '.join(TASKS)} (default: all)",
    )
    for name in parser.parse_args().names or TASKS:
        start_s = time.process_time()
        path = write_table(make_table(name))
        took_s = time.process_time() - start_s
        print(
            f"{name:<20} {len(TASKS[name].grid):>6,} configurations "
            f"{path.stat().st_size / 1e3:>4,.0f} kB {took_s:>4,.0f} CPU s",
            flush=True,
        )


if __name__ == "__main__":
    main()
