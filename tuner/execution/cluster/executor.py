"""Executor whose trials run on the nodes of a cluster: the driver's side.

Each node has a host process, which runs its trials as the executor for one machine does. Between
the two is a `Link`, so that what one end says reaches the other in order and once, whatever happens
to the gateway, the cluster engine and the agents between them. Commands become messages to the
hosts, and their messages events; that is all that is done here, besides knowing which nodes there
are.

A node joins when its host has greeted, fits this driver's versions, and has taken the user's code.
It has left when the engine says so, when its host dies, or when nothing is heard of it for longer
than its host would live without hearing of the driver: so no trial ever runs twice.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import secrets
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never, final

from tuner.background import BackgroundJobs
from tuner.core.commands import (
    AnswerReport,
    GrantLease,
    KillValidation,
    KillWorker,
    ListCheckpoints,
    RefuseLease,
    StartValidation,
    StartWorker,
    WorkerCommand,
)
from tuner.core.events import (
    CheckpointLost,
    Event,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import Failure
from tuner.errors import ClusterError
from tuner.execution.commit_pool import CommitPool
from tuner.execution.local.process_setup import WakeupPipe
from tuner.storage import layout, strict_json
from tuner.storage.object_checkpoints import ObjectCheckpoints

from .connection import ClusterConnection
from .engine import Unmet
from .link import Link, Liveness
from .node_losses import NodeLosses
from .protocol import (
    CommandWithoutConfig,
    Draining,
    Hello,
    Output,
    Packages,
    Probed,
    RankMessage,
    Ready,
    Remark,
    Setup,
    SetupRefused,
    StoredElsewhere,
    Unloadable,
    blob_messages,
    command_message,
    pickled_config,
    read_host_message,
    start_message,
    validation_message,
)
from .shared_directory import SharedProof
from .spread_group import SpreadGroups, as_lost
from .storage_probe import StoreProof

_READ: Final = selectors.EVENT_READ
_TICK_S: Final = 1.0
"""How often it is looked at what changes slowly: silent nodes, demand, idle nodes."""
_AWAY_S: Final = 5.0
"""After such a pause what has arrived is read before a node is taken for silent."""
_START_S: Final = 90.0
"""How long a host may take to greet: longer than its agent waits for its first word, and than a
host waits for its driver that has lost it."""
_FIRST_NODE_S: Final = 10.0
"""How long the first node is waited for before the experiment begins without any."""
_MAX_NAME: Final = 60
_JOURNAL_STORED: Final = {"kind": "journal_stored"}

_Worker = tuple[str, int]
_Validation = tuple[str, int, int]

_log = logging.getLogger("tuner")


class _Phase(enum.Enum):
    GREETING = enum.auto()
    SETTING_UP = enum.auto()
    CHECKING = enum.auto()
    READY = enum.auto()


@dataclass(slots=True, eq=False)
class _Host:
    """A host process of a node, from its start until its node has left.

    Attributes:
        agent: The agent that has started it.
        number: Which one of this agent.
        link: The connection to it.
        name: Name of the node.
        phase: How far it is.
        hello: How it has greeted; None before that.
        attempts: Trials that run there.
        validations: Validations that run there.
        is_told_silent: Whether the user knows that nothing is heard of it.
        is_draining: Whether it is going to leave.
        why_gone: Why it cannot be reached any more, though it may live; empty while it can be.
        killed_in_silence: Attempts that were to be killed while nothing was heard of the node.
        has_loaded: Whether a trial has started there, so that the user's code can be loaded.
        idle_since_s: When it was looked at last while something ran there, or it joined.
    """

    agent: str
    number: int
    link: Link
    name: str
    idle_since_s: float
    phase: _Phase = _Phase.GREETING
    hello: Hello | None = None
    attempts: dict[_Worker, StartWorker] = field(default_factory=dict)
    validations: dict[_Validation, StartValidation] = field(default_factory=dict)
    killed_in_silence: set[_Worker] = field(default_factory=set)
    is_told_silent: bool = False
    is_draining: bool = False
    why_gone: str = ""
    has_loaded: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs there but ranks of groups over several nodes, perhaps."""
        return not self.attempts and not self.validations


