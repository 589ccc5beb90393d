"""Check of a cluster before experiments run there: nodes, versions, resources and storage."""

from __future__ import annotations

import secrets
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from tuner.cluster.cluster import Cluster
from tuner.cluster.connection import ClusterConnection
from tuner.cluster.link import Link
from tuner.cluster.node_messages import Hello, Probed, Remark, read_node_message
from tuner.cluster.shared_directory import SharedProof
from tuner.cluster.storage_probe import StoreProof, probe_message, write_probe
from tuner.errors import StorageError
from tuner.storage import strict_json

from .doctor import Finding, Level, split_remedy

_QUIET_S: Final = 5.0
"""For how long no further node may come up until those that are there are taken to be all."""
_MAX_S: Final = 60.0
"""How long nodes may take, from when the cluster has answered."""
_CLOSE_S: Final = 10.0
_TICK_S: Final = 0.5
_LOOK_AT_NODE: Final = "look at the log of the process of the cluster that runs there"


def check_cluster(cluster: Cluster, storage: str | None = None) -> list[Finding]:
    """Return the findings about a cluster, on which no experiment need run.

    It starts a host on each node, as an experiment does, and ends it again.

    Args:
        cluster: The cluster.
        storage: URL or directory that all nodes have to reach; None to leave that out. A few small
            objects or files are written there and deleted again.

    Raises:
        ImportError: If the library of the cluster is not installed.
    """
    cluster.check_installed()
    try:
        probe = write_probe(storage) if storage is not None else None
    except (StorageError, OSError) as error:
        what, remedy = split_remedy(str(error))
        return [Finding("storage", Level.ERROR, f"{storage} cannot be written to: {what}", remedy)]
    check = ClusterCheck(cluster, probe)
    try:
        return check.run()
    finally:
        check.close()
        if probe:
            probe.close()


@dataclass(slots=True, eq=False)
class _Node:
    """One host, as far as it has come.

    Attributes:
        name: Name of its agent.
        number: Which host of the agent it is.
        link: The connection to it.
        hello: How it has greeted; None before that.
        why_not: Why it cannot reach the storage, empty if it can; None before it has answered.
        why_gone: Why it has left; empty if it has not.
    """

    name: str
    number: int
    link: Link
    hello: Hello | None = None
    why_not: str | None = None
    why_gone: str = ""


