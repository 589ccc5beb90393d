"""Configurations of a search space: build one from values, parse it, and encode it as JSON.

In the JSON form, objects that occur in the search space are referred to by their position there, so
that they are restored as the same objects. Searchers store and compare configurations in this form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from .conditions import Branching, OnlyIf, holds_words, is_word, unwrapped
from .domains import Categorical, sample
from .parameters import Drawn, ParameterTable, are_met
from .recorded_forms import is_recorded_form
from .sample_from import SampleFrom
from .tree import DELIMITER, GRID_KEY, Path, copied, flat_name, is_grid, is_same_constant

if TYPE_CHECKING:
    # For annotations only, so that importing the functions of search spaces stays cheap.
    from numpy.random import Generator


def build_configuration(
    space: Mapping[str, Any],
    table: ParameterTable,
    assignments: Mapping[Path, Any],
    rng: Generator | None,
) -> Drawn:
    """Return a configuration with assigned values; other active parameters are drawn.

    Args:
        space: The space.
        table: The parameters of the space.
        assignments: Values by the steps to their parameters, the numbers of options included.
        rng: Random number generator.

    Raises:
        ValueError: If a grid axis has no value, or an inactive parameter has one.
    """
    values: dict[str, Any] = {}
    is_sampled = False
    for parameter in table.parameters:
        steps, is_active = table.steps[parameter.name], parameter.is_active(values)
        if steps in assignments:
            value = assignments[steps]
        elif parameter.is_grid:
            raise ValueError(
                f"grid axis {parameter.name!r} must be assigned, got no value; choose one of its "
                "values"
            )
        elif is_active or rng is not None:
            # An inactive parameter is drawn as well, so that the draws of the others do not depend
            # on which ones are active.
            value = sample(parameter.domain, rng)
            is_sampled |= is_active
        if is_active:
            values[parameter.name] = value
    builder = _Builder(table, values, assignments)
    config: dict[str, Any] = builder.built(dict(space), (), ())
    used = {table.steps[name] for name in values} | builder.computed
    if inactive := sorted(flat_name(steps) for steps in assignments if steps not in used):
        raise ValueError(
            f"{inactive[0]!r} must be left out, since it is not there beside {values!r}; its "
            "conditions do not hold"
        )
    return Drawn(config, builder.pending, is_sampled)


@final
class _Builder:
    """Copies a space with values instead of words.

    Attributes:
        pending: Values to be computed, by their paths in the configuration.
        computed: The steps to all active computed parameters, assigned ones included.
    """

    def __init__(
        self, table: ParameterTable, values: Mapping[str, Any], assignments: Mapping[Path, Any]
    ) -> None:
        self._table = table
        self._values = values
        self._assignments = assignments
        self.pending: dict[Path, SampleFrom] = {}
        self.computed: set[Path] = set()

    def built(self, node: Any, path: Path, steps: Path) -> Any:
        """Return a part of the configuration."""
        match node:
            case Branching():
                number = self._values[self._table.names[steps]]
                return self.built(node.options[number], path, (*steps, number))
            case SampleFrom():
                return self._dependent(node, path, steps)
            case _ if is_word(node):
                return self._values[self._table.names[steps]]
            case dict() | list() | tuple() if type(node) in (dict, list, tuple) or holds_words(
                node
            ):
                return self._container(node, path, steps)
            case _:
                return node

    def _dependent(self, node: SampleFrom, path: Path, steps: Path) -> Any:
        self.computed.add(steps)
        if steps in self._assignments:
            return self._assignments[steps]
        self.pending[path] = node
        return node

    def _container(self, node: Any, path: Path, steps: Path) -> Any:
        if isinstance(node, dict):
            active = {
                key: child for key, child in node.items() if self._is_active(child, (*steps, key))
            }
            return {
                key: self.built(unwrapped(child), (*path, key), (*steps, key))
                for key, child in active.items()
            }
        children = [
            self.built(child, (*path, index), (*steps, index)) for index, child in enumerate(node)
        ]
        if isinstance(node, list):
            return children
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)

    def _is_active(self, node: Any, steps: Path) -> bool:
        return type(node) is not OnlyIf or are_met(self._table.conditions[steps], self._values)


def known_constants(
    space: Mapping[str, Any], table: ParameterTable, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the constants of the space that are active with some parameter values.

    A list or tuple that contains a word is left out as a whole.
    """
    return _constants(space, (), table, values)


