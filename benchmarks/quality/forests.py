"""Training of forests of independent trees for the tables; an epoch is one more tree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .model import Model
from .problems import Problem
from .scores import score

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TREE_S, _NODE_S = 2e-4, 1e-7
_SPLITTERS = {"random forest": "best", "extra trees": "random"}


def train_forests(
    problem: Problem, configs: Sequence[Mapping[str, Any]], num_epochs: int, seed: int
) -> NDArray[np.float64]:
    """Return the validation metric of each configuration (rows) after each epoch (columns).

    All configurations are trained with the same seed.
    """
    return np.array([_curve(problem, config, num_epochs, seed) for config in configs])


def cost_s(problem: Problem, config: Mapping[str, Any]) -> float:
    """Return the estimated duration of an epoch in seconds.

    It is 0.2 ms for the tree, and 0.1 us for each example, tried column and level. Extra trees,
    which draw thresholds instead of searching for the best, take a third of the time per column.
    """
    inputs = problem.train[0]
    num_examples = len(inputs) * float(config["sample"])
    num_columns = max(1, math.floor(int(inputs.shape[1]) * float(config["max_features"])))
    num_levels = min(
        float(config.get("max_depth", math.inf)),
        math.log2(max(2.0, num_examples / int(config["min_samples_leaf"]))),
    )
    share = 1 / 3 if config.get("kind") == "extra trees" else 1.0
    return _TREE_S + _NODE_S * share * num_examples * num_columns * num_levels


def _curve(problem: Problem, config: Mapping[str, Any], num_epochs: int, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    total: Any = 0.0
    values = []
    for number in range(1, num_epochs + 1):
        total = total + _outputs(problem, config, rng)
        values.append(score(problem, total / number))
    return values


def _outputs(problem: Problem, config: Mapping[str, Any], rng: np.random.Generator) -> NDArray[Any]:
    """Return the predictions of one more tree for the validation examples."""
    from sklearn import tree  # noqa: PLC0415  (an extra, and heavy)

    inputs, targets = problem.train
    settings = {
        name: config[name]
        for name in ("max_depth", "min_samples_leaf", "max_features", "criterion")
        if name in config
    }
    kind = tree.DecisionTreeClassifier if problem.is_classification else tree.DecisionTreeRegressor
    model = kind(
        splitter=_SPLITTERS[config.get("kind", "random forest")],
        random_state=int(rng.integers(2**31)),
        **settings,
    )
    # A class that is missing from the sample would be missing from the predicted probabilities. So
    # the tree is given all examples, with weight 0 for those that are not in the sample.
    counts = np.bincount(
        rng.integers(len(inputs), size=round(len(inputs) * config["sample"])), minlength=len(inputs)
    )
    model.fit(inputs, targets.ravel(), sample_weight=counts.astype(np.float64))
    outputs: NDArray[Any] = (
        model.predict_proba(problem.valid[0])
        if problem.is_classification
        else model.predict(problem.valid[0])
    )
    return outputs


MODEL = Model("forests", train_forests, cost_s)
