"""Ray Tune's import path ``from tuner.search.bohb import BOHBSearch``; Ray Tune calls the class ``TuneBOHB``."""

from searchers import BOHBSearch

__all__ = ["BOHBSearch"]
