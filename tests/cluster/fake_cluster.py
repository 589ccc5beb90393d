"""A cluster of subprocesses of this machine, for tests of what goes wrong on clusters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, final

from tests.cluster.fake_engine import CONTROL, DOWN
from tuner.cluster.cluster import Cluster
from tuner.cluster.link import Liveness, hang_within

_ANSWER_S: Final = 60.0


@final
class FakeCluster(Cluster):
    """Nodes that are groups of processes of this machine, with a network that can be made to fail.

    For ``RunConfig(cluster=...)`` in tests; the experiment's ``storage_path`` may be any local
    directory, which all nodes share. It is a context manager, which removes its directory.

    Args:
        nodes: Resources by name of each node, by the node's name.
        labels: Labels of nodes, by the node's name.
        environ: Environment variables of nodes, by the node's name.
        spare: Nodes that join, one at a time, while trials wait for room.
        liveness: How long nodes and driver may be silent; None for what holds on any cluster.
    """

    engine: ClassVar[str] = "tests.cluster.fake_engine:FakeEngine"
    library: ClassVar[str] = "tuner"

    def __init__(
        self,
        nodes: Mapping[str, Mapping[str, float]],
        *,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        environ: Mapping[str, Mapping[str, str]] | None = None,
        spare: Mapping[str, Mapping[str, float]] | None = None,
        liveness: Liveness | None = None,
    ) -> None:
        self._liveness = liveness or Liveness()
        self._labels, self._environ = labels or {}, environ or {}
        self._nodes = {name: self._facts(name, each) for name, each in nodes.items()}
        self._spare = {name: self._facts(name, each) for name, each in (spare or {}).items()}
        self._directory = Path(tempfile.mkdtemp(prefix="tuner-fake-"))

    def _facts(self, name: str, resources: Mapping[str, float]) -> dict[str, Any]:
        return {
            "resources": dict(resources),
            "labels": dict(self._labels.get(name, {})),
            "environ": dict(self._environ.get(name, {})),
        }

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove its directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def liveness(self) -> Liveness:
        """See `Cluster.liveness`."""
        return self._liveness

    def settings(self) -> dict[str, Any]:
        """See `Cluster.settings`."""
        return {
            "nodes": self._nodes,
            "spare": self._spare,
            "directory": os.fspath(self._directory),
            "silent_s": hang_within(self._liveness.lease_s),
        }

    def describe(self) -> str:
        """See `Cluster.describe`."""
        return f"a fake cluster of {len(self._nodes)} nodes"

    # What goes wrong, while an experiment runs.

    def add_node(
        self, name: str, resources: Mapping[str, float], labels: Mapping[str, str] | None = None
    ) -> None:
        """Have another node join."""
        facts = self._facts(name, resources)
        self._ask("add", name, facts | {"labels": dict(labels)} if labels else facts)

    def kill_node(self, name: str) -> None:
        """Kill all processes of a node; the engine notices at once."""
        self._ask("kill", name)

    def kill_host(self, name: str) -> None:
        """Kill the process that runs a node's trials; its agent starts another one."""
        self._ask("signal", name, signal.SIGKILL)

    def freeze_host(self, name: str) -> None:
        """Stop the process that runs a node's trials, without ending it."""
        self._ask("signal", name, signal.SIGSTOP)

    def terminate_host(self, name: str) -> None:
        """Tell a node's host that its machine is going to be shut down, by SIGTERM."""
        self._ask("signal", name, signal.SIGTERM)

    def drain_node(self, name: str, deadline_s: float | None = None) -> None:
        """Announce that a node leaves, in so many seconds."""
        self._ask("drain", name, deadline_s)

    def set_network(
        self,
        name: str,
        *,
        delay_s: float = 0.0,
        jitter_s: float = 0.0,
        loss: float = 0.0,
        doubling: float = 0.0,
        is_cut: bool = False,
        is_mute: bool = False,
    ) -> None:
        """Change the network between the driver and a node; without arguments it is perfect again.

        Args:
            name: The node.
            delay_s: How long lines take at least.
            jitter_s: How much longer they take at most, so that they overtake each other.
            loss: Which share of them is lost, 0 to 1.
            doubling: Which share arrives twice, 0 to 1.
            is_cut: Whether nothing arrives.
            is_mute: Whether nothing arrives of what the node says, though it can hear.
        """
        fields = {
            "delay_s": delay_s,
            "jitter_s": jitter_s,
            "loss": loss,
            "doubling": doubling,
            "is_cut": is_cut,
            "is_mute": is_mute,
        }
        self._ask("network", name, fields)

    def kill_gateway(self) -> None:
        """End the process that is connected to the cluster, and all nodes with it."""
        self._ask("die")

    def take_down(self) -> None:
        """End the cluster; it cannot be reached until `bring_up`."""
        (self._directory / DOWN).touch()
        self.kill_gateway()

    def bring_up(self) -> None:
        """Let the cluster be reached again."""
        (self._directory / DOWN).unlink(missing_ok=True)

    def _ask(self, *request: Any) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(os.fspath(self._directory / CONTROL))
            with connection.makefile("rw") as file:
                file.write(json.dumps(request) + "\n")
                file.flush()
                answer = json.loads(file.readline())
        if answer is not None:
            raise RuntimeError(f"the fake cluster cannot do {request!r}: {answer}")
