"""The loggers that every experiment has."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.callbacks.callback import Callback

from .background_writer import BatchWriter
from .csv_logger import CSVLoggerCallback
from .json_logger import JsonLoggerCallback
from .tensorboard_logger import TBXLoggerCallback
from .trial_file import TrialFileLogger


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
