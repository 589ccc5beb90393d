"""Finite search space of a table: a grid of axes, whose values searches know by index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

SCALES = ("linear", "log", "int", "log_int", "choice")
_UNEVENNESS = 0.05
"""Largest difference between steps of an axis, as a share of the mean step: values are rounded."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One hyperparameter.

    A choice is given to searches with its values. A numeric axis is given as an integer range, the
    index of the value from 0, since its values are evenly spaced on its scale. So all searches have
    the same grid, in terms that all of them support, and none suggests a value between two points.

    Attributes:
        name: The hyperparameter.
        scale: One of `SCALES`, on which the values are evenly spaced.
        values: The values of the grid, ascending unless they are choices.
        when: Condition under which the hyperparameter exists: the name of an axis before it, and
            the values of that axis with which it does. None if it always exists.
    """

    name: str
    scale: str
    values: tuple[Any, ...]
    when: tuple[str, tuple[Any, ...]] | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale of {self.name} must be one of {SCALES}, got {self.scale!r}")
        if self.scale == "choice":
            return
        if list(self.values) != sorted(set(self.values)):
            raise ValueError(f"values of {self.name} must ascend, got {self.values}")
        places = [
            math.log(value) if self.scale in {"log", "log_int"} else float(value)
            for value in self.values
        ]
        steps = [right - left for left, right in itertools.pairwise(places)]
        if steps and max(steps) - min(steps) > _UNEVENNESS * sum(steps) / len(steps):
            raise ValueError(
                f"values of {self.name} must be evenly spaced on their scale {self.scale!r}, "
                f"got {self.values}"
            )

    def number(self, suggested: Any) -> int:
        """Return the index of the value that a search has suggested."""
        if self.scale == "choice":
            return self.values.index(suggested)
        return range(len(self.values)).index(int(suggested))

    def suggested(self, value: Any) -> Any:
        """Return the suggestion for a value: the value of a choice, the index of a number."""
        return value if self.scale == "choice" else self.values.index(value)

    def described(self) -> dict[str, Any]:
        """Return the axis as JSON values, for searches in other environments."""
        if self.scale == "choice":
            return {"name": self.name, "scale": "choice", "values": list(self.values)}
        return {"name": self.name, "scale": "int", "low": 0, "high": len(self.values) - 1}


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of its axes, numbered with the last axis varying fastest.

    A configuration has no value for an axis whose condition does not hold, so that each
    configuration is there once.

    Raises:
        ValueError: If the condition of an axis names no axis before it, or a value it does not
            have.
    """

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        before: dict[str, Axis] = {}
        for axis in self.axes:
            if axis.when is not None:
                parent, values = axis.when
                if parent not in before or not set(values) <= set(before[parent].values):
                    raise ValueError(
                        f"the condition of {axis.name} must be an axis before it and some of that "
                        f"axis's values, got {axis.when}"
                    )
            before[axis.name] = axis

    def __len__(self) -> int:
        return len(self._numbers) if self.is_conditional else self._num_combinations

    @cached_property
    def is_conditional(self) -> bool:
        """Whether an axis exists only under a condition."""
        return any(axis.when is not None for axis in self.axes)

    def configs(self) -> Iterator[dict[str, Any]]:
        """Yield all configurations in the order of their numbers."""
        yield from self._combined({}, 0)

    def index(self, config: Mapping[str, Any]) -> int:
        """Return the number of the grid point that a search has suggested.

        Values of axes whose condition does not hold are ignored.
        """
        if self.is_conditional:
            return self._numbers[self._places(config)]
        number = 0
        for axis in self.axes:
            number = number * len(axis.values) + axis.number(config[axis.name])
        return number

    def suggested(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration as a search suggests it; see `Axis.suggested`."""
        return {
            axis.name: axis.suggested(config[axis.name])
            for axis in self.axes
            if axis.name in config
        }

    def condition_of(self, axis: Axis) -> tuple[str, list[Any]] | None:
        """Return the condition of an axis with the values as searches suggest them."""
        if axis.when is None:
            return None
        name, values = axis.when
        (parent,) = (each for each in self.axes if each.name == name)
        return name, [parent.suggested(value) for value in values]

    def described(self) -> list[dict[str, Any]]:
        """Return the axes as JSON values.

        One with a condition has an entry ``"when"``: the name of the axis it depends on, and the
        values of that axis, as searches suggest them, with which it exists.
        """
        return [
            axis.described()
            if (condition := self.condition_of(axis)) is None
            else {**axis.described(), "when": list(condition)}
            for axis in self.axes
        ]

    @property
    def _num_combinations(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    @cached_property
    def _numbers(self) -> dict[tuple[int | None, ...], int]:
        """Number of each configuration by the indices of its values; None for those it lacks."""
        return {
            self._places(self.suggested(config)): number
            for number, config in enumerate(self.configs())
        }

    def _places(self, config: Mapping[str, Any]) -> tuple[int | None, ...]:
        active: dict[str, Any] = {}
        places: list[int | None] = []
        for axis in self.axes:
            if _holds(axis.when, active):
                place = axis.number(config[axis.name])
                active[axis.name] = axis.values[place]
                places.append(place)
            else:
                places.append(None)
        return tuple(places)

    def _combined(self, config: dict[str, Any], position: int) -> Iterator[dict[str, Any]]:
        """Yield a configuration of the first axes with all values of the others."""
        if position == len(self.axes):
            yield config
            return
        axis = self.axes[position]
        if not _holds(axis.when, config):
            yield from self._combined(config, position + 1)
            return
        for value in axis.values:
            yield from self._combined({**config, axis.name: value}, position + 1)


def _holds(when: tuple[str, tuple[Any, ...]] | None, config: Mapping[str, Any]) -> bool:
    """Return whether a condition holds; it does not if the axis it depends on is inactive."""
    return when is None or (when[0] in config and config[when[0]] in when[1])


def log_axis(name: str, low: float, high: float, num: int) -> Axis:
    """Return an axis of `num` values from `low` to `high`, evenly spaced on a logarithmic scale.

    Values are rounded to three significant digits.
    """
    ratio = (high / low) ** (1 / (num - 1))
    return Axis(name, "log", tuple(float(f"{low * ratio**step:.3g}") for step in range(num)))


def under(parent: str, values: Sequence[Any], *conditional: Axis) -> tuple[Axis, ...]:
    """Return the axes with the condition that an axis before them has one of these values."""
    return tuple(replace(axis, when=(parent, tuple(values))) for axis in conditional)


def axes(*named: tuple[str, str, Sequence[Any]]) -> tuple[Axis, ...]:
    """Return axes with these names, scales and values."""
    return tuple(Axis(name, scale, tuple(values)) for name, scale, values in named)
