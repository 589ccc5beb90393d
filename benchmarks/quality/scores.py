"""Validation metrics of boosted trees and forests; `losses` computes the same for networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problems import Problem

_MIN_PROBABILITY = 1e-12


def boosted_curve(problem: Problem, model: Any) -> list[float]:
    """Train a boosted model of scikit-learn and return the validation metric after each stage."""
    inputs, targets = problem.train
    model.fit(inputs, targets.ravel())
    stages = model.staged_predict_proba if problem.is_classification else model.staged_predict
    return [score(problem, outputs) for outputs in stages(problem.valid[0])]


def trees_per_stage(problem: Problem) -> int:
    """Return the number of trees of a boosting stage: one per class if there are more than two."""
    return problem.num_outputs if problem.is_classification and problem.num_outputs > 2 else 1  # noqa: PLR2004  (two classes need one tree)


def score(problem: Problem, outputs: NDArray[Any]) -> float:
    """Return the validation metric of probabilities (examples by classes) or of predictions."""
    targets = problem.valid[1].ravel()
    if problem.metric == "mse":
        return float(((outputs - targets) ** 2).mean())
    if problem.metric == "mae":
        return float(np.abs(outputs - targets).mean())
    if problem.metric == "log_loss":
        probabilities = outputs[np.arange(len(targets)), targets]
        return float(-np.log(np.maximum(probabilities, _MIN_PROBABILITY)).mean())
    is_wrong = outputs.argmax(axis=1) != targets
    if problem.metric == "error":
        return float(is_wrong.mean())
    return float(np.mean([is_wrong[targets == kind].mean() for kind in np.unique(targets)]))
