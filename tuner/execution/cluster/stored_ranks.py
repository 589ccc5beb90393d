"""Checkpoints and output of a node's ranks of a group over several nodes, in an object store.

The node gets the checkpoint that the ranks start from, and uploads its part of each that they
report, see `stored_parts`. What they write is passed on as that of other trials.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from tuner.core.commands import StartWorker
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.commit_pool import CommitPool
from tuner.execution.storage_failures import is_storage_error
from tuner.execution.uploading import UploadingExecutor
from tuner.storage import layout
from tuner.storage.checkpoint_names import is_in_common, is_staging_name
from tuner.storage.checkpoint_parts import LocalParts, measure_in_place, measure_parts
from tuner.storage.layout import METADATA
from tuner.storage.object_checkpoints import ObjectCheckpoints

from .node_files import NodeFiles
from .rank_messages import PartMeasured, PartNews, PartUnstored, PartUploaded, news_message

_Key = tuple[str, int]

KINDS: Final = frozenset({"rank_measure", "rank_upload", "rank_discard"})
"""Messages of the driver that are for `StoredRanks.on_message`."""


@final
class StoredRanks:
    """The object store's side of the ranks on a node.

    Args:
        directory: The node's own directory, in which those of the trials are.
        checkpoints: The checkpoints in the store.
        uploading: Downloads checkpoints.
        files: Passes on what ranks write.
        tell: Sends the driver a message.

    Attributes:
        jobs: Runs what takes long; its results are to be passed on while it is readable.
    """

    def __init__(
        self,
        directory: Path,
        checkpoints: ObjectCheckpoints,
        uploading: UploadingExecutor,
        files: NodeFiles,
        tell: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._directory = directory
        self._checkpoints = checkpoints
        self._uploading = uploading
        self._files = files
        self._tell = tell
        self._parts: dict[tuple[_Key, int], LocalParts] = {}
        """What is measured and not uploaded yet, by attempt and index of the checkpoint."""
        self.jobs = CommitPool()

    # What `NodeRanks` asks for.

    def begin(self, key: _Key) -> None:
        """Note that ranks are going to run here; nothing is left of earlier attempts then."""
        for part in [each for each in self._parts if each[0][0] == key[0] and each[0] != key]:
            local = self._parts.pop(part)
            if local.is_staged:
                self._delete([local.path])
        self._files.begin_ranks(key[0])

    def prepare(self, command: StartWorker, then: Callable[[str], None]) -> None:
        """Get the checkpoint that ranks start from, see `UploadingExecutor.fetch`."""
        self._uploading.fetch(command, then)

    def end(self, key: _Key, then: Callable[[], None]) -> None:
        """Pass on what ranks have left, the last of which is gone, and then call a function."""
        self._uploading.leave(*key)
        self._files.end_ranks(key[0], then)

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Do what a message of the driver asks for."""
        key = message["trial_id"], message["attempt"]
        trial_dir = layout.trial_directory(self._directory, key[0])
        match message["kind"]:
            case "rank_measure":
                measure = partial(self._measure, trial_dir, message)
                self._submit(measure, key, message["index"], self._on_measured)
            case "rank_upload":
                index: int = message["index"]
                local = self._parts.pop((key, index), None)
                upload = partial(self._upload, local, message)
                self._submit(upload, key, index, lambda *_: PartUploaded(index))
            case "rank_discard":
                self._discard(key, trial_dir, message["names"])

    # Jobs, in threads.

    def _measure(self, trial_dir: Path, message: Mapping[str, Any]) -> LocalParts | None:
        if payload := message["payload"]:
            self._files.store_payload(message["trial_id"], payload)
        if place := message["place"]:
            return measure_in_place(place, trial_dir)
        parts = [(rank, name) for rank, name in message["parts"]]
        return measure_parts(parts, trial_dir)

    def _upload(self, local: LocalParts | None, message: Mapping[str, Any]) -> None:
        if local is None:
            raise CheckpointError("what was to be uploaded has been discarded")
        left_out = {*message["left_out"]}
        self._checkpoints.upload_files(
            message["trial_id"],
            message["remote"],
            local.path,
            {
                name: entry.size_bytes
                for name, entry in local.contents.files.items()
                if name not in left_out
            },
            with_metadata=message["with_metadata"] and (local.path / METADATA).is_file(),
        )
        if local.is_staged:
            shutil.rmtree(local.path, ignore_errors=True)

    def _discard(self, key: _Key, trial_dir: Path, names: list[str]) -> None:
        for part, local in list(self._parts.items()):
            if part[0] == key and local.path.name in names:
                del self._parts[part]
        # What they have in common stays: they may still write to it, and delete it themselves.
        own = [name for name in names if is_staging_name(name, key[1]) and not is_in_common(name)]
        self._delete([trial_dir / name for name in own])

    def _delete(self, paths: list[Path]) -> None:
        def delete() -> None:
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)

        self.jobs.submit(delete, lambda _: None, str(paths))

    # Their results.

    def _submit(
        self,
        job: Callable[[], Any],
        key: _Key,
        index: int,
        news_of: Callable[[_Key, int, Any], PartNews],
    ) -> None:
        def then(result: Any) -> None:
            is_failure = isinstance(result, BaseException)
            news = _failure(index, result) if is_failure else news_of(key, index, result)
            self._tell(news_message(*key, news))

        self.jobs.submit(job, then, f"checkpoint {index} of trial {key[0]}")

    def _on_measured(self, key: _Key, index: int, local: LocalParts | None) -> PartMeasured:
        if local is None:
            return PartMeasured(index, None)
        self._parts[key, index] = local
        return PartMeasured(index, local.contents, tuple(local.conflicts))


def _failure(index: int, error: BaseException) -> PartUnstored:
    is_storage = isinstance(error, StorageUnreachable) or is_storage_error(error)
    why = str(error) if isinstance(error, CheckpointError | StorageUnreachable) else repr(error)
    return PartUnstored(index, why, is_storage)
