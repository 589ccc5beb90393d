"""Points to evaluate: their checks, and which of them come next and have been run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from .space.tree import has_values


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


@final
class PendingPoints:
    """Hands out points in their order, but for those that an earlier session has run.

    Args:
        points: The values of each point; a partial one leaves some out.

    Example:
        >>> points = PendingPoints([{"lr": 0.1}, {"lr": 0.2}])
        >>> points.take("t0"), points.replace("t0", {"lr": 0.2, "depth": 3}), points.take("t1")
        (0, None, 0)
        >>> print(points.take("t2"))
        None
    """

    def __init__(self, points: Sequence[Mapping[Any, Any]]) -> None:
        self._points = points
        self._taken: set[int] = set()
        self._newest: tuple[str, int] | None = None

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, number: int) -> Mapping[Any, Any]:
        return self._points[number]

    @property
    def taken(self) -> list[int]:
        """The numbers of the points that have been handed out or run."""
        return sorted(self._taken)

    def mark_taken(self, numbers: Iterable[int]) -> None:
        """Record which points have been handed out or run."""
        self._taken = set(numbers) & set(range(len(self._points)))

    def num_left(self, num_samples: int) -> int:
        """Return how many of the first `num_samples` points are left, -1 for all of them."""
        end = len(self._points) if num_samples < 0 else min(num_samples, len(self._points))
        return end - sum(number < end for number in self._taken)

    def take(self, trial_id: str) -> int | None:
        """Return the number of the next point, None if there is none."""
        if len(self._taken) == len(self._points):
            return None
        number = next(each for each in range(len(self._points)) if each not in self._taken)
        self._taken.add(number)
        self._newest = trial_id, number
        return number

    def replace(self, trial_id: str, values: Mapping[Any, Any] | None) -> None:
        """Take back the point that a trial got, and pass over the one that it runs.

        Args:
            trial_id: The trial.
            values: The values that it runs, None for nothing.
        """
        if self._newest is not None and self._newest[0] == trial_id:
            self._taken.discard(self._newest[1])
        self._newest = None
        if values is not None and len(self._taken) < len(self._points):
            left = (each for each in range(len(self._points)) if each not in self._taken)
            run = [number for number in left if has_values(values, self._points[number])]
            if run:  # the one that says most about the trial
                self._taken.add(max(run, key=lambda number: (len(self._points[number]), -number)))
