"""Checks of the configurations with which a search begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def checked_points(points: Any) -> list[Mapping[str, Any]]:
    """Return ``points_to_evaluate`` as a list.

    Args:
        points: Configurations; None for none.

    Raises:
        TypeError: If they are not a list of dictionaries.
    """
    if points is None:
        return []
    if isinstance(points, Mapping):
        raise TypeError(
            f"points_to_evaluate must be a list of configurations, got one, {dict(points)!r}; put "
            "it into square brackets"
        )
    if not isinstance(points, Iterable) or isinstance(points, str):
        raise TypeError(
            f"points_to_evaluate must be a list of configurations, got {points!r}; write "
            '[{"lr": 0.1}]'
        )
    listed = list(points)
    for point in listed:
        if not isinstance(point, Mapping):
            raise TypeError(
                "points_to_evaluate must hold configurations as dictionaries, got "
                f'{point!r}; write {{"lr": 0.1}}, or the config of a result'
            )
    return listed
