"""A group of workers that train one trial together, as one attempt.

The core sees one start, one result for each report that all ranks have made, and one exit, when all
processes are gone. In between, `RemoteGroup` keeps the ranks together:

*Reports* are a barrier. The result is complete when all ranks have reported; its checkpoint is then
committed from their parts, and all of them get the same answer.

*Failures.* When the first rank fails, the others get a moment to fail of it as well, which tells
how they were affected, and are killed. The attempt fails with what the rank to blame has raised. A
process that died comes before exceptions: those of the others are mostly broken connections. So is
what the ranks elsewhere do when a node is lost, mostly long before that is known: the attempt is
lost then, unless the node was heard of after they failed.

*The end.* A rank that has returned waits until all have, since they may need what it hosts.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointLost,
    CheckpointStarted,
    Outcome,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import (
    CheckpointRecord,
    Failure,
    ValidationRequest,
    checkpoint_directory_name,
)
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.attempt import CANNOT_SAVE
from tuner.execution.checkpoint_part import Part, PartKind
from tuner.execution.failures import ExitInfo
from tuner.execution.group_protocol import (
    PartStored,
    RankReported,
    duplicates_among,
    with_directory,
)
from tuner.execution.process_service import Unstarted
from tuner.execution.remote_process import AttemptOwner, OwnerHost, RemoteWorker
from tuner.execution.storage_failures import is_storage_error
from tuner.execution.worker_protocol import as_reported, report_answer
from tuner.storage import strict_json

from .group_checkpoint import GroupCheckpoint, GroupStorage, NodeLost

if TYPE_CHECKING:
    from tuner.execution.remote_process import Message

_COLLATERAL_S: Final = 0.1
"""How long the others may take to fail, too, before they are killed."""
_DEATH_S: Final = 2.0
"""How long to wait for the zygote's report on a process whose connection has ended."""
_FIRST_WARNING_S: Final = 30.0
_WARNING_INTERVAL_S: Final = 60.0
_WARNING_VARIABLE: Final = "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S"
_TIMEOUT_VARIABLE: Final = "RAY_TRAIN_COLLECTIVE_TIMEOUT_S"
# A line that `faulthandler` writes.
_FRAME: Final = re.compile(
    r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE
)

_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long ranks that have reported wait for the others.

    Attributes:
        first_warning_s: Seconds after the first arrival at which late ranks are named.
        interval_s: Seconds between further warnings.
        timeout_s: Seconds after which the attempt fails; None for never.
    """

    first_warning_s: float = _FIRST_WARNING_S
    interval_s: float = _WARNING_INTERVAL_S
    timeout_s: float | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Patience:
        """Return what Ray Train's environment variables ask for."""
        interval_s, timeout_s = (
            _seconds(environ.get(name)) for name in (_WARNING_VARIABLE, _TIMEOUT_VARIABLE)
        )
        if interval_s is None:
            return cls(timeout_s=timeout_s)
        return cls(interval_s, interval_s, timeout_s)


