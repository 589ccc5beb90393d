"""Ray Tune's import path ``from tuner.search.optuna import OptunaSearch``."""

from searchers import OptunaSearch

__all__ = ["OptunaSearch"]
