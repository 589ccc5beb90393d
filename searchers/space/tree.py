"""Search spaces and configurations as trees of dictionaries and lists; paths to their leaves.

A leaf is any other object, such as a domain or a constant; ``{"grid_search": [...]}`` is one too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
"""Position of a leaf: keys of dictionaries and indices of lists, from the root."""

GRID_KEY = "grid_search"
DELIMITER = "/"


class Conditional(ABC):
    """A leaf that contains a sub-space, of which a configuration has a part or nothing."""

    __slots__ = ()

    @abstractmethod
    def inner(self) -> Iterator[tuple[Path, Any]]:
        """Yield the parts inside, each with the steps to it."""


def is_grid(node: Any) -> bool:
    """Return whether the node is a grid axis, ``{"grid_search": [...]}``."""
    return isinstance(node, dict) and len(node) == 1 and GRID_KEY in node


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each leaf with its path, in the order of the space.

    Example:
        >>> list(leaves({"lr": 0.1, "layers": [{"units": 8}, 2]}))
        [(('lr',), 0.1), (('layers', 0, 'units'), 8), (('layers', 1), 2)]
    """
    if isinstance(node, dict) and not is_grid(node):
        for key, child in node.items():
            yield from leaves(child, (*path, key))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from leaves(child, (*path, index))
    else:
        yield path, node


