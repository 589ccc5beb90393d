"""Ray Tune's import path ``from tuner.search.ax import AxSearch``."""

from searchers import AxSearch

__all__ = ["AxSearch"]
