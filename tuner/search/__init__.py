"""Ray Tune's import path of the package `searchers`: ``from tuner.search import OptunaSearch``."""

from __future__ import annotations

from searchers import *  # noqa: F403
from searchers import __all__  # noqa: F401
