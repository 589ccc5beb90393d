"""One attempt of a trial in its worker: reports, answers and checkpoints."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, final

from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION
from tuner.core.trial import (
    CheckpointRecord,
    Failure,
    ReportReply,
    checkpoint_directory_name,
)
from tuner.errors import CheckpointError
from tuner.storage.checkpoints import Checkpoint, Provenance, commit, commit_from, stage

from .answers import Answers
from .failures import as_message, describe
from .metric_conversion import Converter, note_replaced_iteration
from .preload import imported_since, missing, packages_since
from .report_options import (
    CheckpointConsistencyMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from .result_fields import AutoFill, counters_of, here
from .validation import NO_VALIDATION, ValidationContext
from .worker_protocol import Assignment

_CANNOT_SAVE = Failure(
    "NotImplementedError",
    "a function trainable cannot be asked for a checkpoint; "
    "report one with report(metrics, checkpoint=…)",
)


_STORAGE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE)
"""Errors of the storage, not of the training code; the next checkpoint may succeed."""
_FULL_BELOW_BYTES: Final = 2**20
"""Below this free space, any error of a library that writes a file counts as a full disk."""

_SAVING: Final = {"kind": "saving"}

_log = logging.getLogger("tuner")


class StopTraining(BaseException):
    """Raised by `report` to end the trial; code that catches it has to raise it again.

    It is no `Exception`, so ``except Exception`` does not catch it, while ``finally`` clauses and
    context managers run.
    """


class Channel(Protocol):
    """A worker's connection to the driver, for the messages of `worker_protocol`.

    Floats need not be finite.
    """

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait for the driver's next message; see `answers`."""


