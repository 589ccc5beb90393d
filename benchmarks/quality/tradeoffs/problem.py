"""Problems with several metrics: a space, objectives, constraints, and a fast evaluation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.functions.function import Axis
from searchers.objectives import OutcomeConstraint

Config = Mapping[str, Any]
Metrics = Mapping[str, float]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric to optimise.

    Attributes:
        metric: Its name.
        mode: Whether it is minimised or maximised.
    """

    metric: str
    mode: Literal["min", "max"] = "min"

    def cost(self, metrics: Metrics) -> float:
        """Return the metric, negated where it is maximised."""
        return metrics[self.metric] * (1.0 if self.mode == "min" else -1.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is searched.

    Attributes:
        name: Its name, whose hash decides on development or confirmation.
        group: ``"engineering"`` or ``"models"``.
        about: Description for the list of problems.
        axes: The parameters.
        objectives: The metrics to optimise.
        constraints: The bounds that metrics have to keep.
        evaluate: Returns all metrics of a configuration.
    """

    name: str
    group: Literal["engineering", "models"]
    about: str
    axes: Sequence[Axis]
    objectives: Sequence[Objective]
    constraints: Sequence[OutcomeConstraint]
    evaluate: Callable[[Config], Metrics]

    def drawn(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return a random configuration."""
        return {axis.name: axis.drawn(rng) for axis in self.axes}

    def costs(self, metrics: Metrics) -> Values:
        """Return the objectives, all to be minimised."""
        return np.array([objective.cost(metrics) for objective in self.objectives])

    def excesses(self, metrics: Metrics) -> Values:
        """Return by how much each bound is missed; at most 0 where it is kept."""
        excesses = [metrics[each.metric] - each.bound for each in self.constraints]
        signs = [1.0 if each.operator == "<=" else -1.0 for each in self.constraints]
        return np.multiply(signs, excesses)

    def is_feasible(self, metrics: Metrics) -> bool:
        """Return whether all bounds are kept."""
        return bool((self.excesses(metrics) <= 0).all())


def is_confirmation(name: str) -> bool:
    """Return whether the problem of a name serves for confirmation, not for development.

    It is the parity of the SHA-256 digest of the name.

    Example:
        >>> is_confirmation("disc_brake"), is_confirmation("crashworthiness")
        (True, False)
    """
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 1
