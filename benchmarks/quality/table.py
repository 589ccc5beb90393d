"""Tables of learning curves, with their files and regrets."""

from __future__ import annotations

import hashlib
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
        values: The metric to be minimised, training seeds by configurations by epochs; where
            training has diverged NaN if the table is raw, otherwise `WORST`. With several seeds, a
            training is not repeatable: a search sees one of them, see `seed_of`.
        costs_s: Duration of an epoch of each configuration, in virtual seconds.
        versions: Versions of the libraries with which it was trained.
        is_raw: Whether searches see the value of each epoch, not the best one so far.
    """

    name: str
    grid: Grid
    values: NDArray[np.float64]
    costs_s: NDArray[np.float64]
    versions: dict[str, str]
    is_raw: bool = False

    @property
    def num_epochs(self) -> int:
        """Number of epochs of each curve."""
        return int(self.values.shape[2])

    @property
    def num_seeds(self) -> int:
        """Number of seeds with which each configuration was trained."""
        return int(self.values.shape[0])

    @cached_property
    def curves(self) -> NDArray[np.float64]:
        """Best value up to each epoch: users would keep that checkpoint."""
        best: NDArray[np.float64] = np.minimum.accumulate(np.fmin(self.values, WORST), axis=2)
        return best

    @property
    def seen(self) -> NDArray[np.float64]:
        """Values that searches receive: those of a raw table, otherwise `curves`."""
        return self.values if self.is_raw else self.curves

    @cached_property
    def qualities(self) -> NDArray[np.float64]:
        """Value of each configuration after its best epoch, on average over training seeds."""
        means: NDArray[np.float64] = self.curves[:, :, -1].mean(axis=0)
        return means

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

    def seed_of(self, search_seed: int, row: int, start: int) -> int:
        """Return the number of the training seed of one training in a search.

        It is the same for all searches, and random otherwise.

        Args:
            search_seed: Seed of the search.
            row: Number of the configuration.
            start: How often the search has started this configuration before.
        """
        if self.num_seeds == 1:
            return 0
        text = f"{self.name} {search_seed} {row} {start}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % self.num_seeds

    def regret(self, index: int) -> float:
        """Return the difference of a configuration from the best, in units of `scale`."""
        return (float(self.qualities[index]) - self.best) / self.scale


def write_table(table: Table, directory: Path = DATA) -> Path:
    """Write a table to a file and return its path.

    The file holds what searches see: the best value up to each epoch, or the values of a raw table.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{table.name}.npz"
    axes = json.dumps([[axis.name, axis.scale, axis.values, axis.when] for axis in table.grid.axes])
    about = np.array([axes, json.dumps(table.versions)])
    costs_s = table.costs_s.astype(np.float32)
    if table.is_raw:
        values = table.values.astype(np.float32)
        np.savez_compressed(path, values=values, costs_s=costs_s, about=about)
        return path
    values = np.clip(np.nan_to_num(table.values, nan=WORST, posinf=WORST), 0.0, WORST)
    counts = np.round(np.minimum.accumulate(values, axis=2) / UNIT).astype(np.uint16)
    # Differences to the epoch before are small, which compresses well. Negative ones wrap around,
    # which the cumulative sum in `read_table` undoes.
    steps = np.diff(counts, axis=2, prepend=np.uint16(0))
    np.savez_compressed(path, steps=steps, costs_s=costs_s, about=about)
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
        is_raw = "values" in file
        stored, costs_s = file["values" if is_raw else "steps"], file["costs_s"]
        axes, versions = file["about"].tolist()
    grid = Grid(tuple(_axis(*axis) for axis in json.loads(axes)))
    if not stored.shape[-2] == len(costs_s) == len(grid):
        raise ValueError(
            f"table {name!r} must have a row for each of its {len(grid)} configurations, got "
            f"{stored.shape[-2]}; make it anew"
        )
    # Older files hold the curves of one training seed as a matrix.
    stored = stored.reshape(-1, *stored.shape[-2:])
    values = stored.astype(np.float64)
    if not is_raw:
        values = np.cumsum(stored, axis=2, dtype=np.uint16).astype(np.float64) * UNIT
    return Table(name, grid, values, costs_s.astype(np.float64), json.loads(versions), is_raw)


def _axis(
    name: str, scale: str, values: list[Any], when: tuple[str, list[Any]] | None = None
) -> Axis:
    condition = None if when is None else (when[0], tuple(when[1]))
    return Axis(name, scale, tuple(values), condition)
