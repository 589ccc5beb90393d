"""Codec of configurations: JSON values, arrays by their content, objects by their place.

Values of JSON are written unchanged. Tuples and dictionaries with keys that are no strings are
marked, so that they are read as such. NumPy arrays go into the array store. Anything else
(functions, classes, objects) is **never** stored, since that would mean a pickle. It is written as
a reference: its place in the search space, and a description for people. To restore, the search
space is given again, and the reference is looked up in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from searchers.plain_values import describe
from searchers.space import Categorical, SearchSpace
from searchers.space.conditions import Branching, unwrapped
from searchers.space.tree import GRID_KEY, Conditional, Path, is_grid, leaves
from tuner.core.result import SCALARS
from tuner.errors import StorageError

from .array_store import ArrayStore, is_storable
from .strict_json import Opaque, as_items, as_tuple, opaque

_log = logging.getLogger("tuner")
_NOWHERE: Final = object()
"""What is found at a place that the search space does not have."""


@final
class ConfigCodec:
    """Encodes and decodes the configurations of one search space.

    Args:
        space: The search space; when reading, the one that is given today.
        objects: Where arrays are stored.
    """

    def __init__(self, space: Mapping[str, Any], objects: ArrayStore) -> None:
        self._space = space
        self._conditional = _conditional(space)
        self._options: Mapping[Path, Any] = {}
        self._objects = objects
        # By place in the space: a `repr` may be slow, and a million trials may share the object.
        self._descriptions: dict[Path, str] = {}
        self._warned: set[tuple[str | int, ...]] = set()

    def encode(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration as `strict_json.dumps` writes it; stores new arrays.

        Raises:
            OSError: If an array cannot be stored.
        """
        if SCALARS.issuperset(map(type, config.values())):
            return dict(config)
        self._options = {} if self._conditional is None else self._conditional.recognised(config)
        return {
            key: self._encoded(value, _step(self._space, key), (key,))
            for key, value in config.items()
        }

    def decode(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration that was stored, with its objects.

        An object that cannot be found stays an `Opaque`, see `missing`.

        Raises:
            StorageError: If a stored array is not there or damaged.
        """
        return {key: self._decoded(value) for key, value in stored.items()}

    def _encoded(self, value: Any, node: Any, path: Path) -> Any:
        """Return what is written for a part of a configuration.

        Args:
            value: The part.
            node: The node of the search space at that place.
            path: The place.
        """
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if (choices := _choices(node)) is not None:
            number = (
                self._options.get(path)
                if isinstance(node, Branching)
                else _number_of(value, choices)
            )
            return self._encoded(
                value,
                _NOWHERE if number is None else choices[number],
                path if number is None else (*path, number),
            )
        if kind is dict:
            return self._encoded_dict(value, node, path)
        if kind in (list, tuple):
            parts = [
                self._encoded(part, _step(node, index), (*path, index))
                for index, part in enumerate(value)
            ]
            return as_tuple(parts) if kind is tuple else parts
        if is_storable(value):
            return opaque(Opaque(describe(value), content=self._objects.put(value)))
        return (
            opaque(Opaque(self._description(node, path), path))
            if node is value or _is_same(node, value)
            else opaque(value)
        )

    def _encoded_dict(self, value: dict[Any, Any], node: Any, path: Path) -> Any:
        if not all(map(_is_key, value)):
            return opaque(Opaque(describe(value), path if node is value else ()))
        parts = {
            key: self._encoded(part, _step(node, key), (*path, key)) for key, part in value.items()
        }
        return parts if all(type(key) is str for key in parts) else as_items(parts)

    def _description(self, node: Any, path: Path) -> str:
        if path not in self._descriptions:
            self._descriptions[path] = describe(node)
        return self._descriptions[path]

    def _decoded(self, stored: Any) -> Any:
        match stored:
            case Opaque(_, _, content) if content:
                return self._objects.get(content)
            case Opaque():
                return self._found(stored)
            case dict():
                return {key: self._decoded(part) for key, part in stored.items()}
            case list():
                return [self._decoded(part) for part in stored]
            case tuple():
                return tuple(self._decoded(part) for part in stored)
            case _:
                return stored

    def _found(self, wanted: Opaque) -> Any:
        """Return the object that is wanted, or `wanted` itself where the space lacks it."""
        there = _at(self._space, wanted.source) if wanted.source else _NOWHERE
        if there is not _NOWHERE and self._description(there, wanted.source) == wanted.text:
            return there
        # The categories may have been reordered: then exactly one of them fits the description.
        elsewhere = {
            id(found): found
            for found in _siblings(self._space, wanted.source)
            if describe(found) == wanted.text
        }
        if len(elsewhere) == 1:
            return next(iter(elsewhere.values()))
        if there is _NOWHERE or _is_in_choice(self._space, wanted.source):
            return wanted
        # A constant that the user has replaced on purpose.
        if wanted.source not in self._warned:
            self._warned.add(wanted.source)
            _log.warning(
                "%s was %s and is %s now",
                place_of(wanted.source),
                wanted.text,
                self._description(there, wanted.source),
            )
        return there


def missing(config: Any) -> list[str]:
    """Return the places of the objects that a configuration still lacks after it was read.

    Example:
        >>> missing({"model": {"loss": Opaque("<function mse>", ("model", "loss"))}})
        ['param_space["model"]["loss"] (<function mse>)']
    """
    return [
        f"{place_of(lacking.source or path)} ({lacking.text})"
        for path, lacking in _opaques(config, ())
    ]


def require_complete(config: Any, trial_id: str) -> None:
    """Check that a configuration which was read back has all its objects.

    Raises:
        StorageError: If it lacks some; lists the place of each in the search space.
    """
    if places := missing(config):
        raise StorageError(
            f"the configuration of trial {trial_id} held objects that are never stored and are not "
            "in the search space now: "
            f"{', '.join(places)}; give the param_space again that the experiment was run with"
        )


def place_of(path: Sequence[Any]) -> str:
    """Return a place in a search space as one would write it.

    Example:
        >>> place_of(("model", "layers", 0))
        'param_space["model"]["layers"][0]'
    """
    return "param_space" + "".join(
        f"[{json.dumps(step) if isinstance(step, str) else repr(step)}]" for step in path
    )


def _opaques(node: Any, path: Path) -> Iterator[tuple[Path, Opaque]]:
    match node:
        case Opaque():
            yield path, node
        case dict():
            for key, part in node.items():
                yield from _opaques(part, (*path, key))
        case list() | tuple():
            for index, part in enumerate(node):
                yield from _opaques(part, (*path, index))


def _choices(node: Any) -> Sequence[Any] | None:
    """Return what may be chosen from, None where the node of the space is no choice."""
    if isinstance(node, Categorical | Branching):
        return node.categories if isinstance(node, Categorical) else node.options
    return list(node[GRID_KEY]) if is_grid(node) else None


def _step(node: Any, step: Any) -> Any:
    """Return the node one step below a node of the space."""
    choices = _choices(node)
    node = node if choices is None else choices
    # Only exact types: indexing an object of the user's class may do anything.
    if type(node) not in (dict, list, tuple):
        return _NOWHERE
    try:
        return unwrapped(node[step])
    except (KeyError, IndexError, TypeError):
        return _NOWHERE


def _number_of(value: Any, choices: Sequence[Any]) -> int | None:
    """Return which of the choices a value is; the same object comes before an equal one."""
    for is_match in (_is, _is_same):
        for number, choice in enumerate(choices):
            if is_match(choice, value):
                return number
    return None


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_same(node: Any, value: Any) -> bool:
    """Return whether the space's object is the configuration's, or what a copy of it would be."""
    return node is value or (type(node) is type(value) and describe(node) == describe(value))


def _at(node: Any, path: Sequence[Any]) -> Any:
    for step in path:
        node = _step(node, step)
    return node


def _is_in_choice(space: Mapping[str, Any], source: Sequence[Any]) -> bool:
    return any(_choices(_at(space, source[:depth])) is not None for depth in range(len(source)))


def _siblings(space: Mapping[str, Any], source: Sequence[Any]) -> Iterator[Any]:
    """Yield what stands at the same place in other categories."""
    for depth in range(len(source)):
        choices = _choices(_at(space, source[:depth])) or ()
        for number in range(len(choices)):
            found = _at(space, (*source[:depth], number, *source[depth + 1 :]))
            if found is not _NOWHERE:
                yield found


def check_keys(space: Mapping[str, Any]) -> None:
    """Check that every key in a search space can be written down.

    Raises:
        TypeError: If one is no text, number, truth value or None; names its place.
    """
    for path, key in _keys(space, ()):
        if not _is_key(key):
            raise TypeError(
                f"{place_of(path)} has the key {key!r}, which must be a text or a number; use its "
                f"text, {str(key)!r}"
            )


def _conditional(space: Mapping[str, Any]) -> SearchSpace | None:
    """Return the space taken apart where it is conditional, None where it is flat."""
    return (
        SearchSpace(space)
        if any(isinstance(leaf, Conditional) for _, leaf in leaves(space))
        else None
    )


def _is_key(key: Any) -> bool:
    return key is None or isinstance(key, str | int | float)


def _keys(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(node, Conditional):
        for steps, part in node.inner():
            yield from _keys(part, (*path, *steps))
    elif type(node) is dict:
        for key, part in node.items():
            yield path, key
            yield from _keys(part, (*path, key))
    elif isinstance(node, list | tuple):
        for index, part in enumerate(node):
            yield from _keys(part, (*path, index))
