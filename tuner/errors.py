"""The engine's exceptions.

Bad arguments raise `ValueError` or `TypeError` at construction. Later errors derive from
`TunerError`::

    TunerError
    ├── InvalidTransition      an event that the state machine does not accept: a defect of tuner
    ├── InvalidDecision        an invalid decision: a defect of the scheduler
    ├── CannotPause            the scheduler pauses trials that report no checkpoint
    ├── LeaseRefused           resources that an experiment inside a trial can never have
    │   └── ResourceDeadlock   since all that hold resources wait for each other
    ├── NotGranted             a control request that cannot be carried out
    ├── MetricNotReported      the metric to optimise is in no result of any trial
    ├── TrialFailed            a trial failed; also an instance of the built-in exception raised
    ├── CheckpointError        a checkpoint could not be written or read
    ├── StorageError           experiment state could not be written or read
    │   ├── ExperimentExists   the directory already holds an experiment
    │   ├── ExperimentLocked   another driver owns the directory
    │   ├── NotRunning         a control request to an experiment that is not running
    │   ├── StorageLost        the directory was deleted, moved or unmounted during the run
    │   │   └── ExperimentFenced  another driver has taken over the experiment during the run
    │   ├── StorageUnreachable an object store did not answer, or refused its credentials
    │   └── DamagedJournal     records that do not verify
    ├── ClusterError           a cluster cannot be reached, or no node of it can be used
    └── TrainableNotPicklable  a trainable that cannot be sent to a worker
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterable, Mapping
from typing import Any


class TunerError(Exception):
    """Base class of the engine's run-time errors."""


class InvalidTransition(TunerError):
    """The state machine does not accept an event in its present state."""


class InvalidDecision(TunerError):
    """A scheduler returned something that is no decision, or decided about an unknown trial."""


class CannotPause(TunerError):
    """The scheduler pauses trials, but the training code reports no checkpoint to continue from."""


class MetricNotReported(TunerError, ValueError):
    """A trial completed, and no trial has reported the metric to optimise: often it is misspelt."""


class NotGranted(TunerError):
    """A control request to a running experiment cannot be carried out."""


class LeaseRefused(TunerError):
    """A trial or a validation cannot have the resources for an experiment of its own."""


class ResourceDeadlock(LeaseRefused):
    """All processes that hold resources wait for each other's."""


class TrialFailed(TunerError):
    """A trial failed: ``result.error``, raised with ``fail_fast="raise"`` and by ``tune.run``.

    Where the training code raised one of Python's built-in exceptions, or one derived from it, the
    error is an instance of that too, so that ``isinstance(result.error, ValueError)`` and
    ``except ValueError`` work; see `trial_failed`.
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
    """The experiment of a control request is not running."""


class StorageLost(StorageError):
    """The directory, journal or lock file was deleted, moved or unmounted during the run.

    Args:
        message: What happened.
        is_deleted: Whether the file that held the newest results was deleted.
        moved_to: Where that file is now, None if that is unknown.
    """

    def __init__(
        self, message: str, *, is_deleted: bool = False, moved_to: str | None = None
    ) -> None:
        super().__init__(message)
        self.is_deleted = is_deleted
        self.moved_to = moved_to


class ExperimentFenced(StorageLost):
    """Another driver has taken over an experiment in an object store; this one must stop."""


class StorageUnreachable(StorageError):
    """An object store did not answer for as long as was retried, or refused the request for good.

    The cause is the error of the library.
    """


class DamagedJournal(StorageError):
    """The journal holds records that do not verify, followed by good ones.

    Args:
        message: What is wrong.
        path: The damaged file, None where several files or none are concerned.
        offset: The byte at which the damage begins.
    """

    def __init__(self, message: str, path: str | None = None, offset: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class ClusterError(TunerError):
    """A cluster cannot be reached, or none of its nodes can run trials."""


class TrainableNotPicklable(TunerError, TypeError):
    """The trainable, or something it captures, cannot be pickled for a worker process."""


def missing_name(owner: str, name: str, replacements: Mapping[str, str]) -> AttributeError:
    """Return the error for a name that does not exist, with the alternative to Ray Tune's.

    Args:
        owner: What lacks it, e.g. ``"module 'tuner'"``.
        name: The name.
        replacements: Names of Ray Tune that do not exist here, each with the alternative.
    """
    hint = f"; {replacements[name]}" if name in replacements else ""
    return AttributeError(f"{owner} has no attribute {name!r}{hint}", name=name)


def trial_failed(message: str, kinds: Iterable[str] = ()) -> TrialFailed:
    """Return the error of a failed trial, which is a built-in exception too where one was raised.

    The exception of the training code is not rebuilt, since its class may not be importable here;
    for built-in exceptions the name is enough.

    Args:
        message: The message.
        kinds: Names of the class of the exception raised and of its bases, nearest first.

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
    """Return the class that derives from `TrialFailed` and a built-in exception."""
    # Cached, so that two errors of the same kind have the same type.
    kind: type[Exception] = getattr(builtins, name)

    def initialise(self: TrialFailed, message: str) -> None:
        # The built-in class may need other arguments, as UnicodeDecodeError does.
        Exception.__init__(self, message)

    def reduce(self: TrialFailed) -> tuple[Any, ...]:
        # pickle cannot find the class by its name, since it is not an attribute of this module.
        return trial_failed, (str(self), (name,)), self.__dict__ or None

    body = {
        "__init__": initialise,
        "__str__": Exception.__str__,
        "__reduce__": reduce,
        "__module__": __name__,
    }
    return type("TrialFailed", (TrialFailed, kind), {**body, "__doc__": TrialFailed.__doc__})


def error_of_trial(
    trial_id: str, what: str, traceback: str, bases: Iterable[str] = ()
) -> TrialFailed:
    """Return the exception for a failed trial, with the traceback among its notes.

    Args:
        trial_id: The trial.
        what: The exception, e.g. ``"ValueError: no"``.
        traceback: Its traceback.
        bases: Names of the base classes of the exception's class, if they are known.
    """
    error = trial_failed(f"trial {trial_id} failed: {what}", (what.partition(":")[0], *bases))
    if traceback:
        error.add_note(traceback)
    return error