@final
class Attempt:
    """Reports the results of one attempt and follows the answers.

    Attributes:
        assignment: The driver's assignment.
        trainable_name: Name of the trainable.
        latest_checkpoint_dir: Directory of the trial's latest checkpoint: the one to continue from,
            later the last one reported.
        can_report: Whether training code calls `report`, as functions do.
        may_stay: Whether the process may wait for the trial's next attempt.
    """

    latest: ClassVar[Attempt | None] = None
    """The latest attempt of this process, to which threads started by training code belong."""

    def __init__(
        self,
        assignment: Assignment,
        channel: Channel,
        trainable_name: str,
        *,
        can_report: bool,
        validation: ValidationContext = NO_VALIDATION,
        answers: Answers | None = None,
    ) -> None:
        """Begin the attempt."""
        self._validation = validation
        self.assignment = assignment
        self.trainable_name = trainable_name
        self.latest_checkpoint_dir = assignment.checkpoint_dir
        self.can_report = can_report
        self._channel = channel
        self._answers = answers or Answers(channel)
        self._tokens = itertools.count(1)
        self._pid = os.getpid()  # to tell forks of training code from the trial's own process
        self._lock = threading.Lock()  # threads may report; each waits for its own answer
        self._verdict = ReportReply.CONTINUE
        self.may_stay = False
        self._missing = missing()
        self._num_modules = len(sys.modules)
        self._is_over = False
        self._could_not_save = False
        self._has_unread_answer = False
        self._next_checkpoint = assignment.next_checkpoint
        self._converter = Converter()
        self._autofill = AutoFill(assignment.trial_id, here())
        self._autofill.restore(assignment.iteration, assignment.time_total_s, assignment.counters)

    @property
    def must_end(self) -> bool:
        """Whether an answer said to stop or to pause."""
        return self._verdict is not ReportReply.CONTINUE

    def start(self) -> None:
        """Report that the training code is about to be called."""
        self._channel.send({"kind": "started", "pid": self._pid})
        self._autofill.resume()

    def finish(self, failure: Failure | None, *, stays: bool = False) -> None:
        """Report the end of the attempt, after which `report` is an error.

        Waits for a report of another thread that is under way.

        Args:
            failure: The failure, None without one.
            stays: Whether the process waits for the next attempt.
        """
        # A child that training code forked, and that returned from it, must not report the end.
        if os.getpid() != self._pid:
            return
        with self._lock:  # held by a report until it is answered
            self._is_over = True
        ends_well = "stopped" if self.must_end else "completed"
        ends_badly = "unsaved" if self._could_not_save else "failed"
        outcome = ends_badly if failure else ends_well
        message: dict[str, Any] = {
            "kind": "exited",
            "outcome": outcome,
            "failure": as_message(failure) if failure else None,
        }
        if late := imported_since(self._missing):
            message["late_imports"] = late
        if packages := packages_since(self._num_modules):
            message["packages"] = packages
        self._channel.send({**message, "stays": True} if stays else message)

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """Report metrics of a function trainable and wait for the answer; see `session.report`.

        Raises:
            StopTraining: If the answer, or an earlier one, is to stop.
            RuntimeError: If the attempt is over, if it is that of a class, which reports by
                returning from ``step``, or if it is that of another process.
            TypeError: If `metrics` is no dictionary or `checkpoint` no `Checkpoint`.
            ValueError: If the metrics cannot be reported, see `metric_conversion`.
            FileNotFoundError: If the checkpoint's directory does not exist.
            CheckpointError: If the directory cannot be committed, e.g. because a link leads out of
                it; nothing has been reported then. If the storage is at fault, the metrics are
                reported without the checkpoint, with a warning.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(
                "report was called in a child process of the trial; "
                "pass the metrics to the trial's own process and report there"
            )
        with self._lock:
            self._check_may_report()
            # Before anything else is done, which is not training.
            elapsed_s = self._autofill.elapsed_s()
            converted = self._converter.convert(metrics)
            name = (
                checkpoint_directory_name(self._next_checkpoint)
                if _is_checkpoint(checkpoint)
                else None
            )
            result = self._autofill.fill(converted, elapsed_s, name)
            record = None if checkpoint is None else self._commit_reported(checkpoint, result)
            if name and record is None:  # it could not be stored, so the result must not name it
                result = self._autofill.fill(converted, elapsed_s)
            # Only now: a report that raised has not happened, and can be repeated.
            self._autofill.count(result)
            note_replaced_iteration(self._converter, converted, result)
            answer = self._exchange(result, record, self._converter.take_replaced())
            if answer["save"]:
                self._channel.send({"kind": "save_failed", "failure": as_message(_CANNOT_SAVE)})
            if self.must_end:
                raise StopTraining(self._verdict)
            self._autofill.resume()

    def submit(
        self, result: dict[str, Any], write: Callable[[Path], None], replaced: Sequence[str] = ()
    ) -> None:
        """Report the complete result of a class trainable; save it if the answer says so.

        Args:
            result: The result.
            write: Writes the trainable's state into an empty directory.
            replaced: Names that ``step`` has reported and the engine has filled in.

        Raises:
            Exception: Raised by `write`; or `CheckpointError` if what it has written cannot be
                committed. If the storage is at fault, that is reported to the driver instead, and
                the trial may continue; unless it was to be paused with its first checkpoint.
        """
        with self._lock:
            answer = self._exchange(result, None, replaced)
            if answer["save"]:
                self._channel.send(self._saved(write, result))

    @contextmanager
    def checkpoint_dir(self) -> Iterator[str]:
        """Provide an empty directory on the trial's file system.

        A checkpoint reported from it is committed without a copy.
        """
        staging = stage(self.assignment.trial_dir, self._next_checkpoint, self.assignment.attempt)
        try:
            yield str(staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def reported_checkpoints(
        self, consistency: CheckpointConsistencyMode, timeout_s: float | None = None
    ) -> list[ReportedCheckpoint]:
        """Return the trial's checkpoints; see `tuner.train.get_all_reported_checkpoints`.

        It may be called while a report of another thread, or of another rank, waits.
        """
        waits = consistency is CheckpointConsistencyMode.VALIDATED
        try:
            listed = self._ask_for_checkpoints(timeout_s, waits=waits)
        except TimeoutError:
            listed = self._ask_for_checkpoints(None, waits=False)
        trial_dir = Path(self.assignment.trial_dir)
        return [
            ReportedCheckpoint(
                Checkpoint(trial_dir / CheckpointRecord(**record).directory),
                metrics,
                ReportedCheckpointStatus[status],
            )
            for record, metrics, status in listed
        ]

    def _ask_for_checkpoints(self, timeout_s: float | None, *, waits: bool) -> list[Any]:
        token = f"{self._pid}-list-{next(self._tokens)}"
        self._channel.send({"kind": "checkpoints", "token": token, "waits": waits})
        listed: list[Any] = self._answers.wait("checkpoints", token=token, timeout_s=timeout_s)[
            "list"
        ]
        return listed

    def _check_may_report(self) -> None:
        if not self.can_report:
            raise RuntimeError(
                "report is for function trainables; "
                "return the metrics from step, and save in save_checkpoint"
            )
        if self._is_over:
            raise RuntimeError(
                f"trial {self.assignment.trial_id} is over, nothing can be reported any more; "
                "join threads before returning"
            )
        if self._has_unread_answer:
            self._read_answer()
        if self.must_end:
            raise StopTraining(self._verdict)

    def _exchange(
        self, result: dict[str, Any], record: dict[str, Any] | None, replaced: Sequence[str]
    ) -> Mapping[str, Any]:
        message = {"kind": "result", "metrics": result, "checkpoint": record}
        self._channel.send({**message, "replaced": list(replaced)} if replaced else message)
        self._has_unread_answer = True
        return self._read_answer()

    def _read_answer(self) -> Mapping[str, Any]:
        # A signal handler of the user's may raise in receive. The flag then makes the next report
        # read this answer first, so that it is not taken for its own.
        answer = self._answers.wait("verdict")
        self._has_unread_answer = False
        self._verdict = ReportReply(answer["verdict"])
        self.may_stay = bool(answer.get("stay"))
        Attempt.latest = self
        return answer

    def _commit_reported(
        self, checkpoint: Checkpoint, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        self._channel.send(_SAVING)
        try:
            return self._commit_from(checkpoint, result)
        except BaseException as error:
            self._channel.send({"kind": "save_failed", "failure": as_message(describe(error))})
            raise

    def _commit_from(self, checkpoint: Checkpoint, result: dict[str, Any]) -> dict[str, Any] | None:
        try:
            with checkpoint.as_directory() as source:
                directory = commit_from(
                    source,
                    self.assignment.trial_dir,
                    self._provenance(result),
                    sync=self.assignment.sync_checkpoints,
                )
        except CheckpointError as error:
            if not _is_storage_error(error):
                raise
            _log.warning(
                "trial %s continues without a checkpoint that could not be saved: %s",
                self.assignment.trial_id,
                error,
            )
            return None
        return self._record(directory, result)

    def _saved(self, write: Callable[[Path], None], result: dict[str, Any]) -> dict[str, Any]:
        has_room = True
        try:
            with self.checkpoint_dir() as staging:
                try:
                    write(Path(staging))
                except Exception:
                    # Before what was written is deleted.
                    has_room = _has_room(self.assignment.trial_dir)
                    raise
                self._channel.send(_SAVING)
                sync = self.assignment.sync_checkpoints
                directory = commit(
                    staging, self.assignment.trial_dir, self._provenance(result), sync=sync
                )
        except Exception as error:
            # A paused trial without any checkpoint would start from the beginning.
            is_needed = self._verdict is ReportReply.PAUSE and self.latest_checkpoint_dir is None
            if is_needed or (has_room and not _is_storage_error(error)):
                self._could_not_save = True
                raise
            return {"kind": "save_failed", "failure": as_message(describe(error))}
        return {"kind": "saved", "checkpoint": self._record(directory, result)}

    def _provenance(self, result: dict[str, Any]) -> Provenance:
        index, attempt = self._next_checkpoint, self.assignment.attempt
        return Provenance(
            self.assignment.trial_id, attempt, index, result[TRAINING_ITERATION], result
        )

    def _record(self, directory: Path, result: dict[str, Any]) -> dict[str, Any]:
        index = self._next_checkpoint
        self._next_checkpoint += 1
        self.latest_checkpoint_dir = str(directory)
        return {
            "index": index,
            "iteration": result[TRAINING_ITERATION],
            "time_total_s": result[TIME_TOTAL_S],
            "counters": counters_of(result),
        }


_current: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


@contextmanager
def attached(attempt: Attempt) -> Iterator[None]:
    """Make this the attempt of the current thread and of threads started by training code."""
    token = _current.set(attempt)
    Attempt.latest = attempt
    try:
        yield
    finally:
        _current.reset(token)


def current_attempt() -> Attempt | None:
    """Return the attempt that the calling code belongs to, None outside all attempts.

    A thread started by training code belongs to the attempt of this process; if trials take turns
    in one process, to the one whose turn it is.
    """
    # Threads start with an empty context, and libraries start threads of their own.
    attempt = _current.get()
    if attempt is None and threading.current_thread() is not threading.main_thread():
        return Attempt.latest
    return attempt


def _has_room(directory: str | os.PathLike[str]) -> bool:
    """Return whether the disk is not full."""
    try:
        return shutil.disk_usage(directory).free >= _FULL_BELOW_BYTES
    except OSError:  # the directory is gone; that is another failure
        return True


def _is_storage_error(error: BaseException) -> bool:
    """Return whether an exception, or one that led to it, is due to a full or failing disk."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, OSError) and cause.errno in _STORAGE_ERRORS:
            return True
        seen.add(id(cause))  # a chain of causes may be circular
        cause = cause.__cause__ or cause.__context__
    return False


def _is_checkpoint(checkpoint: Checkpoint | None) -> bool:
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint is not None
    raise TypeError(
        f"checkpoint must be a Checkpoint, got {checkpoint!r}; "
        "write checkpoint=Checkpoint.from_directory(path)"
    )