@final
class ClusterCheck:
    """Connects to a cluster and asks each node what it is, like a driver whose trials never start.

    Args:
        cluster: The cluster.
        probe: The storage that nodes have to reach; None for none.
    """

    def __init__(self, cluster: Cluster, probe: StoreProof | SharedProof | None = None) -> None:
        self._description = cluster.describe()
        self._probe = probe
        self._token = secrets.token_hex(16)
        self._nodes: dict[str, _Node] = {}
        self._remarks: dict[str, None] = {}
        self._changed_s = 0.0
        """When a node came up last."""
        self._selector = selectors.DefaultSelector()
        self._connection = ClusterConnection(cluster, self._token, self._selector, self)

    def run(self) -> list[Finding]:
        """Ask all nodes, and return what was found."""
        self._connection.open()
        deadline_s: float | None = None
        while self._connection.error is None:
            now_s = time.monotonic()
            if self._connection.facts is not None:
                deadline_s = deadline_s or now_s + _MAX_S
                if now_s >= deadline_s or self.is_complete(now_s):
                    break
            self._step(now_s)
        return self.findings()

    def close(self) -> None:
        """End what was started on the nodes, and disconnect."""
        self._connection.close(_CLOSE_S)
        self._selector.close()

    def is_complete(self, now_s: float) -> bool:
        """Return whether all nodes have answered, and no further one is to be expected."""
        is_settled = all(map(self._is_settled, self._nodes.values()))
        return bool(self._nodes) and is_settled and now_s - self._changed_s >= _QUIET_S

    def _is_settled(self, node: _Node) -> bool:
        if node.why_gone:
            return True
        if node.hello is None:
            return False
        return not self._probe or bool(node.hello.obstacle()) or node.why_not is not None

    def _step(self, now_s: float) -> None:
        lines: dict[str, list[str]] = {}
        for node in self._nodes.values():
            if now_s >= node.link.next_s:
                frames = node.link.take_frames(now_s)
                lines[node.name] = [f"[{node.number},{frame}]" for frame in frames]
        for agent, told in lines.items():
            self._connection.tell(agent, told)
        for key, mask in self._selector.select(_TICK_S if not lines else 0.0):
            key.data(mask)
        self._connection.tick(time.monotonic())

    # What is heard, see `AgentListener`.

    def on_agent(self, agent: str) -> None:
        self._add(agent, 1)

    def on_agent_gone(self, agent: str, why: str, *, may_live: bool = False) -> None:
        if node := self._nodes.get(agent):
            node.why_gone = why

    def on_draining(self, agent: str, deadline_s: float | None) -> None:
        self.on_remark(f"node {agent} is about to leave the cluster")

    def on_remark(self, text: str, *, is_refusal: bool = False) -> None:
        self._remarks[text] = None

    def on_lines(self, agent: str, lines: Sequence[str]) -> None:
        for line in lines:
            node = self._nodes[agent]
            match strict_json.loads(line):
                case [int(number), dict(frame)] if number == node.number:
                    self._on_frame(node, frame)
                case {"host_gone": int(number), "why": str(why), "next": following} if (
                    number == node.number
                ):
                    node.why_gone = why
                    if isinstance(following, int):
                        self._add(agent, following)
                case _:
                    pass

    def _add(self, agent: str, number: int) -> None:
        now_s = self._changed_s = time.monotonic()
        self._nodes[agent] = _Node(agent, number, Link(self._token, now_s))

    def _on_frame(self, node: _Node, frame: Mapping[str, Any]) -> None:
        try:
            for message in node.link.receive(frame, time.monotonic()):
                self._on_message(node, message)
        except (ValueError, KeyError, TypeError) as error:
            node.why_gone = f"it sent what it must not send: {error}"

    def _on_message(self, node: _Node, message: Mapping[str, Any]) -> None:
        match read_node_message(message):
            case Hello() as hello:
                node.hello = hello
                if self._probe and not hello.obstacle():
                    node.link.send(probe_message(self._probe))
            case Probed(why) if self._probe:
                node.why_not = why or self._complaint(node)
            case Remark(text):
                self.on_remark(f"node {node.name}: {text}")
            case _:
                pass

    def _complaint(self, node: _Node) -> str:
        try:
            return self._probe.complaint(f"{node.name}.{node.number}") if self._probe else ""
        except StorageError as error:
            return f"what it has written cannot be read by the driver: {error}"

    # What is told.

    def findings(self) -> list[Finding]:
        """Return what was found so far."""
        if error := self._connection.error:
            return [Finding("cluster", Level.ERROR, *split_remedy(str(error)))]
        facts = self._connection.facts or {}
        version = f", version {facts['version']}" if facts.get("version") else ""
        found = [
            Finding("cluster", Level.OK, f"{self._description} can be reached{version}"),
            *(Finding("cluster", Level.WARNING, *split_remedy(remark)) for remark in self._remarks),
        ]
        if not self._nodes:
            what = f"no node has come up within {_MAX_S:.0f} s"
            remedy = "start one, or wait until the cluster has free resources for one"
            return [*found, Finding("nodes", Level.ERROR, what, remedy)]
        for node in self._nodes.values():
            found += self._about(node)
        return found

    def _about(self, node: _Node) -> list[Finding]:
        subject, hello = f"node {node.name}", node.hello
        if node.why_gone:
            return [Finding(subject, Level.ERROR, f"is gone: {node.why_gone}", _LOOK_AT_NODE)]
        if hello is None:
            return [Finding(subject, Level.ERROR, "has not answered", _LOOK_AT_NODE)]
        if why := hello.obstacle():
            what, remedy = split_remedy(why)
            return [Finding(subject, Level.ERROR, f"would be refused: {what}", remedy)]
        found = [Finding(subject, Level.OK, self._facts_of(node, hello))]
        if difference := hello.difference():
            found.append(Finding(subject, Level.WARNING, *split_remedy(difference)))
        if self._probe and node.why_not != "":
            why = node.why_not or f"it has not told whether it reaches {self._probe.place}"
            what, remedy = split_remedy(why)
            found.append(Finding(subject, Level.ERROR, f"would be refused: {what}", remedy))
        return found

    def _facts_of(self, node: _Node, hello: Hello) -> str:
        amounts = [f"{name} {amount:g}" for name, amount in (hello.resources or {}).items()]
        labels = [f"{name}={value}" for name, value in (hello.labels or {}).items()]
        versions = [f"{name} {version}" for name, version in hello.versions.items()]
        where = f"{hello.hostname}, {hello.address}" if hello.address else hello.hostname
        parts = [where, ", ".join(amounts) or "no resources", ", ".join(labels)]
        if self._probe and node.why_not == "":
            parts.append(f"reaches {self._probe.place}")
        return "; ".join(filter(None, [*parts, ", ".join(versions)]))
