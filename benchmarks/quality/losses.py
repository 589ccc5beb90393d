"""Losses and metrics of many networks at once: outputs are networks by examples by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from .problems import Problem


def metric(name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the metric of each network; see `Problem`."""
    if name == "log_loss":
        return _cross_entropy(outputs, targets).mean(dim=1)
    if name in {"mse", "mae"}:
        return _distance(name, outputs, targets)
    is_wrong = (outputs.argmax(dim=2) != targets).float()
    if name == "error":
        return is_wrong.mean(dim=1)
    kinds = [is_wrong[:, targets == kind].mean(dim=1) for kind in targets.unique()]
    return sum(kinds[1:], start=kinds[0]) / len(kinds)


def loss(
    name: str,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor | None,
    smoothing: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of each network.

    Args:
        name: ``"log"`` (cross-entropy) or ``"hinge"`` (how far other classes come closer than 1
            to the true one, summed) for classes, ``"mse"`` or ``"mae"`` for columns.
        outputs: Outputs of the networks.
        targets: Class numbers or columns.
        weights: Weights of the examples (networks by examples); None if all are equal.
        smoothing: Label smoothing, networks by 1: the share of the target that is spread evenly
            over all classes.
    """
    if name in {"mse", "mae"}:
        return _distance(name, outputs, targets)
    losses = _hinge(outputs, targets) if name == "hinge" else _cross_entropy(outputs, targets)
    if name == "log" and bool(smoothing.any()):
        losses = (1 - smoothing) * losses - smoothing * outputs.log_softmax(dim=2).mean(dim=2)
    return losses.mean(dim=1) if weights is None else (weights * losses).mean(dim=1)


def example_weights(problem: Problem, exponents: torch.Tensor) -> torch.Tensor | None:
    """Return the weights of the training examples, networks by examples, with a mean of 1.

    None means that all weights are equal.

    Args:
        problem: A classification problem.
        exponents: One per network (networks by 1): with 0 all examples have the same weight, with 1
            all classes have the same total weight.
    """
    import torch  # noqa: PLC0415  (an extra, and heavy)

    if not bool(exponents.any()):
        return None
    _, classes, counts = np.unique(problem.train[1], return_inverse=True, return_counts=True)
    weights: torch.Tensor = (
        torch.from_numpy((counts / counts.mean())[classes].astype(np.float32)) ** -exponents
    )
    return weights / weights.mean(dim=1, keepdim=True)


def _distance(name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    distances = (outputs - targets) ** 2 if name == "mse" else (outputs - targets).abs()
    return distances.mean(dim=(1, 2))


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -_of_class(outputs.log_softmax(dim=2), targets)


def _hinge(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    margins = 1 + outputs - _of_class(outputs, targets)[:, :, None]
    # The true class adds a margin of exactly 1 with itself, which does not count.
    return margins.clamp(min=0).sum(dim=2) - 1


def _of_class(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.gather(2, targets[None, :, None].expand(len(outputs), -1, 1))[:, :, 0]