def every_leaf(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield all leaves with their steps, including those inside conditional leaves."""
    for found, leaf in leaves(node, path):
        if isinstance(leaf, Conditional):
            for steps, inside in leaf.inner():
                yield from every_leaf(inside, (*found, *steps))
        else:
            yield found, leaf


def flat_name(path: Path) -> str:
    """Return the path as one name.

    Example:
        >>> flat_name(("model", "layers", 0))
        'model/layers/0'
    """
    return DELIMITER.join(map(str, path))


def check_unique_names(paths: Iterable[Path]) -> None:
    """Check that different paths have different flattened names.

    Raises:
        ValueError: If two have the same name.
    """
    known: dict[str, Path] = {}
    for path in paths:
        other = known.setdefault(flat_name(path), path)
        if other != path:
            raise ValueError(
                f"parameter names must be unique, got {flat_name(path)!r} both as {other!r} and as "
                f"{path!r}; rename one"
            )


def assign(node: Any, values: Mapping[Path, Any]) -> Any:
    """Return the tree with values at some paths replaced.

    Containers along these paths are new; all other objects are those of `node`.

    Example:
        >>> assign({"lr": None, "layers": (None, 2)}, {("lr",): 0.1, ("layers", 0): 8})
        {'lr': 0.1, 'layers': (8, 2)}
    """
    if () in values:
        return values[()]
    below: dict[str | int, dict[Path, Any]] = {}
    for (head, *rest), value in values.items():
        below.setdefault(head, {})[tuple(rest)] = value
    if isinstance(node, dict):
        return {**node, **{key: assign(node.get(key, {}), inner) for key, inner in below.items()}}
    children = [
        assign(child, below[index]) if index in below else child for index, child in enumerate(node)
    ]
    if isinstance(node, list):
        return children
    return type(node)(*children) if hasattr(node, "_fields") else tuple(children)


def copied(node: Any) -> Any:
    """Return the tree with new containers and the same leaves.

    Only plain dictionaries, lists and tuples are copied: an instance of a derived class is an
    object of the user's.

    Example:
        >>> space = {"model": {"layers": [8]}}
        >>> copied(space) == space, copied(space)["model"]["layers"] is space["model"]["layers"]
        (True, False)
    """
    if type(node) is dict:
        return {key: copied(child) for key, child in node.items()}
    if type(node) is list:
        return [copied(child) for child in node]
    if type(node) is tuple:
        return tuple(copied(child) for child in node)
    return node


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `base` updated recursively with `override`.

    Example:
        >>> merge({"lr": 0.1, "model": {"depth": 2, "width": 8}}, {"model": {"depth": 3}})
        {'lr': 0.1, 'model': {'depth': 3, 'width': 8}}
    """
    merged = {key: value if key in override else copied(value) for key, value in base.items()}
    for key, value in override.items():
        old = merged.get(key)
        if (
            isinstance(old, dict)
            and isinstance(value, dict)
            and not is_grid(old)
            and not is_grid(value)
        ):
            value = merge(old, value)  # noqa: PLW2901
        merged[key] = value
    return merged


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries with names such as ``"a/b"`` as nested dictionaries.

    Example:
        >>> nest({"model/depth": 3, "lr": 0.1})
        {'model': {'depth': 3}, 'lr': 0.1}
    """
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(DELIMITER)
        branch = nested
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[last] = value
    return nested


def match(
    node: Any, given: Any, is_searched: Callable[[Any], bool], path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Yield a configuration's values for the searched leaves of a space, with paths.

    Args:
        node: The space.
        given: A configuration, which may leave entries out.
        is_searched: Returns whether a leaf of the space is searched, and not a constant.
        path: Path of `node` in the space.

    Raises:
        ValueError: If the configuration has an unknown entry, or another value for a constant.
    """
    if is_searched(node):
        yield path, given
    elif isinstance(node, dict) and isinstance(given, Mapping):
        for key, value in given.items():
            yield from _match_entry(node, key, value, is_searched, path)
    elif isinstance(node, list | tuple) and isinstance(given, Mapping):
        for key, value in given.items():
            yield from _match_entry(dict(enumerate(node)), key, value, is_searched, path)
    elif (
        isinstance(node, list | tuple)
        and isinstance(given, list | tuple)
        and len(node) == len(given)
    ):
        for index, (child, value) in enumerate(zip(node, given, strict=True)):
            yield from match(child, value, is_searched, (*path, index))
    elif not is_same_constant(node, given):
        from .recorded_forms import is_recorded_form  # noqa: PLC0415  (values out of files only)

        if not is_recorded_form(node, given):
            raise ValueError(
                f"{flat_name(path)!r} must be {node!r} as in the space, got {given!r}; change the "
                "space to change a constant"
            )


def _match_entry(
    node: Mapping[Any, Any], key: Any, value: Any, is_searched: Callable[[Any], bool], path: Path
) -> Iterator[tuple[Path, Any]]:
    if isinstance(key, str) and key not in node:
        # A flattened name, of which digits may be the index of a list.
        key, *rest = key.split(DELIMITER, maxsplit=1)
        value = {rest[0]: value} if rest else value
        key = int(key) if key.isdigit() and int(key) in node else key
    if key not in node:
        raise ValueError(
            f"{flat_name((*path, key))!r} must be a name in the space, which has {list(node)!r} "
            "there; correct the name or leave it out"
        )
    yield from match(node[key], value, is_searched, (*path, key))


def has_keys_of(config: Any, whole: Any) -> bool:
    """Return whether a configuration has all the keys of another one.

    Example:
        >>> has_keys_of({"a": {"b": 1}, "c": 2}, {"a": {"b": 0}}), has_keys_of({"a": {}}, {"c": 0})
        (True, False)
    """
    if not isinstance(whole, dict):
        return True
    return isinstance(config, Mapping) and all(
        key in config and has_keys_of(config[key], child) for key, child in whole.items()
    )


def is_same_constant(constant: Any, given: Any) -> bool:
    """Return whether a given value is the constant, or equals it."""
    try:
        return constant is given or bool(constant == given)
    except ValueError:  # arrays, which compare element by element
        return False


def has_values(values: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> bool:
    """Return whether a configuration has all the values of a point."""
    return all(
        name in values and is_same_value(value, values[name]) for name, value in wanted.items()
    )


def is_same_value(value: Any, other: Any) -> bool:
    """Return whether two values are equal, or both NaN; true and 1 differ, as options may.

    Example:
        >>> is_same_value(1, 1.0), is_same_value(1, True)
        (True, False)
    """
    if _is_boolean(value) != _is_boolean(other):
        return False
    are_nan = all(isinstance(each, float) and math.isnan(each) for each in (value, other))
    return is_same_constant(value, other) or are_nan


def _is_boolean(value: Any) -> bool:
    return type(value).__name__ in {"bool", "bool_"}  # those of NumPy as well
