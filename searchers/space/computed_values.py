"""Values of `sample_from` in a configuration, computed in the order in which they depend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from .domains import Domain, sample
from .sample_from import SampleFrom
from .tree import Conditional, Path, assign, copied, flat_name, is_grid, leaves

if TYPE_CHECKING:
    # For annotations only, so that importing the functions of search spaces stays cheap.
    from numpy.random import Generator

MAX_PASSES = 20
"""Most passes over computed parameters: functions may return functions without end."""


class NotYetKnown(Exception):
    """A function reads a value that another function has not computed yet."""


@final
class ConfigView(Mapping[str, Any]):
    """A partial configuration, the argument of the function of a `SampleFrom`.

    Values are read as items or attributes, ``config["lr"]`` or ``config.lr``; Ray Tune's former
    ``spec.config.lr`` works too. Reading a value that is not known yet postpones the function until
    it is; iterating returns the known entries.

    Example:
        >>> config = ConfigView({"model": {"depth": 3}})
        >>> config["model"]["depth"], config.model.depth, config.config.model.depth
        (3, 3, 3)
    """

    __slots__ = ("_is_root", "_node")

    def __init__(self, node: Mapping[str, Any], *, is_root: bool = True) -> None:
        """Wrap a part of the configuration; only its root has the attribute ``config``."""
        self._node = node
        self._is_root = is_root

    def __getitem__(self, key: str) -> Any:
        return _seen(self._node[key])

    def __iter__(self) -> Iterator[str]:
        return (key for key, value in self._node.items() if not isinstance(value, SampleFrom))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getattr__(self, name: str) -> Any:
        if name in self._node:
            return self[name]
        if name == "config" and self._is_root:
            return self
        raise AttributeError(f"the configuration has no {name!r}, only {list(self._node)!r}")

    def __repr__(self) -> str:
        """Return the known part."""
        return repr(dict(self))


@final
class _ListView(Sequence[Any]):
    """A list of which some values are not known yet."""

    __slots__ = ("_node",)

    def __init__(self, node: Sequence[Any]) -> None:
        self._node = node

    def __getitem__(self, index: Any) -> Any:
        found = self._node[index]
        return [_seen(each) for each in found] if isinstance(index, slice) else _seen(found)

    def __len__(self) -> int:
        return len(self._node)


def _seen(node: Any) -> Any:
    if isinstance(node, SampleFrom):
        raise NotYetKnown
    if isinstance(node, dict):
        return ConfigView(node, is_root=False)
    if isinstance(node, list | tuple) and any(
        isinstance(leaf, SampleFrom) for _, leaf in leaves(node)
    ):
        return _ListView(node)
    return node


def resolve_dependents(
    config: dict[str, Any], pending: Mapping[Path, SampleFrom], rng: Generator | None
) -> dict[str, Any]:
    """Return the configuration with computed values, in the order of dependencies.

    A function may return domains or further `SampleFrom` objects, also nested, which are then
    sampled or called in turn, so that the domain of a parameter can depend on another one.

    Args:
        config: The configuration, with a `SampleFrom` at each path of `pending`.
        pending: The values to compute, by path.
        rng: Random number generator for returned domains; None if there are none.

    Raises:
        ValueError: If functions depend on each other in a circle, or `MAX_PASSES` are not enough.
    """
    for _ in range(MAX_PASSES):
        waiting: dict[Path, SampleFrom] = {}
        for path, dependent in pending.items():
            try:
                value, inner = _call(path, dependent, config, rng)
            except NotYetKnown:
                waiting[path] = dependent
                continue
            config = assign(config, {path: value})
            waiting |= inner
        if not waiting:
            return config
        if waiting == pending:
            break
        pending = waiting
    names = ", ".join(repr(flat_name(path)) for path in waiting)
    raise ValueError(
        f"sample_from must not wait for itself, got functions in a circle at {names}; let one of "
        "them read no other"
    )


def _call(
    path: Path, dependent: SampleFrom, config: dict[str, Any], rng: Generator | None
) -> tuple[Any, dict[Path, SampleFrom]]:
    try:
        value = _without_views(dependent.call(ConfigView(config)))
    except NotYetKnown:
        raise
    except Exception as error:
        error.add_note(f"raised by the function of sample_from at {flat_name(path)!r}")
        raise
    found = dict(leaves(value))
    if any(is_grid(leaf) for leaf in found.values()):
        raise ValueError(
            f"sample_from must not return a grid, got one at {flat_name(path)!r}; declare the grid "
            "in the space itself"
        )
    if any(isinstance(leaf, Conditional) for leaf in found.values()):
        raise ValueError(
            f"sample_from must return no conditional space, got one at {flat_name(path)!r}; let "
            "the function itself choose"
        )
    sampled = {
        inner: sample(leaf, rng) for inner, leaf in found.items() if isinstance(leaf, Domain)
    }
    deeper = {
        (*path, *inner): leaf for inner, leaf in found.items() if isinstance(leaf, SampleFrom)
    }
    return (assign(value, sampled) if sampled else value), deeper


def _without_views(value: Any) -> Any:
    """Return a function's result with plain containers instead of views of the configuration."""
    views = {
        path: copied(leaf._node)  # noqa: SLF001
        for path, leaf in leaves(value)
        if isinstance(leaf, ConfigView | _ListView)
    }
    if any(isinstance(leaf, SampleFrom) for node in views.values() for _, leaf in leaves(node)):
        raise NotYetKnown
    return assign(value, views) if views else value
