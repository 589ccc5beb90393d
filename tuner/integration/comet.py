"""Comet: a callback that logs from outside."""

from __future__ import annotations

from tuner.loggers.comet_logger import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
