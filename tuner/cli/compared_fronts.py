"""Experiments with several metrics by their Pareto fronts: a part of ``tuner compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.formatting import printable

from .output import Column

COLUMNS: Final = (
    Column("metric", text=lambda text: printable(str(text))),
    Column("hypervolume", beside="metric"),
    Column("num_on_front", "on front", beside="metric"),
    Column("num_feasible", "feasible", rank=1),
)


def compared_fronts(grids: Sequence[ResultGrid]) -> list[dict[str, Any]] | None:
    """Return how good the front of each experiment is, by the columns above.

    The hypervolumes have one reference: the worst of those that each experiment has by itself.

    Args:
        grids: The experiments.

    Returns:
        None where they do not all optimise the same metrics, several of them.
    """
    objectives = dict(grids[0].objectives)
    if len(objectives) == 1 or any(dict(grid.objectives) != objectives for grid in grids):
        return None
    own = [grid.hypervolume().attrs["reference"] for grid in grids]
    reference = {
        metric: (max if mode == "min" else min)(values)
        for metric, mode in objectives.items()
        if (values := [each[metric] for each in own if each])
    }
    return [_front(grid, reference) for grid in grids]


def _front(grid: ResultGrid, reference: Mapping[str, float]) -> dict[str, Any]:
    volumes = list(grid.hypervolume(reference)["hypervolume"]) if reference else []
    return {
        "experiment": Path(grid.experiment_path).name,
        "metric": ", ".join(f"{mode} {metric}" for metric, mode in grid.objectives),
        "hypervolume": float(volumes[-1]) if volumes else 0.0,
        "num_on_front": len(grid.get_best_results()),
        "num_feasible": len(grid.feasible),
    }
