"""The API for training code (`report`, checkpoints, context), and running an attempt."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

from tuner.core.result import DONE
from tuner.core.worker_records import Failure
from tuner.storage.checkpoints import Checkpoint

from .answers import Answers
from .assignment import Assignment
from .attempt import Attempt, Channel, StopTraining, attached, current_attempt
from .class_trainable import Trainable, read_checkpoint, write_checkpoint
from .metric_conversion import as_metrics
from .resources import PlacementGroupFactory
from .secrets import resolve_secrets
from .trainable import call_function, is_class_trainable, trainable_name
from .validation import ValidationContext
from .validation_assignment import NOT_DECLARED, DeclaredValidator

__all__ = [
    "Channel",
    "StopTraining",
    "StorageContext",
    "TuneContext",
    "checkpoint_dir",
    "get_checkpoint",
    "get_context",
    "report",
    "run_attempt",
]

SLOW_SETUP_S = 10.0
_TRAIN_OPTIONS = frozenset(
    {
        "checkpoint_dir_name",
        "checkpoint_upload_mode",
        "delete_local_checkpoint_after_upload",
        "checkpoint_upload_fn",
        "validate_fn",
        "validate_config",
    }
)
"""Options of `tuner.train.report` that are no names of metrics; `validation` may be one."""
_master_sockets: list[int] = []
"""Descriptor of the socket at which rank 0 of a group is to listen, until it is taken."""
_log = logging.getLogger(__name__)


def report(
    metrics: Mapping[str, Any] | None = None, checkpoint: Checkpoint | None = None, **more: Any
) -> None:
    """Report one result of the trial and wait for the engine's answer.

    Each report counts as one ``training_iteration``, unless the metrics contain a larger whole
    number under this name, which then counts. When `report` returns, result and checkpoint are
    stored, and the checkpoint's directory may be deleted.

    To stop the trial, `report` raises an exception that is not an `Exception` (see `StopTraining`),
    so that ``finally`` clauses and context managers run; do not catch it. `report` may be called
    from any thread of the trial. Outside a trial it prints the metrics, so that training code also
    runs by itself.

    Args:
        metrics: Numbers by name; nested dictionaries become ``"a/b"`` in tables. For other values
            see `metric_conversion`.
        checkpoint: The state of the training at this result. Its directory is copied; one from
            `checkpoint_dir` is moved.
        **more: Metrics as keywords: ``report(loss=0.5)``.

    Raises:
        TypeError: If `metrics` is no dictionary or `checkpoint` no `Checkpoint`, or a keyword is an
            option of `tuner.train.report`.
        ValueError: If a metric is given twice, a name stands for two values, or there are more than
            1,000 names or 1 MiB.
        FileNotFoundError: If the checkpoint's directory does not exist.
        CheckpointError: If a link leads out of the directory; nothing has been reported then. If
            the disk is full or fails, there is no exception: the metrics are reported without the
            checkpoint, with a warning in the trial's ``stderr``.
        RuntimeError: After the end of the trial, in processes that it has started, and in class
            trainables, which return their metrics from ``step``.
    """
    attempt = current_attempt()
    if attempt is not None:
        attempt.report(_joined(metrics, more), checkpoint)
    elif (session := outer_session()) is not None:
        session.report(_joined(metrics, more), checkpoint)
    else:
        _print(_joined(metrics, more))


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _joined(metrics: Any, more: Mapping[str, Any]) -> Any:
    """Return metrics with those that were given as keywords."""
    for name, value in more.items():
        if name in _TRAIN_OPTIONS or (name == "validation" and not _is_number(value)):
            raise TypeError(
                f"keywords must be metrics, got {name}={value!r:.80}, an option of "
                "tuner.train.report; write from tuner import train and train.report(...)"
            )
    if metrics is None and not more:
        raise TypeError("report needs metrics, got none; write report({'loss': loss})")
    if metrics is None:
        return more
    if not more or not isinstance(metrics, Mapping):  # refused in the same way as without keywords
        return metrics
    if twice := metrics.keys() & more.keys():
        raise ValueError(
            f"{min(twice)!r} must be given once, got {metrics[min(twice)]!r:.80} in metrics and "
            f"{more[min(twice)]!r:.80} as a keyword; leave one of them out"
        )
    return {**metrics, **more}


def _print(metrics: Any) -> None:
    """Print metrics that belong to no trial."""
    shown = metrics.items() if isinstance(metrics, Mapping) else [("metrics", metrics)]
    print("  ".join(f"{name}: {value}" for name, value in shown), flush=True)  # noqa: T201


def get_checkpoint() -> Checkpoint | None:
    """Return the latest checkpoint of the trial, from which a later attempt has to continue.

    Returns:
        The checkpoint; None at the first start of a trial, and outside a trial. If the trial takes
        over the state of another one, it is that trial's checkpoint.
    """
    asked = current_attempt() or outer_session()
    directory = asked.ask_for_checkpoint() if asked else None
    return Checkpoint(directory) if directory else None


@contextlib.contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """Provide an empty directory for a checkpoint, which is then stored by renaming, not copying.

    Report the checkpoint inside the ``with`` block, at whose end an unreported one is deleted.
    Outside a trial it is a temporary directory.

    Args:
        step: Where it is given, as in code written for Ray Tune 1, what was written in the block is
            the checkpoint of the next report. It does not name the checkpoint; those of a trial are
            numbered.

    Example:
        >>> with checkpoint_dir() as directory:
        ...     os.listdir(directory)
        []
    """
    attempt = current_attempt()
    is_kept = step is not None
    with (
        attempt.checkpoint_dir(is_kept=is_kept)
        if attempt
        else tempfile.TemporaryDirectory() as directory
    ):
        yield directory


def get_context() -> TuneContext:
    """Return information about the trial that this code belongs to.

    Raises:
        RuntimeError: Outside a trial.

    Departures:
        Ray Tune returns a context full of None outside a trial.
    """
    attempt = current_attempt()
    if attempt is None:
        if (session := outer_session()) is not None:
            return TuneContext(session.assignment, session.trainable_name)
        raise RuntimeError(
            "get_context was called outside a trial; "
            "call it in the function that Tuner runs, or pass the information as an argument"
        )
    return TuneContext(attempt.assignment, attempt.trainable_name)


class OuterSession(Protocol):
    """Answers training code outside all attempts: in a program that a trial has started.

    Attributes:
        assignment: The trial's attempt, as far as the program is told of it.
        trainable_name: Name of the trainable.
    """

    assignment: Assignment
    trainable_name: str

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        """Report a result; see `report`."""

    def ask_for_checkpoint(self) -> str | None:
        """Return the directory of the checkpoint to continue from."""


@functools.cache
def outer_session() -> OuterSession | None:
    """Return the session that the environment names, None for none.

    ``TUNER_SESSION`` is a module whose function ``connect`` returns it. Whoever starts the process
    sets it, so that this package knows none of them.
    """
    name = os.environ.get("TUNER_SESSION")
    session: OuterSession | None = importlib.import_module(name).connect() if name else None
    return session


def give_master_socket(descriptor: int) -> None:
    """Keep the descriptor of a listening socket for `take_master_socket`."""
    _master_sockets.append(descriptor)


def take_master_socket() -> int | None:
    """Return the descriptor of the socket at which this worker is to listen for the others.

    It is bound to ``MASTER_ADDR`` and ``MASTER_PORT``, and belongs to the caller from then on.

    Returns:
        The descriptor; None where it was taken before, on other ranks than 0, and without a group.
    """
    return _master_sockets.pop() if _master_sockets else None


@final
@dataclass(frozen=True, slots=True)
class TuneContext:
    """Information about a trial for its training code."""

    _assignment: Assignment
    _trainable_name: str

    def get_experiment_name(self) -> str:
        """Return the name of the experiment."""
        return self._assignment.experiment_name

    def get_trial_id(self) -> str:
        """Return the id of the trial."""
        return self._assignment.trial_id

    def get_trial_name(self) -> str:
        """Return the name of the trainable and the id of the trial."""
        return f"{self._trainable_name}_{self._assignment.trial_id}"

    def get_trial_dir(self) -> str:
        """Return the trial's directory, absolute; files written there stay with the experiment."""
        return os.fspath(self._assignment.trial_dir)

    def get_trial_resources(self) -> PlacementGroupFactory:
        """Return the trial's resources, as a mapping e.g. ``{"cpu": 1.0, "gpu": 0.5}``."""
        return PlacementGroupFactory([self._assignment.resources])

    def get_seed(self) -> int:
        """Return the seed for the trial's random numbers, the same in every attempt."""
        return self._assignment.seed

    def get_world_size(self) -> int:
        """Return the number of workers that train the trial together, 1 without a group."""
        return self._assignment.rank.world_size if self._assignment.rank else 1

    def get_world_rank(self) -> int:
        """Return the number of this worker among them, from 0."""
        return self._assignment.rank.world_rank if self._assignment.rank else 0

    def get_local_world_size(self) -> int:
        """Return how many of them run on this machine."""
        return self._assignment.rank.local_world_size if self._assignment.rank else 1

    def get_local_rank(self) -> int:
        """Return the number of this worker among those on this machine, from 0."""
        return self._assignment.rank.local_rank if self._assignment.rank else 0

    def get_node_rank(self) -> int:
        """Return the number of this machine among those of the group, from 0."""
        return self._assignment.rank.node_rank if self._assignment.rank else 0

    def get_storage(self) -> StorageContext:
        """Return where the experiment and the trial are stored."""
        return StorageContext(self.get_trial_dir())


