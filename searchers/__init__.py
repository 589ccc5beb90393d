"""Searchers propose configurations and learn from results. They never import the engine that hosts them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ax_search import AxSearch
    from .bayesopt_search import BayesOptSearch
    from .duplicates import DuplicateGuard
    from .hyperopt_search import HyperOptSearch
    from .limiter import ConcurrencyLimiter
    from .optuna_search import OptunaSearch
    from .repeater import Repeater
    from .searcher import Searcher
    from .variant_generator import BasicVariantGenerator

__all__ = [
    "AxSearch",
    "BasicVariantGenerator",
    "BayesOptSearch",
    "ConcurrencyLimiter",
    "DuplicateGuard",
    "HyperOptSearch",
    "OptunaSearch",
    "Repeater",
    "Searcher",
    "create_searcher",
]

_HOMES = {
    "AxSearch": "ax_search",
    "BasicVariantGenerator": "variant_generator",
    "BayesOptSearch": "bayesopt_search",
    "ConcurrencyLimiter": "limiter",
    "DuplicateGuard": "duplicates",
    "HyperOptSearch": "hyperopt_search",
    "OptunaSearch": "optuna_search",
    "Repeater": "repeater",
    "Searcher": "searcher",
}

_BY_NAME: Mapping[str, str] = {
    "variant_generator": "BasicVariantGenerator",
    "random": "BasicVariantGenerator",
    "optuna": "OptunaSearch",
    "hyperopt": "HyperOptSearch",
    "bayesopt": "BayesOptSearch",
    "ax": "AxSearch",
}


def create_searcher(name: str, **kwargs: Any) -> Searcher:
    """Construct a searcher by its short name, e.g. from a command line.

    Args:
        name: ``"variant_generator"`` or ``"random"``, which are the same; ``"optuna"``, ``"hyperopt"``, ``"bayesopt"`` or ``"ax"``.
        **kwargs: The arguments of its class.

    Raises:
        ImportError: If the library that the searcher needs is not installed; names the extra.
        TypeError: If the searcher has no such argument.
        ValueError: If there is no such searcher, or it refuses an argument's value.

    Example:
        >>> create_searcher("random", max_concurrent=2).max_concurrent
        2

    Departures:
        Ray Tune drops arguments it does not know without a word.
    """
    from .declaration import constructed_with, found_by_name  # noqa: PLC0415  (workers, which need but the space, load no more)

    searcher: Searcher = constructed_with(__getattr__(found_by_name(name, _BY_NAME)), kwargs)
    return searcher


def __getattr__(name: str) -> Any:
    """Import a searcher when it is first used: who needs but one file of this package, as every worker does, loads no more."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
