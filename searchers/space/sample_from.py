"""Parameters computed from others: `SampleFrom`, and the order in which they are evaluated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from .domains import Domain
from .tree import Conditional, Path, assign, copied, flat_name, is_grid, leaves

if TYPE_CHECKING:
    # For annotations only, so that importing the space words stays cheap.
    from numpy.random import Generator

MAX_PASSES = 20
"""How often the parameters that wait for others are tried before they are called circular."""


@final
@dataclass(frozen=True, slots=True)
class SampleFrom:
    """A parameter that a function computes.

    Attributes:
        function: Called with nothing, or with the configuration so far (`ConfigView`) if it takes
            an argument.
    """

    function: Callable[..., Any]
    _takes_config: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that the function is callable."""
        if not callable(self.function):
            raise TypeError(
                f"sample_from must be given a function, got {self.function!r}; give a constant as "
                "it is"
            )
        object.__setattr__(self, "_takes_config", _takes_argument(self.function))

    def call(self, config: ConfigView) -> Any:
        """Return what the function computes from the configuration so far."""
        return self.function(config) if self._takes_config else self.function()


def _takes_argument(function: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built-in functions that do not tell, such as random.random
        return False


class _NotYetKnown(Exception):
    """A function asked for a value that another function still has to compute."""


@final
class ConfigView(Mapping[str, Any]):
    """A partial configuration, as the function of a `SampleFrom` sees it.

    Values are read as items or attributes, ``config["lr"]`` or ``config.lr``; older code's
    ``spec.config.lr`` works too. Asking for a value not yet known puts the function off until it
    is; going through all entries shows the known ones.

    Example:
        >>> config = ConfigView({"model": {"depth": 3}})
        >>> config["model"]["depth"], config.model.depth, config.config.model.depth
        (3, 3, 3)
    """

    __slots__ = ("_is_root", "_node")

    def __init__(self, node: Mapping[str, Any], *, is_root: bool = True) -> None:
        """See `node`; only the root answers to ``config``."""
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
    """A list in which some values are not yet known."""

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
        raise _NotYetKnown
    if isinstance(node, dict):
        return ConfigView(node, is_root=False)
    if isinstance(node, list | tuple) and any(
        isinstance(leaf, SampleFrom) for _, leaf in leaves(node)
    ):
        return _ListView(node)
    return node


def sample(domain: Domain, rng: Generator | None) -> Any:
    """Draw a value of the domain.

    Raises:
        ValueError: If there is no generator to draw from.
    """
    if rng is None:
        raise ValueError(
            f"rng must be a numpy generator to sample from {domain!r}, got None; see "
            "numpy.random.default_rng"
        )
    return domain.sample(rng)


def resolve_dependents(
    config: dict[str, Any], pending: Mapping[Path, SampleFrom], rng: Generator | None
) -> dict[str, Any]:
    """Return the configuration with computed values, in the order of dependencies.

    A function may return domains or further `SampleFrom` objects, bare or nested, which are then
    sampled or called in turn: that is how one parameter decides what another may be.

    Args:
        config: The configuration, with a `SampleFrom` at each path of `pending`.
        pending: What is to be computed.
        rng: Random number generator for returned domains, None where there are none.

    Raises:
        ValueError: If functions read each other's values in a circle, or are not done after
            `MAX_PASSES` passes.
    """
    for _ in range(MAX_PASSES):
        waiting: dict[Path, SampleFrom] = {}
        for path, dependent in pending.items():
            try:
                value, inner = _call(path, dependent, config, rng)
            except _NotYetKnown:
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
        value = _unwrapped(dependent.call(ConfigView(config)))
    except _NotYetKnown:
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


def _unwrapped(value: Any) -> Any:
    views = {
        path: copied(leaf._node)  # noqa: SLF001
        for path, leaf in leaves(value)
        if isinstance(leaf, ConfigView | _ListView)
    }
    if any(isinstance(leaf, SampleFrom) for node in views.values() for _, leaf in leaves(node)):
        raise _NotYetKnown
    return assign(value, views) if views else value
