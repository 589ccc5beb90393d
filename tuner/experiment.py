"""Ray Tune's import path of experiments: ``from tuner.experiment import Experiment, Trial``."""

from __future__ import annotations

from .core.trial import Trial
from .tune_run import Experiment

__all__ = ["Experiment", "Trial"]