@final
class ClusterExecutor:
    """Runs trials on the nodes of a cluster.

    Args:
        engine: The adapter of the cluster's library, as ``module:Class``.
        settings: Its settings.
        description: What the cluster is, for messages.
        directory: The directory in which the driver works.
        is_shared: Whether that is the directory in which the nodes work, too.
        trainable: The pickled trainable, see `pickle_trainable`.
        validator: The pickled validation function, empty for none or that of the trainable.
        seed_of: Returns the seed of a trial.
        on_packages: Called with the versions of packages that a worker has imported.
        sync: Whether checkpoints are flushed to the disk before they count.
        environ: Environment variables that are added for all processes of trials.
        liveness: How long nodes and driver may be silent.

    Attributes:
        unmet: Returns what waits for room, for engines that can add nodes.
        has_ended_all: Whether it is known, after `shutdown`, that nothing runs on any node.
    """

    def __init__(
        self,
        engine: str,
        settings: Mapping[str, Any],
        description: str,
        directory: Path,
        *,
        is_shared: bool,
        trainable: bytes,
        validator: bytes = b"",
        seed_of: Callable[[str], int],
        on_packages: Callable[[Mapping[str, str]], None] | None = None,
        sync: bool = True,
        environ: Mapping[str, str] | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self._directory = directory
        self._is_shared = is_shared
        self._seed_of = seed_of
        self._on_packages = on_packages
        self._liveness = liveness or Liveness()
        self._token = secrets.token_hex(16)
        self._code = [*blob_messages(trainable, validator)]
        self._setup: Sequence[Mapping[str, Any]] = ()
        self._proof: SharedProof | StoreProof | None = None
        self._checks = CommitPool()
        """Looks for what hosts have written as proof that they share the storage."""
        self._lock = threading.RLock()
        """Held by who uses the connections: the driver, or the deputy while it does other work."""
        self._deputy = BackgroundJobs(
            "tuner-cluster", self._stand_in, _TICK_S, on_error=self._connection_failed
        )
        self._looked_s = time.monotonic()
        self.unmet: Callable[[], Sequence[Unmet]] = list
        self.has_ended_all = False
        self._forgotten_s = -math.inf
        """When a host was forgotten last that may still live."""
        self._is_journal_stored = False
        self._hosts: dict[tuple[str, int], _Host] = {}
        self._latest: dict[str, int] = {}
        """Number of the last host of each agent."""
        self._nodes: dict[str, _Host] = {}
        self._used_names: set[str] = set()
        self._of_attempt: dict[_Worker, _Host] = {}
        self._of_validation: dict[_Validation, _Host] = {}
        self._payloads: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        self._refused: dict[tuple[str, str], None] = {}
        """Machines that are not used, and why, in the order in which that was found."""
        self._losses = NodeLosses()
        self._events: list[Event] = []
        self._is_woken = self._is_closed = False
        self._tick_at_s = self._demand_at_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._wakeup_pipe = WakeupPipe()
        self._selector.register(self._wakeup_pipe, _READ, self._on_wake)
        self.watch(self._checks, self._checks.run_done)
        self._connection = ClusterConnection(
            engine, settings, description, self._token, self._liveness, self._selector, self
        )
        self._groups = SpreadGroups(directory, self, sync=sync, environ=environ or {})

    def connect(
        self,
        setup: Setup,
        proof: SharedProof | StoreProof | None = None,
        checkpoints: ObjectCheckpoints | None = None,
    ) -> list[Event]:
        """Connect to the cluster, and return once a node has joined, or after a while.

        Returns at once when it is woken, as by a request to stop.

        Args:
            setup: What hosts need to know.
            proof: Proof that a host uses the same storage as the driver; None where it need not.
            checkpoints: The checkpoints in the object store; None where the nodes share the
                directory.

        Returns:
            What has happened so far, for the driver's first turn. More nodes join later.

        Raises:
            ClusterError: If it cannot be reached.
        """
        with self._lock:
            self._proof = proof
            if checkpoints and isinstance(setup.storage, StoredElsewhere):
                self._groups.use_store(checkpoints, is_async=setup.storage.is_async)
            self._setup = [setup.message, *self._code]
            self._connection.open()
            while self._connection.facts is None and not self._is_woken:
                self._select(_TICK_S)
                self._raise_error()
            until_s = time.monotonic() + _FIRST_NODE_S
            while not self._events and not self._is_woken and time.monotonic() < until_s:
                self._select(min(_TICK_S, max(self._next_s() - time.monotonic(), 0.0)))
                self._raise_error()
            events, self._events = self._events, []
        self._deputy.wake(_TICK_S)
        return events

    def note_journal_stored(self) -> None:
        """Let hosts upload checkpoints, as the object store has the journal's beginning.

        May be called from another thread.
        """
        self._is_journal_stored = True
        self.wake()

    # The Executor protocol.

    def capacity(self) -> Mapping[str, float]:
        """See `Executor`; what the nodes have that are present."""
        total: dict[str, float] = {}
        for host in self._nodes.values():
            if host.hello:
                for name, amount in (host.hello.resources or {}).items():
                    total[name] = total.get(name, 0.0) + amount
        return total

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        with self._lock:
            for command in commands:
                self._do(command)
            starts = (command for command in commands if isinstance(command, StartWorker))
            self._losses.tell({start.trial_id: start.nodes for start in starts})
            self._send_frames(time.monotonic())

    def _do(self, command: WorkerCommand) -> None:
        match command:
            case AnswerReport():
                self._answer(command)
            case StartWorker():
                self._start(command)
            case KillWorker():
                self._kill(command)
            case StartValidation():
                self._start_validation(command)
            case KillValidation():
                key = command.trial_id, command.index, command.num_try
                _pass_on(self._of_validation.get(key), command)
            case GrantLease() | RefuseLease():
                self._answer_lease(command)
            case ListCheckpoints():
                self._list_checkpoints(command)
            case _:
                assert_never(command)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """See `Executor`.

        Raises:
            ClusterError: If the cluster cannot be reached any more.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            self._raise_error()
            self._losses.tell({})
            self._look_at_demand(time.monotonic())
            while not (self._events or self._is_woken or self._is_closed):
                now_s = time.monotonic()
                rest_s = self._next_s() - now_s
                if deadline_s is not None:
                    rest_s = min(rest_s, deadline_s - now_s)
                self._select(max(rest_s, 0.0))
                self._raise_error()
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    break
            self._is_woken = False
            self._losses.note_known()
            events, self._events = self._events, []
        return events

    @property
    def refusals(self) -> list[str]:
        """Which nodes are not used, and why."""
        return [f"{place}: {why}" if place else why for place, why in self._refused]

    def wake(self) -> None:
        """See `Executor`."""
        self._wakeup_pipe.wake()

    def clock(self) -> float:
        """See `Executor`."""
        return time.monotonic()

    def shutdown(self, deadline_s: float) -> None:
        """See `Executor`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._deputy.close()
        if unfinished := self._groups.close():
            _log.warning(
                "not stored, and given up at the end of the experiment: %s; check whether the "
                "storage still answers",
                ", ".join(unfinished),
            )
        self.unwatch(self._checks)
        self._checks.close(0.0)
        is_closed = self._connection.close(deadline_s)
        lease_s = time.monotonic() - self._forgotten_s
        self.has_ended_all = is_closed and lease_s > self._liveness.lease_s
        for trial_id, name in list(self._payloads):
            self._delete_payload(trial_id, name)
        self._hosts.clear()
        self._nodes.clear()
        for resource in (self._selector, self._wakeup_pipe):
            resource.close()

    # Commands.

    def _start(self, command: StartWorker) -> None:
        if len(set(command.nodes)) > 1:
            self._groups.start(command)
            return
        # If its node has just left, the core learns of both in the order in which they happened.
        if host := self._nodes.get(command.node):
            key = command.trial_id, command.attempt
            try:
                message = self.start_message(command)
            except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
                why = f"the configuration cannot be sent to a node: {error}"
                failure = Failure(type(error).__name__, why)
                self._events.append(WorkerExited(*key, Outcome.FAILED, failure))
                return
            host.attempts[key] = command
            self._of_attempt[key] = host
            host.link.send(message)

    def start_message(self, command: StartWorker) -> Mapping[str, Any]:
        """Return the message that has a worker, or ranks, started; see `SpreadHost`.

        Raises:
            Exception: If the configuration cannot be pickled.
        """
        config = pickled_config(command.config)
        return start_message(command, config, self._seed_of(command.trial_id))

    def _answer(self, command: AnswerReport) -> None:
        key = command.trial_id, command.attempt
        if key in self._groups:
            self._groups.answer(command)
        else:
            _pass_on(self._of_attempt.get(key), command)

    def _kill(self, command: KillWorker) -> None:
        key = command.trial_id, command.attempt
        if key in self._groups:
            self._groups.kill(command)
            return
        host = self._of_attempt.get(key)
        if host and self._is_silent(host):
            host.killed_in_silence.add(key)
        _pass_on(host, command)

    def _is_silent(self, host: _Host) -> bool:
        """Return whether what a node says may be on its way for long, such as a report."""
        return time.monotonic() - host.link.heard_s > self._liveness.silent_s / 2

    def _start_validation(self, command: StartValidation) -> None:
        host = self._nodes.get(command.node)
        if host is None:
            return
        key = command.trial_id, command.checkpoint.index, command.num_try
        has_payload = (command.trial_id, command.request.payload) in self._payloads
        seed = self._seed_of(command.trial_id)
        try:
            config = pickled_config(command.config)
            message = validation_message(command, config, seed, has_payload=has_payload)
        except Exception as error:  # noqa: BLE001  (pickling may run the user's code)
            failure = Failure(type(error).__name__, f"it cannot be sent to a node: {error}")
            self._events.append(ValidationEnded(*key, Outcome.FAILED, failure=failure))
            return
        host.validations[key] = command
        self._of_validation[key] = host
        host.link.send(message)

    def _answer_lease(self, command: GrantLease | RefuseLease) -> None:
        owner = command.owner
        if owner.index is not None:
            key = owner.trial_id, owner.index, owner.attempt
            _pass_on(self._of_validation.get(key), command)
        else:
            _pass_on(self._asker(owner.trial_id, owner.attempt, command.token), command)

    def _list_checkpoints(self, command: ListCheckpoints) -> None:
        host = self._asker(command.trial_id, command.attempt, command.token)
        _pass_on(host, command)

    def _asker(self, trial_id: str, attempt: int, token: str) -> _Host | None:
        if node := self._groups.take_asker(trial_id, attempt, token):
            return self._nodes.get(node)
        return self._of_attempt.get((trial_id, attempt))

    # What groups over several nodes need, see `SpreadHost`.

    def is_silent(self, node: str) -> bool:
        """See `SpreadHost`."""
        host = self._nodes.get(node)
        return host is not None and self._is_silent(host)

    def tell(self, node: str, message: Mapping[str, Any]) -> None:
        """See `SpreadHost`."""
        if host := self._nodes.get(node):
            host.link.send(message)

    def emit(self, event: Event) -> None:
        """See `SpreadHost`."""
        self._note_payload(event)
        self._events.append(event)

    def watch(self, readable: CommitPool, on_readable: Callable[[], None]) -> None:
        """See `SpreadHost`."""
        self._selector.register(readable, _READ, lambda _mask: on_readable())

    def unwatch(self, readable: CommitPool) -> None:
        """See `SpreadHost`."""
        self._selector.unregister(readable)

    # The loop.

    def _select(self, timeout_s: float) -> None:
        for key, mask in self._selector.select(timeout_s):
            key.data(mask)
        now_s = time.monotonic()
        self._connection.tick(now_s)
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + _TICK_S
            self._look_at_nodes(now_s)
        self._groups.tick()
        self._send_frames(now_s)

    def _raise_error(self) -> None:
        if self._connection.error:
            raise self._connection.error

    def _stand_in(self) -> None:
        """Keep up the connections while the driver does not wait, e.g. since its disk is full.

        Otherwise the hosts would take it for dead, and kill their trials.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._select(0.0)
            finally:
                self._lock.release()

    def _connection_failed(self, error: BaseException) -> None:
        # Raised where the driver waits next.
        self._connection.error = ClusterError(f"the connection to the cluster has failed: {error}")

    def _next_s(self) -> float:
        moments = [self._tick_at_s, *(host.link.next_s for host in self._hosts.values())]
        moments += [
            moment
            for moment in (self._groups.deadline_s, self._connection.next_s)
            if moment is not None
        ]
        return min(moments)

    def _send_frames(self, now_s: float) -> None:
        lines: dict[str, list[str]] = {}
        for host in self._hosts.values():
            if now_s >= host.link.next_s:
                frames = host.link.take_frames(now_s)
                lines.setdefault(host.agent, []).extend(
                    f"[{host.number},{frame}]" for frame in frames
                )
        for agent, told in lines.items():
            self._connection.tell(agent, told)

    def _look_at_nodes(self, now_s: float) -> None:
        """Notice nodes of which nothing is heard, and tell them what has changed."""
        if now_s - self._looked_s > _AWAY_S:
            # The machine was asleep, or this process stopped: what was sent since is not read yet.
            for host in self._hosts.values():
                host.link.heard_s += now_s - self._looked_s
        self._looked_s = now_s
        for host in list(self._hosts.values()):
            self._look_at_host(host, now_s)
        if self._is_journal_stored:
            self._is_journal_stored = False
            self._setup = [*self._setup, _JOURNAL_STORED]
            for host in self._hosts.values():
                if host.phase is not _Phase.GREETING:
                    host.link.send(_JOURNAL_STORED)

    def _look_at_host(self, host: _Host, now_s: float) -> None:
        silent_s = now_s - host.link.heard_s
        why = host.why_gone or f"nothing was heard of it for {silent_s:.0f} s"
        if host.hello is None:
            if silent_s >= max(_START_S, self._liveness.node_timeout_s):
                self._refuse(host, why)
        elif silent_s >= self._liveness.node_timeout_s:
            self._forgotten_s = now_s
            self._forget(host, why)
            if host.agent in self._connection.agents:
                # The host has ended itself by now, and its agent starts another one.
                self._add_host(host.agent, host.number + 1)
        elif silent_s >= self._liveness.silent_s and not host.is_told_silent:
            host.is_told_silent = True
            _log.warning(
                "nothing was heard of node %s for %.0f s; after %.0f s its trials are started "
                "on other nodes",
                host.name,
                silent_s,
                self._liveness.node_timeout_s,
            )

    def _look_at_demand(self, now_s: float) -> None:
        """Tell the engine what waits for room, and give back nodes on which nothing runs."""
        facts = self._connection.facts
        if now_s < self._demand_at_s or facts is None:
            return
        self._demand_at_s = now_s + _TICK_S
        for host in self._nodes.values():
            if not host.is_idle or self._groups.trials_on(host.name):
                host.idle_since_s = now_s
        # Nodes that are starting may take what waits.
        is_starting = any(
            host.phase is not _Phase.READY
            and now_s - host.link.heard_s < self._liveness.node_timeout_s
            for host in self._hosts.values()
        )
        unmet = [] if is_starting else self.unmet()
        self._connection.demand(unmet)
        if unmet or not facts.get("is_elastic"):
            return
        since_s = now_s - self._liveness.idle_s
        idle = [host for host in self._nodes.values() if host.idle_since_s <= since_s]
        for host in idle[: len(self._nodes) - 1]:
            self._evict(host, "nothing has run there for a while, and it is given back")

    def _on_wake(self, _mask: int) -> None:
        self._wakeup_pipe.clear()
        self._is_woken = True
        self._tick_at_s = 0.0

    # Agents and hosts.

    def on_agent(self, agent: str) -> None:
        """See `AgentListener`."""
        if any(host.why_gone for host in self._hosts_of(agent)):
            # It was given up, and has come back before its trials must have ended.
            self._connection.evict(agent, "it was given up before")
        else:
            self._add_host(agent, 1)

    def on_agent_gone(self, agent: str, why: str, *, may_live: bool = False) -> None:
        """See `AgentListener`."""
        if may_live:
            self._forgotten_s = time.monotonic()
        for host in self._hosts_of(agent):
            if may_live and (not host.is_idle or self._groups.trials_on(host.name)):
                # Its trials must not be started elsewhere before it ends them itself, as it does
                # when it does not hear of the driver; see `_look_at_nodes`.
                host.why_gone = why
                self._drain(host, None, is_cut_off=True)
            else:
                self._forget(host, why)

    def on_draining(self, agent: str, deadline_s: float | None) -> None:
        """See `AgentListener`."""
        for host in self._hosts_of(agent):
            self._drain(host, deadline_s)

    def on_remark(self, text: str, *, is_refusal: bool = False) -> None:
        """See `AgentListener`."""
        if is_refusal:
            self._refused["", text] = None
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)

    def on_lines(self, agent: str, lines: Sequence[str]) -> None:
        """See `AgentListener`."""
        now_s = time.monotonic()
        for line in lines:
            match _decoded(line):
                case [int(number), dict(frame)]:
                    if number > self._latest.get(agent, 0):
                        # The line that has announced it is lost.
                        self._replace_host(agent, number, "its process was replaced by another one")
                    if host := self._hosts.get((agent, number)):
                        self._on_frame(host, frame, now_s)
                case {"host_gone": int(number), "why": str(why), "next": following}:
                    if number >= self._latest.get(agent, 0):
                        self._replace_host(agent, following, why)
                case _:
                    _log.debug("a line of agent %s is malformed: %.200r", agent, line)

    def _replace_host(self, agent: str, following: int | None, why: str) -> None:
        """Take notice that an agent's host is gone, and of the next one, if there is any."""
        for host in self._hosts_of(agent):
            self._forget(host, why)
        if following is None:
            self.on_remark(f"node {agent} is not used any more: {why}")
            self._refused[agent, why] = None
            self._connection.evict(agent, why)
        else:
            self._add_host(agent, following)

    def _add_host(self, agent: str, number: int) -> None:
        self._latest[agent] = number
        base = name = agent[:_MAX_NAME]
        count = 1
        while name in self._used_names:
            count += 1
            name = f"{base}.{count}"
        self._used_names.add(name)
        now_s = time.monotonic()
        link = Link(self._token, now_s, beat_s=self._liveness.beat_s)
        self._hosts[agent, number] = _Host(agent, number, link, name, now_s)

    def _hosts_of(self, agent: str) -> list[_Host]:
        return [host for host in self._hosts.values() if host.agent == agent]

    def _on_frame(self, host: _Host, frame: Mapping[str, Any], now_s: float) -> None:
        try:
            messages = host.link.receive(frame, now_s)
            if host.is_told_silent:
                host.is_told_silent = False
                _log.warning("node %s can be heard again", host.name)
            for message in messages:
                if (host.agent, host.number) not in self._hosts:
                    return  # it has left by what it said before
                self._on_message(host, message)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._evict(host, f"it sent what it must not send: {error}")

    def _on_message(self, host: _Host, message: Mapping[str, Any]) -> None:  # noqa: C901  (a case each)
        told = read_host_message(message)
        match told:
            case RankMessage():
                self._groups.on_message(host.name, told.message)
            case Hello():
                self._on_hello(host, told)
            case Ready():
                self._on_ready(host)
            case SetupRefused(why):
                self._refuse(host, why)
            case Probed():
                raise ValueError("it was asked nothing about storage")
            case Unloadable(why):
                self._on_unloadable(host, why)
            case Draining(deadline_s):
                self._drain(host, deadline_s)
            case Packages(versions):
                if self._on_packages:
                    self._on_packages(versions)
            case Output():
                self._append_output(host, told)
            case Remark(text):
                self.on_remark(f"node {host.name}: {text}")
            case _:
                self._on_event(host, told)

    def _on_hello(self, host: _Host, hello: Hello) -> None:
        if host.phase is not _Phase.GREETING:
            raise ValueError("hello came twice")
        host.hello = hello
        if why := hello.obstacle():
            self._refuse(host, why)
            return
        if difference := hello.difference():
            self.on_remark(f"node {host.name}: {difference}")
        host.phase = _Phase.SETTING_UP
        for message in self._setup:
            host.link.send(message)

    def _on_ready(self, host: _Host) -> None:
        if host.phase is not _Phase.SETTING_UP or host.hello is None:
            raise ValueError("ready came before hello")
        if self._proof is None:
            self._join(host, host.hello)
            return
        host.phase = _Phase.CHECKING
        name = f"{host.agent}.{host.number}"
        # In a thread, since a store or a network file system may take its time.
        self._checks.submit(
            partial(self._proof.complaint, name), partial(self._on_checked, host), name
        )

    def _on_checked(self, host: _Host, found: str | BaseException) -> None:
        if (host.agent, host.number) not in self._hosts or host.hello is None:
            return  # it has left meanwhile
        if isinstance(found, BaseException):
            found = f"it cannot be checked whether it uses the same storage as the driver: {found}"
        if found:
            self._refuse(host, found)
        else:
            self._join(host, host.hello)

    def _join(self, host: _Host, hello: Hello) -> None:
        host.phase = _Phase.READY
        host.idle_since_s = time.monotonic()
        self._nodes[host.name] = host
        resources, labels = hello.resources or {}, hello.labels or {}
        self._events.append(NodeJoined(host.name, resources, labels))
        if host.is_draining:
            self._events.append(NodeDraining(host.name))

    def _on_unloadable(self, host: _Host, why: str) -> None:
        """Give up a node that cannot load what others can; else trials fail as they always do."""
        if any(other.has_loaded for other in self._nodes.values() if other is not host):
            self._refuse(host, f"the training code cannot be loaded there: {why}")

    def _on_event(self, host: _Host, event: Event) -> None:
        if not self._runs(host, event):
            return  # late: the core knows that it is over
        match event:
            case WorkerStarted():
                host.has_loaded = True
            case WorkerExited():
                key = event.trial_id, event.attempt
                del host.attempts[key], self._of_attempt[key]
                if key in host.killed_in_silence:
                    host.killed_in_silence.discard(key)
                    event = as_lost(event, host.name)
            case ValidationEnded():
                self._end_validation(host, event)
            case _:
                pass
        self.emit(event)

    def _runs(self, host: _Host, event: Event) -> bool:
        """Return whether an event is of something that runs on a node."""
        match event:
            case CheckpointLost():
                return True  # of a donor's, too
            case ValidationEnded():
                return (event.trial_id, event.index, event.num_try) in host.validations
            case LeaseRequested(owner) | LeaseReleased(owner):
                return self._runs_owner(host, owner)
            case _:
                key = getattr(event, "trial_id", ""), getattr(event, "attempt", 0)
                return key in host.attempts

    @staticmethod
    def _runs_owner(host: _Host, owner: LeaseOwner) -> bool:
        if owner.index is None:
            return (owner.trial_id, owner.attempt) in host.attempts
        return (owner.trial_id, owner.index, owner.attempt) in host.validations

    def _end_validation(self, host: _Host, event: ValidationEnded) -> None:
        key = event.trial_id, event.index, event.num_try
        command = host.validations.pop(key)
        del self._of_validation[key]
        is_over = event.outcome in (Outcome.COMPLETED, Outcome.KILLED)
        if is_over or (event.outcome is Outcome.FAILED and command.is_last_try):
            self._delete_payload(event.trial_id, command.request.payload)

    def _note_payload(self, event: Event) -> None:
        if isinstance(event, ResultReported) and event.validation and event.validation.payload:
            self._payloads.add((event.trial_id, event.validation.payload))

    def _delete_payload(self, trial_id: str, name: str) -> None:
        """Delete the payload of a validation; in an object store, its node does that."""
        if (trial_id, name) in self._payloads:
            self._payloads.discard((trial_id, name))
            if self._is_shared:
                with contextlib.suppress(OSError):
                    (layout.trial_directory(self._directory, trial_id) / name).unlink()

    def _drain(self, host: _Host, deadline_s: float | None, *, is_cut_off: bool = False) -> None:
        if not host.is_draining:
            host.is_draining = True
            if host.phase is _Phase.READY:
                self._events.append(NodeDraining(host.name, deadline_s, is_cut_off))

    def _refuse(self, host: _Host, why: str) -> None:
        # Once for each machine: engines try those again that were refused.
        place = host.hello.hostname if host.hello else host.name
        if (place, why) not in self._refused:
            self._refused[place, why] = None
            _log.warning("node %s is not used: %s", host.name, why)
        self._evict(host, why)

    def _evict(self, host: _Host, why: str) -> None:
        """End a host, its agent and all that runs on its node."""
        self._forget(host, why, is_intended=True)
        self._connection.evict(host.agent, why)

    def _forget(self, host: _Host, why: str, *, is_intended: bool = False) -> None:
        """Note that a node has left, with all that ran there."""
        if self._hosts.pop((host.agent, host.number), None) is None:
            return
        for key in host.attempts:
            del self._of_attempt[key]
        for validation in host.validations:
            del self._of_validation[validation]
        if host.phase is _Phase.READY:
            del self._nodes[host.name]
            trial_ids = {trial_id for trial_id, _ in host.attempts}
            trial_ids |= self._groups.trials_on(host.name)
            if trial_ids or not is_intended:
                self._losses.add(host.name, sorted(trial_ids), why)
            self._groups.on_node_left(host.name, host.link.confirmed_s)
            self._events.append(NodeLeft(host.name, why))

    def _append_output(self, host: _Host, output: Output) -> None:
        """Add to the output of a trial on this machine what it has written on its node."""
        trial_id = output.trial_id
        is_here = any(key[0] == trial_id for key in (*host.attempts, *host.validations))
        is_here = is_here or trial_id in self._groups.trials_on(host.name)
        if self._is_shared or not is_here:
            return
        path = layout.trial_directory(self._directory, trial_id) / output.stream
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("wb" if output.is_whole else "ab") as file:
                file.write(output.data.encode())
        except OSError as error:
            self.on_remark(f"the output of trials cannot be stored: {error}")


def _decoded(line: str) -> Any:
    """Return what a line says; None if it is no JSON, or nested too deeply."""
    try:
        return strict_json.loads(line)
    except (ValueError, RecursionError):
        return None


def _pass_on(host: _Host | None, command: CommandWithoutConfig) -> None:
    if host:
        host.link.send(command_message(command))