def _seconds(text: str | None) -> float | None:
    """Return a number of seconds above 0, None for anything else."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if seconds > 0 else None


@dataclass(slots=True)
class _Barrier:
    """One report, from the first rank's to the answer.

    Attributes:
        arrived: What the ranks that wait have reported.
        since_s: When the first of them arrived.
        warn_at_s: When late ranks are named next.
        saving: Ranks that have begun to store a part of a checkpoint.
        is_saving: Whether the driver knows that a checkpoint is being stored.
    """

    arrived: dict[int, RankReported] = field(default_factory=dict)
    since_s: float = 0.0
    warn_at_s: float = 0.0
    saving: set[int] = field(default_factory=set)
    is_saving: bool = False


@final
class RemoteGroup(AttemptOwner):
    """One attempt of a trial that several processes train together.

    Args:
        command: The command that started the attempt.
        members: Its workers, by rank.
        trial_dir: The trial's directory.
        storage: Where its checkpoints are committed.
        host: The executor.
        patience: How long ranks wait for each other.

    Attributes:
        members: Its workers, by rank.
        trial_dir: The trial's directory.
    """

    def __init__(
        self,
        command: StartWorker,
        members: Sequence[RemoteWorker],
        trial_dir: str | os.PathLike[str],
        storage: GroupStorage,
        host: OwnerHost,
        *,
        patience: Patience,
    ) -> None:
        self.members = members
        self.trial_dir = trial_dir
        self._command = command
        self._trial_id, self._attempt = command.trial_id, command.attempt
        self._storage, self._host = storage, host
        self._patience = patience
        self._next_checkpoint = command.next_checkpoint
        self._warned: set[str] = set()
        self._latest: CheckpointRecord | None = None
        self._started: dict[int, int] = {}
        self._barrier = _Barrier()
        self._num_reports = 0
        self._uploads: list[GroupCheckpoint] = []
        self._held: GroupCheckpoint | None = None
        """The checkpoint of the report that waits, until those before it are committed."""
        self._is_committing = False
        self._upload_error: CheckpointError | None = None
        self._returned: list[int] = []
        self._failures: dict[int, Failure] = {}
        self._dead: list[int] = []
        """Ranks that died without a word, which are to blame before those that raised."""
        self._hung_up: set[int] = set()
        self._peaks: dict[int, int] = {}
        self._gone: set[int] = set()
        self._kill_reason: str | None = None
        self._silent: list[int] = []
        """Ranks that the others waited for when the group was killed."""
        self._kill_at_s: float | None = None
        self._failed_at_s: float | None = None
        self._decided_s: float | None = None
        """When it was decided first how the attempt ends: by a failure, or by killing the ranks."""
        self._lost_node = ""
        """A node whose loss may be the reason for whatever else has happened."""
        self._is_killing = self._is_lost = self._may_leave = False
        self._why_unstarted = ""
        """Why a rank could not be started now."""
        self._disagreement: Failure | None = None

    # What the executor tells.

    def on_messages(self, worker: RemoteWorker, messages: Sequence[Message]) -> None:
        """Handle what a rank has sent."""
        for message in messages:
            match message:
                case RankReported():
                    self._on_report(worker.rank, message)
                case PartStored():
                    self._on_part(worker.rank, message)
                case WorkerStarted():
                    self._started[worker.rank] = message.pid
                    if len(self._started) == len(self.members):
                        self._host.emit(replace(message, pid=self._started[0]))
                case CheckpointStarted():
                    self._barrier.saving.add(worker.rank)
                    self._announce_saving()
                case _:
                    self._host.emit(message)
        if worker.exit_message and worker.rank not in self._returned:
            self._on_exit_message(worker.rank, worker.exit_message)

    def on_violation(self, worker: RemoteWorker) -> None:
        """Note that a rank has violated the protocol, and is killed."""
        failure = worker.exit_event(None).failure
        if failure:
            self._blame(worker.rank, failure, is_dead=True)

    def on_hangup(self, worker: RemoteWorker) -> None:
        """Note that a rank's connection has ended; mostly since its process is dead."""
        if not (worker.exit_message or self._is_killing):
            self._hung_up.add(worker.rank)

    def on_gone(self, worker: RemoteWorker, exit_info: ExitInfo | None) -> None:
        """Note that a rank's process group is gone; without information if the zygote is."""
        rank = worker.rank
        was_killed = self._is_killing and rank not in self._hung_up
        self._hung_up.discard(rank)
        self._gone.add(rank)
        if exit_info and exit_info.peak_bytes:
            self._peaks[rank] = exit_info.peak_bytes
        if not (worker.exit_message or was_killed):
            if exit_info is None:
                self._is_lost = True
                self._kill_all()  # ranks that another process has started may be alive
            elif failure := worker.exit_event(exit_info).failure:
                self._blame(rank, failure, is_dead=True)
        if self._kill_reason is not None:
            self._leave_if_all_returned()
        self._end_if_over()

    def on_node_left(self, node: str, workers: Sequence[RemoteWorker], alive_s: float) -> None:
        """Note that ranks are gone with their node.

        Args:
            node: Its name.
            workers: Its ranks whose end was not heard of.
            alive_s: Up to when it is known to have lived, by the monotonic clock.
        """
        for worker in workers:
            self._hung_up.discard(worker.rank)
            self._gone.add(worker.rank)
        has_work_left = any(not _has_returned(worker) for worker in self.members)
        if has_work_left and (self._decided_s is None or alive_s < self._decided_s):
            self._lost_node = node
            self._kill_all()
        if self._kill_reason is not None:
            self._leave_if_all_returned()
        self._end_if_over()

    def on_unstarted(self, worker: RemoteWorker, unstarted: Unstarted) -> None:
        """Note that a rank could not be started; the others end, and all are started again.

        Unless that would not help.
        """
        self._hung_up.discard(worker.rank)
        self._gone.add(worker.rank)
        if unstarted.is_shortage:
            self._why_unstarted = unstarted.failure.message
            self._kill_all()
        else:
            self._blame(worker.rank, unstarted.failure, is_dead=True)
        self._end_if_over()

    def on_stack(self, worker: RemoteWorker, stack: str) -> None:
        """Name a rank that is late, and where it is."""
        if self._is_waiting and worker.rank in self._late:
            self._name_late(worker.rank, stack)

    def answer(self, command: AnswerReport) -> None:
        """Send all ranks the answer to their report."""
        arrived = self._barrier.arrived
        if len(arrived) < len(self.members):
            return
        self._num_reports += 1
        message = report_answer(command) | {"save": False}
        if duplicates := duplicates_among([arrived[rank] for rank in sorted(arrived)]):
            message["duplicates"] = duplicates
        self._answer_all(message)
        if command.save:
            self._host.emit(CheckpointFailed(self._trial_id, self._attempt, CANNOT_SAVE))

    def kill(self, reason: str, *, is_silent: bool = False, is_urgent: bool = False) -> None:
        """Note that the core has the group killed; the executor kills the processes.

        Args:
            reason: Why.
            is_silent: Whether since it has not reported for too long.
            is_urgent: Whether what the ranks have stored before is not worth a wait either.
        """
        is_ending = self._failures or self._disagreement or self._may_leave
        if self._kill_reason is None and not is_ending:
            self._decide()
            self._kill_reason = f"{self._who_is_silent()}: {reason}" if is_silent else reason
            self._silent = self._late if is_silent else []
        self._is_killing = True
        # The core drops a report for whose checkpoint the ranks wait: it has killed them.
        if is_urgent or (self._is_committing and not self._uploads):
            self._storage.give_up("the workers were killed meanwhile")

    def _who_is_silent(self) -> str:
        late, arrived = self._late, sorted(self._barrier.arrived)
        number = self._num_reports + 1
        if not arrived:
            return f"{_ranks(late)} did not call report {number}"
        return f"{_ranks(late)} did not call report {number}, in which {_ranks(arrived)} waited"

    @property
    def deadline_s(self) -> float | None:
        """When `tick` is to be called, by the monotonic clock; None for never."""
        moments = [] if self._kill_at_s is None or self._is_killing else [self._kill_at_s]
        if self._is_waiting:
            barrier = self._barrier
            moments.append(barrier.warn_at_s)
            if self._patience.timeout_s is not None:
                moments.append(barrier.since_s + self._patience.timeout_s)
        return min(moments, default=None)

    def tick(self, now_s: float) -> None:
        """Kill what is to be killed, and name the ranks that are late."""
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._kill_all()
        barrier, timeout_s = self._barrier, self._patience.timeout_s
        if not self._is_waiting:
            return
        if timeout_s is not None and now_s >= barrier.since_s + timeout_s:
            self._disagree(
                "CollectiveTimeout",
                f"{_ranks(self._late)} did not call report within {timeout_s:g} s after "
                f"{_ranks(sorted(barrier.arrived))} in report {self._num_reports + 1}; "
                f"{_TIMEOUT_VARIABLE} sets the limit",
                self._late,
            )
        elif now_s >= barrier.warn_at_s:
            barrier.warn_at_s = now_s + self._patience.interval_s
            for rank in self._late:
                self._host.dump_stack(self.members[rank])

    # Reports.

    @property
    def _late(self) -> list[int]:
        return [rank for rank in range(len(self.members)) if rank not in self._barrier.arrived]

    @property
    def _is_waiting(self) -> bool:
        """Whether ranks wait in `report` for others."""
        is_whole = 0 < len(self._barrier.arrived) < len(self.members)
        return is_whole and self._kill_at_s is None and not self._is_killing

    def _on_report(self, rank: int, report: RankReported) -> None:
        barrier = self._barrier
        if not barrier.arrived:
            barrier.since_s = time.monotonic()
            barrier.warn_at_s = barrier.since_s + self._patience.first_warning_s
        barrier.arrived[rank] = report
        self._announce_saving()
        if len(barrier.arrived) == len(self.members):
            self._complete_report()
        else:
            self._check_returned()

    def _announce_saving(self) -> None:
        """Tell the driver that a checkpoint is being stored, once all ranks have come that far.

        It suspends the report timeout, which has to run on for ranks that still train.
        """
        barrier = self._barrier
        is_all = len(barrier.saving | barrier.arrived.keys()) == len(self.members)
        if barrier.saving and is_all and not barrier.is_saving:
            barrier.is_saving = True
            self._host.emit(CheckpointStarted(self._trial_id, self._attempt))

    def _complete_report(self) -> None:
        arrived = self._barrier.arrived
        reports = [arrived[rank] for rank in range(len(self.members))]
        duplicates = duplicates_among(reports)
        parts = {
            rank: report.part
            for rank, report in enumerate(reports)
            if report.part and not (report.is_pending and rank in duplicates)
        }
        if self._upload_error:
            self._refuse("CheckpointError", str(self._upload_error), parts)
            return
        if objection := _objection(reports):
            self._refuse("ValueError", objection, parts)
            return
        requests = [report.result.validation for report in reports if report.result.validation]
        result = replace(
            reports[0].result,
            rank_metrics=tuple(as_reported(report.result) for report in reports),
            validation=requests[0] if requests else None,
            ignored_checkpoint=min(report.result.ignored_checkpoint for report in reports),
        )
        dropped = next((part for part in parts.values() if part.kind is PartKind.DROPPED), None)
        if dropped:
            self._drop(parts, dropped.why)
        if dropped or not parts:
            self._host.emit(replace(with_directory(result, None), validation=None))
            return
        name = next(report.name for report in reports if report.part)
        checkpoint = GroupCheckpoint(self._next_checkpoint, result, parts, name, self._warned)
        if checkpoint.is_complete:
            self._held = checkpoint
            self._commit_next()
        else:
            self._go_on_before(checkpoint)

    def _go_on_before(self, checkpoint: GroupCheckpoint) -> None:
        """Pass on a result whose checkpoint is to be committed while the ranks train on."""
        result = checkpoint.result
        directory = checkpoint.name or checkpoint_directory_name(checkpoint.index)
        self._next_checkpoint += 1
        self._uploads.append(checkpoint)
        self._host.emit(replace(with_directory(result, directory), upload=checkpoint.index))

    def _drop(self, parts: Mapping[int, Part], why: str) -> None:
        """Continue without a checkpoint for which a rank has found the storage at fault."""
        _log.warning(
            "trial %s continues without a checkpoint that could not be saved: %s",
            self._trial_id,
            why,
        )
        self._discard(parts)

    def _discard(self, parts: Mapping[int, Part]) -> None:
        self._storage.discard(parts)

    def _refuse(self, kind: str, message: str, parts: Mapping[int, Part]) -> None:
        """Have `report` raise in all ranks; nothing has been reported."""
        self._discard(parts)
        if self._barrier.is_saving:
            self._host.emit(CheckpointFailed(self._trial_id, self._attempt, Failure(kind, message)))
        self._answer_all({"error": {"kind": kind, "message": message}})

    def _answer_all(self, message: dict[str, Any]) -> None:
        self._barrier = _Barrier()
        latest = self._latest
        counts = {
            "next_checkpoint": self._next_checkpoint,
            "latest": latest.directory if latest else None,
            "latest_remote": latest.remote if latest else "",
        }
        data = strict_json.to_bytes({**message, **counts}) + b"\n"
        for worker in self.members:
            worker.is_waiting = False
            self._host.send(worker, data)

    # Checkpoints.

    def _commit(
        self, checkpoint: GroupCheckpoint, then: Callable[[GroupCheckpoint, Any], None]
    ) -> None:
        self._is_committing = True
        self._storage.commit(checkpoint, len(self.members), partial(then, checkpoint))

    def _on_committed(
        self, checkpoint: GroupCheckpoint, stored: CheckpointRecord | BaseException
    ) -> None:
        """Take the outcome of a commit for which the ranks wait in `report`."""
        self._is_committing = False
        # Also where that has failed: a store may have kept some of it under its number.
        self._next_checkpoint += 1
        if isinstance(stored, CheckpointRecord):
            self._note_latest(stored)
            self._host.emit(
                replace(with_directory(checkpoint.result, stored.directory), checkpoint=stored)
            )
        elif _is_storages_fault(stored):
            self._drop(checkpoint.parts, str(stored))
            self._host.emit(replace(with_directory(checkpoint.result, None), validation=None))
        elif not self._is_killing:
            self._refuse("CheckpointError", str(stored), checkpoint.parts)
        self._commit_next()
        self._end_if_over()

    def _note_latest(self, record: CheckpointRecord) -> None:
        if not record.is_placeholder:
            self._latest = record

    def _on_part(self, rank: int, stored: PartStored) -> None:
        upload = next((each for each in self._uploads if each.index == stored.index), None)
        if upload is None:
            # Another rank could not prepare its part of this checkpoint.
            self._discard({rank: stored.part})
            return
        awaited = upload.parts.get(rank)
        if awaited is None or awaited.kind is not PartKind.PENDING:
            return  # training code can write to the connection
        if stored.part.kind is PartKind.DROPPED:
            self._upload_error = self._upload_error or CheckpointError(
                f"rank {rank} could not store its part of a checkpoint: {stored.part.why}"
            )
            self._uploads.remove(upload)
            self._discard(upload.parts)
        else:
            upload.parts[rank] = stored.part
        self._commit_next()

    def _commit_next(self) -> None:
        """Commit the next checkpoint: one at a time, and in the order of the reports."""
        if self._is_committing:
            return
        if self._uploads:
            if self._uploads[0].is_complete:
                self._commit(self._uploads[0], self._on_uploaded)
            return
        held, self._held = self._held, None
        if held and self._upload_error:
            self._refuse("CheckpointError", str(self._upload_error), held.parts)
        elif held and self._storage.is_async:
            if not self._is_killing:
                self._go_on_before(held)
                self._commit_next()
        elif held:
            self._commit(held, self._on_committed)

    def _on_uploaded(
        self, upload: GroupCheckpoint, stored: CheckpointRecord | BaseException
    ) -> None:
        """Take the outcome of a commit during which the ranks have gone on."""
        self._is_committing = False
        self._uploads.remove(upload)
        if isinstance(stored, CheckpointRecord):
            self._note_latest(stored)
            self._host.emit(CheckpointCommitted(self._trial_id, self._attempt, stored))
        elif isinstance(stored, NodeLost):
            self._is_lost = True
            self._kill_all()
        elif isinstance(stored, StorageUnreachable):
            self._drop(upload.parts, str(stored))
            self._host.emit(CheckpointLost(self._trial_id, upload.index, str(stored)))
        else:
            # It fails the attempt at the next report, or at the end.
            self._upload_error = CheckpointError(str(stored))
        self._commit_next()
        self._leave_if_all_returned()
        self._end_if_over()

    # The end.

    def _on_exit_message(self, rank: int, exit_message: WorkerExited) -> None:
        self._returned.append(rank)
        if exit_message.failure and self._kill_reason is None:
            self._blame(rank, exit_message.failure)
        else:
            self._check_returned()
            self._leave_if_all_returned()

    def _check_returned(self) -> None:
        """Fail if a rank has returned while others wait for it in `report`."""
        waiting = sorted(self._barrier.arrived)
        if not (waiting and self._returned) or self._failures:
            return
        is_whole = len(waiting) == len(self.members)
        if is_whole:  # it waits for the answer, and cannot have returned
            return
        returned, num = self._returned[0], self._num_reports
        self._disagree(
            "UnequalReports",
            f"rank {returned} returned after {num} {'report' if num == 1 else 'reports'}; "
            f"{_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in report {num + 1}; "
            "all ranks must call report equally often",
            [returned],
        )

    def _disagree(self, kind: str, message: str, to_blame: Sequence[int] = ()) -> None:
        """Fail the attempt for something that no rank has raised."""
        if self._disagreement or self._failures or self._kill_reason:
            return
        self._decide()
        failure = Failure(kind, message)
        self._disagreement = replace(failure, ranks=tuple((rank, failure) for rank in to_blame))
        self._kill_all()

    def _leave_if_all_returned(self) -> None:
        if self._may_leave or self._uploads or self._is_committing or self._failures:
            return
        is_asked_to_end = self._kill_reason is not None
        if self._is_killing and not is_asked_to_end:
            return
        if len({*self._returned, *self._gone}) == len(self.members):
            if self._upload_error and not is_asked_to_end:
                self._disagree("CheckpointError", str(self._upload_error))
                return
            self._may_leave = True
            for rank, worker in enumerate(self.members):
                if rank not in self._gone:
                    self._host.send(worker, _LEAVE)
                    self._host.expect_exit(worker)

    def _blame(self, rank: int, failure: Failure, *, is_dead: bool = False) -> None:
        """Note that a rank has failed, and have the others killed soon."""
        is_decided = self._kill_reason is not None or self._disagreement or self._why_unstarted
        if is_decided or rank in self._failures:
            return
        self._decide()
        self._failures[rank] = failure
        if is_dead:
            self._dead.append(rank)
        if is_dead or len(self._failures) == len(self.members):
            self._kill_all()
        elif self._kill_at_s is None:
            self._failed_at_s = time.monotonic()
            self._kill_at_s = self._failed_at_s + _COLLATERAL_S

    def _decide(self) -> None:
        if self._decided_s is None:
            self._decided_s = time.monotonic()

    def _kill_all(self) -> None:
        if self._is_killing:
            return
        undecided = self._hung_up - self._gone
        since_s, now_s = self._failed_at_s, time.monotonic()
        if undecided and since_s is not None and now_s < since_s + _DEATH_S:
            # A process that has died first is to blame; the zygote will say so in a moment.
            self._kill_at_s = now_s + _COLLATERAL_S
            return
        self._is_killing = True
        for rank, worker in enumerate(self.members):
            if rank not in self._gone:
                self._host.kill(worker)

    @property
    def is_over(self) -> bool:
        """Whether all processes are gone and no commit is under way."""
        return len(self._gone) == len(self.members) and not self._is_committing

    def _end_if_over(self) -> None:
        if not self.is_over:
            return
        has_ended = bool(self._failures or self._disagreement or self._lost_node)
        has_ended = has_ended or self._kill_reason is not None
        if self._why_unstarted and not has_ended:
            self._host.start_again(self._command, self._why_unstarted)
        else:
            self._host.emit(self._exit())

    def _exit(self) -> WorkerExited:
        made = partial(WorkerExited, self._trial_id, self._attempt)
        if self._lost_node:
            why = f"node {self._lost_node} is gone; the trial is not at fault"
            return made(Outcome.LOST, Failure("lost", why))
        if self._disagreement:
            return made(Outcome.FAILED, self._disagreement)
        # Of a zygote's death all ranks die, and some may first raise that others are gone.
        if self._failures and not (self._is_lost and not self._dead):
            return made(Outcome.FAILED, self._failure())
        if self._kill_reason is not None:
            blamed = tuple((rank, Failure("killed", self._kill_reason)) for rank in self._silent)
            failure = Failure("killed", self._kill_reason, self._stacks(), ranks=blamed)
            return made(Outcome.KILLED, failure)
        if self._is_lost or not self.members[0].exit_message:
            return made(
                Outcome.LOST,
                Failure("lost", "the process that started it died; the trial is not at fault"),
            )
        return self.members[0].exit_message

    def _failure(self) -> Failure:
        """Return the failure of the attempt: that of the rank to blame, and those of the others."""
        order = [*self._dead, *(rank for rank in self._failures if rank not in self._dead)]
        ranks = tuple((rank, self._failures[rank]) for rank in order)
        first, cause = ranks[0]
        message = f"rank {first}: {cause.message}"
        if cause.kind == "killed by SIGKILL" and len(self._peaks) > 1:
            peaks = (
                f"rank {rank} {self._peaks[rank] / 2**20:,.0f} MiB" for rank in sorted(self._peaks)
            )
            message += f"; peak memory of all: {', '.join(peaks)}"
        sections = "\n".join(
            f"rank {rank}: {failure}\n{failure.traceback}".rstrip() + "\n"
            for rank, failure in ranks
        )
        return replace(cause, message=message, traceback=sections, ranks=ranks)

    def _stacks(self) -> str:
        """Return the last lines that each rank has written, which end with the stack it dumped."""
        return "\n".join(f"rank {worker.rank}:\n{worker.stderr}" for worker in self.members)

    # Ranks that are late.

    def _name_late(self, rank: int, stack: str) -> None:
        frame = _FRAME.search(stack)
        where = (
            f"{os.path.basename(frame['file'])}:{frame['line']} {frame['name']}"  # noqa: PTH119
            if frame
            else "a place that it could not tell"
        )
        barrier = self._barrier
        _log.warning(
            "rank %d of trial %s is late: %s called report %d %.0f s ago; it is in %s",
            rank,
            self._trial_id,
            _ranks(sorted(barrier.arrived)),
            self._num_reports + 1,
            time.monotonic() - barrier.since_s,
            where,
        )


