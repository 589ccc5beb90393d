"""Ray Tune's import path ``from tuner.search.hyperopt import HyperOptSearch``."""

from searchers import HyperOptSearch

__all__ = ["HyperOptSearch"]
