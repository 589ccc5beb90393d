"""Searchers: ask for configurations, report results.

This package has the interface (`Searcher`), search spaces (`space`), random search, wrappers around
other searchers (`wrappers`), model-based searchers (`models`) and adapters of libraries such as
Optuna (`libraries`). The engine that runs trials is in `tuner`, and is not imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_names import lazy_names

if TYPE_CHECKING:
    from .by_name import create_searcher
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
    from .searcher import Searcher
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".by_name": ("create_searcher",),
        ".libraries.ax_search": ("AxSearch",),
        ".libraries.bayesopt_search": ("BayesOptSearch",),
        ".libraries.hyperopt_search": ("HyperOptSearch",),
        ".libraries.nevergrad_search": ("NevergradSearch",),
        ".libraries.optuna.search": ("OptunaSearch",),
        ".models.bohb_search": ("BOHBSearch",),
        ".models.cqr_search": ("CQRSearch",),
        ".models.gp_search": ("AutoSearch", "GPSearch"),
        ".models.tree_search": ("TreeSearch",),
        ".random_search": ("BasicVariantGenerator",),
        ".searcher": ("Searcher",),
        ".wrappers.concurrency_limiter": ("ConcurrencyLimiter",),
        ".wrappers.duplicate_guard": ("DuplicateGuard",),
        ".wrappers.repeater": ("Repeater",),
    },
)
