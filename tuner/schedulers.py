"""Ray Tune's import path of the schedulers: ``from tuner.schedulers import ASHAScheduler``."""

from __future__ import annotations

from schedulers import *  # noqa: F403
from schedulers import __all__  # noqa: F401
