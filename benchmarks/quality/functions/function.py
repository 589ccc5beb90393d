"""Functions to search: parameters of all kinds, and a value with a known minimum of 0."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .landscapes import Landscape, Vector, landscape

Config = Mapping[str, Any]
Group = Literal["continuous", "mixed", "conditional"]
NUM_RANDOM = 1_000
"""Number of random configurations whose median regret is the unit of regrets."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter.

    Attributes:
        name: Its name.
        scale: ``"float"``, ``"int"`` or ``"choice"``.
        low: Lowest number.
        high: Highest number, included.
        log: Whether numbers are searched on a logarithmic scale.
        values: The options of a choice.
        when: Name of another parameter and the values with which this one is active; None if it
            always is. Where the other one is inactive, so is this one.
    """

    name: str
    scale: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    values: tuple[str, ...] = ()
    when: tuple[str, tuple[Any, ...]] | None = None

    def unit(self, value: Any) -> float:
        """Return the place of a number between the lowest (0) and the highest (1)."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    def number(self, unit: float) -> float | int:
        """Return the number at a place, the nearest one of integers."""
        number = (
            self.low * (self.high / self.low) ** unit
            if self.log
            else self.low + (self.high - self.low) * unit
        )
        return round(number) if self.scale == "int" else float(min(self.high, number))

    def drawn(self, rng: np.random.Generator) -> Any:
        """Return a random value."""
        if self.scale == "choice":
            return self.values[int(rng.integers(len(self.values)))]
        if self.scale == "int" and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return self.number(rng.random())

    def described(self) -> dict[str, Any]:
        """Return the axis as JSON values, for searches in other environments."""
        described: dict[str, Any] = {"name": self.name, "scale": self.scale}
        if self.scale == "choice":
            described["values"] = list(self.values)
        else:
            described |= {"low": self.low, "high": self.high, "log": self.log}
        if self.when:
            described["when"] = [self.when[0], list(self.when[1])]
        return described


@dataclass(frozen=True, slots=True)
class Term:
    """Part of a function: a landscape over some of its numbers, in units of its median.

    Attributes:
        kind: The landscape; see `landscapes`.
        over: Names of the numbers.
        when: Options of choices with which the term counts; it always does if this is empty.
        moved_by: A choice whose options have separate minima; empty if there is none.
        scaled_by: A choice and the factor for each of its options.
    """

    kind: str
    over: tuple[str, ...]
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    moved_by: str = ""
    scaled_by: tuple[str, Mapping[str, float]] | None = None


