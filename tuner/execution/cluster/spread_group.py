"""Groups of workers that train one trial together on several nodes, as the driver knows them.

Each is a `RemoteGroup` in the driver, as on one machine; its workers run on the nodes, which are
asked for what the group wants of them and tell what becomes of them, see `rank_messages`. First the
node of rank 0 opens the socket at which the others find it, and then all are started.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import (
    CheckpointLost,
    CheckpointsRequested,
    Event,
    LeaseRequested,
    Outcome,
    WorkerExited,
)
from tuner.core.trial import Failure
from tuner.execution.assignment import Rank
from tuner.execution.commit_pool import CommitPool
from tuner.execution.group import IF_SILENT, Patience, RemoteGroup
from tuner.execution.group_checkpoint import DirectoryStorage, GroupStorage
from tuner.execution.placement import devices_on, ranks_of
from tuner.execution.process_service import (
    Gone,
    HungUp,
    ProcessEvent,
    Said,
    StackDumped,
    Unstarted,
    Violated,
)
from tuner.execution.remote_worker import RemoteWorker
from tuner.execution.start_retry import StartRetryQueue
from tuner.storage import layout
from tuner.storage.object_checkpoints import ObjectCheckpoints

from .node_losses import as_lost
from .rank_messages import (
    Listening,
    PartMeasured,
    PartUnstored,
    PartUploaded,
    Refused,
    SourceDamaged,
    read_news,
    start_fields,
)
from .stored_parts import StoredParts

_Key = tuple[str, int]

_COMMITS_S: Final = 10.0
"""How long checkpoints that are being committed may take at the end."""

_log = logging.getLogger("tuner")


class SpreadHost(Protocol):
    """What groups over several nodes need of the executor."""

    def tell(self, node: str, message: Mapping[str, Any], /) -> None:
        """Send a node a message."""

    def is_silent(self, node: str, /) -> bool:
        """Return whether what a node says may be on its way for long."""

    def emit(self, event: Event, /) -> None:
        """Pass an event on to the driver."""

    def start_message(self, command: StartWorker, /) -> Mapping[str, Any]:
        """Return the fields with which a node is told what to start."""

    def watch(self, readable: CommitPool, on_readable: Callable[[], None], /) -> None:
        """Call a function while something is readable."""

    def unwatch(self, readable: CommitPool, /) -> None:
        """End what `watch` began."""


@dataclass(slots=True)
class _Attempt:
    """One attempt of a group over several nodes.

    Attributes:
        command: The command that started it.
        members: Its ranks.
        gone: Those whose processes are gone.
        group: The group, None until rank 0's node listens.
        askers: The node of the rank that asked, by the token of its request.
        is_over: Whether its end has been told, or the core knows of it.
        stored: Where its checkpoints are committed, in an object store.
        silent_node: A node of which nothing was heard when it was to be killed; empty for none.
        is_damage_told: Whether the core knows that the checkpoint to start from is damaged.
    """

    command: StartWorker
    members: list[RemoteWorker] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    group: RemoteGroup | None = None
    askers: dict[str, str] = field(default_factory=dict)
    is_over: bool = False
    stored: StoredParts | None = None
    silent_node: str = ""
    is_damage_told: bool = False

    @property
    def key(self) -> _Key:
        return _key(self.command)

    def present_on(self, node: str) -> list[RemoteWorker]:
        """Return the ranks on a node whose processes are not gone."""
        return [
            worker
            for worker in self.members
            if self.command.nodes[worker.rank] == node and worker.rank not in self.gone
        ]


@final
class SpreadGroups:
    """The groups over several nodes of an experiment.

    Args:
        directory: The directory in which the driver works, which all nodes share unless the
            experiment is in an object store, see `use_store`.
        host: The executor.
        sync: Whether checkpoints are flushed to the disk before they count.
        environ: Environment variables that are added for all processes of trials.
    """

    def __init__(
        self, directory: Path, host: SpreadHost, *, sync: bool, environ: Mapping[str, str]
    ) -> None:
        self._directory = directory
        self._host = host
        self._sync = sync
        self._patience = Patience.of(os.environ | dict(environ))
        self._attempts: dict[_Key, _Attempt] = {}
        self._retries = StartRetryQueue()
        self._commits: CommitPool | None = None
        self._checkpoints: ObjectCheckpoints | None = None
        self._is_async = False

    def use_store(self, checkpoints: ObjectCheckpoints, *, is_async: bool) -> None:
        """Have checkpoints committed in an object store.

        Args:
            checkpoints: The store.
            is_async: Whether results are passed on before their checkpoints are stored.
        """
        self._checkpoints = checkpoints
        self._is_async = is_async

    def __contains__(self, key: _Key) -> bool:
        """Return whether an attempt, by trial and number, is one of these groups."""
        return key in self._attempts

    def trials_on(self, node: str) -> set[str]:
        """Return the trials of the groups that have a rank on a node."""
        return {
            attempt.command.trial_id
            for attempt in self._attempts.values()
            if node in attempt.command.nodes
        }

    # Commands.

    def start(self, command: StartWorker) -> None:
        """Begin to start the workers of a group."""
        key = _key(command)
        self._attempts[key] = _Attempt(command)
        self._ask(command.nodes[0], key, "rank_listen")

    def answer(self, command: AnswerReport) -> None:
        """Send all ranks the answer to their report."""
        attempt = self._attempts.get(_key(command))
        if attempt and attempt.group:
            attempt.group.answer(command)

    def kill(self, command: KillWorker) -> None:
        """Kill all ranks of an attempt."""
        attempt = self._attempts.get(_key(command))
        if attempt is None:
            return
        silent = (node for node in attempt.command.nodes if self._host.is_silent(node))
        attempt.silent_node = next(silent, "")
        reason = f"{command.reason}; {IF_SILENT}" if command.is_silent else command.reason
        if attempt.group is None:
            self._retries.withdraw(command)
            self._ask(attempt.command.nodes[0], attempt.key, "rank_abandon")
            self._end(attempt, Outcome.KILLED, Failure("killed", reason))
            return
        attempt.group.kill(reason, is_silent=command.is_silent)
        # The core drops the report of a worker that it has killed.
        if attempt.stored and (attempt.group.awaits_commit or not command.term_grace_s):
            attempt.stored.give_up("the workers were killed meanwhile")
        for member in attempt.members:
            self.ask_rank(attempt, member, "rank_kill", grace_s=command.term_grace_s)

    def take_asker(self, trial_id: str, attempt: int, token: str) -> str | None:
        """Return the node of the rank whose request has a token, which is answered now."""
        found = self._attempts.get((trial_id, attempt))
        return found.askers.pop(token, None) if found else None

    # What nodes tell.

    def on_message(self, node: str, message: Mapping[str, Any]) -> None:
        """Take what a node tells of its ranks; of attempts that are over nothing is heeded.

        Raises:
            ValueError: If the message is malformed.
        """
        attempt = self._attempts.get((str(message.get("trial_id")), _number(message)))
        news = read_news(message)
        if attempt is None:
            return
        match news:
            case Listening(address, port):
                if node == attempt.command.nodes[0] and attempt.group is None:
                    self._start_ranks(attempt, address, port)
            case Refused(failure, is_shortage):
                if node == attempt.command.nodes[0] and attempt.group is None:
                    self._on_refused(attempt, failure, is_shortage=is_shortage)
            case PartMeasured() | PartUploaded() | PartUnstored():
                if attempt.stored:
                    attempt.stored.on_news(node, news)
            case SourceDamaged(why):
                self._on_damage(attempt, node, why)
            case _:
                self._on_news(attempt, node, news)

    def on_node_left(self, node: str, alive_s: float) -> None:
        """Kill what is left of the groups with a rank on a node that has left.

        Their end is told once it is gone, so that what it occupies is not given away before.

        Args:
            node: Its name.
            alive_s: Up to when it is known to have lived, by the monotonic clock.
        """
        for attempt in list(self._attempts.values()):
            if node not in attempt.command.nodes:
                continue
            if attempt.group is None:
                if attempt.command.nodes[0] != node:
                    self._ask(attempt.command.nodes[0], attempt.key, "rank_abandon")
                self._end(attempt, Outcome.LOST, Failure("lost", f"node {node} is gone"))
                continue
            lost = attempt.present_on(node)
            attempt.gone.update(member.rank for member in lost)
            if lost:
                attempt.group.on_node_left(node, lost, alive_s)
            if attempt.stored:
                attempt.stored.on_node_left(node)

    # Time.

    @property
    def deadline_s(self) -> float | None:
        """When `tick` is to be called, by the monotonic clock; None for never."""
        moments = [self._retries.retry_at] + [
            attempt.group.deadline_s for attempt in self._attempts.values() if attempt.group
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def tick(self) -> None:
        """Do what is due."""
        for command in self._retries.take_due():
            # Of one that has lost a node meanwhile, the core knows that it is over.
            if isinstance(command, StartWorker) and _key(command) in self._attempts:
                self.start(command)
        now_s = time.monotonic()
        for attempt in list(self._attempts.values()):
            if attempt.group:
                attempt.group.tick(now_s)

    def close(self) -> list[str]:
        """End the threads; return the directories in which a checkpoint is still being written."""
        self._attempts.clear()
        if self._commits is None:
            return []
        self._host.unwatch(self._commits)
        return self._commits.close(_COMMITS_S)

    def _start_ranks(self, attempt: _Attempt, address: str, port: int) -> None:
        command = attempt.command
        trial_dir = layout.trial_directory(self._directory, command.trial_id)
        attempt.gone.clear()
        attempt.members = [RemoteWorker(rank, command, rank) for rank in range(len(command.nodes))]
        storage: GroupStorage = DirectoryStorage(trial_dir, self._submit, sync=self._sync)
        if self._checkpoints:
            storage = attempt.stored = StoredParts(
                attempt.key,
                command.nodes,
                self._checkpoints,
                lambda node, kind, fields: self._ask(node, attempt.key, kind, **fields),
                self._submit,
                is_async=self._is_async,
            )
        attempt.group = RemoteGroup(
            command,
            attempt.members,
            trial_dir,
            storage,
            _GroupHost(self, attempt),
            patience=self._patience,
        )
        self._retries.note_start()
        for node, ranks in ranks_by_node(command, address, port).items():
            on_node = replace(command, gpu_ids=devices_on(node, command.nodes, command.gpu_ids))
            self._host.tell(
                node,
                {
                    **self._host.start_message(on_node),
                    **start_fields(ranks),
                    "kind": "rank_start",
                    "trial_id": command.trial_id,
                    "attempt": command.attempt,
                },
            )

    def _on_refused(self, attempt: _Attempt, failure: Failure, *, is_shortage: bool) -> None:
        if is_shortage:
            self._retries.add(attempt.command, failure.message)
        else:
            self._end(attempt, Outcome.FAILED, failure)

    def _on_damage(self, attempt: _Attempt, node: str, why: str) -> None:
        """Have the core choose an older checkpoint; the ranks end, as their node says next."""
        command = attempt.command
        if node not in command.nodes or command.checkpoint is None or attempt.is_damage_told:
            return
        attempt.is_damage_told = True
        _log.warning(
            "trial %s cannot go on from its latest checkpoint and takes the one before it: %s",
            command.source_id or command.trial_id,
            why,
        )
        owner_id = command.source_id or command.trial_id
        self._host.emit(CheckpointLost(owner_id, command.checkpoint.index, why))

    def _on_news(self, attempt: _Attempt, node: str, news: ProcessEvent) -> None:
        group, rank = attempt.group, news.key
        if group is None or not 0 <= rank < len(attempt.members):
            return
        member = attempt.members[rank]
        if attempt.command.nodes[rank] != node or rank in attempt.gone:
            return
        match news:
            case Said():
                self._on_said(attempt, group, member, news)
            case Violated():
                member.note_violation(news.why)
                group.on_violation(member)
            case HungUp():
                group.on_hangup(member)
            case StackDumped():
                group.on_stack(member, news.stack)
            case Unstarted():
                attempt.gone.add(rank)
                group.on_unstarted(member, news)
            case Gone():
                attempt.gone.add(rank)
                member.stderr = news.stderr
                group.on_gone(member, news.exit_info)

    def _on_said(
        self,
        attempt: _Attempt,
        group: RemoteGroup,
        member: RemoteWorker,
        said: Said,
    ) -> None:
        if member.has_violated:
            return  # nothing that comes after a violation can be trusted
        try:
            events = member.read(said.messages)
        except ValueError:
            self.ask_rank(attempt, member, "rank_kill", grace_s=0.0)
            group.on_violation(member)
            return
        for event in events:
            if isinstance(event, (LeaseRequested, CheckpointsRequested)):
                attempt.askers[event.token] = attempt.command.nodes[member.rank]
        group.on_messages(member, events)

    def _end(self, attempt: _Attempt, outcome: Outcome, failure: Failure) -> None:
        self._forget(attempt)
        self._host.emit(WorkerExited(*attempt.key, outcome, failure))

    def _forget(self, attempt: _Attempt) -> None:
        attempt.is_over = True
        self._attempts.pop(attempt.key, None)

    def _ask(self, node: str, key: _Key, kind: str, **fields: object) -> None:
        self._host.tell(node, {"kind": kind, "trial_id": key[0], "attempt": key[1], **fields})

    # What a group needs, see `_GroupHost`.

    def emit_of(self, attempt: _Attempt, event: Event) -> None:
        """Pass on an event of an attempt that is not over."""
        if attempt.is_over:
            return
        if isinstance(event, WorkerExited):
            self._forget(attempt)
            if attempt.silent_node:
                event = as_lost(event, attempt.silent_node)
        self._host.emit(event)

    def ask_rank(
        self, attempt: _Attempt, member: RemoteWorker, kind: str, **fields: object
    ) -> None:
        """Ask a rank's node for something, if the rank is not gone."""
        if member.rank not in attempt.gone:
            node = attempt.command.nodes[member.rank]
            self._ask(node, attempt.key, kind, rank=member.rank, **fields)

    def start_again(self, attempt: _Attempt, why: str) -> None:
        """Start an attempt again later."""
        if not attempt.is_over:
            attempt.group = attempt.stored = None
            self._retries.add(attempt.command, why)

    def _submit(self, job: Callable[[], Any], then: Callable[[Any], None], what: str) -> None:
        if self._commits is None:
            self._commits = CommitPool()
            self._host.watch(self._commits, self._commits.run_done)
        self._commits.submit(job, then, what)


