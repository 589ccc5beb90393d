"""Search spaces that are written in the words of another library, which would pass for constants here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .tree import every_leaf, flat_name

_MODULES: Final = (
    "hyperopt.pyll",
    "optuna.distributions",
    "ConfigSpace",
    "nevergrad.parametrization",
    "ray.tune.search.sample",
)
"""Where the classes of other libraries' words are defined, or begin to be."""


def foreign_library(value: Any) -> str | None:
    """Return the library whose search-space word a value is, None for all else.

    Example:
        >>> foreign_library(3.0)
    """
    module = type(value).__module__
    found = next(
        (known for known in _MODULES if module == known or module.startswith(f"{known}.")), None
    )
    return None if found is None else found.partition(".")[0]


def check_words(space: Mapping[str, Any], place: str, *, accepts: str | None = None) -> None:
    """Refuse a space with words of other libraries.

    Args:
        space: The space.
        place: Where it was given, for the message.
        accepts: A library whose words are known to the searcher.

    Raises:
        ValueError: If there is one; names it, and what to write instead.
    """
    for path, leaf in every_leaf(dict(space)):
        library = foreign_library(leaf)
        if library not in (None, accepts):
            raise ValueError(
                f"{place} must hold constants and search-space words, got {flat_name(path)!r} in the words of {library}; write "
                "tune.uniform(lower, upper), tune.loguniform(lower, upper), tune.randint(lower, upper), tune.choice([...]) and the like"
            )


def check_own_space(space: Any, kind: str, *, accepts: str | None = None) -> None:
    """Refuse what a searcher cannot take as a space of its own.

    Args:
        space: What was given, None for nothing.
        kind: The searcher.
        accepts: A library whose words are known to it.

    Raises:
        TypeError: If it is no dictionary.
        ValueError: If it is written in the words of another library.
    """
    if space is None:
        return
    library = foreign_library(space)
    if not isinstance(space, Mapping):
        given = f"a space of {library}" if library else repr(space)
        raise TypeError(
            f'space must be a dictionary for {kind}, got {given}; write {kind}(space={{"x": tune.uniform(0, 1)}}, ...)'
        )
    check_words(space, f"space of {kind}", accepts=accepts)