_LEAVE: Final = strict_json.to_bytes({"leave": True}) + b"\n"


def _ranks(ranks: Sequence[int]) -> str:
    """Return numbers of ranks as words: ``rank 1``, or ``ranks 0, 2``."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def _has_returned(worker: RemoteWorker) -> bool:
    """Return whether the training code of a rank has done all that it had to."""
    return worker.exit_message is not None and worker.exit_message.failure is None


def _objection(reports: Sequence[RankReported]) -> str:
    """Return why the reports of the ranks do not fit together, empty if they do."""
    names = {report.name for report in reports if report.part}
    if len(names) > 1:
        return (
            "all ranks must give the directory of a checkpoint the same name, got "
            f"{', '.join(map(repr, sorted(names)))}"
        )
    requests = [report.result.validation for report in reports if report.result.validation]
    if any(_asked(request) != _asked(requests[0]) for request in requests):
        return (
            "all ranks that ask for a validation must ask for the same, got "
            f"{_differences(requests)}; give it the same arguments on all of them, or ask on one"
        )
    if requests and not names:
        return (
            "validation needs a checkpoint, and no rank has reported one; report one with "
            "report(metrics, checkpoint=...), or leave the validation out"
        )
    return ""


def _differences(requests: Sequence[ValidationRequest]) -> str:
    """Return what differs between requests, by its name as an argument of training code."""
    names = {"function": "function", "kwargs": "fn_kwargs", "timeout_s": "timeout_s"}
    different = {
        word: list(dict.fromkeys(repr(getattr(request, name)) for request in requests))
        for name, word in names.items()
    }
    shown = [
        f"{word} {' and '.join(values)}" for word, values in different.items() if len(values) > 1
    ]
    return "; ".join(shown) or "functions that take other arguments"


def _asked(request: ValidationRequest) -> tuple[Any, ...]:
    """Return what must be the same in the requests of all ranks; their pickles may differ."""
    return request.function, request.kwargs, request.timeout_s, request.takes_config


def _is_storages_fault(error: BaseException) -> bool:
    """Return whether the trial can go on without a checkpoint that could not be committed."""
    return isinstance(error, StorageUnreachable) or is_storage_error(error)
