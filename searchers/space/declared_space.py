"""`Space`: a search space with a relation between its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from .conditions import OnlyIf
from .tree import Conditional, Path, flat_name

Where = str | Callable[[Any], Any]
"""A relation as text, or as a function of a configuration."""


class Space(dict[str, Any]):
    """A search space, of which only configurations with ``where`` are run.

    It is the dictionary of its entries, and is given as ``param_space`` in its place. What is not
    feasible is known before a trial: grid points that violate the relation are left out, values are
    drawn until it holds, and models propose only what satisfies it.

    As text, the relation is an expression in Python's syntax. It may use parameters and constants
    of the space by name, numbers, texts, ``True``, ``False`` and ``None``, comparisons, also
    chained, ``in`` with a list, ``and``, ``or``, ``not``, ``+ - * / // % **``, and the functions
    ``abs``, ``log``, ``log2``, ``log10``, ``max``, ``min`` and ``sqrt``. An entry of a nested space
    is written ``model.depth``, an item of a list ``layers[0].units``, and a name that is none in
    Python ``config["weight-decay"]`` or ``model["weight-decay"]``. Nothing else is evaluated.

    What depends on a parameter that is not in a configuration, since its conditions do not hold, is
    unknown; a configuration is left out only where the relation is false whatever that is. A result
    that does not exist, such as a division by 0, is NaN, which no comparison but ``!=`` fulfils.

    Args:
        entries: The space: a dictionary of constants, domains and nested dictionaries.
        where: The relation: a text, or a function that is given the configuration and returns
            whether it may run. None for none. A function reads values as items or attributes, and
            none of `sample_from`.

    Raises:
        TypeError: If the space is no dictionary, or the relation neither text nor function.
        ValueError: If the relation is not well-formed, or names something that is not in the space.

    Example:
        >>> from searchers.space import randint, uniform
        >>> space = Space(
        ...     {"depth": randint(1, 17), "width": randint(64, 1025), "low": uniform(0, 1)},
        ...     where="depth * width <= 4096 and low < 0.5",
        ... )
        >>> space.where, space["low"]
        ('depth * width <= 4096 and low < 0.5', Float(lower=0.0, upper=1.0, q=None, is_log=False))
    """

    def __init__(self, entries: Mapping[str, Any], where: Where | None = None) -> None:
        if not isinstance(entries, Mapping):
            raise TypeError(
                f"a space must be a dictionary, got {entries!r}; give each parameter a name"
            )
        super().__init__(entries)
        self.where = where if where is not None else where_of(entries)
        if self.where is not None:
            from .relations import Relation  # noqa: PLC0415  (most spaces have none)

            Relation(self.where, self)

    def copy(self) -> Self:
        """Return a copy with the same relation."""
        return type(self)(self, self.where)

    # As a plain dictionary it would lose its relation.
    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        return type(self)({**self, **other}, self.where)

    def __repr__(self) -> str:
        return f"Space({super().__repr__()}, where={self.where!r})"


def where_of(space: Any) -> Where | None:
    """Return what a space declares as its relation; None for a plain dictionary."""
    return space.where if isinstance(space, Space) else None


def like(space: Mapping[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    """Return changed entries of a space, with its relation if it has one."""
    where = where_of(space)
    return entries if where is None else Space(entries, where)


def check_not_nested(space: Mapping[str, Any]) -> None:
    """Check that no part of a space has a relation of its own.

    Raises:
        ValueError: If one has; names its place.
    """
    for key, part in space.items():
        _check_part(part, (key,))


def _check_part(node: Any, path: Path) -> None:
    if isinstance(node, Space):
        raise ValueError(  # noqa: TRY004  (of a value)
            f"Space must be the whole search space, got one at {flat_name(path)!r}; write "
            f"Space({{...}}, where=...) around all of it, with names such as {path[0]}.x"
        )
    parts: list[tuple[Path, Any]]
    if isinstance(node, dict):
        parts = [((key,), part) for key, part in node.items()]
    elif type(node) in (list, tuple):
        parts = [((index,), part) for index, part in enumerate(node)]
    elif isinstance(node, OnlyIf):
        parts = [((), node.node)]
    else:
        parts = list(node.inner()) if isinstance(node, Conditional) else []
    for steps, part in parts:
        _check_part(part, (*path, *steps))
