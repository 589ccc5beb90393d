"""Checkpoints of a group over several nodes, committed in an object store by the driver.

No node has all of such a checkpoint. When all ranks have reported it, each node says what its ranks
have stored; then each uploads what is its to upload straight to the final place, and when all is
there, the driver creates the manifest. Only then does the checkpoint count: what a node that is
lost has uploaded before is an orphan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

from tuner.core.worker_records import CheckpointRecord
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.checkpoint_part import Part, PartKind
from tuner.groups.group_checkpoint import Committed, GroupCheckpoint, NodeLost
from tuner.storage.manifest import PartContents, group_manifest
from tuner.storage.spread_parts import Combined, combine
from tuner.stores.file_service import Transfer

from .file_messages import Discard, Measure, Measured, Transferred, UploadPart
from .files_on_nodes import FilesOnNodes

_log = logging.getLogger("tuner")


@final
@dataclass(slots=True, eq=False)
class _Commit:
    """A checkpoint that is being committed.

    Attributes:
        checkpoint: The checkpoint.
        world_size: How many workers the group has.
        then: Takes the outcome.
        place: Name of the directory in which training code has placed it; empty if it has not.
        by_node: The parts of each node by rank, in the order of the ranks.
        asked: What was asked of nodes that have not answered yet.
        measured: What the others have, and the number of the request that has found it.
        is_given_up: Whether the outcome has been told already.
    """

    checkpoint: GroupCheckpoint
    world_size: int
    then: Committed
    place: str = ""
    by_node: dict[str, list[tuple[int, Part]]] = field(default_factory=dict)
    asked: dict[str, Transfer] = field(default_factory=dict)
    measured: dict[str, tuple[int, PartContents]] = field(default_factory=dict)
    is_given_up: bool = False


@final
class StoredParts:
    """Where the checkpoints of one attempt are committed, see `GroupStorage`.

    Args:
        key: The trial, and the number of the attempt.
        nodes: The nodes of its ranks, by rank.
        files: Has nodes measure and upload what they have.
        submit: Runs a job in a thread, see `CommitPool.submit`.
        is_async: See `GroupStorage`.
    """

    def __init__(
        self,
        key: tuple[str, int],
        nodes: Sequence[str],
        files: FilesOnNodes,
        submit: Callable[[Callable[[], Any], Callable[[Any], None], str], None],
        *,
        is_async: bool,
    ) -> None:
        self.is_async = is_async
        self._trial_id, self._attempt = key
        self._nodes = nodes
        self._checkpoints = files.checkpoints
        self._files = files
        self._submit = submit
        self._commit: _Commit | None = None
        self._warned: set[str] = set()
        self._given_up = ""
        """Why no further checkpoint is committed; empty while that is not so."""

    # What the group asks for.

    def commit(self, checkpoint: GroupCheckpoint, world_size: int, then: Committed) -> None:
        commit = self._commit = _Commit(checkpoint, world_size, then)
        try:
            commit.place = checkpoint.place
        except CheckpointError as error:
            self._end_later(commit, error)
            return
        for rank, part in sorted(checkpoint.parts.items()):
            if part.kind is not PartKind.PLACEHOLDER:
                commit.by_node.setdefault(self._nodes[rank], []).append((rank, part))
        if self._given_up:
            self._end_later(commit, CheckpointError(self._given_up))
        elif not commit.by_node:
            self._end_later(commit, checkpoint.record(commit.place, is_placeholder=True))
        else:
            self._measure(commit)

    def discard(self, parts: Mapping[int, Part]) -> None:
        names: dict[str, list[str]] = {}
        for rank, part in parts.items():
            if part.kind is PartKind.STAGED:
                names.setdefault(self._nodes[rank], []).append(part.name)
        for node, staged in names.items():
            self._files.tell(node, Discard(self._trial_id, self._attempt, staged))

    def give_up(self, why: str) -> None:
        self._given_up = why
        if self._commit:
            self._end(self._commit, CheckpointError(why))

    # The steps.

    def _measure(self, commit: _Commit) -> None:
        for node, parts in commit.by_node.items():
            number = self._files.next_id()
            staged = {} if commit.place else {rank: part.name for rank, part in parts}
            request = Measure(number, self._trial_id, self._attempt, staged, commit.place)
            told = partial(self._on_measured, commit, node)
            commit.asked[node] = self._files.ask(node, request, told)

    def _on_measured(self, commit: _Commit, node: str, told: Transferred | Measured | None) -> None:
        if not self._has_failed(commit, node, told) and isinstance(told, Measured):
            self._warn(told.conflicts)
            if told.contents is not None:
                commit.measured[node] = told.id, told.contents
            if not commit.asked:
                self._upload(commit)

    def _has_failed(self, commit: _Commit, node: str, told: Transferred | Measured | None) -> bool:
        """Note a node's answer; return whether the checkpoint does not come about."""
        commit.asked.pop(node, None)
        if told is None:
            self._end(commit, NodeLost(f"node {node} is gone, with its part of a checkpoint"))
        elif isinstance(told, Transferred) and (failure := told.failure):
            is_found = failure.kind in (CheckpointError.__name__, StorageUnreachable.__name__)
            why = failure.message if is_found else str(failure)
            kind = StorageUnreachable if told.is_storage else CheckpointError
            self._end(commit, kind(f"node {node}: {why}"))
        return commit.is_given_up

    def _upload(self, commit: _Commit) -> None:
        """Have each node upload what is its to upload."""
        if not commit.measured:  # training code has stored nothing on any node
            record = commit.checkpoint.record(commit.place, is_placeholder=True)
            self._end_later(commit, record)
            return
        # Those of higher ranks last.
        nodes = sorted(commit.measured, key=lambda node: commit.by_node[node][-1][0])
        try:
            combined = combine([(node, commit.measured[node][1]) for node in nodes])
        except CheckpointError as error:
            self._end(commit, error)
            return
        self._warn(combined.conflicts)
        for node in nodes:
            request = UploadPart(
                self._files.next_id(),
                commit.measured[node][0],
                self._trial_id,
                self._remote(commit),
                combined.left_out[node],
                with_metadata=node == combined.metadata_of,
            )
            told = partial(self._on_uploaded, commit, combined, node)
            commit.asked[node] = self._files.ask(node, request, told)

    def _on_uploaded(
        self,
        commit: _Commit,
        combined: Combined,
        node: str,
        told: Transferred | Measured | None,
    ) -> None:
        if not self._has_failed(commit, node, told) and not commit.asked:
            self._complete(commit, combined)

    def _complete(self, commit: _Commit, combined: Combined) -> None:
        """Create the manifest, in a thread."""
        checkpoint, remote = commit.checkpoint, self._remote(commit)
        directory = commit.place or checkpoint.directory
        provenance = checkpoint.provenance(directory)
        if not commit.place:
            provenance = replace(provenance, name=checkpoint.name)
        manifest = group_manifest(combined.contents, provenance, world_size=commit.world_size)
        record = checkpoint.record(directory, is_placeholder=False)

        def complete() -> CheckpointRecord:
            if commit.is_given_up:
                raise CheckpointError("it was given up")
            self._checkpoints.complete(self._trial_id, remote, manifest, combined.contents)
            return replace(record, remote=remote)

        what = f"{self._checkpoints.url}/{self._trial_id}/{remote}"
        self._submit(complete, partial(self._end, commit), what)

    def _end_later(self, commit: _Commit, outcome: CheckpointRecord | CheckpointError) -> None:
        """Tell the outcome once the group has noted that the commit has begun."""
        self._submit(lambda: outcome, partial(self._end, commit), self._trial_id)

    def _end(self, commit: _Commit, outcome: CheckpointRecord | BaseException) -> None:
        if not commit.is_given_up:
            commit.is_given_up = True
            self._commit = None
            for transfer in commit.asked.values():
                transfer.give_up()
            commit.then(outcome)

    def _remote(self, commit: _Commit) -> str:
        return self._checkpoints.remote_name(commit.checkpoint.index, self._attempt)

    def _warn(self, sentences: Sequence[str]) -> None:
        new = [sentence for sentence in sentences if sentence not in self._warned]
        self._warned.update(new)
        for sentence in new:
            _log.warning("trial %s: %s", self._trial_id, sentence)
