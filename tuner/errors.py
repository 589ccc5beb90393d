"""The engine's exceptions.

Bad arguments raise `ValueError` or `TypeError` at construction. What goes wrong later raises a child of `TunerError`::

    TunerError
    ├── InvalidTransition      an event that the state machine does not accept: a defect of the engine or an executor
    ├── InvalidDecision        something that no scheduler may say: a defect of the scheduler
    ├── NotGranted             something that was asked of a running experiment and cannot be done
    ├── MetricNotReported      the metric to optimise is in no result of any trial
    ├── TrialFailed            a trial failed and the experiment was told to raise
    ├── CheckpointError        a checkpoint that could not be written or read
    ├── StorageError           experiment state that could not be written or read
    │   ├── ExperimentExists   the directory already holds an experiment
    │   ├── ExperimentLocked   another driver owns the directory
    │   ├── NotRunning         nobody drives the experiment that is to be steered
    │   ├── StorageLost        the experiment's directory was deleted, moved or unmounted while its driver was at work
    │   └── DamagedJournal     records that do not verify
    └── TrainableNotPicklable  a trainable that cannot be carried to a worker
"""


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
    """A trial failed and ``fail_fast="raise"`` asked for it to be raised."""


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

    def __init__(self, message: str, *, is_deleted: bool = False, moved_to: str | None = None) -> None:
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
