"""Dominance: the order of points in several metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Member = TypeVar("Member")

Point = tuple[float, ...]
"""What a trial has reached in each metric; less is better."""


def dominates(one: Point, other: Point) -> bool:
    """Return whether `one` is nowhere worse than `other` and somewhere better.

    Example:
        >>> dominates((1, 2), (1, 3)), dominates((1, 2), (2, 1)), dominates((1, 2), (1, 2))
        (True, False, False)
    """
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def pareto_front(points: Sequence[Sequence[float]], modes: Sequence[str]) -> list[int]:
    """Return the indices of the points that no other point dominates; equal points are all on it.

    The best point in the first objective comes first.

    Args:
        points: A finite value for each objective.
        modes: ``"min"`` or ``"max"`` for each objective.

    Example:
        >>> pareto_front([(0.9, 50), (0.8, 10), (0.8, 20)], ["max", "min"])
        [0, 1]
    """
    turned = minimised(points, modes)
    front: list[int] = []
    # In sorted order no point dominates an earlier one, so each is compared with the front found so
    # far.
    for index in sorted(range(len(turned)), key=turned.__getitem__):
        if not any(
            dominates(turned[member], turned[index]) for member in rivals(front, len(modes))
        ):
            front.append(index)
    return front


def rivals(front: Sequence[Member], num_metrics: int) -> Sequence[Member]:
    """Return the members of a front in sorted order that may dominate a later point.

    In two metrics the last one does if any does: it is the best of them in the second metric.
    """
    return front[-1:] if num_metrics == 2 else front  # noqa: PLR2004  (explained above)


def minimised(points: Sequence[Sequence[float]], modes: Sequence[str]) -> list[Point]:
    """Return the points with the sign of each metric that is maximised turned."""
    return [
        tuple(value if mode == "min" else -value for value, mode in zip(point, modes, strict=True))
        for point in points
    ]
