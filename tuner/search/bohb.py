"""Ray Tune's import path ``from tuner.search.bohb import BOHBSearch``, there ``TuneBOHB``."""

from searchers import BOHBSearch

__all__ = ["BOHBSearch"]
