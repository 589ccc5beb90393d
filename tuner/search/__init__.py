"""Ray Tune's import path of the searchers: ``from tuner.search import OptunaSearch``; they live in the package `searchers`."""

from __future__ import annotations

from searchers import *  # noqa: F403
from searchers import __all__  # noqa: F401
