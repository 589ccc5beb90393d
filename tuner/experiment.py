"""Ray Tune's import path of what a callback is handed: ``from tuner.experiment import Trial``."""

from __future__ import annotations

from .core.trial import Trial

__all__ = ["Trial"]
