"""Rescaling of learning rates that have changed since a checkpoint was written.

A checkpoint's optimizers contain their learning rates. If a trial continues from another trial's
checkpoint, as in population based training, the learning rate of its configuration has to replace
them, or mutating it would have no effect. So each checkpoint contains the rates that training was
configured with, and after loading, rates and schedules are scaled by the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

_SCALED: Final = ("lr", "initial_lr", "max_lr", "min_lr")
"""Values in the groups of PyTorch's optimizers that are proportional to the learning rate."""


def configured(optimizers: Iterable[Any]) -> list[list[float]]:
    """Return the learning rates, before any schedule, of each group of PyTorch optimizers."""
    return [
        [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        for optimizer in optimizers
    ]


def ratio(now: float, then: float) -> float:
    """Return by which factor a rate has changed; 1.0 if it was zero.

    Example:
        >>> ratio(0.02, 0.01), ratio(0.01, 0.0)
        (2.0, 1.0)
    """
    return now / then if then else 1.0


def rescale(
    optimizers: Sequence[Any], schedules: Iterable[Any], ratios: Sequence[Sequence[float]]
) -> None:
    """Scale the learning rates of PyTorch optimizers and of their schedules.

    Args:
        optimizers: The optimizers.
        schedules: Their schedules.
        ratios: The factor for each group of each optimizer.
    """
    for optimizer, factors in zip(optimizers, ratios, strict=True):
        for group, factor in zip(optimizer.param_groups, factors, strict=True):
            group.update({name: group[name] * factor for name in _SCALED if name in group})
        for schedule in schedules:
            # Wrappers of optimizers, e.g. Accelerate's, hold the one that the schedule knows.
            if getattr(schedule, "optimizer", None) in (
                optimizer,
                getattr(optimizer, "optimizer", optimizer),
            ):
                _rescale_schedule(schedule, factors)


def _rescale_schedule(schedule: Any, factors: Sequence[float]) -> None:
    # "_last_lr" is what `get_last_lr` returns until the next step.
    for name in ("base_lrs", "_last_lr"):
        if rates := getattr(schedule, name, None):
            setattr(
                schedule, name, [rate * factor for rate, factor in zip(rates, factors, strict=True)]
            )
    for part in getattr(schedule, "_schedulers", ()):  # of a SequentialLR or ChainedScheduler
        _rescale_schedule(part, factors)
