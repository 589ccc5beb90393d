"""The nodes of a cluster, from their first word until they have left.

Each node has a host process. Between it and the driver is a `Link`, so that what one end says
reaches the other in order and once, whatever happens to the gateway, the cluster engine and the
agents between them.

A node joins when its host has greeted, fits this driver's versions, and has taken the user's code.
It has left when the engine says so, when its host dies, or when nothing is heard of it for longer
than its host would live without hearing of the driver: so no trial ever runs twice.

What runs on the nodes is not known here, see `node_processes`.
"""

from __future__ import annotations

import enum
import logging
import math
import secrets
import selectors
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tuner.background import BackgroundJobs
from tuner.core.events import NodeDraining, NodeJoined
from tuner.errors import ClusterError
from tuner.execution.commit_pool import CommitPool
from tuner.execution.local.process_setup import WakeupPipe
from tuner.storage import strict_json

from .cluster import Cluster
from .connection import ClusterConnection
from .engine import Unmet
from .link import Link
from .node_messages import (
    KINDS,
    Draining,
    Hello,
    Probed,
    Ready,
    Remark,
    Setup,
    SetupRefused,
    blob_messages,
    read_node_message,
)
from .shared_directory import SharedProof
from .storage_probe import StoreProof

READ: Final = selectors.EVENT_READ
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

_log = logging.getLogger("tuner")


class _Phase(enum.Enum):
    GREETING = enum.auto()
    SETTING_UP = enum.auto()
    CHECKING = enum.auto()
    READY = enum.auto()


@dataclass(slots=True, eq=False)
class Node:
    """A node, as its host process has it: from the start of that until the node has left.

    Attributes:
        agent: The agent that has started the host.
        number: Which host of this agent it is.
        link: The connection to it.
        name: Name of the node.
        idle_since_s: When it was looked at last while something ran there, or it joined.
        phase: How far it is.
        hello: How the host has greeted; None before that.
        is_told_silent: Whether the user knows that nothing is heard of it.
        is_draining: Whether it is going to leave.
        why_gone: Why it cannot be reached any more, though it may live; empty while it can be.
        has_loaded: Whether a trial has started there, so that the user's code can be loaded.
        directory: See `Ready`.
    """

    agent: str
    number: int
    link: Link
    name: str
    idle_since_s: float
    phase: _Phase = _Phase.GREETING
    hello: Hello | None = None
    is_told_silent: bool = False
    is_draining: bool = False
    why_gone: str = ""
    has_loaded: bool = False
    directory: str = ""