@final
class _GroupHost:
    """What one group needs of the executor, see `OwnerHost`."""

    def __init__(self, groups: SpreadGroups, attempt: _Attempt) -> None:
        self._groups = groups
        self._attempt = attempt

    def emit(self, event: Event) -> None:
        self._groups.emit_of(self._attempt, event)

    def send(self, process: RemoteWorker, line: bytes) -> None:
        self._groups.ask_rank(self._attempt, process, "rank_send", data=line.decode())

    def kill(self, process: RemoteWorker) -> None:
        self._groups.ask_rank(self._attempt, process, "rank_kill", grace_s=0.0)

    def dump_stack(self, process: RemoteWorker) -> None:
        self._groups.ask_rank(self._attempt, process, "rank_dump")

    def start_again(self, command: StartWorker | StartValidation, why: str) -> None:
        self._groups.start_again(self._attempt, why)

    def expect_exit(self, process: RemoteWorker) -> None:
        self._groups.ask_rank(self._attempt, process, "rank_expect_exit")


def ranks_by_node(command: StartWorker, address: str, port: int) -> dict[str, list[Rank]]:
    """Return the ranks that each node of a group starts, by its name.

    Args:
        command: The command that starts the attempt.
        address: Where rank 0 listens.
        port: The port.
    """
    found: dict[str, list[Rank]] = {}
    run_id = f"{command.trial_id}-{command.attempt}"
    for node, rank in zip(
        command.nodes, ranks_of(command.nodes, run_id, address, port), strict=True
    ):
        found.setdefault(node, []).append(rank)
    return found


def _key(command: StartWorker | AnswerReport | KillWorker) -> _Key:
    return command.trial_id, command.attempt


def _number(message: Mapping[str, Any]) -> int:
    attempt = message.get("attempt")
    return attempt if type(attempt) is int else -1
