"""Numbers for what grid and random search declare: points to evaluate, then the samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, product
from math import prod
from typing import Any, final

from .pending_points import has_values, is_same_value
from .space import Path, SearchSpace, is_word
from .space.tree import assign, has_keys_of, match


@final
class VariantList:
    """The variants of a space by number; none of them is computed in advance.

    Points to evaluate come first, each at every point of the grid axes that it leaves open. Then
    each sample takes the whole grid before the next one begins. The first axis varies fastest.

    Args:
        space: The space.
        points: The values of the points to evaluate, by path.

    Attributes:
        space: See above.
        num_preset: How many variants come from points to evaluate.
    """

    def __init__(self, space: SearchSpace, points: Sequence[Mapping[Path, Any]]) -> None:
        self.space = space
        self._points = points
        self._size = _size(space.grid_axes)
        self._ends = list(accumulate(_size(self._open_axes(point)) for point in points))
        self.num_preset = self._ends[-1] if self._ends else 0

    def num_declared(self, num_samples: int) -> int:
        """Return how many variants there are with a number of samples, 0 or more."""
        return self.num_preset + max(num_samples - len(self._points), 0) * self._size

    def at(self, number: int) -> tuple[int, dict[Path, Any]]:
        """Return the number of a variant's sample, and its values but for those to be drawn."""
        if number < self.num_preset:
            sample = bisect_right(self._ends, number)
            point, place = self._points[sample], number - self._start(sample)
        else:
            sample, place = divmod(number - self.num_preset, self._size)
            sample, point = sample + len(self._points), {}
        return sample, {**point, **_grid_point(self._open_axes(point), place)}

    def numbers_for(self, config: Mapping[str, Any], first: int) -> Iterator[int]:
        """Yield the numbers of the variants that a configuration can stand for, the best first.

        Those are points to evaluate, the ones that name most of its values first, then samples in
        their order, without end. Nothing is yielded for a configuration outside of the grid.
        Without a grid, each configuration can stand for a sample.

        Args:
            config: A configuration, perhaps of another space.
            first: Samples before this number are left out.
        """
        values = self._values(config)
        if values is None:
            return
        by_size = sorted(range(len(self._points)), key=lambda number: -len(self._points[number]))
        for sample in by_size:
            point = self._points[sample]
            if has_values(values, point):
                start = self._start(sample)
                yield from (start + each for each in _places(self._open_axes(point), values))
        places = sorted(_places(self.space.grid_axes, values))
        for sample in count(max(first - self.num_preset, 0) // self._size) if places else ():
            yield from (self.num_preset + sample * self._size + place for place in places)

    def _values(self, config: Mapping[str, Any]) -> Mapping[Path, Any] | None:
        """Return the values of a configuration by path; None if it is not one of the grid."""
        space = self.space
        if not space.grid_axes:
            return values_in(space, config)
        try:
            # What was drawn may lie outside of what is drawn from now.
            found = (
                space.assignments(config)
                if space.is_conditional
                else dict(match(space.space, config, is_word))
            )
            whole = (
                space.resolve(found, None)
                if space.is_conditional
                else assign(space.space, {path: found[path] for path in space.words})
            )
        except (LookupError, TypeError, ValueError):
            return None
        return found if has_keys_of(config, whole) else None

    def _open_axes(self, point: Mapping[Path, Any]) -> dict[Path, list[Any]]:
        return {path: axis for path, axis in self.space.grid_axes.items() if path not in point}

    def _start(self, sample: int) -> int:
        return self._ends[sample - 1] if sample else 0


def values_in(space: SearchSpace, config: Mapping[str, Any]) -> Mapping[Path, Any]:
    """Return the values of a configuration, perhaps of another space, by path in this space.

    What is not found, or cannot be told, is left out.
    """
    if space.is_conditional:
        return space.recognised(config)
    found: dict[Path, Any] = {}
    for path in space.words:
        node: Any = config
        for step in path:
            try:
                node = node[step]
            except (LookupError, TypeError):
                break
        else:
            found[path] = node
    return found


def _size(axes: Mapping[Path, list[Any]]) -> int:
    return prod(len(values) for values in axes.values())


def _grid_point(axes: Mapping[Path, list[Any]], place: int) -> dict[Path, Any]:
    # The place in the grid as a number of mixed radix, with a digit for each axis.
    point = {}
    for path, values in axes.items():
        place, index = divmod(place, len(values))
        point[path] = values[index]
    return point


def _places(axes: Mapping[Path, list[Any]], values: Mapping[Path, Any]) -> Iterator[int]:
    """Yield the places in the grid with these values; several if an axis repeats one."""
    weights = list(accumulate((len(axis) for axis in axes.values()), lambda a, b: a * b, initial=1))
    digits = [
        [index * weight for index, value in enumerate(axis) if is_same_value(value, values[path])]
        for (path, axis), weight in zip(axes.items(), weights, strict=False)
    ]
    return map(sum, product(*digits))
