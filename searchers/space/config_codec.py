"""Configurations as JSON values: what stands in the search space itself is named by its place there, so that objects come back as they are.

A searcher that has to remember configurations keeps them in this form, and finds by it whether two are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .conditions import is_word
from .domains import Categorical
from .tree import GRID_KEY, is_grid

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
"""Returns a JSON value that stands for an object which neither JSON nor the space knows."""


def record(space: Any, config: Any, name: Naming | None = None) -> Any:
    """Return a configuration as JSON values.

    Args:
        space: The space, or the part of it that the configuration belongs to.
        config: The configuration.
        name: Called for an object that neither JSON nor the space knows; None describes it, so that it cannot be brought back.

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


def recalled(space: Any, recorded: Any) -> Any:
    """Return the configuration that was recorded, its containers new.

    Raises:
        ValueError: If it holds an object that is found nowhere in the space.

    Example:
        >>> space = {"size": Categorical(((8, 8), (16, 16))), "loss": abs, "lr": 0.1}
        >>> recalled(space, {"dict": {"size": {"category": 1}, "loss": {"constant": True}, "lr": 0.1}})
        {'size': (16, 16), 'loss': <built-in function abs>, 'lr': 0.1}
    """
    match recorded:
        case {"category": int(index)}:
            categories = _categories(space)
            if categories is not None and index < len(categories.categories):
                return categories.categories[index]
        case {"dict": dict(items)}:
            return {key: recalled(_child(space, key), item) for key, item in items.items()}
        case {"list": list(items)}:
            return [recalled(_child(space, place), item) for place, item in enumerate(items)]
        case {"tuple": list(items)}:
            values = [recalled(_child(space, place), item) for place, item in enumerate(items)]
            return type(space)(*values) if hasattr(space, "_fields") else tuple(values)
        case {"constant": _} if not is_word(space):
            return space
        case dict():
            pass
        case _:
            return recorded
    raise ValueError(
        f"a recorded configuration must be found in the space, got {recorded!r:.80}; the space has changed since"
    )


def key_of(space: Any, config: Any, name: Naming) -> str:
    """Return a text that is the same for equal configurations alone: floats exact, 1 and 1.0 and True apart, entries in any order.

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
