"""One attempt of a trial in its worker: reports, answers and checkpoints."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeGuard, final

from tuner.background import BackgroundJobs
from tuner.core.result import TIME_TOTAL_S, TRAINING_ITERATION
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply
from tuner.errors import CheckpointError
from tuner.storage.checkpoint_directories import commit, is_staged, stage
from tuner.storage.checkpoint_names import common_token
from tuner.storage.checkpoints import Checkpoint
from tuner.storage.manifest import Provenance
from tuner.storage.urls import join_url
from tuner.wire.declared import decode, encode

from .answers import Answers
from .assignment import Assignment
from .checkpoint_part import Part, PartKind
from .checkpoint_uploads import (
    MAX_OUTSTANDING,
    CheckpointPlan,
    delete_local,
    keep_from_deletion,
    plan_checkpoint,
    prepare_part,
    source_of,
    store,
    wait_for_uploads,
    watch_for_changes,
)
from .failures import as_message, describe
from .metric_conversion import Converter, note_replaced_iteration
from .preload import imported_since, missing, packages_since
from .report_options import (
    NO_OPTIONS,
    CheckpointUploadMode,
    ReportOptions,
    ValidationTask,
)
from .result_fields import AutoFill, counters_of, here
from .storage_failures import StorageFailures, is_storage_error
from .validation import NO_VALIDATION, ValidationContext

CANNOT_SAVE = Failure(
    "NotImplementedError",
    "a function trainable cannot be asked for a checkpoint; "
    "report one with report(metrics, checkpoint=…)",
)


_SAVING: Final = {"kind": "saving"}
_ERRORS: Final = {"ValueError": ValueError, "CheckpointError": CheckpointError}
"""Exceptions that an answer may have `report` raise."""

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
        """Send a message; threads may do so at the same time."""

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
        interruption: Why and by when the latest answer has it leave, see `worker_protocol`; None
            where the trial goes on, or is over.
        may_stay: Whether the process may wait for the trial's next attempt.
        checkpoint_observers: Called at the end of each report with which this worker, or another
            one of its group, has reported a checkpoint.
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
        self.checkpoint_observers: list[Callable[[], None]] = []
        self._channel = channel
        self._answers = answers or Answers(channel)
        self._tokens = itertools.count(1)
        self._pid = os.getpid()  # to tell forks of training code from the trial's own process
        self._lock = threading.Lock()  # threads may report; each waits for its own answer
        self._verdict = ReportReply.CONTINUE
        self.interruption: Mapping[str, Any] | None = None
        self.may_stay = False
        self._missing = missing()
        self._num_modules = len(sys.modules)
        self._is_over = False
        self._could_not_save = False
        self._has_unread_answer = False
        self._next_checkpoint = assignment.next_checkpoint
        rank = assignment.rank
        self._rank = rank.world_rank if rank and rank.world_size > 1 else None
        """Rank in a group, None for a process that stores its checkpoints alone."""
        self._uploads: BackgroundJobs | None = None
        """Checkpoints that are stored while training goes on, from the first one on."""
        self._storage_failures = StorageFailures(assignment.trial_dir)
        self._num_reports = self._num_lent = 0
        self._kept: Path | None = None
        """Directory with a checkpoint that goes with the next report."""
        self._unasked = assignment.checkpoint_dir
        """The checkpoint to continue from, until the training code asks for it."""
        self._lent: list[Path] = []
        self._converter = Converter()
        self._autofill = AutoFill(assignment.trial_id, here())
        self._autofill.restore(assignment.iteration, assignment.time_total_s, assignment.counters)

    @property
    def must_end(self) -> bool:
        """Whether an answer said to stop or to pause."""
        return self._verdict is not ReportReply.CONTINUE

    def ask_for_checkpoint(self) -> str | None:
        """Return `latest_checkpoint_dir` to the training code, which is to load it."""
        self._unasked = None
        return self.latest_checkpoint_dir

    def offer(self, checkpoint: str) -> None:
        """Expect the training code to ask for this checkpoint if the trial has none of its own."""
        if self.latest_checkpoint_dir is None:
            self._unasked = checkpoint

    def start(self) -> None:
        """Report that the training code is about to be called."""
        self._send({"kind": "started", "pid": self._pid})
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
            if self._drop_kept() and not (failure or self.must_end):
                _log.warning(
                    "trial %s has written a checkpoint after its last report, which is dropped; "
                    "write it before the report that it belongs to",
                    self.assignment.trial_id,
                )
            not_stored = self._drain_uploads()
        failure = failure or not_stored
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
        self._send({**message, "stays": True} if stays else message)
        if self._rank is not None:
            # Others may still need what this process hosts, such as the store of a process group.
            self._answers.wait("leave")
            for directory in self._lent:
                shutil.rmtree(directory, ignore_errors=True)

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None = None,
        options: ReportOptions = NO_OPTIONS,
    ) -> None:
        """Report metrics of a function trainable and wait for the answer; see `session.report`.

        In a group it returns once all workers have reported.

        Args:
            metrics: The metrics.
            checkpoint: The state of the training at this result, or this worker's part of it.
            options: How the checkpoint is stored and validated.

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
            checkpoint = self._or_kept(checkpoint)
            self._check_validation(options, has_checkpoint=checkpoint is not None)
            plan = self._plan(checkpoint, options)
            result = self._autofill.fill(converted, elapsed_s, plan.directory if plan else None)
            # Before anything is stored, since it raises where the arguments cannot be pickled.
            asked = self._validation_fields(options.validation) if options.validation else {}
            fields = self._store_reported(plan, result) if plan else {}
            ignored = {"ignored": self._unasked} if self._unasked and not self._num_reports else {}
            if plan and not fields:  # it could not be stored, so the result must not name it
                result = self._autofill.fill(converted, elapsed_s)
            if fields or self._rank is not None:
                fields |= asked
            message = {**fields, **ignored}
            # Only now: a report that raised has not happened, and can be repeated.
            counted = self._autofill.counted()
            self._autofill.count(result)
            note_replaced_iteration(self._converter, converted, result)
            index = self._next_checkpoint
            self._next_checkpoint += bool(fields.keys() & {"checkpoint", "upload"})
            answer = self._exchange(result, message, self._converter.take_replaced())
            if error := answer.get("error"):
                self._autofill.recount(counted)
                raise _ERRORS.get(error["kind"], RuntimeError)(error["message"])
            self._num_reports += 1
            self._num_lent = 0
            self._drop_kept()  # stored, or another one was reported
            if plan and self._next_checkpoint > index:
                self._follow_up(plan, index, result, answer)
            # In a group the answer has counted the checkpoint of any rank.
            if plan or self._next_checkpoint > index:
                for observe in self.checkpoint_observers:
                    observe()
            if answer["save"]:
                self._send({"kind": "save_failed", "failure": as_message(CANNOT_SAVE)})
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
            answer = self._exchange(result, {}, replaced)
            if answer["save"]:
                self._send(self._saved(write, result))

    @contextmanager
    def checkpoint_dir(self, *, is_kept: bool = False) -> Iterator[str]:
        """Provide an empty directory on the trial's file system.

        A checkpoint reported from it is committed without a copy. In a group all workers get the
        same directory, if each calls this as often as the others between two reports.

        Args:
            is_kept: Whether what was written there and not reported is the checkpoint of the next
                report that has none.
        """
        self._drop_kept()
        try:
            directory = self._lend()
        except CheckpointError as error:
            if not is_storage_error(error):
                raise
            with self._lent_elsewhere(error) as elsewhere, self._noting_storage_failures():
                yield elsewhere
            return
        try:
            with self._noting_storage_failures():
                yield str(directory)
            if is_kept and directory.exists() and any(directory.iterdir()):
                self._kept = directory
        finally:
            if self._rank is None and self._kept is None:
                shutil.rmtree(directory, ignore_errors=True)

    def _or_kept(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        if checkpoint is None and self._kept:
            return Checkpoint(self._kept)
        return checkpoint

    def _drop_kept(self) -> Path | None:
        """Delete what `checkpoint_dir` has kept for a report that did not come; return its path."""
        kept, self._kept = self._kept, None
        if kept and self._rank is None:
            shutil.rmtree(kept, ignore_errors=True)
        return kept

    def _lend(self) -> Path:
        if self._rank is not None:
            return self._common_directory()
        assignment = self.assignment
        return stage(assignment.trial_dir, self._next_checkpoint, assignment.attempt)

    @contextmanager
    def _lent_elsewhere(self, error: CheckpointError) -> Iterator[str]:
        """Provide a directory on another disk, so that training goes on: `report` will do without.

        Raises:
            CheckpointError: As given, if there is none.
        """
        try:
            directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        except OSError:
            raise error from error.__cause__
        with directory as path:
            _log.warning(
                "trial %s writes a checkpoint to %s, from where it is stored if that is possible "
                "by then: %s",
                self.assignment.trial_id,
                path,
                error,
            )
            yield path

    @contextmanager
    def _noting_storage_failures(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._storage_failures.note(error)
            raise

    def describe(self, error: BaseException) -> Failure:
        """Return a description of what ended the training code; never raises."""
        return self._storage_failures.describe(error)

    def _common_directory(self) -> Path:
        """Return the directory that this call lends to all workers of the group.

        Its name follows from what all of them have done alike. It stays until the end of the
        attempt, since others may be using it when this worker no longer does.
        """
        token = common_token(self._num_reports, self._num_lent)
        self._num_lent += 1
        assignment = self.assignment
        directory = stage(assignment.trial_dir, self._next_checkpoint, assignment.attempt, token)
        self._lent.append(directory)
        return directory

    def list_checkpoints(
        self, waits_for_validation: bool = True, timeout_s: float | None = None
    ) -> list[tuple[CheckpointRecord, dict[str, Any], str]]:
        """Return the trial's checkpoints: record, metrics, and public status of the validation.

        It may be called while a report of another thread, or of another rank, waits. It waits for
        reported checkpoints that are still being stored.

        Args:
            waits_for_validation: Whether to wait until no validation is open.
            timeout_s: How many seconds to wait at most, None for no limit; then they are returned
                as they are.
        """
        try:
            listed = self._ask_for_checkpoints(timeout_s, waits=waits_for_validation)
        except TimeoutError:
            listed = self._ask_for_checkpoints(None, waits=False, stored=False)
        return [
            (decode(CheckpointRecord, record), metrics, status)
            for record, metrics, status in listed
        ]

    def _ask_for_checkpoints(
        self, timeout_s: float | None, *, waits: bool, stored: bool = True
    ) -> list[Any]:
        if os.getpid() != self._pid:
            raise RuntimeError(
                "checkpoints were asked for in a child process of the trial; "
                "ask in the trial's own process"
            )
        token = f"{self._pid}-list-{next(self._tokens)}"
        self._unasked = None  # the training code may load one of these
        self._send({"kind": "checkpoints", "token": token, "waits": waits, "stored": stored})
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
        if self._uploads and self._uploads.error:
            raise self._uploads.error

    def _send(self, message: dict[str, Any]) -> None:
        self._channel.send(message)

    def _exchange(
        self, result: dict[str, Any], fields: Mapping[str, Any], replaced: Sequence[str]
    ) -> Mapping[str, Any]:
        message = {"kind": "result", "metrics": result, "checkpoint": None, **fields}
        if replaced:
            message["replaced"] = list(replaced)
        if self._converter.reserved:
            message["reserved"] = self._converter.reserved
        self._send(message)
        self._has_unread_answer = True
        return self._read_answer()

    def _read_answer(self) -> Mapping[str, Any]:
        # A signal handler of the user's may raise in receive. The flag then makes the next report
        # read this answer first, so that it is not taken for its own.
        answer = self._answers.wait("verdict", "error")
        self._has_unread_answer = False
        if "next_checkpoint" in answer:
            self._next_checkpoint = answer["next_checkpoint"]
            if remote := answer.get("latest_remote"):
                self.latest_checkpoint_dir = join_url(self.assignment.stored_in, remote)
            elif latest := answer["latest"]:
                self.latest_checkpoint_dir = f"{os.fspath(self.assignment.trial_dir)}/{latest}"
        if "error" in answer:
            return answer
        self._verdict = ReportReply(answer["verdict"])
        self.interruption = answer.get("interruption")
        self.may_stay = bool(answer.get("stay"))
        Attempt.latest = self
        return answer

    def _check_validation(self, options: ReportOptions, *, has_checkpoint: bool) -> None:
        if options.validation:
            # In a group, that of another rank will do.
            self._validation.check(
                options.validation, has_checkpoint=has_checkpoint or self._rank is not None
            )

    def _validation_fields(self, task: ValidationTask) -> dict[str, Any]:
        assignment = self.assignment
        request = self._validation.pack(
            task, assignment.trial_dir, self._next_checkpoint, assignment.config
        )
        return {"validation": encode(request)}

    def _plan(self, checkpoint: Checkpoint | None, options: ReportOptions) -> CheckpointPlan | None:
        if not _is_checkpoint(checkpoint):
            return None
        trial_dir = os.fspath(self.assignment.trial_dir)
        return plan_checkpoint(checkpoint, options, trial_dir, self._next_checkpoint)

    def _store_reported(self, plan: CheckpointPlan, result: dict[str, Any]) -> dict[str, Any]:
        """Store a reported checkpoint, or see to it that it can be stored after the report.

        Returns:
            The message's fields about it, empty if it could not be stored since the storage is at
            fault.
        """
        is_async = plan.mode is CheckpointUploadMode.ASYNC
        if not is_async or (self._uploads and self._uploads.num_outstanding >= MAX_OUTSTANDING):
            self._send(_SAVING)
        if is_async:
            self._wait_for_uploads(num_left=MAX_OUTSTANDING - 1)
            if self._rank is None:
                return {"upload": self._next_checkpoint}
            return self._part_fields(plan, Part(PartKind.PENDING))
        try:
            self._wait_for_uploads()  # checkpoints count in the order of their reports
            return self._stored_now(plan, result)
        except BaseException as error:
            self._send({"kind": "save_failed", "failure": as_message(describe(error))})
            raise

    def _stored_now(self, plan: CheckpointPlan, result: dict[str, Any]) -> dict[str, Any]:
        assignment, index = self.assignment, self._next_checkpoint
        trial_dir, sync = os.fspath(assignment.trial_dir), assignment.sync_checkpoints
        provenance = self._provenance(result, index)
        try:
            if self._rank is not None:
                part = prepare_part(plan, trial_dir, provenance, rank=self._rank, sync=sync)
                return self._part_fields(plan, part)
            plan = store(plan, trial_dir, provenance, sync=sync)
        except Exception as error:  # the user's function for uploads may raise what it likes
            if not is_storage_error(error):
                raise
            _log.warning(
                "trial %s continues without a checkpoint that could not be saved: %s",
                assignment.trial_id,
                error,
            )
            dropped = Part(PartKind.DROPPED, why=str(error))
            return {} if self._rank is None else self._part_fields(plan, dropped)
        self._note_latest(plan)
        return {"checkpoint": _record(index, result, plan)}

    def _part_fields(self, plan: CheckpointPlan, part: Part) -> dict[str, Any]:
        """Return the message's fields about this worker's part of a checkpoint."""
        fields: dict[str, Any] = {"part": encode(part), "name": plan.name}
        rank = self.assignment.rank
        if plan.deletes_local and rank:
            with suppress(OSError):  # the user's function may have moved it
                fields["source"] = source_of(plan, rank.node_rank)
        return fields

    def _follow_up(
        self, plan: CheckpointPlan, index: int, result: dict[str, Any], answer: Mapping[str, Any]
    ) -> None:
        """Store or delete what was reported, now that all workers have reported."""
        if self._rank in answer.get("duplicates", ()):
            return  # another worker has reported the same directory, and does that
        if plan.mode is CheckpointUploadMode.ASYNC:
            self._begin_upload(plan, index, result)
        elif self._rank is not None:
            delete_local(plan)

    def _begin_upload(self, plan: CheckpointPlan, index: int, result: dict[str, Any]) -> None:
        """Have the thread store a checkpoint whose report has been answered."""
        is_lent = is_staged(plan.checkpoint.path, self.assignment.trial_dir)
        # What a group has in common stays until its end, see `checkpoint_dir`.
        if plan.deletes_local or (is_lent and self._rank is None):
            plan = keep_from_deletion(plan)
        plan = watch_for_changes(plan)
        self._uploads = self._uploads or BackgroundJobs("tuner-upload")
        self._uploads.submit(functools.partial(self._upload, plan, index, result))

    def _upload(self, plan: CheckpointPlan, index: int, result: dict[str, Any]) -> None:
        assignment = self.assignment
        trial_dir, sync = os.fspath(assignment.trial_dir), assignment.sync_checkpoints
        provenance = self._provenance(result, index)
        if self._rank is not None:
            try:
                part = prepare_part(plan, trial_dir, provenance, rank=self._rank, sync=sync)
            except BaseException as error:
                # For ranks that wait for it; in this one, the next report raises the exception.
                self._send_part(index, Part(PartKind.DROPPED, why=str(describe(error))))
                raise
            self._send_part(index, part)
            return
        plan = store(plan, trial_dir, provenance, sync=sync)
        self._note_latest(plan)
        self._send({"kind": "committed", "checkpoint": _record(index, result, plan)})

    def _send_part(self, index: int, part: Part) -> None:
        self._send({"kind": "part", "index": index, "part": encode(part)})

    def _drain_uploads(self) -> Failure | None:
        """Wait until all checkpoints are stored; return why one could not be, None without one."""
        if self._uploads is None:
            return None
        if self._uploads.num_outstanding:
            self._send(_SAVING)
            self._wait_for_uploads()
        self._uploads.close()
        return self.describe(self._uploads.error) if self._uploads.error else None

    def _wait_for_uploads(self, *, num_left: int = 0) -> None:
        if self._uploads:
            wait_for_uploads(self._uploads, num_left=num_left)

    def _note_latest(self, plan: CheckpointPlan) -> None:
        if not plan.is_placeholder:
            self.latest_checkpoint_dir = f"{os.fspath(self.assignment.trial_dir)}/{plan.directory}"

    def _saved(self, write: Callable[[Path], None], result: dict[str, Any]) -> dict[str, Any]:
        is_of_disk = False
        try:
            with self._staging_directory() as staging:
                try:
                    write(staging)
                except Exception as error:
                    # Before what was written is deleted.
                    is_of_disk = self._storage_failures.note(error)
                    raise
                self._send(_SAVING)
                sync = self.assignment.sync_checkpoints
                index = self._next_checkpoint
                provenance = self._provenance(result, index)
                directory = commit(staging, self.assignment.trial_dir, provenance, sync=sync)
        except Exception as error:
            # A paused trial without any checkpoint would start from the beginning.
            is_needed = self._verdict is ReportReply.PAUSE and self.latest_checkpoint_dir is None
            if is_needed or not (is_of_disk or is_storage_error(error)):
                self._could_not_save = True
                raise
            return {"kind": "save_failed", "failure": as_message(describe(error))}
        self._next_checkpoint += 1
        self.latest_checkpoint_dir = str(directory)
        return {"kind": "saved", "checkpoint": _record(index, result)}

    @contextmanager
    def _staging_directory(self) -> Iterator[Path]:
        staging = self._lend()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _provenance(self, result: dict[str, Any], index: int) -> Provenance:
        assignment = self.assignment
        return Provenance(
            assignment.trial_id, assignment.attempt, index, result[TRAINING_ITERATION], result
        )


def _record(
    index: int, result: Mapping[str, Any], plan: CheckpointPlan | None = None
) -> dict[str, Any]:
    """Return the message field that describes a stored checkpoint."""
    record = {
        "index": index,
        "iteration": result[TRAINING_ITERATION],
        "time_total_s": result[TIME_TOTAL_S],
        "counters": counters_of(result),
    }
    if plan and plan.name:
        record["name"] = plan.name
    if plan and plan.is_placeholder:
        record["is_placeholder"] = True
    return record


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


def _is_checkpoint(checkpoint: Checkpoint | None) -> TypeGuard[Checkpoint]:
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint is not None
    raise TypeError(
        f"checkpoint must be a Checkpoint, got {checkpoint!r}; "
        "write checkpoint=Checkpoint.from_directory(path)"
    )
