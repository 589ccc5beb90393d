"""Finite search space of a table: a grid of axes, whose values searches know by index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """

    name: str
    scale: str
    values: tuple[Any, ...]

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


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the values of its axes, numbered with the last axis varying fastest."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def configs(self) -> Iterator[dict[str, Any]]:
        """Yield all configurations in the order of their numbers."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def index(self, config: Mapping[str, Any]) -> int:
        """Return the number of the grid point that a search has suggested."""
        number = 0
        for axis in self.axes:
            number = number * len(axis.values) + axis.number(config[axis.name])
        return number

    def described(self) -> list[dict[str, Any]]:
        """Return the axes as JSON values."""
        return [axis.described() for axis in self.axes]


def log_axis(name: str, low: float, high: float, num: int) -> Axis:
    """Return an axis of `num` values from `low` to `high`, evenly spaced on a logarithmic scale.

    Values are rounded to three significant digits.
    """
    ratio = (high / low) ** (1 / (num - 1))
    return Axis(name, "log", tuple(float(f"{low * ratio**step:.3g}") for step in range(num)))


def axes(*named: tuple[str, str, Sequence[Any]]) -> tuple[Axis, ...]:
    """Return axes with these names, scales and values."""
    return tuple(Axis(name, scale, tuple(values)) for name, scale, values in named)
