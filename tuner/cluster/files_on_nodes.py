"""Files of trials on the nodes of a cluster, as the file service of an experiment in a store.

What is asked for is sent to the node, and its answer passed on, see `file_messages`; on the node it
is done by `node_files`. What a node that has left was asked for has failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, final

from tuner.core.worker_records import CheckpointRecord, Failure
from tuner.storage import layout
from tuner.stores.file_service import Source, Then, Transfer
from tuner.stores.object_checkpoints import ObjectCheckpoints

from .file_messages import (
    FILE_REQUESTS,
    DropPayload,
    Fetch,
    FileRecord,
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
)

Told = Callable[[Transferred | Measured | None], None]
"""Takes a node's answer; None if the node has left."""

_Key = tuple[str, str]


class Nodes(Protocol):
    """The nodes, see `NodeProcesses`."""

    def say(self, node: str, message: Mapping[str, Any], /) -> bool:
        """Send a node a message, and return whether it is present."""

    def runs(self, name: str, trial_id: str, /) -> bool:
        """Return whether a node has a process of a trial."""

    def call_soon(self, call: Callable[[], None], /) -> None:
        """Have a function called in the driver's thread."""

    def on_remark(self, text: str, /) -> None:
        """Log something, once."""


@final
class FilesOnNodes:
    """Moves files between nodes and the object store of an experiment.

    Uploads wait until the store has the beginning of the journal: one with checkpoints and without
    any record looks as if its journal was lost.

    Args:
        nodes: The nodes.
        checkpoints: The checkpoints in the store.
        directory: The directory in which the driver works.

    Attributes:
        checkpoints: As given.
    """

    def __init__(self, nodes: Nodes, checkpoints: ObjectCheckpoints, directory: Path) -> None:
        self._nodes = nodes
        self.checkpoints = checkpoints
        self._directory = directory
        self._ids = itertools.count(1)
        self._pending: dict[int, tuple[str, bool, Told]] = {}
        """Of each request that is not answered, the node, whether that measures, and who waits."""
        self._waiting: list[tuple[str, Transferring]] | None = []
        """What waits for the journal; None once that is stored."""
        self._held: dict[tuple[str, str], _Key | None] = {}
        """Which checkpoint a node keeps for a holder; None where that is not known."""
        self._gone: set[str] = set()
        """Nodes of which the executor knows that they have left."""

    # The FileService protocol.

    def fetch(self, node: str, source: Source, then: Then) -> Transfer | None:
        place = node, source.holder
        if any(key == source.key and kept[0] == node for kept, key in self._held.items()):
            # At once, see `StoreFiles.fetch`; the node deletes no copy that it keeps for somebody.
            self._held[place] = source.key
            self._say(node, Pin(*source.key, source.holder))
            return None

        def take(told: Transferred | Measured | None) -> None:
            if not isinstance(told, Transferred):
                return  # nothing is known of the checkpoint: whoever waits is told of the node
            if told.failure is None:
                self._held[place] = source.key
            then(told.failure)

        self._held.setdefault(place, None)
        wanted = Fetch(
            self.next_id(), source.trial_id, source.record, source.holder, source.for_trial
        )
        return self.ask(node, wanted, take)

    def upload(
        self, node: str, trial_id: str, record: CheckpointRecord, holder: str, then: Then
    ) -> Transfer | None:
        def take(told: Transferred | Measured | None) -> None:
            failure = _failure(node, told)
            if failure is None:
                self._held[node, holder] = trial_id, record.remote
            then(failure)

        self._held.setdefault((node, holder), None)
        return self.ask(node, Upload(self.next_id(), trial_id, record, holder), take)

    def release(self, node: str, holders: Iterable[str]) -> None:
        if held := [holder for holder in holders if (node, holder) in self._held]:
            for holder in held:
                del self._held[node, holder]
            self._say(node, Release(held))

    def put_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        return self._ask(node, PutPayload(self.next_id(), trial_id, name), then)

    def get_payload(self, node: str, trial_id: str, name: str, then: Then) -> Transfer | None:
        return self._ask(node, GetPayload(self.next_id(), trial_id, name), then)

    def drop_payload(self, node: str, trial_id: str, name: str) -> None:
        self._say(node, DropPayload(trial_id, name))

    def put_files(self, node: str, trial_id: str, then: Then) -> Transfer | None:
        return self._ask(node, PutFiles(self.next_id(), trial_id), then)

    def close(self) -> None:
        self._pending.clear()

    # For `StoredParts`.

    def ask(self, node: str, request: Transferring, told: Told) -> Transfer:
        """Ask a node for something.

        Args:
            node: The node.
            request: What; its id is to be `next_id`.
            told: Called in the driver's thread.
        """
        self._pending[request.id] = node, isinstance(request, Measure), told
        if self._waiting is not None and isinstance(request, Upload | UploadPart):
            self._waiting.append((node, request))
        else:
            self._send(node, request)
        return _Asked(self, node, request.id)

    def next_id(self) -> int:
        """Return the id of a request."""
        return next(self._ids)

    def tell(self, node: str, request: FileRequest) -> None:
        """Tell a node something that it does not answer."""
        self._say(node, request)

    # What happens meanwhile.

    def is_moving(self, node: str) -> bool:
        """Return whether something is moved to or from a node."""
        return any(asked == node for asked, *_ in self._pending.values())

    def note_journal_stored(self) -> None:
        """Let nodes upload; may be called from another thread."""
        self._nodes.call_soon(self._begin_uploads)

    def on_node_left(self, node: str) -> None:
        """Note that a node has left: what it was asked for has failed.

        Called once the executor knows, in the driver's thread.
        """
        self._gone.add(node)
        self._held = {kept: key for kept, key in self._held.items() if kept[0] != node}
        for number, (asked, *_) in list(self._pending.items()):
            if asked == node:
                self._end(number, None)

    def on_told(self, node: str, record: FileRecord) -> None:
        """Take what a node says; of what was given up, nothing is heeded.

        Raises:
            ValueError: If it is no answer to what the node was asked.
        """
        if isinstance(record, Output):
            self._append_output(node, record)
            return
        asked, measures, _ = self._pending.get(record.id, ("", False, None))
        if asked == node:
            has_failed = isinstance(record, Transferred) and record.failure
            if isinstance(record, Measured) != measures and not has_failed:
                raise ValueError(f"request {record.id} asked for something else, got {record}")
            self._nodes.call_soon(partial(self._end, record.id, record))

    def give_up(self, node: str, number: int) -> None:
        """Wait no more for an answer."""
        if self._pending.pop(number, None):
            self._say(node, GiveUp(number))

    def _begin_uploads(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for node, request in waiting:
            if request.id in self._pending:
                self._send(node, request)

    def _send(self, node: str, request: Transferring) -> None:
        # Of a node that has left just now, `on_node_left` is about to be told.
        if not self._say(node, request) and node in self._gone:
            self._nodes.call_soon(partial(self._end, request.id, None))

    def _say(self, node: str, request: FileRequest) -> bool:
        return self._nodes.say(node, FILE_REQUESTS.encode(request))

    def _ask(self, node: str, request: Transferring, then: Then) -> Transfer:
        return self.ask(node, request, lambda told: then(_failure(node, told)))

    def _end(self, number: int, told: Transferred | Measured | None) -> None:
        if pending := self._pending.pop(number, None):
            pending[2](told)

    def _append_output(self, node: str, output: Output) -> None:
        """Add to the output of a trial on this machine what it has written on its node."""
        if not self._nodes.runs(node, output.trial_id):
            return
        path = layout.trial_directory(self._directory, output.trial_id) / output.stream
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("wb" if output.is_whole else "ab") as file:
                file.write(output.data.encode())
        except OSError as error:
            self._nodes.on_remark(f"the output of trials cannot be stored: {error}")


@final
class _Asked:
    """A request that a node has not answered."""

    def __init__(self, files: FilesOnNodes, node: str, number: int) -> None:
        self._files = files
        self._node = node
        self._number = number

    def give_up(self) -> None:
        self._files.give_up(self._node, self._number)


def _failure(node: str, told: Transferred | Measured | None) -> Failure | None:
    """Return why a node has not done what it was asked for; None if it has."""
    if isinstance(told, Transferred):
        return told.failure
    return Failure("NodeLost", f"node {node} is gone")
