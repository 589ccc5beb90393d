"""Comet: a callback that logs trials from the driver."""

from __future__ import annotations

from tuner.callbacks.trackers.comet_logger import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
