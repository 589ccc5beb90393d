"""Files of trials on a node, moved at the driver's request; where the experiment is in a store.

Checkpoints are fetched and uploaded by `StoreFiles`, as on the driver's machine. Beside them, the
node stores the parts of checkpoints that its ranks have, see `stored_parts`, the payloads of
validations, which may run on another node, and the other files that trials leave. Their output goes
to the driver, which has the trials' log files.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import logging
import os
import queue
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never, final

from tuner.background import BackgroundJobs
from tuner.core.worker_records import Failure
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.failures import describe
from tuner.execution.storage_failures import is_storage_error
from tuner.execution.validation_assignment import ValidationError, payload_digest
from tuner.storage import layout
from tuner.storage.checkpoint_names import is_in_common, is_staging_name
from tuner.storage.checkpoint_parts import LocalParts, measure_in_place, measure_parts
from tuner.storage.directories import make_own_folder
from tuner.storage.disk import write_bytes
from tuner.storage.layout import METADATA
from tuner.stores.file_service import PAUSE_S, Job, Source, StoreFiles, Transfer
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore

from .file_messages import (
    FILE_RECORDS,
    Discard,
    DropPayload,
    Fetch,
    FileRequest,
    GetPayload,
    GiveUp,
    Measure,
    Measured,
    Output,
    Pin,
    PutFiles,
    PutPayload,
    Release,
    Transferred,
    Transferring,
    Upload,
    UploadPart,
    is_output,
)

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


@dataclass(slots=True, eq=False)
class _Parts:
    """What ranks have stored of a checkpoint, from its measuring to its upload."""

    trial_id: str
    attempt: int
    local: LocalParts


@final
class NodeFiles:
    """Moves files between a node and the object store of an experiment.

    Args:
        store: The experiment's directory in the store.
        epoch: The driver's, see `RemoteLock`.
        directory: The node's own directory, in which those of the trials are.
        tell: Sends the driver a message.
        wake: Has `settle` called soon; may be called from any thread.
        may_tell: Whether the driver has acknowledged all before: output can wait.
        cache_bytes: See `ObjectCheckpoints`.
    """

    def __init__(
        self,
        store: ObjectStore,
        epoch: int,
        directory: Path,
        tell: Callable[[Mapping[str, Any]], None],
        *,
        wake: Callable[[], None],
        may_tell: Callable[[], bool],
        cache_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._tell = tell
        self._wake = wake
        self._may_tell = may_tell
        # What is not stored yet is lost with the node in any case.
        self._checkpoints = ObjectCheckpoints(
            store, directory, epoch, sync=False, cache_bytes=cache_bytes
        )
        self._service = StoreFiles(self._checkpoints, wake)
        self._jobs = BackgroundJobs("tuner-files", num_threads=_AT_ONCE)
        self._transfers: dict[int, Transfer] = {}
        self._over: queue.SimpleQueue[Transferred | Measured] = queue.SimpleQueue()
        self._parts: dict[int, _Parts] = {}
        """What was measured and is not uploaded yet, by the id of the request."""
        self._output = OutputReader(directory, lambda output: tell(FILE_RECORDS.encode(output)))
        self._output_at_s = 0.0
        self._running: Counter[str] = Counter()
        """How many processes of a trial there are."""
        self._dropped: set[tuple[str, str]] = set()
        """Payloads that were deleted, perhaps while they were still being stored."""
        self._stored: dict[Path, tuple[int, int] | None] = {}
        """Size and time of change of the files that are in the store."""

    # Processes.

    def begin(self, trial_id: str, attempt: int | None) -> None:
        """Note that a process is started.

        Args:
            trial_id: Its trial.
            attempt: Its attempt, of which nothing is left of earlier ones; None for a validator.
        """
        self._running[trial_id] += 1
        for number, parts in list(self._parts.items()):
            if attempt and parts.trial_id == trial_id and parts.attempt != attempt:
                del self._parts[number]
                if parts.local.is_staged:
                    self._delete([parts.local.path])

    def end(self, trial_id: str) -> None:
        """Note that a process is gone, and pass on what it has written."""
        self._tell_rest(trial_id)
        self._running[trial_id] -= 1
        if self._running[trial_id] <= 0:
            del self._running[trial_id]

    # The loop.

    @property
    def timeout_s(self) -> float | None:
        """When `settle` is to be called at the latest, in seconds from now; None for never."""
        return max(0.0, self._output_at_s - time.monotonic()) if self._running else None

    def settle(self) -> None:
        """Tell the driver what is over, and what trials have written."""
        while not self._over.empty():
            record = self._over.get()
            if record.id in self._transfers:  # else it was given up
                del self._transfers[record.id]
                self._tell(FILE_RECORDS.encode(record))
        now_s = time.monotonic()
        if now_s < self._output_at_s:
            return
        if not self._may_tell():
            self._output_at_s = now_s + _RETRY_S
            return
        self._output_at_s = now_s + _OUTPUT_S
        for trial_id in self._running:
            self._output.send(trial_id)

    def close(self) -> None:
        """Give up what is not in the store yet."""
        self._jobs.close(0.0, drops_queued=True)
        self._service.close()

    # Requests.

    def do(self, request: FileRequest) -> None:
        """Begin to do what the driver asks for."""
        match request:
            case Pin(trial_id, remote, holder):
                self._service.pin(holder, (trial_id, remote))
            case Release(holders):
                self._service.release("", holders)
            case Discard():
                self._discard(request)
            case DropPayload(trial_id, name):
                with contextlib.suppress(OSError):
                    self._path(trial_id, name).unlink()
                self._dropped.add((trial_id, name))
                self._jobs.submit(partial(self._store.delete, [f"{trial_id}/{name}"]))
            case GiveUp(number):
                if transfer := self._transfers.pop(number, None):
                    transfer.give_up()
            case Fetch() | Upload() | Measure() | UploadPart() | PutPayload() | GetPayload():
                self._begin(request)
            case PutFiles():
                self._tell_rest(request.trial_id)
                self._begin(request)
            case _:
                assert_never(request)

    def _begin(self, request: Transferring) -> None:
        number = request.id

        def then(failure: Failure | None) -> None:
            self._over.put(Transferred(number, failure))

        match request:
            case Fetch(_, trial_id, record, holder, for_trial):
                source = Source(trial_id, record, holder, for_trial)
                transfer = self._service.fetch("", source, then)
            case Upload(_, trial_id, record, holder):
                transfer = self._service.upload("", trial_id, record, holder, then)
            case _:
                transfer = Job()
                self._jobs.submit(
                    partial(self._run, self._job_of(request, transfer), number, transfer)
                )
        if transfer:
            self._transfers[number] = transfer
        else:
            self._tell(FILE_RECORDS.encode(Transferred(number)))

    def _job_of(self, request: Transferring, transfer: Job) -> Callable[[], Measured | None]:
        match request:
            case Measure():
                return partial(self._measure, request)
            case UploadPart():
                return partial(self._upload_part, request, self._parts.pop(request.measured, None))
            case PutPayload(_, trial_id, name):
                self._dropped.discard((trial_id, name))
                return partial(self._put_payload, trial_id, name)
            case GetPayload(_, trial_id, name):
                return partial(self._get_payload, trial_id, name, transfer)
            case PutFiles(_, trial_id):
                return partial(self._put_files, trial_id)
            case _:
                raise TypeError(f"no job of this service, got {request}")

    def _run(self, job: Callable[[], Measured | None], number: int, transfer: Job) -> None:
        if not transfer.is_given_up:
            try:
                record: Transferred | Measured = job() or Transferred(number)
            except Exception as error:  # noqa: BLE001  (a trial must not wait for ever)
                record = _failed(number, error)
            self._over.put(record)
            self._wake()

    # Jobs, in threads.

    def _measure(self, request: Measure) -> Measured:
        trial_dir = self._path(request.trial_id)
        if request.place:
            found = measure_in_place(request.place, trial_dir)
        else:
            found = measure_parts(list(request.parts.items()), trial_dir)
        if found is None:
            return Measured(request.id, None, [])
        self._parts[request.id] = _Parts(request.trial_id, request.attempt, found)
        return Measured(request.id, found.contents, list(found.conflicts))

    def _upload_part(self, request: UploadPart, parts: _Parts | None) -> None:
        if parts is None:
            raise CheckpointError("what was to be uploaded has been discarded")
        local, left_out = parts.local, {*request.left_out}
        files = local.contents.files.items()
        self._checkpoints.upload_files(
            request.trial_id,
            request.remote,
            local.path,
            {name: entry.size_bytes for name, entry in files if name not in left_out},
            with_metadata=request.with_metadata and (local.path / METADATA).is_file(),
        )
        if local.is_staged:
            shutil.rmtree(local.path, ignore_errors=True)

    def _discard(self, request: Discard) -> None:
        trial_id, attempt, names = request.trial_id, request.attempt, request.names
        for number, parts in list(self._parts.items()):
            is_same = (parts.trial_id, parts.attempt) == (trial_id, attempt)
            if is_same and parts.local.path.name in names:
                del self._parts[number]
        # What they have in common stays: they may still write to it, and delete it themselves.
        own = [name for name in names if is_staging_name(name, attempt) and not is_in_common(name)]
        self._delete([self._path(trial_id, name) for name in own])

    def _delete(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._jobs.submit(partial(shutil.rmtree, path, ignore_errors=True))

    def _put_payload(self, trial_id: str, name: str) -> None:
        path = self._path(trial_id, name)
        if not path.exists():
            return  # another rank has written it, on another node
        try:
            self._store.put(f"{trial_id}/{name}", path.read_bytes())
            if (trial_id, name) in self._dropped:
                self._store.delete([f"{trial_id}/{name}"])
        except Exception as error:  # noqa: BLE001  (the trial must not wait for ever)
            _log.warning(
                "what is needed to validate a checkpoint of trial %s cannot be stored: %s",
                trial_id,
                error,
            )

    def _get_payload(self, trial_id: str, name: str, transfer: Job) -> None:
        path = self._path(trial_id, name)
        while not (path.exists() or transfer.is_given_up):
            try:
                self._download_payload(trial_id, name, path)
            except StorageUnreachable as error:
                # As `StoreFiles` does for the checkpoint: a failure would count as the validator's.
                _log.warning(
                    "trial %s waits for a validation whose function cannot be downloaded, and "
                    "tries again: %s",
                    trial_id,
                    error,
                )
                if self._jobs.pause(PAUSE_S):
                    return

    def _download_payload(self, trial_id: str, name: str, path: Path) -> None:
        data = self._store.get(f"{trial_id}/{name}")
        if hashlib.sha256(data).hexdigest() != payload_digest(name):
            raise ValidationError(f"{self._store.url}/{trial_id}/{name} is damaged")
        make_own_folder(path.parent)
        write_bytes(path, data, sync=False)

    def _put_files(self, trial_id: str) -> None:
        paths = self._artifacts(trial_id)
        versions = {path: _version(path) for path in paths}
        try:
            self._store.upload({f"{trial_id}/{path.name}": path for path in paths})
        except Exception as error:  # noqa: BLE001  (the trial must not wait for ever)
            _log.warning("files of trial %s cannot be stored: %s", trial_id, error)
        else:
            self._stored.update(versions)

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

    # Output.

    def _tell_rest(self, trial_id: str) -> None:
        self._output.send(trial_id)
        self._output.send_whole(trial_id, layout.RETURN_VALUE, _MAX_RETURN_BYTES)

    def _path(self, trial_id: str, name: str = "") -> Path:
        return layout.trial_directory(self._directory, trial_id) / name


def _failed(number: int, error: BaseException) -> Transferred:
    is_storage = isinstance(error, StorageUnreachable) or is_storage_error(error)
    return Transferred(number, describe(error), is_storage)


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
