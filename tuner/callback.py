"""Ray Tune's import path of callbacks: ``from tuner.callback import Callback``."""

from __future__ import annotations

from .callbacks import Callback

__all__ = ["Callback"]
