"""The finite space of a table: axes of values, and the way from any suggestion to a grid point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCALES = ("linear", "log", "int", "log_int", "choice")


@dataclass(frozen=True, slots=True)
class Axis:
    """One hyperparameter.

    Attributes:
        name: The hyperparameter.
        scale: One of `SCALES`; says in which words a search is told of it, and in which distance a suggestion is near a value.
        values: The values of the grid, ascending unless they are choices.
    """

    name: str
    scale: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale of {self.name} must be one of {SCALES}, got {self.scale!r}")
        if self.scale != "choice" and list(self.values) != sorted(set(self.values)):
            raise ValueError(f"values of {self.name} must ascend, got {self.values}")

    def nearest(self, value: Any) -> int:
        """Return the number of the grid value nearest to a suggestion, the lower one of two as near; choices have to be equal."""
        if self.scale == "choice":
            return self.values.index(value)
        place = self._place(value)
        return min(range(len(self.values)), key=lambda number: abs(self._place(self.values[number]) - place))

    def described(self) -> dict[str, Any]:
        """Return the axis as JSON values, for searches in other environments: the ends of its range, or its choices."""
        if self.scale == "choice":
            return {"name": self.name, "scale": self.scale, "values": list(self.values)}
        return {"name": self.name, "scale": self.scale, "low": self.values[0], "high": self.values[-1]}

    def _place(self, value: float) -> float:
        return math.log(value) if self.scale in {"log", "log_int"} else float(value)


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the values of some axes, numbered with the last axis running fastest."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def configs(self) -> Iterator[dict[str, Any]]:
        """Yield all configurations in the order of their numbers."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def index(self, config: Mapping[str, Any]) -> int:
        """Return the number of the grid point nearest to a configuration, axis by axis."""
        number = 0
        for axis in self.axes:
            number = number * len(axis.values) + axis.nearest(config[axis.name])
        return number

    def described(self) -> list[dict[str, Any]]:
        """Return the axes as JSON values."""
        return [axis.described() for axis in self.axes]


def log_axis(name: str, low: float, high: float, num: int) -> Axis:
    """Return an axis of so many values between two positive ends, in equal ratios and rounded to three digits."""
    ratio = (high / low) ** (1 / (num - 1))
    return Axis(name, "log", tuple(float(f"{low * ratio**step:.3g}") for step in range(num)))


def axes(*named: tuple[str, str, Sequence[Any]]) -> tuple[Axis, ...]:
    """Return axes from names, scales and values."""
    return tuple(Axis(name, scale, tuple(values)) for name, scale, values in named)
