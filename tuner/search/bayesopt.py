"""Ray Tune's import path ``from tuner.search.bayesopt import BayesOptSearch``."""

from searchers import BayesOptSearch

__all__ = ["BayesOptSearch"]
