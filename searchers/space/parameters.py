"""Parameters of a search space, their conditions, and the number of configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple, final

from .conditions import Branching, OnlyIf, Predicate, is_word
from .domains import Categorical, Domain, Float, Integer, checked_value
from .sample_from import SampleFrom
from .tree import (
    DELIMITER,
    GRID_KEY,
    Path,
    check_unique_names,
    flat_name,
    is_grid,
    is_same_constant,
)

_NUM_SHOWN = 10
_UNKNOWN: Final = object()


@final
@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one parameter, under which another one exists.

    Attributes:
        name: Name of the parameter that the condition is about.
        values: The values for which it holds; None if a function decides.
        predicate: The function, None where there are values.

    Example:
        >>> (
        ...     Condition("optimizer", ("sgd", "adam")).holds("sgd"),
        ...     Condition("depth", predicate=lambda depth: depth > 3).holds(2),
        ... )
        (True, False)
    """

    name: str
    values: tuple[Any, ...] | None = None
    predicate: Predicate | None = field(default=None)

    def holds(self, value: Any) -> bool:
        """Return whether the condition holds for a value of the parameter."""
        if self.predicate is None:
            return any(_is_same(allowed, value) for allowed in self.values or ())
        try:
            return bool(self.predicate(value))
        except Exception as error:
            error.add_note(
                f"raised by a condition of only_if on {self.name!r}, which was {value!r}"
            )
            raise

    def __str__(self) -> str:
        """Return the condition as a phrase for messages."""
        if self.values is None:
            return f"{self.name} fulfils {getattr(self.predicate, '__name__', self.predicate)}"
        return f"{self.name} is {' or '.join(map(repr, self.values))}"


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """A searched parameter.

    Attributes:
        name: Its name, unique in the space: the steps to it, joined by slashes. Inside a choice
            between sub-spaces the number of the option is a step, as in ``"opt/0/momentum"``.
        path: Path of its value in a configuration, as in ``("opt", "momentum")``.
        domain: Its values: for a choice between sub-spaces the numbers of its options, for a grid
            axis the values on it.
        conditions: The conditions under which it is active, all of which have to hold. Empty if it
            is in every configuration.
        is_grid: Whether it is a grid axis, which only searchers that cross grids support.
        steps: The steps to it from the top of the space, numbers of options included; keys of
            `SearchSpace.assignments` and `resolve`.
    """

    name: str
    path: Path
    domain: Domain
    conditions: tuple[Condition, ...] = ()
    is_grid: bool = False
    steps: Path = ()

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is active, given the values of all parameters that it depends on."""
        return are_met(self.conditions, values)

    def checked(self, value: Any) -> Any:
        """Return the value in the domain's type.

        Raises:
            ValueError: If it lies outside the domain.
        """
        return checked_value(self.name, self.domain, value)


class Drawn(NamedTuple):
    """A configuration before its computed values.

    Attributes:
        config: The configuration, with a `SampleFrom` where a value is to be computed.
        pending: The values to compute, by their paths in it.
        is_sampled: Whether any of its values was sampled rather than assigned.
    """

    config: dict[str, Any]
    pending: Mapping[Path, SampleFrom]
    is_sampled: bool


def _is_same(allowed: Any, value: Any) -> bool:
    # True and 1 are different categories.
    return isinstance(allowed, bool) == isinstance(value, bool) and is_same_constant(allowed, value)


def are_met(conditions: Iterable[Condition], values: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold; a condition on a missing parameter does not."""
    return all(
        condition.name in values and condition.holds(values[condition.name])
        for condition in conditions
    )


