"""Search spaces: the words they are written in, and what can be done with one.

A space is a dictionary, nested through dictionaries, lists and tuples, in which some leaves are words such as `uniform` or `choice`.
All other leaves are constants: each configuration has its own dictionaries, lists and tuples, and the same objects in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, final

from .dependent import ConfigView, SampleFrom, resolve_dependents, sample
from .domains import Categorical, Domain
from .numeric import Float, Integer, Normal
from .tree import GRID_KEY, Path, assign, copied, flat_name, is_grid, leaves, match, merge, nest
from .words import (
    choice,
    grid_search,
    is_word,
    lograndint,
    loguniform,
    plain_values,
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

if TYPE_CHECKING:
    from numpy.random import Generator  # for annotations only, so that importing the space words stays cheap

__all__ = [
    "Categorical",
    "ConfigView",
    "Domain",
    "Float",
    "Integer",
    "Normal",
    "Path",
    "SampleFrom",
    "SearchSpace",
    "assign",
    "choice",
    "constants",
    "copied",
    "domains",
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


@final
class SearchSpace:
    """A space taken apart once, so that each configuration costs only its searched parameters.

    Attributes:
        space: The space as declared.
        domains: Its domains, by path.
        grid_axes: The values of each grid axis, by path.
        dependents: Its `SampleFrom` leaves, by path.

    Raises:
        TypeError: If the space is not a dictionary.
        ValueError: If a grid axis has no values, or a word hides inside another.

    Example:
        >>> space = SearchSpace({"lr": loguniform(1e-4, 1e-1), "model": {"depth": grid_search([2, 3])}})
        >>> list(space.domains), space.grid_axes
        ([('lr',)], {('model', 'depth'): [2, 3]})
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        if not isinstance(space, Mapping):
            raise TypeError(f"a space must be a dictionary, got {space!r}; give each parameter a name")
        self.space = dict(space)
        _check_names(path for path, _ in leaves(self.space))
        words = {path: leaf for path, leaf in leaves(self.space) if is_word(leaf)}
        self.domains: dict[Path, Domain] = {path: word for path, word in words.items() if isinstance(word, Domain)}
        self.dependents: dict[Path, SampleFrom] = {path: word for path, word in words.items() if isinstance(word, SampleFrom)}
        self.grid_axes: dict[Path, list[Any]] = {
            path: plain_values(flat_name(path), word[GRID_KEY]) for path, word in words.items() if is_grid(word)
        }

    @property
    def words(self) -> dict[Path, Any]:
        """All searched leaves, by path."""
        return {**self.domains, **self.grid_axes, **self.dependents}

    def assignments(self, point: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the values that a configuration, perhaps a partial one, gives for searched parameters.

        Args:
            point: A configuration, nested or with names such as ``"a/b"``. Constants may be repeated in it.

        Raises:
            ValueError: If it has an unknown name, a value outside its domain or another value for a constant.
        """
        return {path: self._checked(path, value) for path, value in match(self.space, point, is_word)}

    def resolve(self, assignments: Mapping[Path, Any], rng: Generator | None) -> dict[str, Any]:
        """Return a configuration: assigned values as they are, all else sampled or computed.

        Args:
            assignments: Values by path, with one for each grid axis.
            rng: Source of chance; None will do where every domain is assigned.

        Raises:
            ValueError: If a grid axis has no value, or functions wait for each other in a circle.
        """
        for path in self.grid_axes:
            if path not in assignments:
                raise ValueError(f"grid axis {flat_name(path)!r} must be assigned, got no value; choose one of its values")
        sampled = {path: sample(domain, rng) for path, domain in self.domains.items() if path not in assignments}
        config: dict[str, Any] = assign(copied(self.space), {**sampled, **assignments})
        pending = {path: dependent for path, dependent in self.dependents.items() if path not in assignments}
        return resolve_dependents(config, pending, rng) if pending else config

    def _checked(self, path: Path, value: Any) -> Any:
        known = Categorical(tuple(self.grid_axes[path])) if path in self.grid_axes else self.domains.get(path)
        if known is None:
            return value
        if not known.contains(value):
            raise ValueError(f"{flat_name(path)!r} must lie in {known!r}, got {value!r}; widen the space or leave the parameter out")
        return known.cast(value)


def _check_names(paths: Iterable[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in paths:
        name = flat_name(path)
        if name in seen:
            raise ValueError(f"parameter names must be unique, got {name!r} both as {seen[name]!r} and as {path!r}; rename one")
        seen[name] = path


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


def resolve(space: Mapping[str, Any], assignments: Mapping[Path, Any], rng: Generator | None) -> dict[str, Any]:
    """Return a configuration of the space; see `SearchSpace.resolve`, which is faster where many are wanted.

    Example:
        >>> resolve({"lr": uniform(0, 1), "epochs": 5}, {("lr",): 0.5}, rng=None)
        {'lr': 0.5, 'epochs': 5}
    """
    return SearchSpace(space).resolve(assignments, rng)


def constants(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the space without what is searched: a list or tuple that holds a word is left out as a whole.

    Example:
        >>> constants({"lr": uniform(0, 1), "epochs": 5, "model": {"depth": randint(1, 4), "width": 8}})
        {'epochs': 5, 'model': {'width': 8}}
    """
    kept: dict[str, Any] = {}
    for key, node in space.items():
        if not any(is_word(leaf) for _, leaf in leaves(node)):
            kept[key] = node
        elif isinstance(node, dict) and not is_grid(node) and (inner := constants(node)):
            kept[key] = inner
    return kept


def experiment_tag(index: int, config: Mapping[str, Any], space: Mapping[str, Any] | SearchSpace) -> str:
    """Return a short description of a trial: its number and the values of its searched parameters, at most 100 characters.

    Args:
        index: The trial's number.
        config: The trial's configuration.
        space: The space it came from, best taken apart already; constants are not told.

    Example:
        >>> experiment_tag(17, {"opt": {"lr": 0.01}, "epochs": 5}, {"opt": {"lr": uniform(0, 1)}, "epochs": 5})
        '17_lr=0.0100'
    """
    taken = space if isinstance(space, SearchSpace) else SearchSpace(space)
    values = sorted(_values_at(config, taken.words), key=lambda found: flat_name(found[0]))
    listed = ",".join(f"{_short_name(path)}={_short_value(value)}" for path, value in values)
    return f"{index}_{listed}"[:MAX_TAG_LENGTH] if listed else str(index)


def _values_at(config: Any, paths: Iterable[Path]) -> Iterator[tuple[Path, Any]]:
    for path in paths:
        try:
            yield path, reduce(getitem, path, config)
        except (KeyError, IndexError, TypeError):  # a searcher of the user's own need not keep to the space
            continue


def _short_name(path: Path) -> str:
    start = max((place for place, step in enumerate(path) if isinstance(step, str)), default=0)
    return "_".join(map(str, path[start:]))


def _short_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return " ".join(str(getattr(value, "__name__", value)).split())
