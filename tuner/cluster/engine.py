"""The interface between the gateway and a cluster engine such as Ray or Dask.

An engine starts agents on the nodes of its cluster, one on each, and carries lines between them and
the gateway. It knows nothing of what the lines say, and keeps none: where it loses some, the ends
of the connection repeat them, see `link`. All that needs the engine's own library is in its module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

MAX_BACK_OFF_S: Final = 600.0
_BACK_OFF_S: Final = 5.0

Unmet = tuple[Mapping[str, float], Mapping[str, str], int]
"""Resources of one process, labels that its node must have, and how many such processes wait."""


class Relay(Protocol):
    """Where an engine reports to; all methods may be called from any thread."""

    def agent_up(self, agent: str, facts: Mapping[str, Any], /) -> None:
        """Report a new agent, or one that a new gateway has found again.

        Args:
            agent: Its name: readable, unique among all agents of a driver, at most 60 of the
                characters ``A-Z a-z 0-9 . _ -``.
            facts: ``resources`` and ``labels`` by name, ``address`` under which other nodes reach
                this one, and ``attached: True`` for an agent that was found again.
        """

    def received(self, agent: str, lines: Sequence[str], /) -> None:
        """Pass on lines of an agent."""

    def agent_gone(self, agent: str, why: str, /, *, may_live: bool = False) -> None:
        """Report that an agent is gone.

        Args:
            agent: The agent.
            why: Why.
            may_live: Whether it and what runs on its node may live still, cut off from the gateway.
                Then its trials are not started elsewhere before its host must have ended them, or
                it is reported again as dead.
        """

    def draining(self, agent: str, deadline_s: float | None, /) -> None:
        """Report that an agent's node is going to leave.

        Args:
            agent: The agent.
            deadline_s: In how many seconds; None where that is not known.
        """

    def remark(self, text: str, /, *, is_refusal: bool = False) -> None:
        """Tell the user something; perhaps why a node is not used."""

    def lost(self, why: str, /) -> None:
        """Report that the cluster itself cannot be reached any more."""


class Engine(Protocol):
    """Agents on the nodes of a cluster.

    Its methods are called by one thread of the gateway, and none may block for long, except `open`
    and `close`.
    """

    def __init__(self, settings: Mapping[str, Any], token: str, relay: Relay, /) -> None:
        """Create the engine, without connecting.

        Args:
            settings: What `Cluster.settings` returned.
            token: Of the driver, for its agents.
            relay: Where to report to.
        """

    def open(self, known: Sequence[str], /) -> Mapping[str, Any]:
        """Connect to the cluster and begin to start agents.

        Args:
            known: Names of agents that an earlier gateway of this driver has started. Those that
                are still alive are reported by `Relay.agent_up` again, and no name is reused.

        Returns:
            Facts for messages: ``address`` and ``version``; ``reattaches: True`` where agents
            outlive their gateway, and the next one finds them; and ``ends_agents: True`` where they
            cannot outlive its process for a moment.

        Raises:
            ClusterError: If the cluster cannot be reached; with a remedy.
        """

    def tell(self, agent: str, lines: Sequence[str], /) -> None:
        """Send lines to an agent; to one that is gone, nothing."""

    def demand(self, unmet: Sequence[Unmet], /) -> None:
        """Take notice of what waits for room; an engine that can adds nodes for it.

        Args:
            unmet: What waits; empty where nothing does.
        """

    def evict(self, agent: str, why: str, /) -> None:
        """End an agent and all that runs on its node; it is not reported as gone."""

    def close(self, deadline_s: float, /) -> None:
        """End all agents and disconnect.

        Args:
            deadline_s: How many seconds to wait at most.
        """


def back_off_s(num_failures: int) -> float:
    """Return how long to wait before a node is tried again that has failed so often in a row.

    The first time is no reason to wait: it may be the end of a node, or of one process.
    """
    if num_failures <= 1:
        return 0.0
    return min(_BACK_OFF_S * 2.0 ** min(num_failures - 2, 30), MAX_BACK_OFF_S)


def load_engine(path: str) -> type[Engine]:
    """Return the engine's class, given as ``module:Class``."""
    module, _, name = path.partition(":")
    found: type[Engine] = getattr(import_module(module), name)
    return found
