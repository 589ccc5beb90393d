"""Searchers: ask for configurations, report results.

This package has the interface (`Searcher`), search spaces (`space`), random search, wrappers around
other searchers (`wrappers`), model-based searchers (`models`) and adapters of libraries such as
Optuna (`libraries`). The engine that runs trials is in `tuner`, and is not imported here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .libraries.ax_search import AxSearch
    from .libraries.bayesopt_search import BayesOptSearch
    from .libraries.hyperopt_search import HyperOptSearch
    from .libraries.nevergrad_search import NevergradSearch
    from .libraries.optuna.search import OptunaSearch
    from .models.bohb_search import BOHBSearch
    from .models.cqr_search import CQRSearch
    from .models.gp_search import AutoSearch, GPSearch
    from .models.tree_search import TreeSearch
    from .random_search import BasicVariantGenerator
    from .searcher import Searcher, create_searcher
    from .wrappers.concurrency_limiter import ConcurrencyLimiter
    from .wrappers.duplicate_guard import DuplicateGuard
    from .wrappers.repeater import Repeater

__all__ = [
    "AutoSearch",
    "AxSearch",
    "BOHBSearch",
    "BasicVariantGenerator",
    "BayesOptSearch",
    "CQRSearch",
    "ConcurrencyLimiter",
    "DuplicateGuard",
    "GPSearch",
    "HyperOptSearch",
    "NevergradSearch",
    "OptunaSearch",
    "Repeater",
    "Searcher",
    "TreeSearch",
    "create_searcher",
]

_HOMES = {
    "AutoSearch": "models.gp_search",
    "AxSearch": "libraries.ax_search",
    "BOHBSearch": "models.bohb_search",
    "BasicVariantGenerator": "random_search",
    "BayesOptSearch": "libraries.bayesopt_search",
    "CQRSearch": "models.cqr_search",
    "ConcurrencyLimiter": "wrappers.concurrency_limiter",
    "DuplicateGuard": "wrappers.duplicate_guard",
    "GPSearch": "models.gp_search",
    "HyperOptSearch": "libraries.hyperopt_search",
    "NevergradSearch": "libraries.nevergrad_search",
    "OptunaSearch": "libraries.optuna.search",
    "Repeater": "wrappers.repeater",
    "Searcher": "searcher",
    "TreeSearch": "models.tree_search",
    "create_searcher": "searcher",
}


def __getattr__(name: str) -> Any:
    """Import a searcher when it is first used, so that each experiment loads only its own."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
