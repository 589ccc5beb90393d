"""Checks of the hyperparameters that a scheduler mutates against the search space."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from schedulers.scheduler import Scheduler
from searchers.space import Path, SearchSpace, flat_name, leaves
from searchers.space.conditions import unwrapped
from searchers.space.tree import DELIMITER, is_grid, nest

_MIN_LENGTH = 3
"""Names shorter than this differ too often by one letter on purpose, like ``x`` and ``y``."""


def check_mutated_names(scheduler: Scheduler, space: Mapping[str, Any]) -> None:
    """Check that what is mutated has the names of the search space.

    What the space lacks is added to it, as in Ray Tune, with a warning where a hyperparameter of
    the space has nearly the same name.

    Args:
        scheduler: The scheduler.
        space: The search space, as it was declared.

    Raises:
        ValueError: If a flattened name is used for a hyperparameter that is nested in the space.
    """
    for argument, mutated in _mutated(scheduler):
        for key in mutated:
            if isinstance(key, str) and DELIMITER in key and key not in space:
                _check_nested(argument, key, space)
        _warn_of_typing_errors(argument, mutated, space, ())


def _check_nested(argument: str, name: str, space: Mapping[str, Any]) -> None:
    node: Any = space
    for step in name.split(DELIMITER):
        node = unwrapped(node)
        if not isinstance(node, Mapping) or is_grid(node) or step not in node:
            return
        node = node[step]
    raise ValueError(
        f"{argument} must be nested as param_space is, got {name!r}; write "
        f"{str(nest({name: ...})).replace('Ellipsis', '...')}"
    )


def _warn_of_typing_errors(
    argument: str, mutated: Mapping[Any, Any], space: Mapping[Any, Any], path: Path
) -> None:
    free = [key for key in space if key not in mutated]
    for key, inner in mutated.items():
        if key in space:
            there = unwrapped(space[key])
            if isinstance(inner, Mapping) and isinstance(there, Mapping) and not is_grid(there):
                _warn_of_typing_errors(argument, inner, there, (*path, key))
            continue
        if meant := next((name for name in free if _is_misspelt(str(key), str(name))), None):
            name, other = flat_name((*path, key)), flat_name((*path, meant))
            warnings.warn(
                f"{argument} mutates {name!r}, which param_space does not have, and not {other!r}, "
                f"which it has; {name!r} is added to the space and sampled. If {other!r} is meant, "
                "correct the name",
                RuntimeWarning,
                stacklevel=2,
            )


def _is_misspelt(given: str, known: str) -> bool:
    """Return whether two names differ by one typing error.

    Example:
        >>> [_is_misspelt(name, "momentum") for name in ("momentun", "Momentum", "weight")]
        [True, True, False]
    """
    one, other = given.casefold(), known.casefold()
    if one == other:
        return True
    start = next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1),
        min(len(one), len(other)),
    )
    one, other = one[start:], other[start:]
    if one[1:] == other or one == other[1:]:  # a letter too many or too few
        return min(len(given), len(known)) >= _MIN_LENGTH - 1 and not (one + other)[:1].isdigit()
    if one[1:] == other[1:]:  # another letter
        return len(given) >= _MIN_LENGTH and not (one[:1] + other[:1]).isdigit()
    return one[:2] == other[1::-1] and one[2:] == other[2:]  # two letters exchanged


def check_mutations(scheduler: Scheduler, space: Mapping[str, Any]) -> None:
    """Check that no mutated parameter is conditional or has others conditional on it.

    A mutation would leave a configuration with parameters that do not belong together.

    Args:
        scheduler: The scheduler.
        space: The search space, as the scheduler completes it.

    Raises:
        ValueError: If one is.
    """
    parsed = SearchSpace(space)
    if not parsed.is_conditional:
        return
    parents = {
        condition.name for parameter in parsed.parameters for condition in parameter.conditions
    }
    fixed = [
        parameter.path
        for parameter in parsed.parameters
        if parameter.conditions or parameter.name in parents
    ]
    for path in _mutated_paths(scheduler):
        if any(path[: len(other)] == other[: len(path)] for other in fixed):
            raise ValueError(
                f"{type(scheduler).__name__} must not mutate parameters that are conditional "
                f"in param_space or that conditions depend on, got {flat_name(path)!r}; mutate "
                "parameters that every configuration has, and let the members differ in the others"
            )


def _mutated_paths(scheduler: Scheduler) -> Iterator[Path]:
    for _, mutated in _mutated(scheduler):
        yield from (path for path, _ in leaves(mutated))


def _mutated(scheduler: Scheduler) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield the arguments that name mutated hyperparameters, each with a tree of the names."""
    given = getattr(scheduler, "base_scheduler", scheduler).declared_arguments
    for argument in ("hyperparam_mutations", "hyperparam_bounds"):
        if isinstance(given.get(argument), Mapping):
            yield argument, _names(given[argument])


def _names(mutations: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        key: _names(value) if isinstance(value, Mapping) else None
        for key, value in mutations.items()
    }
