"""Ray Tune's import path of the exceptions: ``from tuner.error import TuneError``."""

from __future__ import annotations

from .errors import TunerError

TuneError = TunerError

__all__ = ["TuneError"]
