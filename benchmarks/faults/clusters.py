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
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_engine import CONTROL
from tuner.cluster.cluster import Cluster, DaskCluster, RayCluster
from tuner.cluster.link import Liveness

from .bystanders import ENGINE, command_of, marked
from .ledger import DIRECTORY, LEDGER

CLUSTER: Final = "FAULTS_CLUSTER"
"""Environment variable: the kind of the cluster, and its address."""
NODES: Final = ("a", "b", "c")
_RESOURCES: Final = {"cpu": 1}
_LIVENESS: Final = Liveness(silent_s=2.0, node_timeout_s=8.0, lease_s=5.0)
_GATEWAY: Final = b"tuner.cluster.gateway"
_HOST: Final = b"tuner.cluster.node_host"
_ANSWER_S: Final = 60.0
_RESTART_S: Final = 5.0
_RAY_CONFIG: Final = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}
"""With which Ray notices after two seconds that a node is gone."""
_MAX_AWAY_S: Final = 1.5
"""How long a node is away at most before another one takes its place."""


def declared_cluster() -> Cluster | None:
    """Return the cluster that the environment names; None without one."""
    kind, _, address = os.environ.get(CLUSTER, "").partition(" ")
    match kind:
        case "":
            return None
        case "fake":
            return FakeCluster(dict.fromkeys(NODES, _RESOURCES), liveness=_LIVENESS)
        case "dask":
            return DaskCluster(address)
        case "ray":
            return RayCluster(address)
    raise ValueError(f"there is no cluster of the kind {kind!r}")


class BrokenCluster(ABC):
    """A cluster of which the bench breaks parts.

    Args:
        root: A directory for its files.
        mark: Mark of the experiment.
        chance: Chooses among nodes.

    Attributes:
        environment: What the driver has to know.
    """

    environment: Mapping[str, str]

    def __init__(self, root: Path, mark: str, chance: random.Random) -> None:
        self._root = root
        self._mark = mark
        self._chance = chance

    def break_part(self, victim: str) -> bool:
        """Kill a part of the given kind, and return whether there was one."""
        with contextlib.suppress(OSError):  # the driver may end meanwhile
            match victim:
                case "node":
                    return self._break_node()
                case "host":
                    return self._kill_one_of(_HOST)
                case "gateway":
                    return self._kill_one_of(_GATEWAY)
                case "scheduler":
                    return self._break_scheduler()
                case "worker":
                    return self._break_worker()
        return False

    @abstractmethod
    def _break_node(self) -> bool:
        """Kill a node, and have another one join."""

    def _break_worker(self) -> bool:
        return False

    def _break_scheduler(self) -> bool:
        return False

    def close(self) -> None:  # noqa: B027  (the fake cluster ends with its driver)
        """End the cluster."""

    def _kill_one_of(self, program: bytes) -> bool:
        found = [pid for pid in marked(self._mark) if program in command_of(pid)]
        if found:
            os.kill(self._chance.choice(found), signal.SIGKILL)
        return bool(found)

    def _stay_away(self) -> None:
        time.sleep(self._chance.uniform(0.0, _MAX_AWAY_S))

    @property
    def _engine_environment(self) -> Mapping[str, str]:
        """The environment of the cluster's own processes, which trials inherit."""
        ours = {ENGINE: self._mark, DIRECTORY: str(self._root / LEDGER)}
        return {**os.environ, **ours}


@final
class BrokenFakeCluster(BrokenCluster):
    """Nodes that are killed at once with all their processes."""

    def __init__(self, root: Path, mark: str, chance: random.Random) -> None:
        super().__init__(root, mark, chance)
        # The fake cluster makes its directory there, whoever the driver is.
        self._directory = root / "temporary"
        self._directory.mkdir()
        self.environment = {CLUSTER: "fake", "TMPDIR": str(self._directory)}
        self._control: Path | None = None
        self._present: list[str] = []
        self._num_added = 0

    def _break_node(self) -> bool:
        if not self._is_there():
            return False
        name = self._present.pop(self._chance.randrange(len(self._present)))
        if not self._ask("kill", name):
            return False
        self._stay_away()
        self._num_added += 1
        following = f"n{self._num_added}"
        if self._ask("add", following, {"resources": _RESOURCES}):
            self._present.append(following)
        return True

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


