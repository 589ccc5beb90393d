"""The engine's exceptions.

Bad arguments raise `ValueError` or `TypeError` at construction. What goes wrong later raises a child of `TunerError`::

    TunerError
    ├── InvalidTransition      an event that the state machine does not accept: a defect of the engine or an executor
    ├── InvalidDecision        something that no scheduler may say: a defect of the scheduler
    ├── NotGranted             something that was asked of a running experiment and cannot be done
    ├── MetricNotReported      the metric to optimise is in no result of any trial
    ├── TrialFailed            a trial failed; also of the type of what was raised, if that is one of Python's own
    ├── CheckpointError        a checkpoint that could not be written or read
    ├── StorageError           experiment state that could not be written or read
    │   ├── ExperimentExists   the directory already holds an experiment
    │   ├── ExperimentLocked   another driver owns the directory
    │   ├── NotRunning         nobody drives the experiment that is to be steered
    │   ├── StorageLost        the experiment's directory was deleted, moved or unmounted while its driver was at work
    │   └── DamagedJournal     records that do not verify
    └── TrainableNotPicklable  a trainable that cannot be carried to a worker
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterable
from typing import Any


class TunerError(Exception):
    """Base of all the engine's run-time errors."""


class InvalidTransition(TunerError):
    """The state machine was fed an event that it does not accept in its state."""


class InvalidDecision(TunerError):
    """A scheduler returned what is no decision, or decided about a trial that does not exist."""


class CannotPause(TunerError):
    """The scheduler pauses trials, but the training code reports no checkpoint to continue from."""


class MetricNotReported(TunerError, ValueError):
    """A trial completed, and no trial has ever reported the metric that is to be optimised: mostly its name is mistyped."""


class NotGranted(TunerError):
    """What was asked of a running experiment cannot be done."""


class TrialFailed(TunerError):
    """A trial failed: the ``error`` of its result, raised where ``fail_fast="raise"`` or ``tune.run`` asked for it.

    Where the training code raised one of Python's own exceptions, or one derived from it, the error is an instance of that as well, so
    that ``isinstance(result.error, ValueError)`` and ``except ValueError`` tell what went wrong; see `trial_failed`.
    """


class CheckpointError(TunerError):
    """A checkpoint could not be written, read or verified."""


class StorageError(TunerError):
    """Experiment state could not be written or read."""


class ExperimentExists(StorageError):
    """The directory already holds an experiment."""


class ExperimentLocked(StorageError):
    """Another driver owns the experiment directory."""


class NotRunning(StorageError):
    """Nobody drives the experiment that somebody wants to steer."""


class StorageLost(StorageError):
    """The experiment's directory, its journal or its lock file was deleted, moved or unmounted while its driver was at work.

    Args:
        message: What has happened.
        is_deleted: Whether the file that held the newest results is gone.
        moved_to: Where that file is now, None if it is not known.
    """

    def __init__(
        self, message: str, *, is_deleted: bool = False, moved_to: str | None = None
    ) -> None:
        super().__init__(message)
        self.is_deleted = is_deleted
        self.moved_to = moved_to


class DamagedJournal(StorageError):
    """The journal holds records that do not verify, with good ones behind them.

    Args:
        message: What is wrong.
        path: The file, where it is one.
        offset: The byte of it.
    """

    def __init__(self, message: str, path: str | None = None, offset: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class TrainableNotPicklable(TunerError, TypeError):
    """The trainable, or something it captures, cannot be carried to a worker process."""


def trial_failed(message: str, kinds: Iterable[str] = ()) -> TrialFailed:
    """Return the error of a failed trial, of the type of one of Python's own exceptions as well where a name stands for one.

    Nothing of the training code's is rebuilt, whose classes may not be importable here; the names are enough for those of Python.

    Args:
        message: What is to be said.
        kinds: Names of the class of what was raised and of those that it is derived from, nearest first.

    Example:
        >>> error = trial_failed("trial t00000 failed: ValueError: no", ["ValueError"])
        >>> isinstance(error, ValueError), isinstance(error, TrialFailed), error
        (True, True, TrialFailed('trial t00000 failed: ValueError: no'))
    """
    for name in kinds:
        kind = getattr(builtins, name, None)
        if (
            isinstance(kind, type)
            and issubclass(kind, Exception)
            and kind is not Exception
            and not issubclass(kind, BaseExceptionGroup)
        ):
            return _failed_with(name)(message)
    return TrialFailed(message)


@functools.cache
def _failed_with(name: str) -> type[TrialFailed]:
    """Return the class of errors that are a `TrialFailed` and one of Python's exceptions, and look like the former."""
    kind: type[Exception] = getattr(builtins, name)

    def initialise(self: TrialFailed, message: str) -> None:
        Exception.__init__(
            self, message
        )  # what the kind itself wants to be told, such as where a text cannot be decoded, is not known

    def reduce(self: TrialFailed) -> tuple[Any, ...]:
        return trial_failed, (str(self), (name,)), self.__dict__ or None

    body = {
        "__init__": initialise,
        "__str__": Exception.__str__,
        "__reduce__": reduce,
        "__module__": __name__,
    }
    return type("TrialFailed", (TrialFailed, kind), {**body, "__doc__": TrialFailed.__doc__})
