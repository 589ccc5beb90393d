"""Clusters on this machine that run the experiment of the benches, and what they are broken by.

The bench starts a cluster for each experiment and names it in the environment, from which the
driver declares it. A fake cluster has no processes of its own; the driver makes it, and the bench
finds it by its directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, final

from tuner.execution.cluster.fake_engine import CONTROL
from tuner.execution.cluster.link import Liveness
from tuner.spec.cluster import Cluster
from tuner.testing import FakeCluster

from .bystanders import command_of, marked

CLUSTER: Final = "FAULTS_CLUSTER"
"""Environment variable: the kind of the cluster, and its address."""
NODES: Final = ("a", "b", "c")
_RESOURCES: Final = {"cpu": 1}
_LIVENESS: Final = Liveness(silent_s=2.0, node_timeout_s=8.0, lease_s=5.0)
_GATEWAY: Final = b"tuner.execution.cluster.gateway"
_ANSWER_S: Final = 60.0
_MAX_AWAY_S: Final = 1.5
"""How long a node is away at most before another one takes its place."""


def declared_cluster() -> Cluster | None:
    """Return the cluster that the environment names; None without one."""
    kind, _, _address = os.environ.get(CLUSTER, "").partition(" ")
    match kind:
        case "":
            return None
        case "fake":
            return FakeCluster(dict.fromkeys(NODES, _RESOURCES), liveness=_LIVENESS)
    raise ValueError(f"there is no cluster of the kind {kind!r}")


class BrokenCluster(Protocol):
    """A cluster of which the bench breaks parts.

    Attributes:
        environment: What the driver has to know.
    """

    environment: Mapping[str, str]

    def break_part(self, victim: str) -> bool:
        """Kill a part of the given kind, and return whether there was one."""


@final
class BrokenFakeCluster:
    """See `BrokenCluster`; the victims are ``node``, ``host`` and ``gateway``.

    Args:
        root: A directory for its files.
        mark: Mark of the experiment.
        chance: Chooses among nodes.
    """

    def __init__(self, root: Path, mark: str, chance: random.Random) -> None:
        # The fake cluster makes its directory there, whoever the driver is.
        self._directory = root / "temporary"
        self._directory.mkdir()
        self.environment: Mapping[str, str] = {CLUSTER: "fake", "TMPDIR": str(self._directory)}
        self._mark = mark
        self._chance = chance
        self._control: Path | None = None
        self._present: list[str] = []
        self._num_added = 0

    def break_part(self, victim: str) -> bool:
        """See `BrokenCluster`."""
        if not self._is_there():
            return False
        with contextlib.suppress(OSError):  # the driver may end meanwhile
            match victim:
                case "node":
                    return self._break_node()
                case "host":
                    return self._ask("signal", self._chance.choice(self._present), signal.SIGKILL)
                case "gateway":
                    return self._kill_gateway()
        return False

    def _break_node(self) -> bool:
        name = self._present.pop(self._chance.randrange(len(self._present)))
        if not self._ask("kill", name):
            return False
        time.sleep(self._chance.uniform(0.0, _MAX_AWAY_S))
        self._num_added += 1
        following = f"n{self._num_added}"
        if self._ask("add", following, {"resources": _RESOURCES}):
            self._present.append(following)
        return True

    def _kill_gateway(self) -> bool:
        for pid in marked(self._mark):
            if _GATEWAY in command_of(pid):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _is_there(self) -> bool:
        """Return whether there are nodes, those of a new cluster perhaps."""
        found = next(self._directory.glob(f"tuner-fake-*/{CONTROL}"), None)
        if found != self._control:
            self._control, self._present = found, list(NODES)
        return bool(found and self._present)

    def _ask(self, *request: Any) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(os.fspath(self._control or ""))
            with connection.makefile("rw") as file:
                file.write(json.dumps(request) + "\n")
                file.flush()
                return file.readline() == "null\n"
