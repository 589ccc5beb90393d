"""Parameters of a search space with their conditions, and the number of configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, final

from .conditions import Branching, OnlyIf, Predicate, is_word
from .domains import Categorical, Domain, Float, Integer
from .sample_from import SampleFrom
from .tree import DELIMITER, GRID_KEY, Path, flat_name, is_grid, is_same_constant

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
        """Return the condition in words."""
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
        domain: Its values: for a choice between sub-spaces the numbers of
            its options, for a grid axis the values on it.
        conditions: The conditions under which it exists, all of which
            have to hold. Empty if it is in every configuration.
        is_grid: Whether it is a grid axis, which only searchers that cross grids support.
        steps: The steps to it from the top of the
            space, numbers of options included; keys of `SearchSpace.assignments` and `resolve`.
    """

    name: str
    path: Path
    domain: Domain
    conditions: tuple[Condition, ...] = ()
    is_grid: bool = False
    steps: Path = ()

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Return whether the parameter is active; values of all that it depends on are needed."""
        return are_met(self.conditions, values)

    def checked(self, value: Any) -> Any:
        """Return the value in the domain's type.

        Raises:
            ValueError: If it lies outside the domain.
        """
        if not self.domain.contains(value):
            raise ValueError(
                f"{self.name!r} must lie in {self.domain!r}, got {value!r}; widen the space or "
                "leave the parameter out"
            )
        return self.domain.cast(value)


def _is_same(allowed: Any, value: Any) -> bool:
    # True and 1 are different categories.
    return isinstance(allowed, bool) == isinstance(value, bool) and is_same_constant(allowed, value)


def are_met(conditions: Iterable[Condition], values: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold; one on a parameter without a value does not."""
    return all(
        condition.name in values and condition.holds(values[condition.name])
        for condition in conditions
    )