class ClusterNodes(ABC):
    """The nodes of a cluster.

    Args:
        cluster: The cluster, to which nothing connects yet.
        trainable: The pickled trainable, see `pickle_trainable`.
        validator: The pickled validation function, empty for none or that of the trainable.

    Attributes:
        unmet: Returns what waits for room, for engines that can add nodes.
        has_ended_all: Whether it is known, after `close`, that nothing runs on any node.
    """

    def __init__(self, cluster: Cluster, *, trainable: bytes, validator: bytes = b"") -> None:
        self._liveness = cluster.liveness
        self._token = secrets.token_hex(16)
        self._code = [*blob_messages(trainable, validator)]
        self._setup: Sequence[Mapping[str, Any]] = ()
        self._proof: SharedProof | StoreProof | None = None
        self._checks = CommitPool()
        """Looks for what hosts have written as proof that they share the storage."""
        self.lock = threading.RLock()
        """Held by who uses the connections: the driver, or the deputy while it does other work."""
        self._deputy = BackgroundJobs(
            "tuner-cluster", self._stand_in, _TICK_S, on_error=self._connection_failed
        )
        self._looked_s = time.monotonic()
        self.unmet: Callable[[], Sequence[Unmet]] = list
        self.has_ended_all = False
        self._forgotten_s = -math.inf
        """When a host was forgotten last that may still live."""
        self._hosts: dict[tuple[str, int], Node] = {}
        self._latest: dict[str, int] = {}
        """Number of the last host of each agent."""
        self._nodes: dict[str, Node] = {}
        self._used_names: set[str] = set()
        self._told: set[str] = set()
        self._refused: dict[tuple[str, str], None] = {}
        """Machines that are not used, and why, in the order in which that was found."""
        self._is_woken = False
        self._tick_at_s = self._demand_at_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._wakeup_pipe = WakeupPipe()
        self._selector.register(self._wakeup_pipe, READ, self._on_wake)
        self._selector.register(self._checks, READ, lambda _mask: self._checks.run_done())
        self._connection = ClusterConnection(cluster, self._token, self._selector, self)

    # What runs on the nodes.

    @abstractmethod
    def _announce(self, event: NodeJoined | NodeDraining) -> None:
        """Pass on that a node has joined, or is going to leave."""

    @abstractmethod
    def _lose(self, node: Node, why: str, *, is_intended: bool) -> None:
        """Pass on that a node has left, with all that ran there."""

    @abstractmethod
    def _is_idle(self, node: Node) -> bool:
        """Return whether nothing runs on a node."""

    @abstractmethod
    def _on_told(self, node: Node, message: Mapping[str, Any]) -> None:
        """Handle a message that is about what runs on a node.

        Raises:
            ValueError: If it is malformed.
        """

    @property
    @abstractmethod
    def _has_news(self) -> bool:
        """Whether something has been passed on that was not taken yet."""

    # What others do with them.

    def open(self, setup: Setup, proof: SharedProof | StoreProof | None = None) -> None:
        """Connect to the cluster, and return once a node has joined, or after a while.

        Returns at once when it is woken, as by a request to stop. More nodes join later.

        Args:
            setup: What hosts need to know.
            proof: Proof that a host uses the same storage as the driver; None where it need not.

        Raises:
            ClusterError: If it cannot be reached.
        """
        with self.lock:
            self._proof = proof
            self._setup = [setup.message, *self._code]
            self._connection.open()
            while self._connection.facts is None and not self._is_woken:
                self._select(_TICK_S)
                self._raise_error()
            until_s = time.monotonic() + _FIRST_NODE_S
            while not self._has_news and not self._is_woken and time.monotonic() < until_s:
                self._select(min(_TICK_S, max(self._next_s() - time.monotonic(), 0.0)))
                self._raise_error()
        self._deputy.wake(_TICK_S)

    def capacity(self) -> Mapping[str, float]:
        """Return what the nodes have that are present."""
        total: dict[str, float] = {}
        for host in self._nodes.values():
            if host.hello:
                for name, amount in (host.hello.resources or {}).items():
                    total[name] = total.get(name, 0.0) + amount
        return total

    def say(self, node: str, message: Mapping[str, Any]) -> bool:
        """Send a node a message, and return whether it is present."""
        with self.lock:
            if found := self._nodes.get(node):
                found.link.send(message)
            return found is not None

    def flush(self) -> None:
        """Send what waits to be sent."""
        with self.lock:
            self._send_frames(time.monotonic())

    def is_silent(self, node: str) -> bool:
        """Return whether what a node says may be on its way for long, such as a report."""
        found = self._nodes.get(node)
        silent_s = self._liveness.silent_s / 2
        return found is not None and time.monotonic() - found.link.heard_s > silent_s

    @property
    def refusals(self) -> list[str]:
        """Which nodes are not used, and why."""
        return [f"{place}: {why}" if place else why for place, why in self._refused]

    def wake(self) -> None:
        """End the driver's wait; may be called from signal handlers and other threads."""
        self._wakeup_pipe.wake()

    def close(self, deadline_s: float) -> None:
        """End all hosts, and what runs on the nodes.

        Args:
            deadline_s: How many seconds to wait at most.
        """
        self._deputy.close()
        self._selector.unregister(self._checks)
        self._checks.close(0.0)
        is_closed = self._connection.close(deadline_s)
        lease_s = time.monotonic() - self._forgotten_s
        self.has_ended_all = is_closed and lease_s > self._liveness.lease_s
        self._hosts.clear()
        self._nodes.clear()
        for resource in (self._selector, self._wakeup_pipe):
            resource.close()

    # The loop.

    def _step(self, deadline_s: float | None) -> None:
        """Wait for something to happen, and do what is due.

        Args:
            deadline_s: Until when to wait at most, by the monotonic clock; None for no limit.
        """
        now_s = time.monotonic()
        rest_s = self._next_s() - now_s
        if deadline_s is not None:
            rest_s = min(rest_s, deadline_s - now_s)
        self._select(max(rest_s, 0.0))
        self._raise_error()

    def _select(self, timeout_s: float) -> None:
        for key, mask in self._selector.select(timeout_s):
            key.data(mask)
        now_s = time.monotonic()
        self._connection.tick(now_s)
        if now_s >= self._tick_at_s:
            self._tick_at_s = now_s + _TICK_S
            self._look_at_nodes(now_s)
        self._send_frames(now_s)

    def _raise_error(self) -> None:
        if self._connection.error:
            raise self._connection.error

    def _stand_in(self) -> None:
        """Keep up the connections while the driver does not wait, e.g. since its disk is full.

        Otherwise the hosts would take it for dead, and kill their trials.
        """
        if self.lock.acquire(blocking=False):
            try:
                self._select(0.0)
            finally:
                self.lock.release()

    def _connection_failed(self, error: BaseException) -> None:
        # Raised where the driver waits next.
        self._connection.error = ClusterError(f"the connection to the cluster has failed: {error}")

    def _next_s(self) -> float:
        moments = [self._tick_at_s, *(host.link.next_s for host in self._hosts.values())]
        if self._connection.next_s is not None:
            moments.append(self._connection.next_s)
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

    def _look_at_host(self, host: Node, now_s: float) -> None:
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
            if not self._is_idle(host):
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
        if any(host.why_gone for host in self._hosts_of(agent)):
            # It was given up, and has come back before its trials must have ended.
            self._connection.evict(agent, "it was given up before")
        else:
            self._add_host(agent, 1)

    def on_agent_gone(self, agent: str, why: str, *, may_live: bool = False) -> None:
        if may_live:
            self._forgotten_s = time.monotonic()
        for host in self._hosts_of(agent):
            if may_live and not self._is_idle(host):
                # Its trials must not be started elsewhere before it ends them itself, as it does
                # when it does not hear of the driver; see `_look_at_nodes`.
                host.why_gone = why
                self._drain(host, None, is_cut_off=True)
            else:
                self._forget(host, why)

    def on_draining(self, agent: str, deadline_s: float | None) -> None:
        for host in self._hosts_of(agent):
            self._drain(host, deadline_s)

    def on_remark(self, text: str, *, is_refusal: bool = False) -> None:
        if is_refusal:
            self._refused["", text] = None
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)

    def on_lines(self, agent: str, lines: Sequence[str]) -> None:
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
        self._hosts[agent, number] = Node(agent, number, link, name, now_s)

    def _hosts_of(self, agent: str) -> list[Node]:
        return [host for host in self._hosts.values() if host.agent == agent]

    def _on_frame(self, host: Node, frame: Mapping[str, Any], now_s: float) -> None:
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

    def _on_message(self, node: Node, message: Mapping[str, Any]) -> None:
        if message.get("kind") not in KINDS:
            self._on_told(node, message)
            return
        match read_node_message(message):
            case Hello() as hello:
                self._on_hello(node, hello)
            case Ready(directory):
                self._on_ready(node, directory)
            case SetupRefused(why):
                self._refuse(node, why)
            case Probed():
                raise ValueError("it was asked nothing about storage")
            case Draining(deadline_s):
                self._drain(node, deadline_s)
            case Remark(text):
                self.on_remark(f"node {node.name}: {text}")

    def _on_hello(self, host: Node, hello: Hello) -> None:
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

    def _on_ready(self, host: Node, directory: str) -> None:
        if host.phase is not _Phase.SETTING_UP or host.hello is None:
            raise ValueError("ready came before hello")
        host.directory = directory
        if self._proof is None:
            self._join(host, host.hello)
            return
        host.phase = _Phase.CHECKING
        name = f"{host.agent}.{host.number}"
        # In a thread, since a store or a network file system may take its time.
        self._checks.submit(
            partial(self._proof.complaint, name), partial(self._on_checked, host), name
        )

    def _on_checked(self, host: Node, found: str | BaseException) -> None:
        if (host.agent, host.number) not in self._hosts or host.hello is None:
            return  # it has left meanwhile
        if isinstance(found, BaseException):
            found = f"it cannot be checked whether it uses the same storage as the driver: {found}"
        if found:
            self._refuse(host, found)
        else:
            self._join(host, host.hello)

    def _join(self, host: Node, hello: Hello) -> None:
        host.phase = _Phase.READY
        host.idle_since_s = time.monotonic()
        self._nodes[host.name] = host
        resources, labels = hello.resources or {}, hello.labels or {}
        self._announce(NodeJoined(host.name, resources, labels))
        if host.is_draining:
            self._announce(NodeDraining(host.name))

    def gives_up_unloadable(self, name: str, why: str) -> bool:
        """Give up a node that cannot load code which others can; else it is the code's fault.

        Args:
            name: The node.
            why: Why it cannot.

        Returns:
            Whether the node is given up.
        """
        with self.lock:
            node = self._nodes.get(name)
            others = (other for other in self._nodes.values() if other is not node)
            if node is None or not any(other.has_loaded for other in others):
                return False
            self._refuse(node, f"the training code cannot be loaded there: {why}")
            return True

    def _drain(self, host: Node, deadline_s: float | None, *, is_cut_off: bool = False) -> None:
        if not host.is_draining:
            host.is_draining = True
            if host.phase is _Phase.READY:
                self._announce(NodeDraining(host.name, deadline_s, is_cut_off))

    def _refuse(self, host: Node, why: str) -> None:
        # Once for each machine: engines try those again that were refused.
        place = host.hello.hostname if host.hello else host.name
        if (place, why) not in self._refused:
            self._refused[place, why] = None
            _log.warning("node %s is not used: %s", host.name, why)
        self._evict(host, why)

    def _evict(self, host: Node, why: str) -> None:
        """End a host, its agent and all that runs on its node."""
        self._forget(host, why, is_intended=True)
        self._connection.evict(host.agent, why)

    def _forget(self, host: Node, why: str, *, is_intended: bool = False) -> None:
        """Note that a node has left, with all that ran there."""
        if self._hosts.pop((host.agent, host.number), None) is None:
            return
        if host.phase is _Phase.READY:
            del self._nodes[host.name]
            self._lose(host, why, is_intended=is_intended)


def _decoded(line: str) -> Any:
    """Return what a line says; None if it is no JSON, or nested too deeply."""
    try:
        return strict_json.loads(line)
    except (ValueError, RecursionError):
        return None
