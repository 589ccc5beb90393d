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

from tuner.core.trial import CheckpointRecord
from tuner.errors import CheckpointError, StorageUnreachable
from tuner.execution.checkpoint_part import Part, PartKind
from tuner.execution.group_checkpoint import Committed, GroupCheckpoint, NodeLost
from tuner.storage.manifest import PartContents, group_manifest
from tuner.storage.object_checkpoints import ObjectCheckpoints
from tuner.storage.spread_parts import Combined, combine

from .rank_messages import PartMeasured, PartNews, PartUnstored, PartUploaded

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
        awaited: Nodes that have not answered yet.
        measured: What the others have.
        combined: What it consists of, and who uploads what; None before all have measured.
        is_given_up: Whether the outcome has been told already.
    """

    checkpoint: GroupCheckpoint
    world_size: int
    then: Committed
    place: str = ""
    by_node: dict[str, list[tuple[int, Part]]] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    measured: dict[str, PartContents] = field(default_factory=dict)
    combined: Combined | None = None
    is_given_up: bool = False


@final
class StoredParts:
    """Where the checkpoints of one attempt are committed, see `GroupStorage`.

    Args:
        key: The trial, and the number of the attempt.
        nodes: The nodes of its ranks, by rank.
        checkpoints: The checkpoints in the store.
        ask: Sends a node a message about the attempt, with its kind.
        submit: Runs a job in a thread, see `CommitPool.submit`.
        is_async: See `GroupStorage`.
    """

    def __init__(
        self,
        key: tuple[str, int],
        nodes: Sequence[str],
        checkpoints: ObjectCheckpoints,
        ask: Callable[[str, str, Mapping[str, Any]], None],
        submit: Callable[[Callable[[], Any], Callable[[Any], None], str], None],
        *,
        is_async: bool,
    ) -> None:
        self.is_async = is_async
        self._trial_id, self._attempt = key
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._ask = ask
        self._submit = submit
        self._gone: set[str] = set()
        self._commit: _Commit | None = None
        self._warned: set[str] = set()
        self._given_up = ""
        """Why no further checkpoint is committed; empty while that is not so."""

    # What the group asks for.

    def commit(self, checkpoint: GroupCheckpoint, world_size: int, then: Committed) -> None:
        """See `GroupStorage`."""
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
        elif self._gone & commit.by_node.keys():
            self._end_later(commit, _lost(self._gone & commit.by_node.keys()))
        elif not commit.by_node:
            self._end_later(commit, checkpoint.record(commit.place, is_placeholder=True))
        else:
            self._measure(commit)

    def discard(self, parts: Mapping[int, Part]) -> None:
        """See `GroupStorage`."""
        names: dict[str, list[str]] = {}
        for rank, part in parts.items():
            if part.kind is PartKind.STAGED:
                names.setdefault(self._nodes[rank], []).append(part.name)
        for node, staged in names.items():
            self._ask(node, "rank_discard", {"names": staged})

    # What happens meanwhile.

    def give_up(self, why: str) -> None:
        """Wait no more for the checkpoint that is being committed, nor for later ones."""
        self._given_up = why
        if self._commit:
            self._end(self._commit, CheckpointError(why))

    def on_node_left(self, node: str) -> None:
        """Note that a node has left: what it has not uploaded is lost."""
        self._gone.add(node)
        if self._commit and node in self._commit.awaited:
            self._end(self._commit, _lost({node}))

    def on_news(self, node: str, news: PartNews) -> None:
        """Take what a node tells of its part; what is late is not heeded."""
        commit = self._commit
        if commit is None or news.index != commit.checkpoint.index or node not in commit.awaited:
            return
        match news:
            case PartUnstored(_, why, is_storage):
                kind = StorageUnreachable if is_storage else CheckpointError
                self._end(commit, kind(f"node {node}: {why}"))
            case PartMeasured(_, contents, conflicts):
                if commit.combined is None:
                    self._warn(conflicts)
                    if contents is not None:
                        commit.measured[node] = contents
                    commit.awaited.discard(node)
                    if not commit.awaited:
                        self._upload(commit)
            case PartUploaded():
                if commit.combined is not None:
                    commit.awaited.discard(node)
                    if not commit.awaited:
                        self._complete(commit, commit.combined)

    # The steps.

    def _measure(self, commit: _Commit) -> None:
        commit.awaited = {*commit.by_node}
        request = commit.checkpoint.result.validation
        for node, parts in commit.by_node.items():
            staged = None if commit.place else [[rank, part.name] for rank, part in parts]
            self._ask(
                node,
                "rank_measure",
                {
                    "index": commit.checkpoint.index,
                    "parts": staged,
                    "place": commit.place,
                    "payload": request.payload if request else "",
                },
            )

    def _upload(self, commit: _Commit) -> None:
        """Have each node upload what is its to upload."""
        if not commit.measured:  # training code has stored nothing on any node
            record = commit.checkpoint.record(commit.place, is_placeholder=True)
            self._end_later(commit, record)
            return
        # Those of higher ranks last.
        nodes = sorted(commit.measured, key=lambda node: commit.by_node[node][-1][0])
        try:
            combined = combine([(node, commit.measured[node]) for node in nodes])
        except CheckpointError as error:
            self._end(commit, error)
            return
        self._warn(combined.conflicts)
        commit.combined = combined
        commit.awaited = {*nodes}
        for node in nodes:
            self._ask(
                node,
                "rank_upload",
                {
                    "index": commit.checkpoint.index,
                    "remote": self._remote(commit),
                    "left_out": combined.left_out[node],
                    "with_metadata": node == combined.metadata_of,
                },
            )

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
            commit.then(outcome)

    def _remote(self, commit: _Commit) -> str:
        return self._checkpoints.remote_name(commit.checkpoint.index, self._attempt)

    def _warn(self, sentences: Sequence[str]) -> None:
        new = [sentence for sentence in sentences if sentence not in self._warned]
        self._warned.update(new)
        for sentence in new:
            _log.warning("trial %s: %s", self._trial_id, sentence)


def _lost(nodes: set[str]) -> NodeLost:
    return NodeLost(f"node {', '.join(sorted(nodes))} is gone, with its part of a checkpoint")
