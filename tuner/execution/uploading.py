"""Executor whose checkpoints count once an object store has them.

`UploadingExecutor` stands between the driver and the executor that runs the trials. An event that
names a checkpoint is held back, and with it what the trial's worker says afterwards, until the
checkpoint is uploaded. So the core needs to know nothing of it: what it is told is stored, and a
report is not answered before. A worker that is to start from a checkpoint is started once there is
an intact local copy. Uploads and downloads run in threads, and other trials go on meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

from tuner.background import BackgroundJobs
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
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import CheckpointRecord, Failure, ReportReply
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.storage.object_checkpoints import ObjectCheckpoints

from .executor import Executor
from .failures import describe
from .group_checkpoint import with_directory
from .store_waits import PERIOD_S, StoreWaits

_AT_ONCE: Final = 4
_PAUSE_S: Final = 5.0
"""Before a download is tried again that the store, or the local disk, has refused."""

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
        inner: Runs the trials, and commits their checkpoints on this machine.
        checkpoints: The store.
        is_async: Whether a result is passed on at once, and its checkpoint counts later. Then one
            upload of a trial is under way at a time, and the next report with a checkpoint waits
            for it.
        in_background: Whether uploads and downloads run in threads; if not, `wait` and `carry_out`
            take as long as they do, and all happens in an order that does not depend on time.
    """

    def __init__(
        self,
        inner: Executor,
        checkpoints: ObjectCheckpoints,
        *,
        is_async: bool = False,
        in_background: bool = True,
    ) -> None:
        self._inner = inner
        self._checkpoints = checkpoints
        self._is_async = is_async
        self._in_background = in_background
        num_threads = _AT_ONCE if in_background else 0
        self._uploads = BackgroundJobs("tuner-upload", num_threads=num_threads)
        self._downloads = BackgroundJobs("tuner-download", num_threads=num_threads)
        self._download_locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(
            threading.Lock
        )
        """Of checkpoints, each of which is downloaded once for all that start from it."""
        self._attempts: dict[_Worker, _Attempt] = {}
        self._holding: dict[_Worker, _Attempt] = {}
        """Those of which events are held back."""
        self._starts: dict[_Worker | _Validation, _Start] = {}
        self._events: list[Event] = []
        self._waits = StoreWaits(checkpoints.url)
        self._intact: set[tuple[str, str]] = set()
        """Checkpoints whose contents were compared with their manifest, or written, since this
        driver began."""

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        """See `Executor`."""
        return self._inner.capacity()

    def clock(self) -> float:
        """See `Executor`."""
        return self._inner.clock()

    def wake(self) -> None:
        """See `Executor`."""
        self._inner.wake()

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`; a start waits until there is a local copy of its checkpoint."""
        passed = [command for command in commands if not self._keeps(command)]
        self._inner.carry_out(passed)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._settle()
            rest_s = None if end_s is None else max(0.0, end_s - time.monotonic())
            if num_waiting := self._num_waiting():
                self._waits.look(self._checkpoints.outage_s, num_waiting)
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
            start.is_given_up = True
        for jobs in (self._uploads, self._downloads):
            jobs.close(0.0, drops_queued=True)
        self._inner.shutdown(deadline_s)

    def _num_waiting(self) -> int:
        """Return how many trials wait for the store."""
        uploading = (worker[0] for worker, attempt in self._holding.items() if attempt.is_uploading)
        return len({*uploading, *(key[0] for key in self._starts)})

    # For the ranks of groups over several nodes.

    def fetch(self, command: StartWorker, then: Callable[[str], None]) -> None:
        """Make sure that there is a local copy of the checkpoint that ranks here start from.

        Args:
            command: Starts them; its checkpoint is in the store.
            then: Called by `wait`, or at once, with what is wrong with the stored checkpoint; empty
                for nothing.
        """
        record = command.checkpoint
        if record is None or not record.remote:
            then("")
            return
        worker = command.trial_id, command.attempt
        owner_id = command.source_id or command.trial_id
        self._checkpoints.cache.pin(("source", worker), (owner_id, record.remote))
        if not self._keeps_for(_Start(command, owner_id, record, then), worker):
            then("")

    def leave(self, trial_id: str, attempt: int) -> None:
        """Note that what `fetch` has fetched, or fetches, is needed no more."""
        worker = trial_id, attempt
        if start := self._starts.pop(worker, None):
            start.is_given_up = True
        self._checkpoints.cache.unpin(("source", worker))

    def _submit(self, jobs: BackgroundJobs, job: Callable[[], None]) -> None:
        def run() -> None:
            try:
                job()
            finally:
                self._inner.wake()

        jobs.submit(run if self._in_background else job)

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
        return False

    def _keeps_start(self, command: StartWorker) -> bool:
        worker = command.trial_id, command.attempt
        attempt = self._attempts[worker] = _Attempt(worker)
        record = command.checkpoint
        if record is None:
            return False
        attempt.has_checkpoint = True
        if not record.remote:
            return False
        owner_id = command.source_id or command.trial_id
        self._checkpoints.cache.pin(("source", worker), (owner_id, record.remote))
        return self._keeps_for(_Start(command, owner_id, record), worker)

    def _keeps_validation(self, command: StartValidation) -> bool:
        trial_id, record = command.trial_id, command.checkpoint
        if not record.remote:
            return False
        key = trial_id, record.index, command.num_try
        self._checkpoints.cache.pin(("validation", key), (trial_id, record.remote))
        return self._keeps_for(_Start(command, trial_id, record), key)

    def _keeps_for(self, start: _Start, key: _Worker | _Validation) -> bool:
        """Begin to download a checkpoint, unless its local copy is known to be intact."""
        # What this driver has seen intact only needs a look, as cheap as for local experiments: a
        # worker that is kept for another start is lost if that does not come at once.
        if start.checkpoint_key in self._intact and not self._checkpoints.find_local_damage(
            start.owner_id, start.record, with_hashes=False
        ):
            return False
        self._starts[key] = start
        self._submit(self._downloads, lambda: self._fetch(start))
        return True

    def _keeps_kill(self, command: KillWorker) -> bool:
        worker = command.trial_id, command.attempt
        if start := self._starts.pop(worker, None):
            start.is_given_up = True
            self._take(
                WorkerExited(*worker, Outcome.KILLED, Failure("killed", command.reason)),
            )
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
        start.is_given_up = True
        self._take(ValidationEnded(*key, Outcome.KILLED, failure=Failure("killed", command.reason)))
        return True

    # Downloads.

    def _fetch(self, start: _Start) -> None:
        """Make sure that there is an intact local copy; runs in a thread."""
        checkpoints, owner_id, record = self._checkpoints, start.owner_id, start.record
        with self._download_locks[start.checkpoint_key]:
            while not (start.is_given_up or start.damage):
                try:
                    if checkpoints.find_local_damage(owner_id, record, with_hashes=True):
                        size_bytes = checkpoints.download(owner_id, record)
                        checkpoints.add_copy(owner_id, record, size_bytes)
                    start.is_ready = True
                    break
                except CheckpointError as damage:
                    start.damage = str(damage)
                except (StorageUnreachable, OSError) as error:
                    if not self._in_background:
                        raise
                    # No damage: an older checkpoint would be no nearer. If the store stays away,
                    # the experiment ends since its journal cannot be mirrored either.
                    _log.warning(
                        "trial %s waits for a checkpoint that cannot be downloaded, and tries "
                        "again: %s",
                        start.command.trial_id,
                        error,
                    )
                    if self._downloads.pause(_PAUSE_S):
                        break
                except Exception as error:  # noqa: BLE001  (a trial must not wait for ever)
                    start.damage = str(describe(error))
        checkpoints.cache.trim()

    def _settle(self) -> None:
        """Pass on what was held back and is no longer."""
        for worker, attempt in list(self._holding.items()):
            for held in attempt.take_released():
                self._deliver(attempt, held)
            if not attempt.held:
                del self._holding[worker]
        done = [key for key, start in self._starts.items() if start.is_ready or start.damage]
        ready: list[WorkerCommand] = []
        for key in done:
            start = self._starts.pop(key)
            if not start.damage:
                self._intact.add(start.checkpoint_key)
            if start.then:
                start.then(start.damage)
            elif start.damage:
                self._on_damage(start)
            else:
                ready.append(start.command)
        if ready:
            self._inner.carry_out(ready)

    def _on_damage(self, start: _Start) -> None:
        command, damage = start.command, start.damage
        if isinstance(command, StartValidation):
            failure = Failure("CheckpointError", damage)
            key = command.trial_id, start.record.index, command.num_try
            self._take(ValidationEnded(*key, Outcome.FAILED, failure=failure))
            return
        _log.warning(
            "trial %s cannot go on from its latest checkpoint and takes the one before it: %s",
            start.owner_id,
            damage,
        )
        # As the driver does for local checkpoints: the core chooses the one before it, and starts
        # an attempt that does not count as a failure of the trial.
        self._events.append(CheckpointLost(start.owner_id, start.record.index, damage))
        failure = Failure("CheckpointLost", damage)
        self._take(WorkerExited(command.trial_id, command.attempt, Outcome.LOST, failure))

    # Uploads.

    def _take(self, event: Event) -> None:
        """Pass an event on, or hold it back."""
        if isinstance(event, ValidationEnded):
            key = event.trial_id, event.index, event.num_try
            self._checkpoints.cache.unpin(("validation", key))
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

    def _hold_or_pass(self, attempt: _Attempt, event: Event) -> None:
        record = _to_upload(event)
        upload = self._begin_upload(attempt, record) if record else None
        held = _Held(event, upload)
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
        name = self._checkpoints.remote_name(record.index, num_attempt)
        upload = _Upload(replace(record, remote=name))
        self._submit(self._uploads, lambda: self._upload(trial_id, upload))
        return upload

    def _upload(self, trial_id: str, upload: _Upload) -> None:
        """Upload a checkpoint; runs in a thread."""
        record, checkpoints = upload.record, self._checkpoints
        try:
            if not upload.is_given_up:
                upload.size_bytes = checkpoints.upload(
                    trial_id, record, record.remote, lambda: not upload.is_given_up
                )
        except Exception as error:  # noqa: BLE001  (a trial must not wait for ever)
            upload.failure = describe(error)
        upload.is_over = True
        checkpoints.cache.trim()

    def _deliver(self, attempt: _Attempt, held: _Held) -> None:
        """Pass on an event whose turn it is."""
        event, upload = held.event, held.upload
        if upload is None or not isinstance(event, _WithCheckpoint):
            self._events.append(self._on_exit(attempt, event))
        elif upload.is_given_up or upload.failure:
            self._deliver_without(attempt, event, upload)
        else:
            trial_id, record = attempt.worker[0], upload.record
            self._events.append(replace(event, checkpoint=record))
            attempt.has_checkpoint = True
            self._checkpoints.cache.pin(("latest", attempt.worker), (trial_id, record.remote))
            self._checkpoints.add_copy(trial_id, record, upload.size_bytes)
            self._intact.add((trial_id, record.remote))

    def _deliver_without(self, attempt: _Attempt, event: Event, upload: _Upload) -> None:
        """Pass on an event whose checkpoint is not in the store: the trial goes on without it."""
        failure = upload.failure or Failure("killed", "the worker was killed during the upload")
        match event:
            case ResultReported():
                if not upload.is_given_up:
                    self._warn(attempt, failure)
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

    def _warn(self, attempt: _Attempt, failure: Failure) -> None:
        _log.warning(
            "trial %s continues without a checkpoint that could not be stored in %s: %s",
            attempt.worker[0],
            self._checkpoints.url,
            failure,
        )

    def _on_exit(self, attempt: _Attempt, event: Event) -> Event:
        """Forget an attempt with its exit; return the exit as the driver has to see it."""
        if not isinstance(event, WorkerExited):
            return event
        for kind in ("source", "latest"):
            self._checkpoints.cache.unpin((kind, attempt.worker))
        del self._attempts[attempt.worker]
        self._submit(self._uploads, self._checkpoints.cache.trim)
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
    """Return the checkpoint that an event names; None for a placeholder, which has no files."""
    record = event.checkpoint if isinstance(event, _WithCheckpoint) else None
    return None if record is None or record.is_placeholder else record


@dataclass(slots=True, eq=False)
class _Start:
    """A worker or validator whose checkpoint is being checked or downloaded.

    Attributes:
        then: Called instead of starting it.
    """

    command: StartWorker | StartValidation
    owner_id: str
    record: CheckpointRecord
    then: Callable[[str], None] | None = None
    is_ready: bool = False
    damage: str = ""
    is_given_up: bool = False

    @property
    def checkpoint_key(self) -> tuple[str, str]:
        return self.owner_id, self.record.remote


@dataclass(slots=True, eq=False)
class _Upload:
    """A checkpoint that is being uploaded."""

    record: CheckpointRecord
    is_over: bool = False
    is_given_up: bool = False
    failure: Failure | None = None
    size_bytes: int = 0

    @property
    def is_open(self) -> bool:
        return not (self.is_over or self.is_given_up)


@dataclass(slots=True, eq=False)
class _Held:
    """An event, and the upload that it waits for."""

    event: Event
    upload: _Upload | None

    @property
    def is_open(self) -> bool:
        return self.upload is not None and self.upload.is_open

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
        held: Events that are held back, in their order.
        is_saving: Whether its last event was a `CheckpointStarted`.
        has_checkpoint: Whether a later attempt could continue from a checkpoint.
        must_save: Whether it was told to save and pause.
        unsaved: Why the checkpoint to pause with is missing.
    """

    worker: _Worker
    held: deque[_Held] = field(default_factory=deque)
    is_saving: bool = False
    has_checkpoint: bool = False
    must_save: bool = False
    unsaved: Failure | None = None

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
            if held.upload and (is_urgent or isinstance(held.event, ResultReported)):
                held.upload.is_given_up |= held.upload.is_open
