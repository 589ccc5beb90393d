"""Ray Tune's import path ``from tuner.search.repeater import Repeater``."""

from searchers import Repeater

__all__ = ["Repeater"]