@final
class ParameterTable:
    """What a space consists of.

    Attributes:
        parameters: The parameters, those that others depend on before these, else as declared.
        names: The name of each parameter, by its steps.
        by_name: The parameters by name.
        steps: The steps to each parameter, by its name.
        dependents: The computed parameters, by their steps.
        conditions: What has to hold for each entry that `OnlyIf` guards, by its steps.

    Raises:
        ValueError: If two entries share a name, a condition is impossible or in a circle, or
            `OnlyIf` stands in a list.
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        places = list(_places(dict(space), (), (), ()))
        _check_names(places)
        words = {place.steps: place for place in places if is_word(place.leaf)}
        self.dependents = {
            steps: place.leaf
            for steps, place in words.items()
            if isinstance(place.leaf, SampleFrom)
        }
        self.names = {steps: flat_name(steps) for steps in words if steps not in self.dependents}
        self.steps = {name: steps for steps, name in self.names.items()}
        known = {flat_name(steps): place.leaf for steps, place in words.items()}
        self.conditions: dict[Path, tuple[Condition, ...]] = {}
        for guard in dict.fromkeys(guard for place in places for guard in place.guards):
            resolved = tuple(_condition(guard, *asked, known) for asked in guard.asked())
            self.conditions[guard.steps] = self.conditions.get(guard.steps, ()) + resolved
        every = {name: self._parameter(words[steps], name) for name, steps in self.steps.items()}
        self.parameters = tuple(_in_order(every))
        self.by_name = every

    def _parameter(self, place: _Place, name: str) -> Parameter:
        conditions = (
            condition
            for steps in dict.fromkeys(guard.steps for guard in place.guards)
            for condition in self.conditions[steps]
        )
        return Parameter(
            name,
            place.path,
            _domain(place.leaf),
            tuple(conditions),
            is_grid(place.leaf),
            place.steps,
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Guard:
    """Stands before a part of a space.

    Attributes:
        steps: The steps to what it guards.
        node: The `OnlyIf`, or the steps to the choice of which the guarded part is an option.
    """

    steps: Path
    node: OnlyIf | Path

    def asked(self) -> Iterator[tuple[str, Any]]:
        """Yield each name that is asked for, and what for."""
        if isinstance(self.node, OnlyIf):
            yield from self.node.conditions.items()
        else:
            yield flat_name(self.node), self.steps[-1]

    @property
    def scope(self) -> Path:
        """Where names are looked for first."""
        return self.steps[:-1] if isinstance(self.node, OnlyIf) else ()


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """A leaf of a space: its path, its steps, and its conditions, outermost first."""

    path: Path
    steps: Path
    leaf: Any
    guards: tuple[_Guard, ...]


def _places(node: Any, path: Path, steps: Path, guards: tuple[_Guard, ...]) -> Iterator[_Place]:
    if isinstance(node, OnlyIf):
        yield from _places(node.node, path, steps, (*guards, _Guard(steps, node)))
    elif isinstance(node, Branching):
        yield _Place(path, steps, node, guards)
        for number, option in enumerate(node.options):
            inside = (*steps, number)
            yield from _places(option, path, inside, (*guards, _Guard(inside, steps)))
    elif isinstance(node, dict) and not is_grid(node):
        for key, child in node.items():
            yield from _places(child, (*path, key), (*steps, key), guards)
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            if isinstance(child, OnlyIf):
                raise ValueError(  # noqa: TRY004  (its type is right, its place is not)
                    "only_if must stand at a name in a dictionary, got one in the list "
                    f"{flat_name(path)!r}; use choice there"
                )
            yield from _places(child, (*path, index), (*steps, index), guards)
    else:
        yield _Place(path, steps, node, guards)


def _check_names(places: Iterable[_Place]) -> None:
    """Refuse two different paths or steps with the same flattened name."""
    in_configs: dict[str, Path] = {}
    among_parameters: dict[str, Path] = {}
    for place in places:
        for seen, steps in ((in_configs, place.path), (among_parameters, place.steps)):
            other = seen.setdefault(flat_name(steps), steps)
            if other != steps:
                raise ValueError(
                    f"parameter names must be unique, got {flat_name(steps)!r} both as {other!r} "
                    f"and as {steps!r}; rename one"
                )


def _domain(word: Any) -> Domain:
    if isinstance(word, Branching):
        return word.selector
    if is_grid(word):
        return Categorical(tuple(word[GRID_KEY]))
    domain: Domain = word
    return domain


def _condition(guard: _Guard, given: str, asked: Any, known: Mapping[str, Any]) -> Condition:
    place = flat_name(guard.steps)
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
        raise ValueError(  # noqa: TRY004  (its type is right, its place is not)
            f"only_if at {place!r} must ask for parameters that are drawn, got {given!r}, which is "
            "computed; ask for its source"
        )
    number_of = _look_up(known[name])
    value = number_of(asked)
    if value is not _UNKNOWN:
        return Condition(name, (value,))
    if isinstance(asked, list | tuple | range) and asked:
        if strangers := [each for each in asked if number_of(each) is _UNKNOWN]:
            raise ValueError(
                f"only_if at {place!r} must ask for values that {name!r} can have, got "
                f"{strangers!r}; correct or leave them out"
            )
        return Condition(name, tuple(map(number_of, asked)))
    if callable(asked):
        return Condition(name, predicate=asked)
    remedy = (
        "ask for the number of an option"
        if isinstance(known[name], Branching)
        else "give such a value, a list of them or a function"
    )
    raise ValueError(
        f"only_if at {place!r} must ask for a value that {name!r} can have, got {asked!r}; {remedy}"
    )


def _look_up(word: Any) -> Callable[[Any], Any]:
    """Return a lookup from a condition's value to the parameter's, or `_UNKNOWN`."""
    if isinstance(word, Branching):
        return lambda asked: _UNKNOWN if (number := word.number_of(asked)) is None else number
    domain = _domain(word)
    return lambda asked: domain.cast(asked) if domain.contains(asked) else _UNKNOWN


def _in_order(every: Mapping[str, Parameter]) -> Iterator[Parameter]:
    """Yield each parameter after those that it depends on.

    Raises:
        ValueError: If some depend on each other in a circle.
    """
    done: set[str] = set()
    for first in every:
        # A stack in place of recursion: a chain of conditions may be long. It holds unfinished
        # parameters with their remaining parents.
        under_way: list[tuple[str, Iterator[str]]] = (
            [(first, _parents(every[first]))] if first not in done else []
        )
        while under_way:
            name, parents = under_way[-1]
            parent = next((parent for parent in parents if parent not in done), None)
            if parent is None:
                under_way.pop()
                done.add(name)
                yield every[name]
                continue
            trail = [waiting for waiting, _ in under_way]
            if parent in trail:
                circle = " -> ".join(map(repr, [*trail[trail.index(parent) :], parent]))
                raise ValueError(
                    f"conditions must not go in a circle, got {circle}; let one of them be there "
                    "in any case"
                )
            under_way.append((parent, _parents(every[parent])))


def _parents(parameter: Parameter) -> Iterator[str]:
    return iter(dict.fromkeys(condition.name for condition in parameter.conditions))


MAX_TRIED: Final = 100_000
"""The most values of a parameter that are tried on a condition that is a function."""
MAX_CASES: Final = 5_000
"""Most combinations of condition parameters that are enumerated for counting."""
MAX_DEPTH: Final = 100
"""How many conditions may depend on each other one after the other for it to be counted."""
_OTHER: Final = object()
"""A value that no condition names."""

_Dead = frozenset[str]
"""The names of the parameters that do not exist if a parameter has a value."""
_Outcomes = Mapping[_Dead, int]
"""What the values of a parameter mean for others, and how many of its values mean that."""


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

    Once a parameter is decided, what depended on it may fall apart into independent parts, and
    mostly does.
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
    """Return a parameter's distinguishable outcomes; None if infinite or too many."""
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
    """Return representative values with their multiplicities; None if there are too many."""
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
