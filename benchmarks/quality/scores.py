"""The metrics by which trees are judged on their outputs; networks compute the same in `losses`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problems import Problem

_LEAST = 1e-12


def score(problem: Problem, outputs: NDArray[Any]) -> float:
    """Return the validation metric, to be minimised, of probabilities (examples by classes) or of predictions."""
    targets = problem.valid[1].ravel()
    if problem.metric == "mse":
        return float(((outputs - targets) ** 2).mean())
    if problem.metric == "mae":
        return float(np.abs(outputs - targets).mean())
    if problem.metric == "log_loss":
        return float(-np.log(np.maximum(outputs[np.arange(len(targets)), targets], _LEAST)).mean())
    is_wrong = outputs.argmax(axis=1) != targets
    if problem.metric == "error":
        return float(is_wrong.mean())
    return float(np.mean([is_wrong[targets == kind].mean() for kind in np.unique(targets)]))
