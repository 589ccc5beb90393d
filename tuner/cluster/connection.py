"""The driver's connection to a cluster, by one gateway after another."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, final

from tuner.errors import ClusterError

from .cluster import Cluster
from .engine import Unmet
from .gateway import GatewayProcess

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_RETRY_S: Final = 2.0

_log = logging.getLogger("tuner")


class AgentListener(Protocol):
    """What is told of the agents."""

    def on_agent(self, agent: str, /) -> None:
        """Take notice of a new agent, whose first host is starting."""

    def on_lines(self, agent: str, lines: Sequence[str], /) -> None:
        """Take lines of an agent."""

    def on_agent_gone(self, agent: str, why: str, /, *, may_live: bool = False) -> None:
        """Take notice of an agent that is gone, and will not be heard again.

        What ran on its node has ended, or ends as long as nothing is heard of the driver there if
        it may live still. Then this may be called again, once it is known to be dead.
        """

    def on_draining(self, agent: str, deadline_s: float | None, /) -> None:
        """Take notice that the node of an agent is going to leave, in so many seconds if known."""

    def on_remark(self, text: str, /, *, is_refusal: bool = False) -> None:
        """Tell the user something; perhaps why a node is not used."""


@final
class ClusterConnection:
    """Agents on the nodes of a cluster, as the driver knows them.

    When the gateway dies, or loses the cluster, the next one looks for it. The agents of some
    engines outlive their gateway, and are found again; those of others are gone with it.

    Args:
        cluster: The cluster.
        token: Identifies the driver.
        selector: Selects on the gateway's socket; the data of a key is called with the mask.
        listener: What is told of the agents.

    Attributes:
        facts: What the engine said when it was connected first; None before that.
        error: Why the cluster is given up; None while it is not.
        agents: Names of the agents that are known.
    """

    def __init__(
        self,
        cluster: Cluster,
        token: str,
        selector: selectors.BaseSelector,
        listener: AgentListener,
    ) -> None:
        self._opening = cluster.engine, cluster.settings(), token
        self._description = cluster.describe()
        self._reconnect_s = cluster.liveness.reconnect_s
        self._selector = selector
        self._listener = listener
        self._gateway: GatewayProcess | None = None
        self.facts: Mapping[str, Any] | None = None
        self.error: ClusterError | None = None
        self.agents: set[str] = set()
        self._cut_off: set[str] = set()
        """Agents that cannot be reached any more, though they may live."""
        self._used: set[str] = set()
        self._unmet: list[Unmet] = []
        self._retry_at_s: float | None = None
        self._unreachable_since_s: float | None = None

    @property
    def next_s(self) -> float | None:
        """When `tick` is to be called, by the monotonic clock; None for never."""
        return self._retry_at_s

    def open(self) -> None:
        """Begin to connect; `facts` or `error` is set later."""
        gateway = self._gateway = GatewayProcess(*self._opening, sorted(self._used))
        self._selector.register(gateway.socket, _READ, self._on_ready)
        self._watch(gateway)

    def tell(self, agent: str, lines: Sequence[str]) -> None:
        """Send lines to an agent."""
        if self._gateway:
            self._gateway.tell(agent, lines)
            self._watch(self._gateway)

    def demand(self, unmet: Sequence[Unmet]) -> None:
        """Tell the engine what waits for room, if that has changed."""
        if list(unmet) != self._unmet:
            self._unmet = list(unmet)
            self._tell_demand()

    def _tell_demand(self) -> None:
        if self._gateway:
            self._gateway.demand(self._unmet)
            self._watch(self._gateway)

    def evict(self, agent: str, why: str) -> None:
        """End an agent and all that runs on its node."""
        self.agents.discard(agent)
        if self._gateway:
            self._gateway.evict(agent, why)
            self._watch(self._gateway)

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        if self._retry_at_s is not None and now_s >= self._retry_at_s:
            self._retry_at_s = None
            self.open()

    def close(self, deadline_s: float) -> bool:
        """End all agents and the gateway, and return whether it has said that they have ended.

        Args:
            deadline_s: How many seconds to wait at most.
        """
        self._retry_at_s = None
        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return not self.agents
        self._selector.unregister(gateway.socket)
        return gateway.close(deadline_s)

    def _watch(self, gateway: GatewayProcess) -> None:
        mask = _READ | _WRITE if gateway.has_backlog else _READ
        if self._selector.get_key(gateway.socket).events != mask:
            self._selector.modify(gateway.socket, mask, self._on_ready)

    def _on_ready(self, mask: int) -> None:
        gateway = self._gateway
        if gateway is None:
            return
        if mask & _WRITE:
            gateway.flush()
            self._watch(gateway)
        if mask & _READ:
            messages = gateway.receive()
            if messages is None:
                self._on_lost(f"the process that is connected to it is gone: {gateway.why_gone()}")
            for message in messages or ():
                self._on_message(*message)

    def _on_message(self, kind: str, *fields: Any) -> None:
        match kind:
            case "from":
                agent, lines = fields
                if agent in self.agents:
                    self._listener.on_lines(agent, lines)
            case "agent":
                self._on_agent(*fields)
            case "gone":
                agent, why, may_live = fields
                self._lose(agent, why, may_live=may_live)
            case "draining":
                self._listener.on_draining(*fields)
            case "opened":
                self._on_opened(fields[0])
            case "remark":
                text, is_refusal = fields
                self._listener.on_remark(text, is_refusal=is_refusal)
            case "failed" | "lost":
                self._on_lost(fields[0])

    def _on_agent(self, agent: str, facts: Mapping[str, Any]) -> None:
        self._used.add(agent)
        is_found_again = bool(facts.get("attached")) and agent in self.agents
        self.agents.add(agent)
        self._cut_off.discard(agent)
        if not is_found_again:
            self._listener.on_agent(agent)

    def _on_opened(self, facts: Mapping[str, Any]) -> None:
        if self._unreachable_since_s is not None:
            self._unreachable_since_s = None
            _log.warning("%s can be reached again", self._description)
        self.facts = facts
        if self._unmet:
            self._tell_demand()

    def _on_lost(self, why: str) -> None:
        """Look for the cluster again, or give it up."""
        self.close(0.0)
        now_s = time.monotonic()
        if self.facts is None:
            self.error = ClusterError(f"{self._description} cannot be used: {why}")
            return
        if self._unreachable_since_s is None:
            self._unreachable_since_s = self._retry_at_s = now_s
            _log.warning(
                "%s cannot be reached any more: %s; it is looked for during the next %.0f s",
                self._description,
                why,
                self._reconnect_s,
            )
        elif now_s - self._unreachable_since_s < self._reconnect_s:
            self._retry_at_s = now_s + _RETRY_S
        else:
            self.error = ClusterError(
                f"{self._description} could not be reached for {self._reconnect_s:.0f} s: {why}; "
                "restore the experiment when it can be reached again"
            )
            return
        if self.facts.get("reattaches"):
            return  # those that are not found again are silent
        may_live = not self.facts.get("ends_agents")
        for agent in sorted(self.agents):
            self._lose(agent, "the cluster cannot be reached any more", may_live=may_live)

    def _lose(self, agent: str, why: str, *, may_live: bool) -> None:
        is_found_dead = agent in self._cut_off and not may_live
        if agent in self.agents or is_found_dead:
            self.agents.discard(agent)
            (self._cut_off.add if may_live else self._cut_off.discard)(agent)
            self._listener.on_agent_gone(agent, why, may_live=may_live)