@final
class ParameterTable:
    """The parameters and conditions of a space.

    Attributes:
        parameters: The parameters, each after those it depends on, else in the order of the space.
        names: The name of each parameter, by its steps.
        by_name: The parameters by name.
        steps: The steps to each parameter, by its name.
        dependents: The computed parameters, by their steps.
        conditions: The conditions of each entry under `OnlyIf`, by its steps.

    Raises:
        ValueError: If two entries share a name, a condition is impossible or circular, or `OnlyIf`
            is in a list.
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        found_leaves = self._leaves = list(walk(space))
        check_unique_names(leaf.path for leaf in found_leaves)
        check_unique_names(leaf.steps for leaf in found_leaves)
        words = {leaf.steps: leaf for leaf in found_leaves if is_word(leaf.node)}
        self.dependents = {
            steps: leaf.node for steps, leaf in words.items() if isinstance(leaf.node, SampleFrom)
        }
        self.names = {steps: flat_name(steps) for steps in words if steps not in self.dependents}
        self.steps = {name: steps for steps, name in self.names.items()}
        known = {flat_name(steps): leaf.node for steps, leaf in words.items()}
        self.conditions: dict[Path, tuple[Condition, ...]] = {}
        for guard in dict.fromkeys(guard for leaf in found_leaves for guard in leaf.guards):
            resolved = tuple(_condition(guard, *required, known) for required in guard.required())
            self.conditions[guard.steps] = self.conditions.get(guard.steps, ()) + resolved
        every = {name: self._parameter(words[steps], name) for name, steps in self.steps.items()}
        self.parameters = tuple(_in_order(every))
        self.by_name = every

    def _parameter(self, leaf: _Leaf, name: str) -> Parameter:
        return Parameter(
            name,
            leaf.path,
            _domain(leaf.node),
            self._conditions_of(leaf),
            is_grid(leaf.node),
            leaf.steps,
        )

    def _conditions_of(self, leaf: _Leaf) -> tuple[Condition, ...]:
        return tuple(
            condition
            for steps in dict.fromkeys(guard.steps for guard in leaf.guards)
            for condition in self.conditions[steps]
        )

    def found_at(self, path: Path) -> Iterator[tuple[Path, Any, tuple[Condition, ...]]]:
        """Yield what configurations may have at a path: steps, entry of the space, conditions.

        One of several is there at a time. Of a choice between sub-spaces, each that is a dictionary
        or a list is yielded as it is declared.
        """
        for leaf in self._leaves:
            if leaf.path != path:
                continue
            conditions = self._conditions_of(leaf)
            if not isinstance(leaf.node, Branching):
                yield leaf.steps, leaf.node, conditions
                continue
            for number, option in enumerate(leaf.node.options):
                if isinstance(option, dict | list | tuple):
                    is_chosen = Condition(flat_name(leaf.steps), (number,))
                    yield (*leaf.steps, number), option, (*conditions, is_chosen)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Guard:
    """A condition on a part of a space.

    Attributes:
        steps: The steps to the part.
        node: The `OnlyIf`, or the steps to the choice of which the part is an option.
    """

    steps: Path
    node: OnlyIf | Path

    def required(self) -> Iterator[tuple[str, Any]]:
        """Yield each name that a condition is on, and its required value."""
        if isinstance(self.node, OnlyIf):
            yield from self.node.conditions.items()
        else:
            yield flat_name(self.node), self.steps[-1]

    @property
    def scope(self) -> Path:
        """The steps to where names are looked up first."""
        return self.steps[:-1] if isinstance(self.node, OnlyIf) else ()


@final
@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf of a space with its path, its steps and its guards, the outermost first."""

    path: Path
    steps: Path
    node: Any
    guards: tuple[_Guard, ...]


def walk(space: Mapping[str, Any]) -> Iterator[_Leaf]:
    """Yield all leaves of a space, those inside conditional ones included."""
    return _walk(dict(space), (), (), ())


def _walk(node: Any, path: Path, steps: Path, guards: tuple[_Guard, ...]) -> Iterator[_Leaf]:
    if isinstance(node, OnlyIf):
        yield from _walk(node.node, path, steps, (*guards, _Guard(steps, node)))
    elif isinstance(node, Branching):
        yield _Leaf(path, steps, node, guards)
        for number, option in enumerate(node.options):
            inside = (*steps, number)
            yield from _walk(option, path, inside, (*guards, _Guard(inside, steps)))
    elif isinstance(node, dict) and not is_grid(node):
        for key, child in node.items():
            yield from _walk(child, (*path, key), (*steps, key), guards)
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            if isinstance(child, OnlyIf):
                raise ValueError(  # noqa: TRY004
                    "only_if must stand at a name in a dictionary, got one in the list "
                    f"{flat_name(path)!r}; use choice there"
                )
            yield from _walk(child, (*path, index), (*steps, index), guards)
    else:
        yield _Leaf(path, steps, node, guards)


