"""How many configurations a search space has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, final

from .domains import Categorical, Domain
from .numeric import Float, Integer
from .parameters import Condition, Parameter

MAX_TRIED: Final = 100_000
"""The most values of a parameter that are tried on a condition that is a function."""
MAX_CASES: Final = 5_000
"""How many outcomes of parameters on which others depend are gone through before it is given up to count."""
MAX_DEPTH: Final = 100
"""How many conditions may depend on each other one after the other for it to be counted."""
_OTHER: Final = object()
"""A value that no condition names."""

_Dead = frozenset[str]
"""The names of the parameters that do not exist if a parameter has a value."""
_Outcomes = Mapping[_Dead, int]
"""What the values of a parameter mean for others, and how many of its values mean that."""


def num_values(domain: Domain) -> int | None:
    """Return how many values a domain has, None where they have no end or it does not tell.

    Example:
        >>> num_values(Float(0, 1, q=0.25)), num_values(Integer(1, 8)), num_values(Float(0, 1))
        (5, 8, None)
    """
    match domain:
        case Categorical(categories):
            return len(categories)
        case Integer(lower, upper, q):
            return (upper - lower) // q + 1
        case Float(lower, upper, q) if q is not None:
            return round((upper - lower) / q) + 1
        case _:
            return None


def num_assignments(parameters: Sequence[Parameter]) -> int | None:
    """Return in how many ways the parameters of a space can have values, None where that has no end or cannot be told.

    Args:
        parameters: Each after those that its existence depends on.
    """
    if any(num_values(parameter.domain) is None for parameter in parameters):
        return None
    asking: dict[str, list[tuple[str, Condition]]] = {
        parameter.name: [] for parameter in parameters
    }
    for parameter in parameters:
        for condition in parameter.conditions:
            asking[condition.name].append((parameter.name, condition))
    outcomes = {
        parameter.name: _outcomes(parameter.domain, asking[parameter.name])
        for parameter in parameters
    }
    finite = {name: found for name, found in outcomes.items() if found is not None}
    if len(finite) < len(outcomes):
        return None
    try:
        return _Counting(finite).of(parameters, 0)
    except _TooManyCases:
        return None


class _TooManyCases(Exception):
    """Conditions are so entangled that going through all cases would take too long."""


@final
class _Counting:
    """Multiplies what is independent, and sums over the outcomes of what is not.

    Once a parameter is decided, what depended on it may fall apart into independent parts, and mostly does.
    """

    def __init__(self, outcomes: Mapping[str, _Outcomes]) -> None:
        self._outcomes = outcomes
        self._num_cases = 0

    def of(self, undecided: Sequence[Parameter], depth: int) -> int:
        """Return in how many ways the undecided parameters can have values."""
        return prod(self._of_connected(part, depth) for part in _independent_parts(undecided))

    def _of_connected(self, part: Sequence[Parameter], depth: int) -> int:
        first, *rest = part
        outcomes = self._outcomes[first.name]
        if not rest:
            return sum(outcomes.values())
        self._num_cases += len(outcomes)
        if self._num_cases > MAX_CASES or depth == MAX_DEPTH:
            raise _TooManyCases
        return sum(
            weight * self.of(_survivors(rest, dead), depth + 1) for dead, weight in outcomes.items()
        )


def _survivors(parameters: Iterable[Parameter], dead: _Dead) -> list[Parameter]:
    gone = set(dead)
    alive = []
    for parameter in parameters:
        if parameter.name in gone or any(
            condition.name in gone for condition in parameter.conditions
        ):
            gone.add(parameter.name)
        else:
            alive.append(parameter)
    return alive


def _independent_parts(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    names = {parameter.name for parameter in parameters}
    home = {name: name for name in names}

    def root(name: str) -> str:
        while home[name] != name:
            home[name] = name = home[home[name]]
        return name

    for parameter in parameters:
        for condition in parameter.conditions:
            if condition.name in names:
                home[root(parameter.name)] = root(condition.name)
    parts: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(root(parameter.name), []).append(parameter)
    return list(parts.values())


def _outcomes(domain: Domain, asking: Sequence[tuple[str, Condition]]) -> _Outcomes | None:
    """Return the outcomes of a parameter for those who ask for it, None where its values have no end or are too many to try."""
    size = num_values(domain)
    tried = None if size is None else _to_try(domain, size, [condition for _, condition in asking])
    if tried is None:
        return None
    outcomes: Counter[_Dead] = Counter()
    for value, weight in tried:
        outcomes[
            frozenset(
                name for name, condition in asking if value is _OTHER or not condition.holds(value)
            )
        ] += weight
    return outcomes


def _to_try(domain: Domain, size: int, asked: Sequence[Condition]) -> list[tuple[Any, int]] | None:
    """Return values that stand for all, each with how many it stands for; None where there are too many."""
    if isinstance(domain, Categorical):
        return [(category, 1) for category in domain.categories]
    if all(condition.predicate is None for condition in asked):
        named = list(
            dict.fromkeys(value for condition in asked for value in condition.values or ())
        )
        return [(value, 1) for value in named] + (
            [(_OTHER, size - len(named))] if size > len(named) else []
        )
    if size > MAX_TRIED or not isinstance(domain, Float | Integer):
        return None
    return [(domain.cast(domain.lower + number * (domain.q or 1)), 1) for number in range(size)]
