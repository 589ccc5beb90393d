"""Watching an experiment: callbacks, the files it leaves for people, and what it shows on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from .batching import BatchWriter
from .callback import Callback, LoggerCallback
from .callback_list import CallbackList
from .console import Console
from .csv_logger import CSVLoggerCallback
from .error_log import ErrorLog
from .json_logger import JsonLoggerCallback
from .policy_log import PolicyLog
from .reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
from .tensorboard_logger import TBXLoggerCallback
from .trial_file import TrialFileLogger

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
    """Return the loggers that every experiment gets: JSON, CSV and TensorBoard, all writing from one thread.

    Args:
        callbacks: The user's own callbacks; a logger whose class is among them is not added again.

    Returns:
        The loggers, to be put behind the user's callbacks, so that they see what those change in a result.
    """
    given = tuple(callbacks)
    writer = BatchWriter()
    classes: list[type[TrialFileLogger]] = [JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback]
    return [new(writer) for new in classes if not any(isinstance(callback, new) for callback in given)]
