"""Rescaling of learning rates that have changed since a checkpoint was written.

A checkpoint's optimizers bring their learning rates along. Where a trial takes over another one's
weights, as in population based training, its configuration has a learning rate of its own, which
has to win, or the search would search for nothing. So each checkpoint notes the rates that training
was configured with, and after loading, rates and schedules are scaled by how much those have
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

_SCALED: Final = ("lr", "initial_lr", "max_lr", "min_lr")
"""What the groups of PyTorch's optimizers and the schedules that work on them keep in units of the
learning rate."""


def configured(optimizers: Iterable[Any]) -> list[list[float]]:
    """Return the learning rates, before any schedule, of each group of PyTorch optimizers."""
    return [
        [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        for optimizer in optimizers
    ]


def ratio(now: float, then: float) -> float:
    """Return by how much a rate has changed; 1.0 where a rate of nothing leaves no answer.

    Example:
        >>> ratio(0.02, 0.01), ratio(0.01, 0.0)
        (2.0, 1.0)
    """
    return now / then if then else 1.0


def rescale(
    optimizers: Sequence[Any], schedules: Iterable[Any], ratios: Sequence[Sequence[float]]
) -> None:
    """Scale the learning rates of PyTorch optimizers, and the schedules that go on from them.

    Args:
        optimizers: The optimizers.
        schedules: Their schedules.
        ratios: By how much, for each group of each optimizer.
    """
    for optimizer, factors in zip(optimizers, ratios, strict=True):
        for group, factor in zip(optimizer.param_groups, factors, strict=True):
            group.update({name: group[name] * factor for name in _SCALED if name in group})
        for schedule in schedules:
            if getattr(schedule, "optimizer", None) in (
                optimizer,
                getattr(optimizer, "optimizer", optimizer),
            ):
                _rescale_schedule(schedule, factors)


def _rescale_schedule(schedule: Any, factors: Sequence[float]) -> None:
    for name in ("base_lrs", "_last_lr"):
        if rates := getattr(schedule, name, None):
            setattr(
                schedule, name, [rate * factor for rate, factor in zip(rates, factors, strict=True)]
            )
    for part in getattr(schedule, "_schedulers", ()):  # of a SequentialLR or ChainedScheduler
        _rescale_schedule(part, factors)
