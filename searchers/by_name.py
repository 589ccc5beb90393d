"""Searchers by their short names, and construction of objects by names of classes and arguments."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .recorded_arguments import takes_any

if TYPE_CHECKING:
    from .searcher import Searcher

_Kind = TypeVar("_Kind")
_Found = TypeVar("_Found")

# Names of classes, since importing the classes would import all searchers.
_CLASSES: Mapping[str, str] = {
    "variant_generator": "BasicVariantGenerator",
    "random": "BasicVariantGenerator",
    "auto": "AutoSearch",
    "tree": "TreeSearch",
    "gp": "GPSearch",
    "bohb": "BOHBSearch",
    "cqr": "CQRSearch",
    "optuna": "OptunaSearch",
    "hyperopt": "HyperOptSearch",
    "bayesopt": "BayesOptSearch",
    "ax": "AxSearch",
    "nevergrad": "NevergradSearch",
}


def searcher_names() -> tuple[str, ...]:
    """Return all names that `create_searcher` takes."""
    return tuple(_CLASSES)


def searcher_class(name: str) -> type[Searcher]:
    """Return the class of a searcher by its short name; see `create_searcher`.

    Raises:
        ValueError: If there is no such searcher; suggests a similar name.
    """
    # By name, so that only its module is imported.
    kind: type[Searcher] = getattr(
        importlib.import_module(__package__), found_by_name(name, _CLASSES)
    )
    return kind


def create_searcher(name: str, **kwargs: Any) -> Searcher:
    """Construct a searcher by its short name, e.g. from a command line.

    Args:
        name: ``"variant_generator"`` or ``"random"``, which are the same; ``"auto"``, ``"tree"``,
            ``"gp"``, ``"bohb"``, ``"cqr"``, ``"optuna"``, ``"hyperopt"``, ``"bayesopt"``, ``"ax"``
            or ``"nevergrad"``.
        **kwargs: The arguments of its class.

    Raises:
        ImportError: If the library that the searcher needs is not installed; names the extra.
        TypeError: If the searcher has no such argument.
        ValueError: If there is no such searcher, or it refuses an argument's value.

    Example:
        >>> create_searcher("random", max_concurrent=2).max_concurrent
        2

    Departures:
        Ray Tune silently drops unknown arguments.
    """
    return constructed_with(searcher_class(name), kwargs)


def found_by_name(name: str, known: Mapping[str, _Found]) -> _Found:
    """Return the object with a short name.

    Raises:
        ValueError: If there is none; suggests a similar name.

    Example:
        >>> found_by_name("fifo", {"fifo": 1})
        1
    """
    if name not in known:
        raise ValueError(
            f"name must be one of {_listed(known)}, got {name!r}{_suggestion(name, known)}"
        )
    return known[name]


def constructed_with(kind: Callable[..., _Kind], arguments: Mapping[str, Any]) -> _Kind:
    """Return an object of a class, constructed with named arguments.

    Raises:
        TypeError: If the class does not have one of the arguments; suggests a similar name.
    """
    accepted = inspect.signature(kind).parameters
    for argument in () if takes_any(kind) else arguments:
        if argument not in accepted:
            takes = f"the arguments {_listed(accepted)}" if accepted else "no arguments"
            raise TypeError(
                f"{getattr(kind, '__name__', kind)} takes {takes}, got "
                f"{argument!r}{_suggestion(argument, accepted)}"
            )
    return kind(**arguments)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
