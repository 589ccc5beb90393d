"""Hypervolume of what a search has found, and of the best that is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .problem import Metrics, Problem, Values

BEST = Path(__file__).parent / "best.json"
"""Written by ``python -m benchmarks.quality.tradeoffs best``."""


@dataclass(frozen=True, slots=True)
class Best:
    """What is known of the best front of a problem; costs are objectives, all to be minimised.

    Attributes:
        ideal: Smallest cost of each objective on the front.
        reference: The reference point, beyond which nothing counts.
        hypervolume: Hypervolume of the front where ideal and reference are 0 and 1.
        num_evaluations: Number of evaluations of the long run that found it; 0 for a published
            design.
    """

    ideal: tuple[float, ...]
    reference: tuple[float, ...]
    hypervolume: float
    num_evaluations: int

    def unit(self, costs: Values) -> Values:
        """Return costs on the scale on which ideal and reference are 0 and 1."""
        ideal = np.array(self.ideal)
        scaled: Values = (costs - ideal) / (np.array(self.reference) - ideal)
        return scaled


class Front:
    """The feasible front that a search has found so far.

    Args:
        problem: What is searched.
        best: What is known of it.

    Attributes:
        hypervolume: Hypervolume of the front where ideal and reference are 0 and 1; 0 without a
            feasible configuration.
    """

    def __init__(self, problem: Problem, best: Best) -> None:
        self._problem, self._best = problem, best
        self._points = np.empty((0, len(problem.objectives)))
        self.hypervolume = 0.0

    def add(self, metrics: Metrics) -> bool:
        """Add a result, and return whether it has made the hypervolume larger."""
        point = self._best.unit(self._problem.costs(metrics))
        is_outside = bool((point >= 1).any()) or not self._problem.is_feasible(metrics)
        if is_outside or bool((self._points <= point).all(axis=1).any()):
            return False
        is_kept = (point > self._points).any(axis=1)
        self._points = np.vstack([self._points[is_kept], point])
        self.hypervolume = hypervolume(self._points, np.ones(len(point)))
        return True


def hypervolume(points: Values, reference: Values) -> float:
    """Return the volume of all that is between some of the points and a reference point.

    Args:
        points: A row for each point, whose numbers are all to be minimised.
        reference: The point that has to be undercut.

    Example:
        >>> hypervolume(np.array([[0.0, 0.5], [0.5, 0.0]]), np.ones(2))
        0.75
    """
    inside = points[(points < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    # Slices between one value of the last number and the next, in each of which all points count
    # that are below it.
    depths = np.diff(np.append(inside[:, -1], reference[-1]))
    if len(reference) == 1:
        return float(depths.sum())
    if len(reference) == 2:  # noqa: PLR2004  (the slices have one number, and the lowest one counts)
        lowest = np.minimum.accumulate(inside[:, 0])
        return float(((reference[0] - lowest) * depths).sum())
    return sum(
        float(depth) * hypervolume(inside[:count, :-1], reference[:-1])
        for count, depth in enumerate(depths, start=1)
        if depth > 0
    )


def read_best(path: Path = BEST) -> Mapping[str, Best]:
    """Return what is known of each problem, by name; nothing if the file does not exist."""
    written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: Best(
            tuple(known["ideal"]),
            tuple(known["reference"]),
            known["hypervolume"],
            known["num_evaluations"],
        )
        for name, known in written.items()
    }
