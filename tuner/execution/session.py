"""What training code sees of its experiment, and how an attempt of it is run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from tuner.core.result import DONE
from tuner.core.trial import Failure
from tuner.storage.checkpoints import Checkpoint

from .attempt import Attempt, Channel, StopTraining, attached, current_attempt
from .failures import describe
from .metric_conversion import as_metrics
from .resources import PlacementGroupFactory
from .secrets import resolve_secrets
from .trainable import (
    Trainable,
    call_function,
    is_class_trainable,
    read_checkpoint,
    trainable_name,
    write_checkpoint,
)
from .worker_protocol import Assignment

__all__ = [
    "Channel",
    "StopTraining",
    "TuneContext",
    "checkpoint_dir",
    "get_checkpoint",
    "get_context",
    "report",
    "run_attempt",
]

SLOW_SETUP_S = 10.0
_log = logging.getLogger(__name__)


def report(metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
    """Report one result of the trial, and go on when the engine says so.

    Each report counts as one ``training_iteration``, unless the metrics hold a larger whole number by this name, which then counts.
    When it returns, result and checkpoint are safely stored; the checkpoint's directory may then be deleted. When the trial is to stop,
    it does not return but raises an exception that is no `Exception`, so that ``finally`` and context managers run; let it pass. May be
    called from any thread of the trial. Outside a trial it warns once and does nothing, so that training code also runs alone.

    Args:
        metrics: Numbers by name; nested dictionaries become ``"a/b"`` in tables. Other values see `values`.
        checkpoint: The state of the training at this result: a directory, copied, or, where it comes from `checkpoint_dir`, moved.

    Raises:
        TypeError: If `metrics` is no dictionary or `checkpoint` no `Checkpoint`.
        ValueError: If a name stands for two values, or if there are more than 1,000 names or 1 MiB.
        FileNotFoundError: If the checkpoint's directory does not exist.
        CheckpointError: If a link leads out of it; nothing has been reported then. Where the disk is full or fails, a warning in the
            trial's ``stderr`` says so and the metrics are reported without a checkpoint; the next one is tried again.
        RuntimeError: After the end of the trial, in processes that it has started, and in class trainables, which return their metrics
            from ``step``.
    """
    attempt = current_attempt()
    if attempt is None:
        _warn_of_no_trial()
    else:
        attempt.report(metrics, checkpoint)


@functools.cache
def _warn_of_no_trial() -> None:
    warnings.warn(
        "report was called outside a trial and does nothing; pass the function to Tuner to record results",
        stacklevel=3,
    )


def get_checkpoint() -> Checkpoint | None:
    """Return the latest checkpoint of the trial: on a retry, a restore or a resume the one to continue from.

    Returns:
        The checkpoint; None at the first start of a trial, and outside a trial. Where a trial takes over another's state, it is that
        one's checkpoint.
    """
    attempt = current_attempt()
    directory = attempt.latest_checkpoint_dir if attempt else None
    return Checkpoint(directory) if directory else None


@contextlib.contextmanager
def checkpoint_dir() -> Iterator[str]:
    """Lend an empty directory for a checkpoint, which is then stored by a rename instead of a copy.

    Report from within the ``with`` block; what has not been reported at its end is deleted. Outside a trial it is a temporary directory.

    Example:
        >>> with checkpoint_dir() as directory:
        ...     os.listdir(directory)
        []
    """
    attempt = current_attempt()
    with attempt.checkpoint_dir() if attempt else tempfile.TemporaryDirectory() as directory:
        yield directory


def get_context() -> TuneContext:
    """Return what training code may know about its trial.

    Raises:
        RuntimeError: Outside a trial.

    Departures:
        Ray Tune returns a context full of None outside a trial.
    """
    attempt = current_attempt()
    if attempt is None:
        raise RuntimeError(
            "get_context was called outside a trial; call it in the function that Tuner runs, or pass what it would tell"
        )
    return TuneContext(attempt.assignment, attempt.trainable_name)


@final
@dataclass(frozen=True, slots=True)
class TuneContext:
    """What training code may know about its trial."""

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
        """Return what the trial occupies, in one bundle; as a mapping e.g. ``{"cpu": 1.0, "gpu": 0.5}``."""
        return PlacementGroupFactory([self._assignment.resources])

    def get_seed(self) -> int:
        """Return the seed of the trial's own chance, the same in every attempt."""
        return self._assignment.seed

    def get_world_size(self) -> int:
        """Return 1: a trial is one process."""
        return 1

    def get_local_world_size(self) -> int:
        """Return 1."""
        return 1

    def get_world_rank(self) -> int:
        """Return 0."""
        return 0

    def get_local_rank(self) -> int:
        """Return 0."""
        return 0

    def get_node_rank(self) -> int:
        """Return 0."""
        return 0


