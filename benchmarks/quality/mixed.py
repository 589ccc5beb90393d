"""Choice between kinds of models, each with hyperparameters of its own, for the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .model import Model
from .problems import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAMILY = "family"
"""The hyperparameter that chooses the model; the others are those of the chosen one."""


def model(families: Mapping[str, tuple[Model, Mapping[str, Any]]]) -> Model:
    """Return a choice between models.

    Args:
        families: The models by the value of `FAMILY`, with their fixed hyperparameters.
    """

    def train(
        problem: Problem, configs: Sequence[Mapping[str, Any]], num_epochs: int, seed: int
    ) -> NDArray[np.float64]:
        values = np.full((len(configs), num_epochs), np.nan)
        for name, (each, fixed) in families.items():
            rows = [row for row, config in enumerate(configs) if config[FAMILY] == name]
            own = [_own(configs[row], fixed) for row in rows]
            if rows:
                values[rows] = each.train(problem, own, num_epochs, seed)
        return values

    def cost_s(problem: Problem, config: Mapping[str, Any]) -> float:
        each, fixed = families[config[FAMILY]]
        return each.cost_s(problem, _own(config, fixed))

    return Model("several kinds", train, cost_s)


def _own(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    return {**fixed, **{name: value for name, value in config.items() if name != FAMILY}}