@final
@dataclass(frozen=True, slots=True)
class StorageContext:
    """Where an experiment is stored.

    Attributes:
        trial_dir: The trial's directory, in which its checkpoints lie.
    """

    trial_dir: str

    @property
    def experiment_fs_path(self) -> str:
        """The experiment's directory."""
        return os.path.dirname(self.trial_dir)  # noqa: PTH120  (a string, as in Ray Train)

    @property
    def storage_fs_path(self) -> str:
        """The directory in which the experiment's directory lies."""
        return os.path.dirname(self.experiment_fs_path)  # noqa: PTH120

    @property
    def experiment_dir_name(self) -> str:
        """Name of the experiment's directory."""
        return os.path.basename(self.experiment_fs_path)  # noqa: PTH119

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Return the path of a checkpoint of this name, in the trial's directory.

        Raises:
            ValueError: If the name leads out of that directory.
        """
        if not checkpoint_name or os.path.basename(checkpoint_name) != checkpoint_name:  # noqa: PTH119
            raise ValueError(
                "checkpoint_name must be the name of a directory inside the trial's, got "
                f"{checkpoint_name!r}; leave out slashes"
            )
        return os.path.join(self.trial_dir, checkpoint_name)  # noqa: PTH118


def run_attempt(
    trainable: Any,
    assignment: Assignment,
    channel: Channel,
    validator: DeclaredValidator = NOT_DECLARED,
    answers: Answers | None = None,
) -> Trainable | None:
    """Run one attempt of a trial: sends ``started`` first and exactly one ``exited`` last.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        assignment: The attempt.
        channel: The connection to the driver.
        validator: The validation function declared with the experiment.
        answers: What the driver sends, if something else waits for it, too.

    Returns:
        The object of a class trainable that can be reset for the next attempt, see `run_again`;
        None if the process is to end.

    Raises:
        OSError, EOFError: From the channel, if the driver is gone.
    """
    is_class = is_class_trainable(trainable)
    attempt = Attempt(
        assignment,
        channel,
        trainable_name(trainable),
        can_report=not is_class,
        validation=ValidationContext(trainable, validator),
        answers=answers,
    )
    if not is_class:
        return _run(attempt, functools.partial(_run_function, trainable, attempt))
    return _run(
        attempt, functools.partial(_run_class, functools.partial(_set_up, trainable), attempt)
    )


def run_again(
    trainable: Trainable,
    assignment: Assignment,
    channel: Channel,
    answers: Answers | None = None,
) -> Trainable | None:
    """Run the next attempt with the object of the previous one if it can be reset.

    Sends ``unfit`` otherwise; else as `run_attempt`. What `reset_config` raises fails the attempt.
    """
    name = trainable_name(type(trainable))
    attempt = Attempt(assignment, channel, name, can_report=False, answers=answers)
    try:
        is_fit = trainable.adopt(assignment, resolve_secrets(assignment.config))
    except BaseException as error:  # noqa: BLE001  (training code may raise anything)
        return _run(attempt, functools.partial(_raise, error))
    if not is_fit:
        channel.send({"kind": "unfit"})
        return None
    return _run(attempt, functools.partial(_run_class, lambda _: trainable, attempt))


def _raise(error: BaseException) -> None:
    raise error


def _run(attempt: Attempt, run: Callable[[], Trainable | None]) -> Trainable | None:
    reusable: Trainable | None = None
    failure: Failure | None = None
    with attached(attempt):
        attempt.start()
        try:
            reusable = run()
        except StopTraining:
            pass  # how a trial stops; the outcome follows from the answer
        except SystemExit as error:
            if error.code not in (None, 0):
                failure = attempt.describe(error)
        except BaseException as error:  # noqa: BLE001  (training code may raise anything)
            failure = attempt.describe(error)
        attempt.finish(failure, stays=reusable is not None)
    return reusable


def _run_function(function: Any, attempt: Attempt) -> None:
    config = resolve_secrets(attempt.assignment.config)
    returned = call_function(function, config, attempt.ask_for_checkpoint)
    if inspect.isgenerator(returned):
        returned = _drain(returned, attempt)
    if returned is None:
        return
    metrics = as_metrics(returned)
    if isinstance(metrics, Mapping):
        attempt.report(metrics)
    else:
        _refuse_awaitable(returned)
        warnings.warn(
            f"{attempt.trainable_name} returned a {type(returned).__name__}, which is not a result "
            "and is ignored; return metrics or nothing",
            stacklevel=2,
        )


def _drain(generator: Generator[Any, Any, Any], attempt: Attempt) -> Any:
    """Report each value that a generator yields; return its return value."""
    # Closed if `report` raises, so that the generator's ``finally`` clauses run.
    with contextlib.closing(generator):
        while True:
            try:
                yielded = next(generator)
            except StopIteration as end:
                return end.value
            attempt.report(as_metrics(yielded))


def _refuse_awaitable(returned: Any) -> None:
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError(
            "the training function returned an awaitable, which is never awaited; "
            "run it with asyncio.run inside the function"
        )


def _run_class(make: Callable[[Attempt], Trainable], attempt: Attempt) -> Trainable | None:
    trainable = make(attempt)
    if directory := attempt.assignment.checkpoint_dir:
        read_checkpoint(trainable, directory)
    is_done = False
    # `submit` does not raise StopTraining, as `report` does: between steps, the loop can just end.
    while not (is_done or attempt.must_end):
        result = trainable.train()
        is_done = result[DONE]
        attempt.submit(
            result, functools.partial(write_checkpoint, trainable), trainable.take_replaced()
        )
    # Whether `reset_config` works shows only when it is called; most classes do not have it at all.
    if (
        attempt.may_stay
        and not is_done
        and type(trainable).reset_config is not Trainable.reset_config
    ):
        return trainable
    trainable.stop()
    return None


def _set_up(trainable_class: type[Trainable], attempt: Attempt) -> Trainable:
    began_s = time.monotonic()
    trainable = trainable_class(
        resolve_secrets(attempt.assignment.config), assignment=attempt.assignment
    )
    took_s = time.monotonic() - began_s
    if took_s > SLOW_SETUP_S:
        _log.info(
            "setup of trial %s took %.1f s; "
            "load what all trials share once and pass it with with_parameters",
            trainable.trial_id,
            took_s,
        )
    return trainable
