"""Ray Tune's import path of the schedulers: ``from tuner.schedulers import ASHAScheduler``; they live in the package `schedulers`."""

from __future__ import annotations

from schedulers import *  # noqa: F403
from schedulers import __all__  # noqa: F401