class Function:
    """A function to minimise. Its minimum is 0.

    Its value is the sum of its terms and of a penalty for each option chosen. All random numbers,
    such as rotations and places of minima, are drawn from its name.

    Args:
        name: Name of the instance.
        group: Kind of its space.
        axes: Parameters, each one after that on which it depends.
        terms: Terms of the sum; those of inactive parameters do not count.
        penalties: Penalty for each option of a choice, in the unit of the terms. One option of each
            choice has to have none.
        noise: Standard deviation of observations, in units of the median regret.
    """

    def __init__(
        self,
        name: str,
        group: Group,
        axes: Sequence[Axis],
        terms: Sequence[Term],
        penalties: Mapping[str, Mapping[Any, float]] | None = None,
        *,
        noise: float = 0.0,
    ) -> None:
        self.name = name
        self.group: Group = group
        self.axes = tuple(axes)
        self.noise = noise
        self._penalties = penalties or {}
        self._by_name = {axis.name: axis for axis in axes}
        rng = np.random.default_rng(_hash(name))
        self._terms = [_PlacedTerm(term, self._by_name, rng) for term in terms]

    def active(self, config: Config) -> dict[str, Any]:
        """Return the parameters of a configuration that are active."""
        active: dict[str, Any] = {}
        for axis in self.axes:
            if axis.when is None or active.get(axis.when[0], _Absent) in axis.when[1]:
                active[axis.name] = config[axis.name]
        return active

    def value(self, config: Config) -> float:
        """Return the value of a configuration, which may hold inactive parameters."""
        active = self.active(config)
        penalty = sum(
            penalties.get(active[name], 0.0)
            for name, penalties in self._penalties.items()
            if name in active
        )
        return penalty + sum(term.value(active) for term in self._terms)

    def observed(self, config: Config, rng: np.random.Generator) -> float:
        """Return the value that a search receives."""
        value = self.value(config)
        return value + self.noise * self.median * rng.normal() if self.noise else value

    def drawn(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return a random configuration with the inactive parameters."""
        return {axis.name: axis.drawn(rng) for axis in self.axes}

    @cached_property
    def optimum(self) -> dict[str, Any]:
        """A configuration with the value 0, and the inactive parameters."""
        config: dict[str, Any] = {}
        for axis in self.axes:
            options = axis.values if axis.scale == "choice" else (axis.number(0.5),)
            if axis.name in self._penalties:
                options = tuple(self._penalties[axis.name])
            penalties = self._penalties.get(axis.name, {})
            config[axis.name] = min(options, key=lambda each: penalties.get(each, 0.0))
        for term in self._terms:
            config |= term.optimum(self.active(config))
        return config

    @cached_property
    def median(self) -> float:
        """Median value of `NUM_RANDOM` random configurations, which is the unit of regrets."""
        rng = np.random.default_rng([_hash(self.name), 1])
        return float(np.median([self.value(self.drawn(rng)) for _ in range(NUM_RANDOM)]))

    def regret(self, config: Config) -> float:
        """Return the value of a configuration in units of the median."""
        return self.value(config) / self.median


def is_confirmation(name: str) -> bool:
    """Return whether the function of a name serves for confirmation, not for development.

    It is the parity of the SHA-256 digest of the name.

    Example:
        >>> is_confirmation("sphere-5")
        False
    """
    return _hash(name) % 2 == 1


class _Absent:
    """Value of an inactive parameter, which no condition names."""


class _PlacedTerm:
    """A term with its landscapes, one for each option that moves it."""

    def __init__(self, term: Term, axes: Mapping[str, Axis], rng: np.random.Generator) -> None:
        self._term = term
        self._axes = [axes[name] for name in term.over]
        options = axes[term.moved_by].values if term.moved_by else ("",)
        self._landscapes = {option: self._placed(rng) for option in options}

    def _placed(self, rng: np.random.Generator) -> tuple[Landscape, Vector, float]:
        """Return a landscape, the place of its minimum, and the median of its values."""
        place = None
        if any(axis.scale == "int" for axis in self._axes):
            # The minimum has to be at integers.
            drawn = [axis.number(rng.uniform(0.1, 0.9)) for axis in self._axes]
            place = np.array(
                [axis.unit(number) for axis, number in zip(self._axes, drawn, strict=True)]
            )
        dimension = len(self._axes)
        value, place = landscape(self._term.kind, dimension, rng, place)
        median = np.median([value(rng.random(dimension)) for _ in range(NUM_RANDOM)])
        return value, place, float(median)

    def value(self, active: Config) -> float:
        term = self._term
        if not self._counts(active):
            return 0.0
        value, _, median = self._landscapes[active[term.moved_by] if term.moved_by else ""]
        unit = np.array([axis.unit(active[axis.name]) for axis in self._axes])
        factor = term.scaled_by[1][active[term.scaled_by[0]]] if term.scaled_by else 1.0
        return factor * value(unit) / median

    def optimum(self, config: Config) -> dict[str, Any]:
        if not self._counts(config):
            return {}
        moved_by = self._term.moved_by
        _, place, _ = self._landscapes[config[moved_by] if moved_by else ""]
        return {axis.name: axis.number(unit) for axis, unit in zip(self._axes, place, strict=True)}

    def _counts(self, active: Config) -> bool:
        return all(axis.name in active for axis in self._axes) and all(
            active.get(name, _Absent) in values for name, values in self._term.when.items()
        )


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")
