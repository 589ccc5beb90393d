"""Searchers by their short names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .recorded_arguments import constructed_with, found_by_name
from .searcher import Searcher

_CLASSES: Mapping[str, str] = {
    "variant_generator": "BasicVariantGenerator",
    "random": "BasicVariantGenerator",
    "tree": "TreeSearch",
    "bohb": "BOHBSearch",
    "cqr": "CQRSearch",
    "optuna": "OptunaSearch",
    "hyperopt": "HyperOptSearch",
    "bayesopt": "BayesOptSearch",
    "ax": "AxSearch",
    "nevergrad": "NevergradSearch",
}


def create_searcher(name: str, **kwargs: Any) -> Searcher:
    """Construct a searcher by its short name, e.g. from a command line.

    Args:
        name: ``"variant_generator"`` or ``"random"``, which are the same; ``"tree"``, ``"bohb"``, ``"cqr"``, ``"optuna"``,
            ``"hyperopt"``, ``"bayesopt"``, ``"ax"`` or ``"nevergrad"``.
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
    # Only the one that is named is imported.
    kind: type[Searcher] = getattr(
        importlib.import_module(__package__), found_by_name(name, _CLASSES)
    )
    return constructed_with(kind, kwargs)
