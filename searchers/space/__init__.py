"""Search spaces: the functions that declare one, and its parameters and configurations.

A space is a dictionary, nested through dictionaries, lists and tuples. Some of its leaves are
searched: domains such as those returned by `uniform` or `choice`, grids and computed parameters,
called search-space words. All other leaves are constants: each configuration has new dictionaries,
lists and tuples, with the same objects in them.

A space is conditional if a `choice` has options that contain words, or an entry is under `only_if`.
Then a configuration has only some of the parameters; see `SearchSpace.parameters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from .conditions import Branching, OnlyIf, is_word
from .domains import Categorical, Domain, Float, Integer, Normal
from .functions import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    only_if,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from .parameters import Condition, Parameter
from .sample_from import ConfigView, SampleFrom
from .search_space import SearchSpace, constants
from .tree import (
    Conditional,
    Path,
    assign,
    copied,
    every_leaf,
    flat_name,
    is_grid,
    leaves,
    match,
    merge,
    nest,
)

if TYPE_CHECKING:
    # For annotations only, so that importing the functions of search spaces stays cheap.
    from numpy.random import Generator

__all__ = [
    "Branching",
    "Categorical",
    "Condition",
    "Conditional",
    "ConfigView",
    "Domain",
    "Float",
    "Integer",
    "Normal",
    "OnlyIf",
    "Parameter",
    "Path",
    "SampleFrom",
    "SearchSpace",
    "assign",
    "choice",
    "constants",
    "copied",
    "domains",
    "every_leaf",
    "experiment_tag",
    "flat_name",
    "grid_axes",
    "grid_search",
    "is_grid",
    "is_word",
    "leaves",
    "lograndint",
    "loguniform",
    "match",
    "merge",
    "nest",
    "only_if",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "resolve",
    "sample_from",
    "uniform",
]

MAX_TAG_LENGTH = 100


def domains(space: Mapping[str, Any]) -> dict[Path, Domain]:
    """Return the domains of a space by path.

    Example:
        >>> domains({"model": {"depth": randint(1, 4)}, "epochs": 5})
        {('model', 'depth'): Integer(lower=1, upper=3, q=1, is_log=False)}
    """
    return SearchSpace(space).domains


def grid_axes(space: Mapping[str, Any]) -> dict[Path, list[Any]]:
    """Return the values of each grid axis of a space by path.

    Example:
        >>> grid_axes({"depth": grid_search([2, 3]), "epochs": 5})
        {('depth',): [2, 3]}
    """
    return SearchSpace(space).grid_axes


def resolve(
    space: Mapping[str, Any], assignments: Mapping[Path, Any], rng: Generator | None
) -> dict[str, Any]:
    """Return a configuration; `SearchSpace.resolve` is faster for many.

    Example:
        >>> resolve({"lr": uniform(0, 1), "epochs": 5}, {("lr",): 0.5}, rng=None)
        {'lr': 0.5, 'epochs': 5}
    """
    return SearchSpace(space).resolve(assignments, rng)


def experiment_tag(
    index: int, config: Mapping[str, Any], space: Mapping[str, Any] | SearchSpace
) -> str:
    """Return a trial's number and searched values, at most 100 characters.

    Args:
        index: The trial's number.
        config: The trial's configuration.
        space: The space it is from, best parsed already; constants are left out.

    Example:
        >>> experiment_tag(
        ...     17, {"opt": {"lr": 0.01}, "epochs": 5}, {"opt": {"lr": uniform(0, 1)}, "epochs": 5}
        ... )
        '17_lr=0.0100'
    """
    taken = space if isinstance(space, SearchSpace) else SearchSpace(space)
    values = sorted(_values_in(config, taken), key=lambda found: flat_name(found[0]))
    listed = ",".join(f"{_short_name(path)}={_short_value(value)}" for path, value in values)
    return f"{index}_{listed}"[:MAX_TAG_LENGTH] if listed else str(index)


def _values_in(config: Mapping[str, Any], space: SearchSpace) -> Iterable[tuple[Path, Any]]:
    if not space.is_conditional:
        return _values_at(config, space.words)
    return space.recognised(config).items()


def _values_at(config: Any, paths: Iterable[Path]) -> Iterator[tuple[Path, Any]]:
    for path in paths:
        try:
            yield path, reduce(getitem, path, config)
        # A user's searcher may have left the parameter out.
        except (KeyError, IndexError, TypeError):
            continue


def _short_name(path: Path) -> str:
    start = max((place for place, step in enumerate(path) if isinstance(step, str)), default=0)
    return "_".join(map(str, path[start:]))


def _short_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return " ".join(str(getattr(value, "__name__", value)).split())