def run_attempt(trainable: Any, assignment: Assignment, channel: Channel) -> Trainable | None:
    """Run one attempt of a trial, from ``started`` to the one ``exited``, whatever the training code does.

    Args:
        trainable: A function of the configuration, or a subclass of `Trainable`.
        assignment: What to do.
        channel: The connection to the driver.

    Returns:
        The object of a class trainable that has left for an exploit and waits to be reset, see `run_again`; None where all is over.

    Raises:
        OSError, EOFError: Only what the channel raises when the driver is gone.
    """
    is_class = is_class_trainable(trainable)
    attempt = Attempt(assignment, channel, trainable_name(trainable), can_report=not is_class)
    if not is_class:
        return _run(attempt, functools.partial(_run_function, trainable, attempt))
    return _run(
        attempt, functools.partial(_run_class, functools.partial(_set_up, trainable), attempt)
    )


def run_again(trainable: Trainable, assignment: Assignment, channel: Channel) -> Trainable | None:
    """Run the next attempt of a trial with the object that the last one has left behind, if that can be reset; see `run_attempt`."""
    attempt = Attempt(assignment, channel, trainable_name(type(trainable)), can_report=False)
    if not trainable.adopt(assignment, resolve_secrets(assignment.config)):
        channel.send({"kind": "unfit"})
        return None
    return _run(attempt, functools.partial(_run_class, lambda _: trainable, attempt))


def _run(attempt: Attempt, run: Callable[[], Trainable | None]) -> Trainable | None:
    with attached(attempt):
        attempt.start()
        left: list[Trainable] = []
        failure = _failure_of(run, left)
        attempt.finish(failure, stays=bool(left))
    return left[0] if left else None


def _failure_of(run: Callable[[], Trainable | None], left: list[Trainable]) -> Failure | None:
    """Return what went wrong, and add what waits for another attempt to `left`."""
    try:
        if trainable := run():
            left.append(trainable)
    except StopTraining:
        return None
    except SystemExit as leaving:
        return None if leaving.code is None or leaving.code == 0 else describe(leaving)
    except BaseException as error:  # noqa: BLE001  (training code may raise anything; the driver has to hear of it)
        return describe(error)
    return None


def _run_function(function: Any, attempt: Attempt) -> None:
    returned = call_function(function, resolve_secrets(attempt.assignment.config))
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
            f"{attempt.trainable_name} returned a {type(returned).__name__}, which is no result and is ignored; return metrics or nothing",
            stacklevel=2,
        )


def _drain(generator: Generator[Any, Any, Any], attempt: Attempt) -> Any:
    """Report each thing a generator yields; return what it returns."""
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
            "the training function returned an awaitable, and nobody awaits it; run it with asyncio.run inside the function"
        )


def _run_class(make: Callable[[Attempt], Trainable], attempt: Attempt) -> Trainable | None:
    trainable = make(attempt)
    if directory := attempt.assignment.checkpoint_dir:
        read_checkpoint(trainable, directory)
    is_done = False
    while not (is_done or attempt.is_told_to_leave):
        result = trainable.train()
        is_done = result[DONE]
        attempt.submit(
            result, functools.partial(write_checkpoint, trainable), trainable.take_replaced()
        )
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
            "setup of trial %s took %.1f s; load what all trials share once and pass it with with_parameters",
            trainable.trial_id,
            took_s,
        )
    return trainable
