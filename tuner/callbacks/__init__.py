"""Callbacks: users' own hooks, log files, the console and experiment trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchers.lazy_names import lazy_names

if TYPE_CHECKING:
    from .callback import Callback, LoggerCallback
    from .callback_list import CallbackList
    from .console.console import Console
    from .console.reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from .files.background_writer import BatchWriter
    from .files.csv_logger import CSVLoggerCallback
    from .files.defaults import default_loggers
    from .files.error_log import ErrorLog
    from .files.json_logger import JsonLoggerCallback
    from .files.pbt_log import PolicyLog
    from .files.tensorboard_logger import TBXLoggerCallback
    from .files.trial_file import TrialFileLogger

__all__ = [
    "BatchWriter",
    "CLIReporter",
    "CSVLoggerCallback",
    "Callback",
    "CallbackList",
    "Console",
    "ErrorLog",
    "JsonLoggerCallback",
    "JupyterNotebookReporter",
    "LoggerCallback",
    "PolicyLog",
    "ProgressReporter",
    "TBXLoggerCallback",
    "TrialFileLogger",
    "default_loggers",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".callback": ("Callback", "LoggerCallback"),
        ".callback_list": ("CallbackList",),
        ".console.console": ("Console",),
        ".console.reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
        ".files.background_writer": ("BatchWriter",),
        ".files.csv_logger": ("CSVLoggerCallback",),
        ".files.defaults": ("default_loggers",),
        ".files.error_log": ("ErrorLog",),
        ".files.json_logger": ("JsonLoggerCallback",),
        ".files.pbt_log": ("PolicyLog",),
        ".files.tensorboard_logger": ("TBXLoggerCallback",),
        ".files.trial_file": ("TrialFileLogger",),
    },
)
