"""Ray Tune's import path of the loggers: ``from tuner.logger import LoggerCallback``."""

from __future__ import annotations

from .callbacks import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]
