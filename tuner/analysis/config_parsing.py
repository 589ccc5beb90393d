"""Configurations that were written down as JSON, brought back into the form that a search space gives them.

JSON knows no tuples, and what `sample_from` has computed is to be computed anew; everything else is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from searchers.space import Categorical, Domain, SearchSpace
from searchers.space.conditions import Branching, holds_words, unwrapped
from searchers.space.sample_from import SampleFrom
from searchers.space.tree import GRID_KEY, is_grid

_ABSENT: Final = object()
"""Stands for what is left out."""


def fitted_to_conditions(
    config: Mapping[str, Any], space: SearchSpace, *, is_whole: bool
) -> dict[str, Any]:
    """Return what a configuration says about the searched entries of a conditional space, nested.

    Args:
        config: The configuration, as it was written down.
        space: The space.
        is_whole: Whether every parameter that exists beside the others has to have a value.

    Raises:
        ValueError: If it has a value that lies outside the space, or lacks one.
    """
    point = {
        key: recast
        for key, value in config.items()
        if key in space.space
        and holds_words(space.space[key])
        and (recast := _recast(space.space[key], value)) is not _ABSENT
    }
    values = space.values_of(point)
    lacking = [parameter.name for parameter in space.active(values) if parameter.name not in values]
    if is_whole and lacking:
        raise ValueError(f"{lacking[0]!r} must be there, got nothing")
    return point


def same_category(domain: Categorical, value: Any) -> Any:
    """Return the category that would be written down like this value, or the value."""
    return next(
        (category for category in domain.categories if _as_written(category) == value), value
    )


def _recast(node: Any, value: Any) -> Any:
    """Return a value as it stood in the configuration, given what stands in its place in the space."""
    node = unwrapped(node)
    match node:
        case SampleFrom():
            return _ABSENT
        case Branching():
            candidates = (_recast(option, value) for option in node.options)
            return next(
                (
                    one
                    for option, one in zip(node.options, candidates, strict=True)
                    if _fits(option, one)
                ),
                value,
            )
        case Categorical():
            return same_category(node, value)
        case dict() if is_grid(node):
            return same_category(Categorical(tuple(node[GRID_KEY])), value)
        case _:
            return _recast_inside(node, value)


def _recast_inside(node: Any, value: Any) -> Any:
    if isinstance(node, dict) and isinstance(value, dict):
        parts = {key: _recast(node.get(key), part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not _ABSENT}
    if isinstance(node, list | tuple) and isinstance(value, list) and len(value) == len(node):
        return type(node)(_recast(part, one) for part, one in zip(node, value, strict=True))
    return value


def _fits(node: Any, value: Any) -> bool:
    """Return whether a value could have come from this part of a space, as far as can be told without what it depends on."""
    node = unwrapped(node)
    match node:
        case Branching():
            return any(_fits(option, value) for option in node.options)
        case Domain():
            return bool(node.contains(value))
        case dict() if not is_grid(node):
            return isinstance(value, dict) and all(
                key in node and _fits(node[key], part) for key, part in value.items()
            )
        case list() | tuple():
            is_alike = type(value) is type(node) and len(value) == len(node)
            return is_alike and all(_fits(part, one) for part, one in zip(node, value, strict=True))
        case _:
            return bool(_as_written(node) == value)


def _as_written(value: Any) -> Any:
    match value:
        case tuple() | list():
            return [_as_written(item) for item in value]
        case dict():
            return {key: _as_written(item) for key, item in value.items()}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            return object()  # equals nothing that is written