def _domain(word: Any) -> Domain:
    if isinstance(word, Branching):
        return word.selector
    if is_grid(word):
        return Categorical(tuple(word[GRID_KEY]))
    domain: Domain = word
    return domain


def _condition(guard: _Guard, given: str, required: Any, known: Mapping[str, Any]) -> Condition:
    place = flat_name(guard.steps)
    # The name is looked up beside the entry first, then level by level outwards.
    outward = (
        DELIMITER.join((*map(str, guard.scope[:depth]), given))
        for depth in range(len(guard.scope), -1, -1)
    )
    name = next((name for name in outward if name in known), None)
    if name is None:
        listed = ", ".join(map(repr, [*known][:_NUM_SHOWN])) or "none"
        raise ValueError(
            f"only_if at {place!r} must ask for parameters that are searched, got {given!r}; there "
            f"are {listed}"
        )
    if isinstance(known[name], SampleFrom):
        raise ValueError(  # noqa: TRY004
            f"only_if at {place!r} must ask for parameters that are drawn, got {given!r}, which is "
            "computed; ask for its source"
        )
    number_of = _look_up(known[name])
    value = number_of(required)
    if value is not _UNKNOWN:
        return Condition(name, (value,))
    if isinstance(required, list | tuple | range) and required:
        if unknown := [each for each in required if number_of(each) is _UNKNOWN]:
            raise ValueError(
                f"only_if at {place!r} must ask for values that {name!r} can have, got "
                f"{unknown!r}; correct or leave them out"
            )
        return Condition(name, tuple(map(number_of, required)))
    if callable(required):
        return Condition(name, predicate=required)
    remedy = (
        "ask for the number of an option"
        if isinstance(known[name], Branching)
        else "give such a value, a list of them or a function"
    )
    raise ValueError(
        f"only_if at {place!r} must ask for a value that {name!r} can have, got {required!r}; "
        f"{remedy}"
    )


def _look_up(word: Any) -> Callable[[Any], Any]:
    """Return a lookup from a condition's value to the parameter's, or `_UNKNOWN`."""
    if isinstance(word, Branching):
        return lambda required: _UNKNOWN if (number := word.number_of(required)) is None else number
    domain = _domain(word)
    return lambda required: domain.cast(required) if domain.contains(required) else _UNKNOWN


def _in_order(every: Mapping[str, Parameter]) -> Iterator[Parameter]:
    """Yield each parameter after those that it depends on.

    Raises:
        ValueError: If some depend on each other in a circle.
    """
    done: set[str] = set()
    for first in every:
        # A stack instead of recursion, since a chain of conditions may be long. It holds unfinished
        # parameters with their remaining parents.
        unfinished: list[tuple[str, Iterator[str]]] = (
            [(first, _parents(every[first]))] if first not in done else []
        )
        while unfinished:
            name, parents = unfinished[-1]
            parent = next((parent for parent in parents if parent not in done), None)
            if parent is None:
                unfinished.pop()
                done.add(name)
                yield every[name]
                continue
            trail = [waiting for waiting, _ in unfinished]
            if parent in trail:
                circle = " -> ".join(map(repr, [*trail[trail.index(parent) :], parent]))
                raise ValueError(
                    f"conditions must not go in a circle, got {circle}; let one of them be there "
                    "in any case"
                )
            unfinished.append((parent, _parents(every[parent])))


def _parents(parameter: Parameter) -> Iterator[str]:
    return iter(dict.fromkeys(condition.name for condition in parameter.conditions))


MAX_TRIED: Final = 100_000
"""Most values of a parameter on which a condition that is a function is evaluated."""
MAX_CASES: Final = 5_000
"""Most combinations of values that conditions refer to which are enumerated for counting."""
MAX_DEPTH: Final = 100
"""Longest chain of conditions that is counted; counting is recursive."""
_OTHER: Final = object()
"""Stands for all values that no condition refers to."""

_Inactive = frozenset[str]
"""The names of the parameters that a value of another parameter makes inactive."""
_Effects = Mapping[_Inactive, int]
"""How many values of a parameter make the same other parameters inactive."""


