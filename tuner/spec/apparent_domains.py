"""Warnings about constants of a search space that look as if they were to be searched."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, Final

from searchers.space import every_leaf, flat_name
from searchers.space.conditions import holds_words

_PLAIN: Final = (str, int, float, bool)
_OF_CONFIG: Final = frozenset({"config", "cfg", "conf", "c", "spec", "_"})
"""Names of the parameter of a function for `sample_from`."""


def warn_of_apparent_domains(space: Mapping[str, Any]) -> None:
    """Warn of lists in a space without any domain, and of functions that compute a value.

    Args:
        space: The search space, as it was declared.
    """
    for path, leaf in every_leaf(space):
        if _computes_a_value(leaf):
            warnings.warn(
                f"param_space has a lambda for {flat_name(path)!r}, which is a constant: each "
                "trial gets the function itself. If its result is meant, write "
                "tune.sample_from(lambda config: ...)",
                RuntimeWarning,
                stacklevel=2,
            )
    if holds_words(dict(space)):
        return
    lists = {name: value for name, value in space.items() if _lists_options(value)}
    if lists:
        name, options = next(iter(lists.items()))
        warnings.warn(
            f"param_space has nothing to search, and a list for {', '.join(map(repr, lists))}, "
            f"which is a constant: each trial gets the whole list. If its values are meant, write "
            f'"{name}": tune.choice({list(options)!r}), or tune.grid_search for each of them',
            RuntimeWarning,
            stacklevel=2,
        )


def _computes_a_value(leaf: Any) -> bool:
    """Return whether this is a lambda of nothing, or of a configuration."""
    if getattr(leaf, "__name__", "") != "<lambda>":
        return False
    parameters = inspect.signature(leaf).parameters
    return not parameters or (len(parameters) == 1 and next(iter(parameters)) in _OF_CONFIG)


def _lists_options(value: Any) -> bool:
    return (
        isinstance(value, list | range)
        and len(value) > 1
        and all(isinstance(one, _PLAIN) for one in value)
        and len(set(value)) == len(value)
    )
