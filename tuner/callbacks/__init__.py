"""Callbacks: users' own hooks, log files, the console and experiment trackers."""

from __future__ import annotations

from collections.abc import Iterable

from .callback import Callback, LoggerCallback
from .callback_list import CallbackList
from .console.console import Console
from .console.reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
from .files.background_writer import BatchWriter
from .files.csv_logger import CSVLoggerCallback
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


def default_loggers(callbacks: Iterable[Callback] = ()) -> list[Callback]:
    """Return the loggers of every experiment: JSON, CSV and TensorBoard, with one writer thread.

    Args:
        callbacks: The user's own callbacks; a logger whose class is among them is not added again.

    Returns:
        The loggers, to be called after the user's callbacks, whose changes of results they log.
    """
    given = tuple(callbacks)
    writer = BatchWriter()
    classes: list[type[TrialFileLogger]] = [
        JsonLoggerCallback,
        CSVLoggerCallback,
        TBXLoggerCallback,
    ]
    return [
        new(writer) for new in classes if not any(isinstance(callback, new) for callback in given)
    ]