@final
class BrokenDaskCluster(BrokenCluster):
    """A scheduler, and workers with nannies, as its command line starts them.

    A node dies with its nanny, a ``worker`` alone is started again by it. A scheduler that dies is
    started again at its address.
    """

    def __init__(self, root: Path, mark: str, chance: random.Random) -> None:
        super().__init__(root, mark, chance)
        self._port = _free_port()
        self._scheduler = self._start_scheduler()
        self._nannies = [self._start_nanny() for _ in NODES]
        self.environment = {CLUSTER: f"dask {self._address}"}

    def _break_node(self) -> bool:
        nanny = self._nannies.pop(self._chance.randrange(len(self._nannies)))
        self._kill(nanny)
        self._stay_away()
        self._nannies.append(self._start_nanny())
        return True

    def _break_worker(self) -> bool:
        found = [pid for nanny in self._nannies for pid in _workers_of(nanny)]
        if found:
            os.kill(self._chance.choice(found), signal.SIGKILL)
        return bool(found)

    def _break_scheduler(self) -> bool:
        self._scheduler.kill()
        self._scheduler.wait()
        self._stay_away()
        self._scheduler = self._start_scheduler()
        time.sleep(_RESTART_S)
        # Workers may take the end of their scheduler for their own.
        self._nannies = [
            nanny if nanny.poll() is None else self._start_nanny() for nanny in self._nannies
        ]
        return True

    def close(self) -> None:
        """See `BrokenCluster`."""
        for nanny in self._nannies:
            self._kill(nanny)
        self._scheduler.kill()
        self._scheduler.wait()

    @staticmethod
    def _kill(nanny: subprocess.Popen[bytes]) -> None:
        for pid in [*_workers_of(nanny), nanny.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        nanny.wait()

    @property
    def _address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        options = ["--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard"]
        return self._start("scheduler", *options)

    def _start_nanny(self) -> subprocess.Popen[bytes]:
        options = ["--nthreads", "1", "--no-dashboard", "--local-directory", str(self._root)]
        return self._start("worker", self._address, *options)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._root / "dask").open("ab") as output:
            return subprocess.Popen(  # noqa: S603  (Dask's own program)
                [sys.executable, "-m", "dask", *arguments],
                env=self._engine_environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


def _workers_of(nanny: subprocess.Popen[bytes]) -> list[int]:
    # Each thread has children of its own.
    paths = Path(f"/proc/{nanny.pid}/task").glob("*/children")
    pids = [int(pid) for path in paths for pid in path.read_text(encoding="ascii").split()]
    return [pid for pid in pids if b"spawn_main" in command_of(pid)]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@final
class BrokenRayCluster(BrokenCluster):
    """A head and two more nodes, whose raylets are killed.

    The scheduler is Ray's head. It keeps its state in memory, so that the cluster ends with it;
    another one is started at its address.
    """

    def __init__(self, root: Path, mark: str, chance: random.Random) -> None:
        super().__init__(root, mark, chance)
        self._port = _free_port()
        self._cluster = self._start()
        self.environment = {CLUSTER: f"ray {self._cluster.address}"}

    def _break_node(self) -> bool:
        others = sorted(self._cluster.worker_nodes, key=lambda node: str(node.unique_id))
        node = self._chance.choice(others)
        os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        self._stay_away()
        self._cluster.remove_node(node, allow_graceful=False)
        with self._environment():
            self._cluster.add_node(num_cpus=1)
        return True

    def _break_scheduler(self) -> bool:
        (server,) = self._cluster.head_node.all_processes["gcs_server"]
        os.kill(server.process.pid, signal.SIGKILL)
        self._stay_away()
        self._cluster.shutdown()
        self._cluster = self._start()
        return True

    def close(self) -> None:
        """See `BrokenCluster`."""
        self._cluster.shutdown()

    def _start(self) -> Any:
        from ray.cluster_utils import Cluster  # noqa: PLC0415  (an extra)

        with self._environment():
            cluster = Cluster(
                initialize_head=True,
                head_node_args={
                    "num_cpus": 1,
                    "gcs_server_port": self._port,
                    "include_dashboard": False,
                    "_system_config": _RAY_CONFIG,
                },
            )
            for _ in NODES[1:]:
                cluster.add_node(num_cpus=1)
        return cluster

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        """Have the processes that are started meanwhile inherit the environment of the cluster."""
        before = dict(os.environ)
        os.environ.update(self._engine_environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


KINDS: Final[Mapping[str, type[BrokenCluster]]] = {
    "fake": BrokenFakeCluster,
    "dask": BrokenDaskCluster,
    "ray": BrokenRayCluster,
}
"""Clusters by the value of ``--engine``."""
