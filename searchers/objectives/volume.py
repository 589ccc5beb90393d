"""Hypervolume: how much of the space of objectives a set of points dominates."""

from __future__ import annotations

from collections.abc import Sequence

from .dominance import Point, dominates, rivals


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Return the volume between the points and a reference point; larger is better.

    Args:
        points: Finite values, which are minimised.
        reference: A point of the same size. Points that are not better than it in every metric add
            nothing.

    Returns:
        The volume in the product of the metrics' units; 0 without points.

    Example:
        >>> hypervolume([(1, 3), (2, 1), (9, 9)], (4, 4))
        7.0

    Reference:
        While, Bradstreet, Barone. A Fast Way of Calculating Exact Hypervolumes. IEEE Transactions
        on Evolutionary Computation 16(1), 2012 (WFG, Algorithm 1).

    Departures:
        Two metrics are summed directly over the sorted front.
    """
    return float(_volume(_front(points, reference), reference))


def hypervolumes(points: Sequence[Point | None], reference: Point) -> list[float]:
    """Return the hypervolume after each of the points, in their order.

    Args:
        points: As for `hypervolume`; None for one that does not count.
        reference: As for `hypervolume`.

    Example:
        >>> hypervolumes([(1, 3), None, (2, 1)], (4, 4))
        [3.0, 3.0, 7.0]
    """
    front: list[Point] = []
    total, totals = 0.0, []
    for point in points:
        if point is not None and _is_inside(point, reference) and not _is_covered(point, front):
            # What it adds is its own box without what the front covers of that.
            total += _exclusive(point, front, reference)
            front = [other for other in front if not dominates(point, other)] + [point]
        totals.append(float(total))
    return totals


def _front(points: Sequence[Point], reference: Point) -> list[Point]:
    front: list[Point] = []
    # In sorted order no point dominates an earlier one.
    for point in sorted(point for point in points if _is_inside(point, reference)):
        if not _is_covered(point, rivals(front, len(reference))):
            front.append(point)
    return front


def _is_inside(point: Point, reference: Point) -> bool:
    return all(value < limit for value, limit in zip(point, reference, strict=True))


def _is_covered(point: Point, front: Sequence[Point]) -> bool:
    return any(other == point or dominates(other, point) for other in front)


def _volume(front: Sequence[Point], reference: Point) -> float:
    if not front:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(front)[0]
    if len(reference) == 2:  # noqa: PLR2004  (a sum of rectangles)
        total, height = 0.0, reference[1]
        for first, second in sorted(front):
            total += (reference[0] - first) * (height - second)
            height = second
        return total
    ordered = sorted(front)
    return sum(
        _exclusive(point, ordered[place + 1 :], reference) for place, point in enumerate(ordered)
    )


def _exclusive(point: Point, others: Sequence[Point], reference: Point) -> float:
    """Return the volume that a point dominates and others do not."""
    own = 1.0
    for value, limit in zip(point, reference, strict=True):
        own *= limit - value
    limited = [tuple(map(max, point, other)) for other in others]
    return own - _volume(_front(limited, reference), reference)