def _constants(
    node: Mapping[str, Any], steps: Path, table: ParameterTable, values: Mapping[str, Any]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, child in node.items():
        inside = (*steps, key)
        if isinstance(child, OnlyIf) and not are_met(table.conditions[inside], values):
            continue
        found = unwrapped(child)
        while (
            isinstance(found, Branching) and (number := values.get(table.names[inside])) is not None
        ):
            found, inside = found.options[number], (*inside, number)
        if not holds_words(found):
            kept[key] = copied(found)
        elif (
            isinstance(found, dict)
            and not is_word(found)
            and (inner := _constants(found, inside, table, values))
        ):
            kept[key] = inner
    return kept


def parse_configuration(
    space: Mapping[str, Any], table: ParameterTable, config: Mapping[str, Any]
) -> dict[Path, Any]:
    """Return the values of a configuration, which may be partial, by steps.

    The option of a choice is found by its entries. If several fit completely, the first is taken.

    Args:
        space: The space.
        table: The parameters of the space.
        config: A configuration, nested or with names such as ``"a/b"``.

    Raises:
        ValueError: If it has an unknown name, a value outside its domain, another value for a
            constant or an inactive parameter; or if an entry fits no option of a choice or, being
            incomplete, several.
    """
    parser = _Parser(table)
    parsed = parser.parse(dict(space), (), (), config, {})
    # Only now are all parameters known that conditions may depend on.
    for steps in parsed.guarded:
        parser.require_met(steps, parsed.known)
    return parsed.assignments


@final
@dataclass(slots=True)
class _Parsed:
    """The values found in a part of a configuration.

    Attributes:
        known: Values of parameters by name, those of other parts included.
        assignments: Values in this part, by steps.
        guarded: The steps to those entries that are under conditions.
        undecided: The choices whose option is not known yet, each with path, steps and entry.
        is_complete: Whether nothing is missing.
        is_exact: Whether all values have the types of the space.
    """

    known: dict[str, Any]
    assignments: dict[Path, Any] = field(default_factory=dict)
    guarded: list[Path] = field(default_factory=list)
    undecided: list[tuple[Branching, Path, Path, Any]] = field(default_factory=list)
    is_complete: bool = True
    is_exact: bool = True

    def merge(self, other: _Parsed) -> None:
        """Merge the values of a decided choice."""
        self.known = other.known
        self.assignments |= other.assignments
        self.guarded += other.guarded
        self.is_complete &= other.is_complete
        self.is_exact &= other.is_exact


@final
class _Parser:
    def __init__(self, table: ParameterTable) -> None:
        self._table = table

    def parse(
        self, node: Any, path: Path, steps: Path, given: Any, known: Mapping[str, Any]
    ) -> _Parsed:
        """Return the values of a part of a configuration.

        Raises:
            ValueError: If it does not fit.
        """
        fit = _Parsed(dict(known))
        self._collect(node, path, steps, given, fit)
        # After all other entries, since conditions inside the options may refer to them.
        while fit.undecided:
            self._decide(*fit.undecided.pop(0), fit)
        return fit

    def require_met(self, steps: Path, known: Mapping[str, Any]) -> None:
        """Check that a given entry is active."""
        for condition in self._table.conditions[steps]:
            if condition.name not in known:
                raise ValueError(
                    f"{flat_name(steps)!r} must come with {condition.name!r}, which decides "
                    "whether it is there; add that"
                )
            if not condition.holds(known[condition.name]):
                raise ValueError(
                    f"{flat_name(steps)!r} must be left out where {condition.name!r} is "
                    f"{known[condition.name]!r}; "
                    f"it is there only if {condition}"
                )

    def _collect(self, node: Any, path: Path, steps: Path, given: Any, fit: _Parsed) -> None:
        # Here and below, of a final class comparing types is much faster than isinstance.
        if type(node) is Branching:
            fit.undecided.append((node, path, steps, given))
        elif is_word(node):
            self._put(steps, given, fit)
        elif (
            isinstance(node, dict | list | tuple)
            and (children := _given_children(node, path, given)) is not None
        ):
            self._collect_children(node, path, steps, children, fit)
        elif is_same_constant(node, given) or is_recorded_form(node, given):
            fit.is_exact &= node is given or type(node) is type(given)
        else:
            raise ValueError(
                f"{flat_name(path)!r} must be {node!r} as in the space, got {given!r}; change the "
                "space to change a constant"
            )

    def _put(self, steps: Path, given: Any, fit: _Parsed) -> None:
        if steps in self._table.dependents:
            fit.assignments[steps] = given
            return
        name = self._table.names[steps]
        fit.known[name] = fit.assignments[steps] = value = self._table.by_name[name].checked(given)
        fit.is_exact &= type(value) is type(given)

    def _collect_children(
        self, node: Any, path: Path, steps: Path, children: Mapping[Any, Any], fit: _Parsed
    ) -> None:
        entries = list(node.items() if isinstance(node, dict) else enumerate(node))
        # Entries under conditions last: these mostly refer to the entries beside them.
        entries.sort(key=lambda entry: type(entry[1]) is OnlyIf)
        for key, child in entries:
            inside = (*steps, key)
            is_active = self._is_known_active(inside, fit.known) if type(child) is OnlyIf else True
            if key not in children:
                fit.is_complete &= is_active is not True
                continue
            if type(child) is OnlyIf:
                fit.guarded.append(inside)
            if is_active is False:
                self.require_met(inside, fit.known)
            self._collect(unwrapped(child), (*path, key), inside, children[key], fit)

    def _is_known_active(self, steps: Path, known: Mapping[str, Any]) -> bool | None:
        """Return whether an entry is active; None if its conditions are not all known yet."""
        conditions = self._table.conditions[steps]
        held = [
            condition.holds(known[condition.name])
            for condition in conditions
            if condition.name in known
        ]
        return False if not all(held) else True if len(held) == len(conditions) else None

    def _decide(self, choice: Branching, path: Path, steps: Path, given: Any, fit: _Parsed) -> None:
        name, fits, refusals = self._table.names[steps], dict[int, _Parsed](), list[str]()
        for number, option in enumerate(choice.options):
            try:
                fits[number] = self.parse(
                    option, path, (*steps, number), given, {**fit.known, name: number}
                )
            except ValueError as refusal:
                refusals.append(f"option {number}: {refusal}")
        if not fits:
            raise ValueError(
                f"{flat_name(path)!r} must fit an option of its choice, got {given!r}; "
                f"{'; '.join(refusals)}"
            )
        whole = [number for number, found in fits.items() if found.is_complete]
        exact = [number for number in whole if fits[number].is_exact]
        # Exact types first: 1 and True, or 1 and 1.0, may be different options.
        number = next(iter(exact or whole or fits))
        if not whole and len(fits) > 1:
            raise ValueError(
                f"{flat_name(path)!r} must fit one option of its choice, got {given!r}, which "
                f"could be one of {list(fits)}; add what tells them apart"
            )
        fit.merge(fits[number])
        fit.assignments[steps] = number


def _given_children(node: Any, path: Path, given: Any) -> dict[Any, Any] | None:
    """Return what is given for a container's entries; None if it is no container."""
    if isinstance(given, Mapping):
        return _gathered(node if isinstance(node, dict) else dict(enumerate(node)), path, given)
    is_sequence = (
        isinstance(node, list | tuple)
        and isinstance(given, list | tuple)
        and len(given) == len(node)
    )
    return dict(enumerate(given)) if is_sequence else None


def _gathered(node: Mapping[Any, Any], path: Path, given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what is given for each entry, with names such as ``"a/b"`` nested."""
    found: dict[Any, Any] = {}
    for key, value in _split(node, given):
        if key not in node:
            raise ValueError(
                f"{flat_name((*path, key))!r} must be a name in the space, which has "
                f"{list(node)!r} there; correct the name or leave it out"
            )
        both = isinstance(found.get(key), Mapping) and isinstance(value, Mapping)
        found[key] = {**found[key], **value} if both else value
    return found


def _split(node: Mapping[Any, Any], given: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, value in given.items():
        if not isinstance(key, str) or key in node:
            yield key, value
            continue
        head, *rest = key.split(DELIMITER, maxsplit=1)
        is_index = head not in node and head.isdigit() and int(head) in node
        yield int(head) if is_index else head, {rest[0]: value} if rest else value


_PLAIN = (bool, int, float, str, type(None))
_CATEGORY, _CONSTANT, _DICT, _LIST, _TUPLE, _OBJECT = (
    "category",
    "constant",
    "dict",
    "list",
    "tuple",
    "object",
)

Naming = Callable[[Any], Any]
"""Returns a JSON value for an object that is neither a JSON value nor in the space."""


def record(space: Any, config: Any, name: Naming | None = None) -> Any:
    """Return a configuration as JSON values.

    Args:
        space: The space, or the part of it that the configuration belongs to.
        config: The configuration.
        name: Returns a JSON value for an object that is neither a JSON value nor in the space; None
            writes its type, from which it cannot be restored.

    Example:
        >>> space = {"size": Categorical(((8, 8), (16, 16))), "loss": abs, "lr": 0.1}
        >>> record(space, {"size": (16, 16), "loss": abs, "lr": 0.1})
        {'dict': {'size': {'category': 1}, 'loss': {'constant': True}, 'lr': 0.1}}
    """
    if type(config) in _PLAIN:
        return config
    categories = _categories(space)
    if categories is not None and categories.contains(config):
        return {_CATEGORY: categories.index(config)}
    if type(config) is dict and all(type(key) is str for key in config):
        return {
            _DICT: {key: record(_child(space, key), value, name) for key, value in config.items()}
        }
    if type(config) is list or (isinstance(config, tuple) and type(config) in (tuple, type(space))):
        kind = _TUPLE if isinstance(config, tuple) else _LIST
        return {
            kind: [record(_child(space, place), value, name) for place, value in enumerate(config)]
        }
    if config is space:
        return {_CONSTANT: True}
    return {_OBJECT: _described(config) if name is None else name(config)}


def decode_configuration(space: Any, recorded: Any) -> Any:
    """Return the configuration that was recorded, its containers new.

    Raises:
        ValueError: If it contains an object that is not in the space.

    Example:
        >>> space = {"size": Categorical(((8, 8), (16, 16))), "loss": abs, "lr": 0.1}
        >>> decode_configuration(
        ...     space, {"dict": {"size": {"category": 1}, "loss": {"constant": True}, "lr": 0.1}}
        ... )
        {'size': (16, 16), 'loss': <built-in function abs>, 'lr': 0.1}
    """
    match recorded:
        case {"category": int(index)}:
            categories = _categories(space)
            if categories is not None and index < len(categories.categories):
                return categories.categories[index]
        case {"dict": dict(items)}:
            return {
                key: decode_configuration(_child(space, key), item) for key, item in items.items()
            }
        case {"list": list(items)}:
            return [
                decode_configuration(_child(space, place), item) for place, item in enumerate(items)
            ]
        case {"tuple": list(items)}:
            values = [
                decode_configuration(_child(space, place), item) for place, item in enumerate(items)
            ]
            return type(space)(*values) if hasattr(space, "_fields") else tuple(values)
        case {"constant": _} if not is_word(space):
            return space
        case dict():
            pass
        case _:
            return recorded
    raise ValueError(
        f"a recorded configuration must be found in the space, got {recorded!r:.80}; the space has "
        "changed since"
    )


def key_of(space: Any, config: Any, name: Naming) -> str:
    """Return a text that is equal for equal configurations only.

    Floats are exact, 1 and 1.0 and True differ, and the order of entries does not matter.

    Args:
        space: The space.
        config: The configuration.
        name: See `record`; has to return the same for objects that count as equal.
    """
    return json.dumps(record(space, config, name), sort_keys=True, separators=(",", ":"))


def _categories(node: Any) -> Categorical | None:
    if isinstance(node, Categorical):
        return node
    return Categorical(tuple(node[GRID_KEY])) if is_grid(node) and node[GRID_KEY] else None


def _child(node: Any, step: str | int) -> Any:
    if isinstance(node, Mapping) and not is_grid(node):
        return node.get(step)
    if isinstance(node, list | tuple) and isinstance(step, int) and step < len(node):
        return node[step]
    return None


def _described(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
