"""The long run that finds the best known front of a problem: ideal, reference, hypervolume.

It keeps all feasible results that no other dominates, and changes or combines them at random. While
there are none, it goes on from what misses the constraints least.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.quality.functions.function import Axis

from .front import BEST, Best, hypervolume, read_best
from .instances import PROBLEMS
from .problem import Problem, Values

MARGIN = 0.1
"""How far beyond the worst costs of the front the reference is, as a share of their range.

It is no better than the median of random feasible configurations.

References:
    Ishibuchi et al. (2018), "How to specify a reference point in hypervolume calculation for fair
    performance comparison", Evolutionary Computation 26.
"""
NUM_EVALUATIONS = 15_000
"""Number of evaluations of a long run, with the random ones."""
NUM_RANDOM = 2_000
"""Number of random configurations at the beginning."""
_DIGITS = 5
_MOVED = 0.3
"""Share of the parameters of a child that differ from its parents."""


class _Archive:
    """Configurations with results that no other dominates."""

    def __init__(self, num_objectives: int) -> None:
        self.configs: list[dict[str, Any]] = []
        self.costs = np.empty((0, num_objectives))
        self.excess = np.inf

    def add(self, config: dict[str, Any], costs: Values, excess: float) -> None:
        if excess > 0 or not self.configs or self.excess > 0:
            if excess < self.excess:
                self.configs, self.costs, self.excess = [config], costs[None], excess
            return
        if (self.costs <= costs).all(axis=1).any():
            return
        is_kept = (costs > self.costs).any(axis=1)
        self.configs = [self.configs[place] for place in np.flatnonzero(is_kept)] + [config]
        self.costs = np.vstack([self.costs[is_kept], costs])


def best_of(problem: Problem, num_evaluations: int, known: Best | None = None) -> Best:
    """Return what a long run finds out about a problem.

    Args:
        problem: The problem.
        num_evaluations: Number of evaluations, with the random ones.
        known: What was known before, whose ideal and reference are kept; None to set both.

    Raises:
        RuntimeError: If no configuration was feasible.
    """
    rng = np.random.default_rng(num_evaluations)
    archive = _Archive(len(problem.objectives))
    feasible: list[Values] = []
    scale = np.ones(len(problem.constraints))
    for number in range(num_evaluations):
        is_random = number < NUM_RANDOM
        config = problem.drawn(rng) if is_random else _child(problem.axes, archive, rng)
        metrics = problem.evaluate(config)
        excesses = problem.excesses(metrics)
        scale = np.maximum(scale, np.abs(excesses))
        costs = problem.costs(metrics)
        archive.add(config, costs, float((excesses / scale).clip(0.0).sum()))
        if is_random and problem.is_feasible(metrics):
            feasible.append(costs)
    if archive.excess > 0:
        raise RuntimeError(
            f"no feasible configuration of {problem.name} in {num_evaluations} evaluations; "
            "give --evaluations more"
        )
    if known is None:
        ideal, reference = reference_of(archive.costs, np.array(feasible))
        known = Best(ideal, reference, 0.0, 0)
    volume = hypervolume(known.unit(archive.costs), np.ones(len(problem.objectives)))
    if volume < known.hypervolume:
        return known
    return dataclasses.replace(known, hypervolume=round(volume, 6), num_evaluations=num_evaluations)


def reference_of(front: Values, feasible: Values) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the smallest costs on a front, and the reference point beyond it; see `MARGIN`.

    Args:
        front: Costs of the best front, a row for each configuration.
        feasible: Costs of random feasible configurations.
    """
    ideal, nadir = front.min(axis=0), front.max(axis=0)
    # Where the front is short, or one point, few results would count.
    reference = np.maximum(nadir + MARGIN * (nadir - ideal), np.median(feasible, axis=0))
    return _rounded(ideal), _rounded(reference)


def write_best(names: Sequence[str], num_evaluations: int) -> None:
    """Write the best fronts of some problems to `BEST`, where a long run finds a better one.

    Ideal and reference of a problem that the file has already stay as they are: results that are
    recorded were measured with them.
    """
    known = dict(read_best(BEST))
    for name in names:
        known[name] = best_of(PROBLEMS[name], num_evaluations, known.get(name))
        print(name, known[name], flush=True)
        kept = {each: dataclasses.asdict(best) for each, best in known.items()}
        BEST.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _rounded(values: Values) -> tuple[float, ...]:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


def _child(axes: Sequence[Axis], archive: _Archive, rng: np.random.Generator) -> dict[str, Any]:
    """Return a changed configuration of the archive, or a combination of two."""
    places = rng.integers(len(archive.configs), size=2)
    first, second = (archive.configs[place] for place in places)
    share = rng.random() * (rng.random() < 0.5)  # noqa: PLR2004  (every other one has one parent)
    spread = 10 ** rng.uniform(-3.0, -0.3)
    child = {axis.name: (second if rng.random() < share else first)[axis.name] for axis in axes}
    for axis in axes:
        if rng.random() < _MOVED:
            child[axis.name] = _moved(axis, child[axis.name], spread, rng)
    return child


def _moved(axis: Axis, value: Any, spread: float, rng: np.random.Generator) -> Any:
    if axis.scale == "choice":
        return axis.drawn(rng)
    unit = float(np.clip(axis.unit(value) + spread * rng.standard_normal(), 0.0, 1.0))
    number = axis.number(unit)
    if axis.scale == "int" and number == value:
        return int(np.clip(value + rng.choice((-1, 1)), axis.low, axis.high))
    return number
