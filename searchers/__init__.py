"""Searchers propose configurations and learn from results. They never import the engine that hosts them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ax_search import AxSearch
    from .bayesopt_search import BayesOptSearch
    from .bohb_search import BOHBSearch
    from .by_name import create_searcher
    from .cqr_search import CQRSearch
    from .duplicates import DuplicateGuard
    from .hyperopt_search import HyperOptSearch
    from .limiter import ConcurrencyLimiter
    from .nevergrad_search import NevergradSearch
    from .optuna_search import OptunaSearch
    from .repeater import Repeater
    from .searcher import Searcher
    from .tree_search import TreeSearch
    from .variant_generator import BasicVariantGenerator

__all__ = [
    "AxSearch",
    "BOHBSearch",
    "BasicVariantGenerator",
    "BayesOptSearch",
    "CQRSearch",
    "ConcurrencyLimiter",
    "DuplicateGuard",
    "HyperOptSearch",
    "NevergradSearch",
    "OptunaSearch",
    "Repeater",
    "Searcher",
    "TreeSearch",
    "create_searcher",
]

_HOMES = {
    "AxSearch": "ax_search",
    "BOHBSearch": "bohb_search",
    "BasicVariantGenerator": "variant_generator",
    "BayesOptSearch": "bayesopt_search",
    "CQRSearch": "cqr_search",
    "ConcurrencyLimiter": "limiter",
    "DuplicateGuard": "duplicates",
    "HyperOptSearch": "hyperopt_search",
    "NevergradSearch": "nevergrad_search",
    "OptunaSearch": "optuna_search",
    "Repeater": "repeater",
    "Searcher": "searcher",
    "TreeSearch": "tree_search",
    "create_searcher": "by_name",
}


def __getattr__(name: str) -> Any:
    """Import a searcher when it is first used: who needs but one file of this package, as every worker does, loads no more."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
