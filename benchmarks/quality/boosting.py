"""Training of gradient-boosted trees for the tables; an epoch is one or more stages of boosting.

A stage is one tree, or one for each class where there are more than two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .model import Model
from .problems import Problem
from .scores import boosted_curve, trees_per_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TREE_S, _NODE_S = 2e-4, 1e-7


def train_boosting(
    problem: Problem,
    configs: Sequence[Mapping[str, Any]],
    num_epochs: int,
    seed: int,
    num_stages: int = 1,
) -> NDArray[np.float64]:
    """Return the validation metric of each configuration (rows) after each epoch (columns).

    All configurations are trained with the same seed; an epoch is `num_stages` stages.
    """
    return np.array(
        [
            _curve(problem, config, num_epochs * num_stages, seed)[num_stages - 1 :: num_stages]
            for config in configs
        ]
    )


def cost_s(problem: Problem, config: Mapping[str, Any]) -> float:
    """Return the estimated duration of an epoch in seconds.

    It is 0.2 ms for each tree, and 0.1 us for each example, column and level of a tree.
    """
    inputs = problem.train[0]
    num_columns = max(1, math.floor(int(inputs.shape[1]) * float(config.get("max_features", 1.0))))
    num_visits = len(inputs) * float(config["subsample"]) * num_columns * int(config["max_depth"])
    return trees_per_stage(problem) * (_TREE_S + _NODE_S * num_visits)


def _curve(problem: Problem, config: Mapping[str, Any], num_stages: int, seed: int) -> list[float]:
    from sklearn import ensemble  # noqa: PLC0415  (an extra, and heavy)

    kind = (
        ensemble.GradientBoostingClassifier
        if problem.is_classification
        else ensemble.GradientBoostingRegressor
    )
    model = kind(n_estimators=num_stages, random_state=seed, **config)
    return boosted_curve(problem, model)


def model(num_stages: int) -> Model:
    """Return boosted trees with that many stages in an epoch."""
    return Model(
        "boosted trees",
        lambda problem, configs, num_epochs, seed: train_boosting(
            problem, configs, num_epochs, seed, num_stages
        ),
        lambda problem, config: num_stages * cost_s(problem, config),
    )


MODEL = Model("boosted trees", train_boosting, cost_s)
