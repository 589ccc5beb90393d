"""Dominance: the order of points in several metrics."""

from __future__ import annotations

Point = tuple[float, ...]
"""What a trial has reached in each metric; less is better."""


def dominates(one: Point, other: Point) -> bool:
    """Return whether `one` is nowhere worse than `other` and somewhere better.

    Example:
        >>> dominates((1, 2), (1, 3)), dominates((1, 2), (2, 1)), dominates((1, 2), (1, 2))
        (True, False, False)
    """
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