def num_values(domain: Domain) -> int | None:
    """Return the number of values of a domain, None if infinite or unknown.

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
    """Return the number of assignments of a space; None if infinite or unknown.

    Args:
        parameters: Each after those it depends on.
    """
    if any(num_values(parameter.domain) is None for parameter in parameters):
        return None
    asking: dict[str, list[tuple[str, Condition]]] = {
        parameter.name: [] for parameter in parameters
    }
    for parameter in parameters:
        for condition in parameter.conditions:
            asking[condition.name].append((parameter.name, condition))
    effects = {
        parameter.name: _effects(parameter.domain, asking[parameter.name])
        for parameter in parameters
    }
    finite = {name: found for name, found in effects.items() if found is not None}
    if len(finite) < len(effects):
        return None
    try:
        return _Counting(finite).of(parameters, 0)
    except _TooManyCases:
        return None


class _TooManyCases(Exception):
    """Conditions depend on each other so much that enumerating all cases would take too long."""


@final
class _Counting:
    """Counts assignments: a product over independent parts, a sum over the effects of a parameter.

    Once a parameter has a value, those that depend on it mostly fall into independent parts.
    """

    def __init__(self, effects: Mapping[str, _Effects]) -> None:
        self._effects = effects
        self._num_cases = 0

    def of(self, undecided: Sequence[Parameter], depth: int) -> int:
        """Return the number of assignments of the undecided parameters."""
        return prod(self._of_connected(part, depth) for part in _independent_parts(undecided))

    def _of_connected(self, part: Sequence[Parameter], depth: int) -> int:
        first, *rest = part
        effects = self._effects[first.name]
        if not rest:
            return sum(effects.values())
        self._num_cases += len(effects)
        if self._num_cases > MAX_CASES or depth == MAX_DEPTH:
            raise _TooManyCases
        return sum(
            weight * self.of(_without_inactive(rest, inactive), depth + 1)
            for inactive, weight in effects.items()
        )


def _without_inactive(parameters: Iterable[Parameter], inactive: _Inactive) -> list[Parameter]:
    inactive_names = set(inactive)
    remaining = []
    for parameter in parameters:
        if parameter.name in inactive_names or any(
            condition.name in inactive_names for condition in parameter.conditions
        ):
            inactive_names.add(parameter.name)
        else:
            remaining.append(parameter)
    return remaining


def _independent_parts(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    # Connected components by union-find.
    names = {parameter.name for parameter in parameters}
    parent_of = {name: name for name in names}

    def root(name: str) -> str:
        while parent_of[name] != name:
            parent_of[name] = name = parent_of[parent_of[name]]
        return name

    for parameter in parameters:
        for condition in parameter.conditions:
            if condition.name in names:
                parent_of[root(parameter.name)] = root(condition.name)
    parts: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(root(parameter.name), []).append(parameter)
    return list(parts.values())


def _effects(domain: Domain, asking: Sequence[tuple[str, Condition]]) -> _Effects | None:
    """Return the effects of a parameter's values; None if these are infinite or too many."""
    size = num_values(domain)
    representatives = (
        None
        if size is None
        else _representatives(domain, size, [condition for _, condition in asking])
    )
    if representatives is None:
        return None
    effects: Counter[_Inactive] = Counter()
    for value, weight in representatives:
        effects[
            frozenset(
                name for name, condition in asking if value is _OTHER or not condition.holds(value)
            )
        ] += weight
    return effects


def _representatives(
    domain: Domain, size: int, required: Sequence[Condition]
) -> list[tuple[Any, int]] | None:
    """Return representative values, each with the number it stands for; None if too many."""
    if isinstance(domain, Categorical):
        return [(category, 1) for category in domain.categories]
    if all(condition.predicate is None for condition in required):
        named = list(
            dict.fromkeys(value for condition in required for value in condition.values or ())
        )
        return [(value, 1) for value in named] + (
            [(_OTHER, size - len(named))] if size > len(named) else []
        )
    if size > MAX_TRIED or not isinstance(domain, Float | Integer):
        return None
    return [(value, 1) for value in all_values(domain)]


def all_values(domain: Domain) -> Sequence[Any]:
    """Return the values of a domain that has finitely many.

    Example:
        >>> all_values(Float(0, 1, q=0.5)), all_values(Categorical(("a", "b")))
        ([0.0, 0.5, 1.0], ('a', 'b'))
    """
    if isinstance(domain, Categorical):
        return domain.categories
    lower, q = getattr(domain, "lower", 0), getattr(domain, "q", None) or 1
    return [domain.cast(lower + number * q) for number in range(num_values(domain) or 0)]
