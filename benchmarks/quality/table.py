"""Tables of learning curves, with their files and regrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .grid import Axis, Grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA = Path(__file__).parent / "data"
UNIT = 1e-4
"""Values are stored as multiples of this, up to `WORST`."""
WORST = 6.5535


@dataclass(frozen=True)
class Table:
    """The learning curves of all configurations of a grid.

    Attributes:
        name: Name of the task.
        grid: The configurations, in the order of the rows.
        values: The metric of each configuration (rows) after each epoch (columns), to be minimised;
            `WORST` where training has diverged.
        costs_s: Duration of an epoch of each configuration, in virtual seconds.
        versions: Versions of the libraries with which it was trained.
    """

    name: str
    grid: Grid
    values: NDArray[np.float64]
    costs_s: NDArray[np.float64]
    versions: dict[str, str]

    @property
    def num_epochs(self) -> int:
        """Number of epochs of each curve."""
        return int(self.values.shape[1])

    @cached_property
    def curves(self) -> NDArray[np.float64]:
        """Best value up to each epoch, which searches receive: users would keep that checkpoint."""
        best: NDArray[np.float64] = np.minimum.accumulate(self.values, axis=1)
        return best

    @property
    def qualities(self) -> NDArray[np.float64]:
        """Value of each configuration after its best epoch."""
        best: NDArray[np.float64] = self.curves[:, -1]
        return best

    @cached_property
    def best(self) -> float:
        """Value of the best configuration."""
        return float(self.qualities.min())

    @cached_property
    def scale(self) -> float:
        """Distance from the best to the median configuration: the unit of regrets on all tasks."""
        return float(np.median(self.qualities)) - self.best

    def budget_s(self, num_trainings: int) -> float:
        """Return the total duration of `num_trainings` full trainings of average cost."""
        return num_trainings * self.num_epochs * float(self.costs_s.mean())

    def regret(self, index: int) -> float:
        """Return the difference of a configuration from the best, in units of `scale`."""
        return (float(self.qualities[index]) - self.best) / self.scale


def write_table(table: Table, directory: Path = DATA) -> Path:
    """Write a table to a file and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{table.name}.npz"
    counts = np.round(
        np.clip(np.nan_to_num(table.values, nan=WORST, posinf=WORST), 0.0, WORST) / UNIT
    ).astype(np.uint16)
    # Differences to the epoch before are small, which compresses well. Negative ones wrap around,
    # which the cumulative sum in `read_table` undoes.
    steps = np.diff(counts, axis=1, prepend=np.uint16(0))
    axes = json.dumps([[axis.name, axis.scale, list(axis.values)] for axis in table.grid.axes])
    about = np.array([axes, json.dumps(table.versions)])
    np.savez_compressed(path, steps=steps, costs_s=table.costs_s.astype(np.float32), about=about)
    return path


def read_table(name: str, directory: Path = DATA) -> Table:
    """Return the table of a task.

    Raises:
        FileNotFoundError: If the table has not been made.
        ValueError: If its number of rows differs from its number of configurations.
    """
    path = directory / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(
            f"there is no table {name!r} in {directory}; make it with: python -m "
            f"benchmarks.quality.tables {name}"
        )
    with np.load(path) as file:
        steps, costs_s, (axes, versions) = file["steps"], file["costs_s"], file["about"].tolist()
    grid = Grid(tuple(_axis(*axis) for axis in json.loads(axes)))
    if not len(steps) == len(costs_s) == len(grid):
        raise ValueError(
            f"table {name!r} must have a row for each of its {len(grid)} configurations, got "
            f"{len(steps)}; make it anew"
        )
    values = np.cumsum(steps, axis=1, dtype=np.uint16).astype(np.float64) * UNIT
    return Table(name, grid, values, costs_s.astype(np.float64), json.loads(versions))


def _axis(name: str, scale: str, values: list[Any]) -> Axis:
    return Axis(name, scale, tuple(values))
