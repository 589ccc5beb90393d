"""Output and files of trials on a node, sent to the driver and to the object store.

Their output goes to the driver, which has the trials' log files; other files, and the payloads of
validations, which may run on another node, go into the store. Checkpoints have gone there already,
see `UploadingExecutor`, which this one wraps.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from tuner.core.commands import (
    KillValidation,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import Event, Outcome, ResultReported, ValidationEnded, WorkerExited
from tuner.core.trial import Failure
from tuner.execution.executor import Executor
from tuner.execution.failures import describe
from tuner.execution.uploading import worker_of
from tuner.execution.validation_assignment import ValidationError, payload_digest
from tuner.storage import layout
from tuner.storage.atomic import write_bytes
from tuner.storage.directories import make_own_folder
from tuner.storage.object_store import ObjectStore

from .stored_messages import Output, is_output

_OUTPUT_S: Final = 1.0
"""How often output is sent while a trial runs."""
_RETRY_S: Final = 0.1
"""How long it waits for the driver to acknowledge what was sent before."""
_CHUNK_BYTES: Final = 256 << 10
_MAX_OUTPUT_BYTES: Final = 4 << 20
"""How much of one file is sent at a time; of more, beginning and end."""
_MAX_ARTIFACT_BYTES: Final = 1 << 30
_MAX_RETURN_BYTES: Final = 16 << 20
_AT_ONCE: Final = 4

_log = logging.getLogger("tuner")

_Worker = tuple[str, int]
"""Trial and attempt."""
_Validation = tuple[str, int, int]
"""Trial, index of the checkpoint, and try."""


@final
class NodeFiles:
    """Executor that passes on what trials leave in their directories.

    Args:
        inner: Runs the trials.
        store: The experiment's directory in the object store.
        directory: The node's own directory, in which those of the trials are.
        tell: Sends the driver a message.
        may_tell: Whether the driver has acknowledged all before: output can wait.
        needs_payload: Whether the payload of a validation may be used.
    """

    def __init__(
        self,
        inner: Executor,
        store: ObjectStore,
        directory: Path,
        tell: Callable[[Mapping[str, Any]], None],
        *,
        may_tell: Callable[[], bool],
        needs_payload: Callable[[StartValidation], bool],
    ) -> None:
        self._inner = inner
        self._store = store
        self._directory = directory
        self._may_tell = may_tell
        self._needs_payload = needs_payload
        self._output = OutputReader(directory, lambda output: tell(output.message))
        self._output_at_s = 0.0
        self._running: Counter[str] = Counter()
        """How many attempts and validations of a trial there are."""
        self._validations: dict[_Validation, StartValidation] = {}
        self._fetches: dict[_Validation, Future[None]] = {}
        self._holding: dict[_Worker, deque[_Held]] = {}
        self._events: list[Event] = []
        self._stored: dict[Path, tuple[int, int] | None] = {}
        """Size and time of change of the files that are in the store."""
        self._rank_ends: list[tuple[Future[None], Callable[[], None]]] = []
        self._jobs = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tuner-files")

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
        """See `Executor`; a validation waits until its payload is here."""
        self._inner.carry_out([command for command in commands if not self._keeps(command)])

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`; may return before anything has happened."""
        self._settle()
        for event in self._inner.wait(0.0 if self._events else self._timeout_s(timeout_s)):
            self._take(event)
        self._settle()
        self._tell_output()
        events, self._events = self._events, []
        return events

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`; what is not in the store yet is given up."""
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._inner.shutdown(deadline_s)

    # For the ranks of groups over several nodes.

    def begin_ranks(self, trial_id: str) -> None:
        """Note that ranks of a trial are going to run here."""
        self._running[trial_id] += 1

    def end_ranks(self, trial_id: str, then: Callable[[], None]) -> None:
        """Note that the last rank of an attempt is gone.

        Args:
            trial_id: The trial.
            then: Called, by `wait` or at once, when what they have left has been passed on.
        """
        if job := self._on_exit(trial_id):
            self._rank_ends.append((job, then))
        else:
            then()

    def store_payload(self, trial_id: str, name: str) -> None:
        """Put the payload of a validation into the store; may be called in any thread."""
        if self._path(trial_id, name).exists():
            self._store_payload(trial_id, name)

    # Commands.

    def _keeps(self, command: WorkerCommand) -> bool:
        """Take notice of a command; return whether the inner executor must not have it yet."""
        match command:
            case StartWorker():
                self._running[command.trial_id] += 1
            case StartValidation():
                key = _key(command)
                self._running[command.trial_id] += 1
                self._validations[key] = command
                if command.request.payload and self._needs_payload(command):
                    return self._keeps_for_payload(key, command)
            case KillValidation():
                key = command.trial_id, command.index, command.num_try
                if fetch := self._fetches.pop(key, None):
                    fetch.cancel()
                    failure = Failure("killed", command.reason)
                    self._take(ValidationEnded(*key, Outcome.KILLED, failure=failure))
                    return True
        return False

    def _keeps_for_payload(self, key: _Validation, command: StartValidation) -> bool:
        trial_id, name = command.trial_id, command.request.payload
        if self._path(trial_id, name).exists():
            return False
        self._fetches[key] = self._submit(lambda: self._fetch(trial_id, name))
        return True

    def _timeout_s(self, timeout_s: float | None) -> float | None:
        if not self._running:
            return timeout_s
        output_s = max(0.0, self._output_at_s - time.monotonic())
        return output_s if timeout_s is None else min(timeout_s, output_s)

    # Events.

    def _take(self, event: Event) -> None:
        """Pass an event on, or hold it back until what belongs to it is in the store."""
        job: Future[None] | None = None
        match event:
            case ValidationEnded():
                self._on_validation_end(event)
            case ResultReported() if event.validation and event.validation.payload:
                trial_id, name = event.trial_id, event.validation.payload
                job = self._submit(lambda: self._store_payload(trial_id, name))
            case WorkerExited():
                job = self._on_exit(event.trial_id)
        worker = worker_of(event)
        if worker and (job or worker in self._holding):
            self._holding.setdefault(worker, deque()).append(_Held(event, job))
        else:
            self._events.append(event)

    def _settle(self) -> None:
        """Pass on what need not wait any longer."""
        for key in [key for key, fetch in self._fetches.items() if fetch.done()]:
            error = self._fetches.pop(key).exception()
            if error is None:
                self._inner.carry_out([self._validations[key]])
            else:
                self._take(ValidationEnded(*key, Outcome.FAILED, failure=describe(error)))
        over = [then for job, then in self._rank_ends if job.done()]
        self._rank_ends = [each for each in self._rank_ends if not each[0].done()]
        for then in over:
            then()
        for worker, held in list(self._holding.items()):
            while held and not held[0].is_open:
                self._events.append(held.popleft().event)
            if not held:
                del self._holding[worker]

    def _on_exit(self, trial_id: str) -> Future[None] | None:
        self._end_output(trial_id)
        self._output.send_whole(trial_id, layout.RETURN_VALUE, _MAX_RETURN_BYTES)
        if found := self._artifacts(trial_id):
            return self._submit(lambda: self._store_artifacts(trial_id, found))
        return None

    def _on_validation_end(self, event: ValidationEnded) -> None:
        self._end_output(event.trial_id)
        command = self._validations.pop((event.trial_id, event.index, event.num_try), None)
        if command is None or not (name := command.request.payload):
            return
        is_over = event.outcome in (Outcome.COMPLETED, Outcome.KILLED)
        if is_over or (event.outcome is Outcome.FAILED and command.is_last_try):
            trial_id = event.trial_id
            self._path(trial_id, name).unlink(missing_ok=True)
            self._submit(lambda: self._store.delete([f"{trial_id}/{name}"]))

    # Output.

    def _end_output(self, trial_id: str) -> None:
        self._output.send(trial_id)
        self._running[trial_id] -= 1
        if self._running[trial_id] <= 0:
            del self._running[trial_id]

    def _tell_output(self) -> None:
        now_s = time.monotonic()
        if now_s < self._output_at_s:
            return
        if not self._may_tell():
            self._output_at_s = now_s + _RETRY_S
            return
        self._output_at_s = now_s + _OUTPUT_S
        for trial_id in self._running:
            self._output.send(trial_id)

    # The store.

    def _artifacts(self, trial_id: str) -> list[Path]:
        """Return the files of a trial that are not the engine's and not in the store yet."""
        found: list[Path] = []
        left_out: list[str] = []
        num_bytes = 0
        for size, path in sorted(self._own_files(trial_id)):
            num_bytes += size
            if num_bytes > _MAX_ARTIFACT_BYTES:
                left_out.append(path.name)
            elif self._stored.get(path) != _version(path):
                found.append(path)
        if left_out:
            _log.warning(
                "files of trial %s have more than 1 GiB together; not stored, and lost with the "
                "node: %s",
                trial_id,
                ", ".join(left_out),
            )
        return found

    def _own_files(self, trial_id: str) -> Iterator[tuple[int, Path]]:
        for entry in _files_in(self._path(trial_id)):
            is_ours = entry.name in layout.TRIAL_FILES or is_output(entry.name)
            version = _version(path := Path(entry.path))
            if version and not is_ours and not entry.name.startswith("."):
                yield version[0], path

    def _store_artifacts(self, trial_id: str, paths: Sequence[Path]) -> None:
        versions = {path: _version(path) for path in paths}
        try:
            self._store.upload({f"{trial_id}/{path.name}": path for path in paths})
        except Exception as error:  # noqa: BLE001  (the trial must not wait for ever)
            _log.warning("files of trial %s cannot be stored: %s", trial_id, error)
        else:
            self._stored.update(versions)

    def _store_payload(self, trial_id: str, name: str) -> None:
        try:
            self._store.put(f"{trial_id}/{name}", self._path(trial_id, name).read_bytes())
        except Exception as error:  # noqa: BLE001  (the trial must not wait for ever)
            _log.warning(
                "what is needed to validate a checkpoint of trial %s cannot be stored: %s",
                trial_id,
                error,
            )

    def _fetch(self, trial_id: str, name: str) -> None:
        data = self._store.get(f"{trial_id}/{name}")
        if hashlib.sha256(data).hexdigest() != payload_digest(name):
            raise ValidationError(f"{self._store.url}/{trial_id}/{name} is damaged")
        make_own_folder(self._path(trial_id))
        write_bytes(self._path(trial_id, name), data, sync=False)

    def _submit(self, job: Callable[[], None]) -> Future[None]:
        submitted = self._jobs.submit(job)
        submitted.add_done_callback(lambda _: self._inner.wake())
        return submitted

    def _path(self, trial_id: str, name: str = "") -> Path:
        return layout.trial_directory(self._directory, trial_id) / name


@dataclass(slots=True)
class _Held:
    """An event, and what it waits for."""

    event: Event
    job: Future[None] | None

    @property
    def is_open(self) -> bool:
        return self.job is not None and not self.job.done()


@dataclass(slots=True)
class _Stream:
    """A file with output, and how much of it was sent."""

    num_sent: int = 0
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("backslashreplace")
    )


@final
class OutputReader:
    """Reads what is new in the files with the output of trials.

    Args:
        directory: The directory in which those of the trials are.
        tell: Called with what is new.
        max_bytes: How much of a file is read at a time; of more, beginning and end.
    """

    def __init__(
        self,
        directory: Path,
        tell: Callable[[Output], None],
        *,
        max_bytes: int = _MAX_OUTPUT_BYTES,
    ) -> None:
        self._directory = directory
        self._tell = tell
        self._max_bytes = max_bytes
        self._streams: dict[str, _Stream] = {}

    def send(self, trial_id: str) -> None:
        """Tell what a trial has written since the last time."""
        for entry in _files_in(layout.trial_directory(self._directory, trial_id)):
            if is_output(entry.name):
                self._send_file(trial_id, entry)

    def send_whole(self, trial_id: str, name: str, max_bytes: int) -> None:
        """Tell the content of a file, if there is one and it is not too large."""
        path = layout.trial_directory(self._directory, trial_id) / name
        try:
            if path.stat().st_size <= max_bytes:
                data = path.read_text(encoding="utf-8", errors="backslashreplace")
                self._tell(Output(trial_id, name, data))
        except OSError:
            return

    def _send_file(self, trial_id: str, entry: os.DirEntry[str]) -> None:
        stream = self._streams.setdefault(entry.path, _Stream())
        try:
            size = entry.stat(follow_symlinks=False).st_size
            if size < stream.num_sent:
                stream.num_sent = 0  # the user has emptied it
            if size > stream.num_sent:
                for text in self._new_texts(entry.path, stream, size):
                    self._tell(Output(trial_id, entry.name, text))
        except OSError:
            return  # the user has removed it

    def _new_texts(self, path: str, stream: _Stream, size: int) -> Iterator[str]:
        half = self._max_bytes // 2
        num_left_out = max(0, size - stream.num_sent - 2 * half)
        parts = [(stream.num_sent, size)]
        if num_left_out:
            parts = [(stream.num_sent, stream.num_sent + half), (size - half, size)]
        with Path(path).open("rb") as file:
            for number, (begin, end) in enumerate(parts):
                if number:
                    stream.decoder.reset()
                    yield f"\n... {num_left_out} bytes left out ...\n"
                file.seek(begin)
                for start in range(begin, end, _CHUNK_BYTES):
                    yield stream.decoder.decode(file.read(min(_CHUNK_BYTES, end - start)))
        stream.num_sent = size


def _files_in(directory: Path) -> list[os.DirEntry[str]]:
    """Return the regular files that are directly in a directory."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _version(path: Path) -> tuple[int, int] | None:
    """Return size and time of change of a file; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _key(command: StartValidation) -> _Validation:
    return command.trial_id, command.checkpoint.index, command.num_try
