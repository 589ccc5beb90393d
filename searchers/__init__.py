"""Searchers propose configurations and learn from results. They never import the engine that hosts them."""

from __future__ import annotations

from .limiter import ConcurrencyLimiter
from .optuna_search import OptunaSearch
from .searcher import Searcher
from .variant_generator import BasicVariantGenerator

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "OptunaSearch", "Searcher"]
