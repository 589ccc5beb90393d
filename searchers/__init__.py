"""Searchers propose configurations and learn from results. They never import the engine that hosts them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bohb_search import BOHBSearch
    from .cqr_search import CQRSearch
    from .limiter import ConcurrencyLimiter
    from .optuna_search import OptunaSearch
    from .searcher import Searcher
    from .tree_search import TreeSearch
    from .variant_generator import BasicVariantGenerator

__all__ = ["BOHBSearch", "BasicVariantGenerator", "CQRSearch", "ConcurrencyLimiter", "OptunaSearch", "Searcher", "TreeSearch"]

_HOMES = {
    "BOHBSearch": "bohb_search",
    "BasicVariantGenerator": "variant_generator",
    "CQRSearch": "cqr_search",
    "ConcurrencyLimiter": "limiter",
    "OptunaSearch": "optuna_search",
    "Searcher": "searcher",
    "TreeSearch": "tree_search",
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
