"""Ray Tune's import path ``from tuner.search.nevergrad import NevergradSearch``."""

from searchers import NevergradSearch

__all__ = ["NevergradSearch"]
