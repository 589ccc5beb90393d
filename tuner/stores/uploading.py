"""Executor whose checkpoints count once an object store has them.

`UploadingExecutor` stands between the driver and the executor that runs the trials. An event that
names a checkpoint is held back, and with it what the trial's worker says afterwards, until the
checkpoint is uploaded. So the core needs to know nothing of it: what it is told is stored, and a
report is not answered before. A worker that is to start from a checkpoint is started once there is
an intact copy on its machine. A `FileService` moves the files, and other trials go on meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from tuner.core.commands import (
    AnswerReport,
    KillValidation,
    KillWorker,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointLost,
    CheckpointSaved,
    CheckpointsRequested,
    CheckpointStarted,
    Event,
    LeaseReleased,
    LeaseRequested,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import CheckpointRecord, Failure, ReportReply
from tuner.errors import CheckpointError
from tuner.execution.executor import Executor
from tuner.execution.group_protocol import with_directory
from tuner.execution.validation_payloads import is_over_for_good

from .file_service import FileService, Source, Transfer
from .store_calls import PERIOD_S, StoreWaits

_log = logging.getLogger("tuner")

_Worker = tuple[str, int]
"""Trial and attempt."""
_Validation = tuple[str, int, int]
"""Trial, index of the checkpoint, and try."""
_WithCheckpoint = ResultReported | CheckpointSaved | CheckpointCommitted
_OfWorker = (
    WorkerStarted
    | ResultReported
    | CheckpointStarted
    | CheckpointSaved
    | CheckpointCommitted
    | CheckpointFailed
    | CheckpointsRequested
    | WorkerExited
)


@final
class UploadingExecutor:
    """Executor whose checkpoints are uploaded to an object store before they count.

    Args:
        inner: Runs the trials, and commits their checkpoints on their machines.
        files: Moves files between the store and these machines; it is closed by `shutdown`.
        is_async: Whether a result is passed on at once, and its checkpoint counts later. Then one
            upload of a trial is under way at a time, and the next report with a checkpoint waits
            for it.
    """

    def __init__(self, inner: Executor, files: FileService, *, is_async: bool = False) -> None:
        self._inner = inner
        self._files = files
        self._is_async = is_async
        self._attempts: dict[_Worker, _Attempt] = {}
        self._holding: dict[_Worker, _Attempt] = {}
        """Those of which events are held back."""
        self._starts: dict[_Worker | _Validation, _Start] = {}
        self._validations: dict[_Validation, StartValidation] = {}
        self._payloads: set[tuple[str, str]] = set()
        """Trials and names of the payloads of validations that workers of this session wrote."""
        self._released: defaultdict[str, list[str]] = defaultdict(list)
        """Holders by node of local copies that the commands of this turn may still need."""
        self._events: list[Event] = []
        self._waits = StoreWaits(files.checkpoints.url)

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        return self._inner.capacity()

    def clock(self) -> float:
        return self._inner.clock()

    def wake(self) -> None:
        self._inner.wake()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`; a start waits until there is a local copy of its checkpoint."""
        passed = [command for command in commands if not self._keeps(command)]
        self._inner.carry_out(passed)

    def wait(self, timeout_s: float | None) -> list[Event]:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._release()
        while True:
            self._settle()
            rest_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            if num_waiting := self._num_waiting():
                self._waits.look(self._files.checkpoints.outage_s, num_waiting)
                rest_s = PERIOD_S if rest_s is None else min(rest_s, PERIOD_S)
            arrived = self._inner.wait(0.0 if self._events else rest_s)
            for event in arrived:
                self._take(event)
            self._settle()
            is_over = end_s is not None and time.monotonic() >= end_s
            # Without any event the inner executor was woken, perhaps for the driver's sake.
            if self._events or not arrived or is_over:
                events, self._events = self._events, []
                return events

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`.

        Uploads are given up. None of their results was answered, or passed on with its checkpoint.
        """
        for attempt in self._holding.values():
            attempt.give_up_uploads(is_urgent=True)
        for start in self._starts.values():
            start.give_up()
        self._release()
        self._files.close()
        self._inner.shutdown(deadline_s)

    def _release(self) -> None:
        for node, holders in self._released.items():
            self._files.release(node, holders)
        self._released.clear()

    def _num_waiting(self) -> int:
        """Return how many trials wait for the store."""
        uploading = (worker[0] for worker, attempt in self._holding.items() if attempt.is_uploading)
        return len({*uploading, *(key[0] for key in self._starts)})

    # Commands.

    def _keeps(self, command: WorkerCommand) -> bool:
        """Take notice of a command; return whether the inner executor must not have it yet."""
        match command:
            case StartWorker():
                return self._keeps_start(command)
            case StartValidation():
                return self._keeps_validation(command)
            case KillWorker():
                return self._keeps_kill(command)
            case KillValidation():
                return self._keeps_validation_kill(command)
            case AnswerReport():
                attempt = self._attempts.get((command.trial_id, command.attempt))
                if attempt:
                    attempt.must_save = command.save and command.reply is ReportReply.PAUSE
                    attempt.stays = command.stay
        return False

    def _keeps_start(self, command: StartWorker) -> bool:
        worker = command.trial_id, command.attempt
        nodes = tuple(dict.fromkeys(command.nodes)) or (command.node,)
        attempt = self._attempts[worker] = _Attempt(worker, nodes)
        record = command.checkpoint
        if record is None:
            return False
        attempt.has_checkpoint = True
        if not record.remote:
            return False
        owner_id = command.source_id or command.trial_id
        source = Source(owner_id, record, attempt.holder("source"), command.trial_id)
        start = _Start(command=command, source=source, nodes=nodes)
        attempt.has_begun = not self._keeps_for(start, worker)
        return not attempt.has_begun

    def _keeps_validation(self, command: StartValidation) -> bool:
        trial_id, record = command.trial_id, command.checkpoint
        key = trial_id, record.index, command.num_try
        self._validations[key] = command
        if not record.remote:
            return False
        source = Source(trial_id, record, _holder("validation", *key), trial_id)
        start = _Start(command=command, source=source, nodes=(command.node,))
        payload = command.request.payload
        if (trial_id, payload) in self._payloads:
            start.begin(self._files.get_payload(command.node, trial_id, payload, start.end))
        return self._keeps_for(start, key)

    def _keeps_for(self, start: _Start, key: _Worker | _Validation) -> bool:
        """Begin to fetch a checkpoint; return whether it has to be waited for."""
        for node in start.nodes:
            start.begin(self._files.fetch(node, start.source, start.end))
        if start.is_ready:
            return False
        self._starts[key] = start
        return True

    def _keeps_kill(self, command: KillWorker) -> bool:
        worker = command.trial_id, command.attempt
        if start := self._starts.pop(worker, None):
            start.give_up()
            self._take(WorkerExited(*worker, Outcome.KILLED, Failure("killed", command.reason)))
            return True
        if attempt := self._attempts.get(worker):
            # The core drops the report of a worker that it has killed, and what it was asked to
            # save still counts; unless it is urgent, that is worth the wait.
            attempt.give_up_uploads(is_urgent=not command.term_grace_s)
        return False

    def _keeps_validation_kill(self, command: KillValidation) -> bool:
        key = command.trial_id, command.index, command.num_try
        start = self._starts.pop(key, None)
        if start is None:
            return False
        start.give_up()
        self._take(ValidationEnded(*key, Outcome.KILLED, failure=Failure("killed", command.reason)))
        return True

    # What has ended.

    def _settle(self) -> None:
        """Pass on what was held back and is no longer."""
        for worker, attempt in list(self._holding.items()):
            for held in attempt.take_released():
                self._deliver(attempt, held)
            if not attempt.held:
                del self._holding[worker]
        done = [key for key, start in self._starts.items() if start.is_ready or start.failure]
        ready: list[WorkerCommand] = []
        for key in done:
            start = self._starts.pop(key)
            if start.failure:
                start.give_up()
                self._on_damage(start, start.failure)
            else:
                ready.append(start.command)
                if isinstance(start.command, StartWorker):
                    self._attempts[start.command.trial_id, start.command.attempt].has_begun = True
        if ready:
            self._inner.carry_out(ready)

    def _on_damage(self, start: _Start, failure: Failure) -> None:
        command, source = start.command, start.source
        if isinstance(command, StartValidation):
            key = command.trial_id, source.record.index, command.num_try
            self._take(ValidationEnded(*key, Outcome.FAILED, failure=failure))
            return
        is_found = failure.kind == CheckpointError.__name__
        damage = failure.message if is_found else str(failure)
        _log.warning(
            "trial %s cannot go on from its latest checkpoint and takes the one before it: %s",
            source.trial_id,
            damage,
        )
        # As the driver does for local checkpoints: the core chooses the one before it, and starts
        # an attempt that does not count as a failure of the trial.
        self._events.append(CheckpointLost(source.trial_id, source.record.index, damage))
        failure = Failure("CheckpointLost", damage)
        self._take(WorkerExited(command.trial_id, command.attempt, Outcome.LOST, failure))

    def _on_node_left(self, node: str) -> None:
        """Forget what was going on there; what has other nodes, too, is told to end."""
        for key, start in list(self._starts.items()):
            if node in start.nodes:
                del self._starts[key]
                start.give_up()
                if len(start.nodes) > 1:
                    lost = Failure("lost", f"node {node} is gone")
                    self._take(WorkerExited(key[0], key[1], Outcome.LOST, lost))
        for worker, attempt in list(self._attempts.items()):
            if attempt.nodes == (node,):
                # Of what it has reported and nobody has answered, nothing was promised.
                del self._attempts[worker]
                self._holding.pop(worker, None)
        for names, command in list(self._validations.items()):
            if command.node == node:
                del self._validations[names]

    # Uploads.

    def _take(self, event: Event) -> None:
        """Pass an event on, or hold it back."""
        if isinstance(event, ValidationEnded):
            self._on_validation_end(event)
        elif isinstance(event, NodeLeft):
            self._events.append(event)
            self._on_node_left(event.node)
            return
        worker = worker_of(event)
        attempt = self._attempts.get(worker) if worker else None
        if attempt is None:
            self._events.append(event)
            return
        later: CheckpointCommitted | None = None
        record = _to_upload(event)
        if self._is_async and isinstance(event, ResultReported) and record:
            later = CheckpointCommitted(*attempt.worker, record)
            event = replace(event, checkpoint=None, upload=record.index)
        self._hold_or_pass(attempt, event)
        if later:
            self._hold_or_pass(attempt, later)

    def _on_validation_end(self, ended: ValidationEnded) -> None:
        key = ended.trial_id, ended.index, ended.num_try
        command = self._validations.pop(key, None)
        if command is None:
            return
        self._released[command.node].append(_holder("validation", *key))
        payload = ended.trial_id, command.request.payload
        if payload in self._payloads and is_over_for_good(command, ended):
            self._payloads.discard(payload)
            self._files.drop_payload(command.node, *payload)

    def _hold_or_pass(self, attempt: _Attempt, event: Event) -> None:
        record = _to_upload(event)
        upload = self._begin_upload(attempt, record) if record else None
        held = _Held(event, upload, self._begin_others(attempt, event))
        if attempt.must_hold(held):
            if isinstance(event, ResultReported | CheckpointSaved) and not attempt.is_saving:
                # While the engine uploads, no report timeout runs.
                self._events.append(CheckpointStarted(*attempt.worker))
            attempt.held.append(held)
            self._holding[attempt.worker] = attempt
        else:
            self._deliver(attempt, held)
        attempt.is_saving = isinstance(event, CheckpointStarted)

    def _begin_upload(self, attempt: _Attempt, record: CheckpointRecord) -> _Upload:
        trial_id, num_attempt = attempt.worker
        name = self._files.checkpoints.remote_name(record.index, num_attempt)
        upload = _Upload(record=replace(record, remote=name))
        upload.begin(
            self._files.upload(
                attempt.nodes[0], trial_id, upload.record, attempt.holder("latest"), upload.end
            )
        )
        return upload

    def _begin_others(self, attempt: _Attempt, event: Event) -> list[_Transfers]:
        """Begin to store what belongs to an event beside its checkpoint."""
        trial_id = attempt.worker[0]
        others = _Transfers()
        if isinstance(event, ResultReported) and event.validation and event.validation.payload:
            self._payloads.add((trial_id, event.validation.payload))
            for node in attempt.nodes:
                others.begin(
                    self._files.put_payload(node, trial_id, event.validation.payload, others.end)
                )
        elif isinstance(event, WorkerExited) and attempt.has_begun:
            for node in attempt.nodes:
                # What a worker leaves that another attempt waits for is stored beside that.
                transfer = self._files.put_files(node, trial_id, others.end)
                if not attempt.stays:
                    others.begin(transfer)
        return [others] if others.is_open else []

    def _deliver(self, attempt: _Attempt, held: _Held) -> None:
        """Pass on an event whose turn it is."""
        event, upload = held.event, held.upload
        if upload is None or not isinstance(event, _WithCheckpoint):
            # A checkpoint of ranks on nodes is in the store before its record arrives.
            attempt.has_checkpoint |= isinstance(event, _WithCheckpoint) and bool(event.checkpoint)
            self._events.append(self._on_exit(attempt, event))
        elif upload.is_given_up or upload.failure:
            self._deliver_without(attempt, event, upload)
        else:
            self._events.append(replace(event, checkpoint=upload.record))
            attempt.has_checkpoint = True

    def _deliver_without(self, attempt: _Attempt, event: Event, upload: _Upload) -> None:
        """Pass on an event whose checkpoint is not in the store: the trial goes on without it."""
        failure = upload.failure or Failure("killed", "the worker was killed during the upload")
        match event:
            case ResultReported():
                if not upload.is_given_up:
                    self._warn(attempt, failure)
                self._drop_payload(attempt, event)
                event = replace(with_directory(event, None), checkpoint=None, validation=None)
            case CheckpointSaved():
                # Paused without any checkpoint, it would start from the beginning.
                if attempt.must_save and not attempt.has_checkpoint:
                    attempt.unsaved = failure
                event = CheckpointFailed(*attempt.worker, failure)
            case CheckpointCommitted() if upload.is_given_up:
                return  # with the worker's exit, the core forgets what was being stored
            case CheckpointCommitted():
                self._warn(attempt, failure)
                index = upload.record.index
                event = CheckpointLost(attempt.worker[0], index, failure.message)
        self._events.append(event)

    def _drop_payload(self, attempt: _Attempt, event: ResultReported) -> None:
        """Delete the payload of a validation that does not come about."""
        payload = attempt.worker[0], event.validation.payload if event.validation else ""
        if payload in self._payloads:
            self._payloads.discard(payload)
            for node in attempt.nodes:
                self._files.drop_payload(node, *payload)

    def _warn(self, attempt: _Attempt, failure: Failure) -> None:
        _log.warning(
            "trial %s continues without a checkpoint that could not be stored in %s: %s",
            attempt.worker[0],
            self._files.checkpoints.url,
            failure,
        )

    def _on_exit(self, attempt: _Attempt, event: Event) -> Event:
        """Forget an attempt with its exit; return the exit as the driver has to see it."""
        if not isinstance(event, WorkerExited):
            return event
        for node in attempt.nodes:
            self._released[node] += attempt.holder("source"), attempt.holder("latest")
        del self._attempts[attempt.worker]
        if attempt.unsaved and event.outcome is Outcome.STOPPED:
            return replace(event, outcome=Outcome.UNSAVED, failure=attempt.unsaved)
        return event


def worker_of(event: Event) -> _Worker | None:
    """Return the attempt whose worker an event comes from; None for a validator's."""
    if isinstance(event, _OfWorker):
        return event.trial_id, event.attempt
    if isinstance(event, LeaseRequested | LeaseReleased) and event.owner.index is None:
        return event.owner.trial_id, event.owner.attempt
    return None


def _to_upload(event: Event) -> CheckpointRecord | None:
    """Return the checkpoint that an event names; None if it is stored, or has no files."""
    record = event.checkpoint if isinstance(event, _WithCheckpoint) else None
    return None if record is None or record.is_placeholder or record.remote else record


def _holder(kind: str, *whose: object) -> str:
    return " ".join(map(str, (kind, *whose)))


@dataclass(slots=True, eq=False)
class _Transfers:
    """What something waits for.

    Attributes:
        transfers: What was begun.
        num_over: How much of it has ended.
        failure: Why the first has failed that did.
        is_given_up: Whether it is waited for no more.
    """

    transfers: list[Transfer] = field(default_factory=list)
    num_over: int = 0
    failure: Failure | None = None
    is_given_up: bool = False

    def begin(self, transfer: Transfer | None) -> None:
        """Add what was begun, if anything was; it may have ended already."""
        if transfer:
            self.transfers.append(transfer)

    def end(self, failure: Failure | None) -> None:
        """Note the end of one, see `Then`."""
        self.failure = self.failure or failure
        self.num_over += 1

    def give_up(self) -> None:
        """Wait for it no more."""
        self.is_given_up = True
        for transfer in self.transfers:
            transfer.give_up()

    @property
    def is_open(self) -> bool:
        """Whether it still has to be waited for."""
        return self.num_over < len(self.transfers) and not self.is_given_up


@dataclass(slots=True, eq=False, kw_only=True)
class _Start(_Transfers):
    """A worker or validator whose checkpoint is being checked or downloaded."""

    command: StartWorker | StartValidation
    source: Source
    nodes: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not (self.is_open or self.failure)


@dataclass(slots=True, eq=False, kw_only=True)
class _Upload(_Transfers):
    """A checkpoint that is being uploaded."""

    record: CheckpointRecord


@dataclass(slots=True, eq=False)
class _Held:
    """An event, and what it waits for: an upload, or something else that has to be stored."""

    event: Event
    upload: _Upload | None
    others: list[_Transfers]

    @property
    def is_open(self) -> bool:
        return any(each.is_open for each in (self.upload, *self.others) if each)

    @property
    def follows_commits(self) -> bool:
        """Whether it must not overtake a `CheckpointCommitted`.

        Checkpoints count in the order of their reports, and before the worker's exit.
        """
        event = self.event
        if isinstance(event, ResultReported) and event.upload is not None:
            return True
        return self.upload is not None or isinstance(event, WorkerExited)


@dataclass(slots=True, eq=False)
class _Attempt:
    """What is known of an attempt that has not exited.

    Attributes:
        worker: Trial and attempt.
        nodes: Where its processes are.
        held: Events that are held back, in their order.
        is_saving: Whether its last event was a `CheckpointStarted`.
        has_checkpoint: Whether a later attempt could continue from a checkpoint.
        must_save: Whether it was told to save and pause.
        stays: Whether its worker was told to wait for another attempt.
        has_begun: Whether it was started, and is not waiting for its checkpoint.
        unsaved: Why the checkpoint to pause with is missing.
    """

    worker: _Worker
    nodes: tuple[str, ...]
    held: deque[_Held] = field(default_factory=deque)
    is_saving: bool = False
    has_checkpoint: bool = False
    must_save: bool = False
    stays: bool = False
    has_begun: bool = True
    unsaved: Failure | None = None

    def holder(self, kind: str) -> str:
        """Return who keeps the local copy of its ``latest`` checkpoint, or of its ``source``."""
        return _holder(kind, *self.worker)

    @property
    def is_uploading(self) -> bool:
        """Whether it waits for an upload."""
        return any(held.is_open for held in self.held)

    def must_hold(self, new: _Held) -> bool:
        """Return whether an event has to wait."""
        if new.is_open:
            return True
        is_late_only = all(isinstance(held.event, CheckpointCommitted) for held in self.held)
        return bool(self.held) and (new.follows_commits or not is_late_only)

    def take_released(self) -> list[_Held]:
        """Remove and return the events that need not wait any more, in order."""
        released: list[_Held] = []
        waiting: list[_Held] = []  # each a `CheckpointCommitted`, which others may overtake
        while self.held:
            first = self.held[0]
            is_blocked = first.is_open or (bool(waiting) and first.follows_commits)
            if is_blocked and not isinstance(first.event, CheckpointCommitted):
                break
            (waiting if is_blocked else released).append(self.held.popleft())
        self.held.extendleft(reversed(waiting))
        return released

    def give_up_uploads(self, *, is_urgent: bool) -> None:
        """Wait no more for the uploads of reports, and if it is urgent, for none."""
        for held in self.held:
            if held.is_open and (is_urgent or isinstance(held.event, ResultReported)):
                for each in (held.upload, *held.others):
                    if each and each.is_open:
                        each.give_up()
