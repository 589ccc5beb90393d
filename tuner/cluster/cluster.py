"""Clusters whose nodes run trials: Ray, Dask, and the base of both."""

from __future__ import annotations

import abc
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, final

from tuner.cluster.link import Liveness
from tuner.execution.resources import checked_bundle
from tuner.spec.checked_settings import check_limit, check_seconds

_DASK_SCHEMES: Final = ("tcp", "tls", "ucx", "ucxx", "ws", "wss")
_DASK_SECURITY: Final = (
    "require_encryption",
    "extra_conn_args",
    "tls_ca_file",
    "tls_ciphers",
    "tls_client_cert",
    "tls_client_key",
    "tls_max_version",
    "tls_min_version",
)
"""What a client needs of a ``distributed.Security``: not the keys of scheduler and workers."""
_LEASE_S: Final = 20.0
_MIN_LEASE_S: Final = 5.0
_MAX_LEASE_S: Final = 60.0
_ENGINES: Final = ("ray", "dask")
_DASK_PROTOCOLS: Final = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
_USUAL_ENGINES: Final = {"6379": "ray", "8786": "dask"}
"""Engines by the ports that they use unless they are told otherwise."""
_HOST_AND_PORT: Final = re.compile(r"[^/]+:\d+")
_RAY_SELECTOR: Final = re.compile(r"!?([\w.-]*|in\([\w.-]+(,\s*[\w.-]+)*\))")
"""A value of Ray's label selectors."""


class Cluster(abc.ABC):
    """Base of what ``RunConfig(cluster=...)`` takes: how the nodes of a cluster are reached.

    Subclasses are frozen dataclasses, which check their fields when they are constructed and
    connect to nothing. The driver connects when the experiment runs, in a process of its own for
    the library of the cluster, so that nothing here imports it.

    Attributes:
        engine: The adapter of the library in that process, as ``"module:Class"``.
        library: The module that has to be installed.
        extra: The extra of this package that installs it; empty if there is none.
        lease_s: After how many seconds a node that does not hear of the driver ends its trials.
        scratch_dir: Directory of each node for its files; None for that of temporary files.
    """

    __slots__ = ()

    engine: ClassVar[str]
    library: ClassVar[str]
    extra: ClassVar[str] = ""
    lease_s: float = _LEASE_S
    scratch_dir: str | os.PathLike[str] | None = None

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what the engine is constructed with; the values have to be picklable."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return what the cluster is, for messages, such as ``the Ray cluster at auto``.

        It contains no passwords or tokens.
        """

    @property
    def liveness(self) -> Liveness:
        """How long nodes and driver may be silent."""
        return Liveness.of_lease(float(self.lease_s))

    @property
    def node_scratch_dir(self) -> str:
        """Where nodes keep files of their own; empty for their directories of temporary files."""
        return "" if self.scratch_dir is None else os.fspath(self.scratch_dir)

    def check_installed(self) -> None:
        """Check that the library is installed, without importing it.

        Raises:
            ImportError: If it is not; names the extra that installs it.
        """
        if importlib.util.find_spec(self.library) is None:
            remedy = f'; pip install "tuner-hpo[{self.extra}]"' if self.extra else ""
            raise ImportError(
                f"{type(self).__name__} needs {self.library}, which is not installed{remedy}"
            )


@final
@dataclass(frozen=True, slots=True)
class RayCluster(Cluster):
    """A Ray cluster, of which one actor per node runs trials; Ray Tune and Ray Train are not used.

    Every node needs Ray, Python and this package in the same versions as the driver. The driver
    runs on a machine that is a node itself, as that of a Ray job is.

    Attributes:
        address: Address of the cluster, such as ``"10.0.0.1:6379"``; ``"auto"``, the default, for
            the one that ``RAY_ADDRESS`` or this machine names; ``"local"`` for a cluster of this
            machine alone, which is started and ended with the experiment; None for that only where
            ``"auto"`` finds none.
        agent_resources: What is asked for of each node, and given to trials, in Ray's names, such
            as ``{"CPU": 16, "GPU": 4}``; None, the default, for all that the node has.
        max_nodes: How many nodes are used at most; None, the default, for any number. While trials
            wait for room, more are asked for up to this number, for which Ray's autoscaler adds
            nodes.
        runtime_env: Ray's runtime environment, such as ``{"working_dir": "."}``; trials inherit
            it. None, the default, for that of the Ray job, if there is one.
        namespace: Ray's namespace; None, the default, for a new one.
        label_selector: Labels that nodes must have, in Ray's syntax, such as
            ``{"zone": "in(a,b)", "spot": "!true"}``; None, the default, for all nodes.
        lease_s: After how many seconds a node that does not hear of the driver ends its trials: 5
            to 60, 20 by default. After one and a half times as long the driver starts them on other
            nodes; so longer leases outlast longer gaps of the network, and shorter ones lose less
            time with a node.
        scratch_dir: Directory of each node, as an absolute path, in which it keeps the files of an
            experiment in an object store: what trials write, and the cache of checkpoints. None,
            the default, for the node's directory of temporary files (``TMPDIR``).

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If it is out of range.

    Example:
        >>> cluster = RayCluster("10.0.0.1:6379", agent_resources={"CPU": 16, "GPU": 4})
        >>> cluster.describe()
        'the Ray cluster at 10.0.0.1:6379'
    """

    engine: ClassVar[str] = "tuner.cluster.ray_engine:RayEngine"
    library: ClassVar[str] = "ray"
    extra: ClassVar[str] = "ray"

    address: str | None = "auto"
    agent_resources: Mapping[str, float] | None = None
    max_nodes: int | None = None
    runtime_env: Mapping[str, Any] | None = None
    namespace: str | None = None
    label_selector: Mapping[str, str] | None = None
    lease_s: float = field(default=_LEASE_S, kw_only=True)
    scratch_dir: str | os.PathLike[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check_address()
        _check_nodes(self.lease_s, self.scratch_dir)
        check_limit("max_nodes", self.max_nodes)
        if self.agent_resources is not None:
            _ray_shape(self.agent_resources)
        _check_names("runtime_env", self.runtime_env, "'working_dir': '.'")
        if self.namespace is not None and (
            not isinstance(self.namespace, str) or not self.namespace
        ):
            raise TypeError(f"namespace must be a text or None, got {self.namespace!r}")
        _check_names("label_selector", self.label_selector, "'zone': 'in(a,b)'")
        for name, wanted in (self.label_selector or {}).items():
            if not isinstance(wanted, str) or not _RAY_SELECTOR.fullmatch(wanted):
                raise ValueError(
                    "label_selector must have values such as 'a', '!a', 'in(a,b)' and '!in(a,b)', "
                    f"got {name!r}: {wanted!r}"
                )

    def _check_address(self) -> None:
        address = self.address
        if address is None or address in ("auto", "local"):
            return
        accepted = "'auto', 'local', None or an address such as '10.0.0.1:6379'"
        if not isinstance(address, str):
            raise TypeError(f"address must be {accepted}, got {address!r}")
        if "://" in address:
            raise ValueError(
                f"address must be {accepted}, got {address!r}; Ray Client cannot stream: run the "
                "driver on a node of the cluster, e.g. with `ray job submit`"
            )
        if not _HOST_AND_PORT.fullmatch(address):
            raise ValueError(f"address must be {accepted}, got {address!r}")

    def settings(self) -> dict[str, Any]:
        shape = self.agent_resources
        return {
            "address": self.address,
            "agent_resources": None if shape is None else _ray_shape(shape),
            "max_nodes": self.max_nodes,
            "runtime_env": None if self.runtime_env is None else dict(self.runtime_env),
            "namespace": self.namespace,
            "label_selector": dict(self.label_selector or {}),
            "lease_s": self.liveness.lease_s,
        }

    def describe(self) -> str:
        if self.address == "local":
            return "a Ray cluster of this machine"
        return f"the Ray cluster at {self.address or 'auto'}"


@final
@dataclass(frozen=True, slots=True)
class DaskCluster(Cluster):
    """A cluster of Dask distributed, of which each worker is a node that runs trials.

    Trials are processes beside the Dask worker and no tasks of Dask: its scheduler does not know of
    them. A worker has the resources that its own arguments say: as many CPUs as threads
    (``--nthreads``), the GPUs in its ``CUDA_VISIBLE_DEVICES``, and those of its own names
    (``--resources "licence=2"``). Two experiments on one cluster share nothing: each uses all of
    it. Labels are the worker's name (``worker``), its machine (``host``), and what Dask's
    configuration has as ``tuner.labels`` there, e.g. by the variable
    ``DASK_TUNER__LABELS='{"accelerator": "A100"}'``.

    Workers may come and go, and a restarted one is a new node. As Dask sees no tasks,
    ``cluster.adapt()`` would remove the workers that run trials: use ``cluster.scale(n)``, or
    ``cluster.adapt(minimum=n)``. The machine of the driver has to reach the ports of the scheduler
    and of all workers, where whoever can connect without TLS can run programs.

    Args:
        cluster: The scheduler: its address, such as ``"tcp://10.0.0.1:8786"``, the path of its
            scheduler file, or a ``distributed.Client`` or cluster object of Dask, such as a
            ``dask_jobqueue.SLURMCluster``.
        security: A ``distributed.Security`` with the certificates for an address that begins with
            ``tls://``; None, the default, for that of the client or cluster object, or else of
            Dask's configuration.
        connect_timeout_s: How many seconds the scheduler may take to answer, 30 by default.
        lease_s: After how many seconds a node that does not hear of the driver ends its trials: 5
            to 60, 20 by default. After one and a half times as long the driver starts them on other
            nodes; so longer leases outlast longer gaps of the network, and shorter ones lose less
            time with a node.
        scratch_dir: Directory of each node, as an absolute path, in which it keeps the files of an
            experiment in an object store: what trials write, and the cache of checkpoints. None,
            the default, for the node's directory of temporary files (``TMPDIR``).

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If it is out of range, or the scheduler serves its own process only.

    Example:
        >>> DaskCluster("tcp://10.0.0.1:8786").describe()
        'the Dask cluster at tcp://10.0.0.1:8786'
    """

    engine: ClassVar[str] = "tuner.cluster.dask_engine:DaskEngine"
    library: ClassVar[str] = "distributed"
    extra: ClassVar[str] = "dask"

    cluster: Any
    security: Any = field(default=None, kw_only=True)
    connect_timeout_s: float = field(default=30.0, kw_only=True)
    lease_s: float = field(default=_LEASE_S, kw_only=True)
    scratch_dir: str | os.PathLike[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_seconds("connect_timeout_s", self.connect_timeout_s)
        if not self.connect_timeout_s > 0:
            raise ValueError(
                f"connect_timeout_s must be above 0 seconds, got {self.connect_timeout_s!r}"
            )
        _check_nodes(self.lease_s, self.scratch_dir)
        if self.security is not None and not hasattr(self.security, "get_connection_args"):
            raise TypeError(f"security must be a distributed.Security, got {self.security!r}")
        self._scheduler()
        status = getattr(self.cluster, "status", None)
        if (name := getattr(status, "name", status)) in ("closed", "closing", "failed"):
            raise ValueError(f"cluster must be open, got {self.cluster!r}, which is {name}")

    def settings(self) -> dict[str, Any]:
        address, file = self._scheduler()
        given = self.security or getattr(self.cluster, "security", None)
        is_given = hasattr(given, "get_connection_args")
        return {
            "address": address,
            "scheduler_file": file,
            "security": {name: getattr(given, name) for name in _DASK_SECURITY}
            if is_given
            else None,
            "connect_timeout_s": float(self.connect_timeout_s),
            "lease_s": self.liveness.lease_s,
        }

    def describe(self) -> str:
        address, file = self._scheduler()
        return f"the Dask cluster of {file}" if file else f"the Dask cluster at {address}"

    def _scheduler(self) -> tuple[str | None, str | None]:
        """Return the scheduler's address, or else the path of its file."""
        match self.cluster:
            case str() as text if "://" in text:
                return self._checked(text), None
            case str() as text if _HOST_AND_PORT.fullmatch(text):
                return self._checked(f"{'tls' if self.security else 'tcp'}://{text}"), None
            case str() | os.PathLike() as path:
                return None, self._checked_file(Path(path).expanduser().absolute())
            case object(scheduler_address=str() as address):  # a cluster object
                return self._checked(address), None
            case object(scheduler=object(address=str() as address)):  # a client
                return self._checked(address), None
        raise TypeError(
            "cluster must be an address such as 'tcp://10.0.0.1:8786', the path of a scheduler "
            f"file, a connected distributed.Client or a Dask cluster object, got {self.cluster!r}"
        )

    def _checked(self, address: str) -> str:
        scheme = address.partition("://")[0]
        if scheme in _DASK_SCHEMES:
            return address
        remedy = (
            "; use LocalCluster(processes=True)"
            if scheme == "inproc"
            else "; run the driver inside the cluster, where workers can be reached"
            if scheme == "gateway"
            else ""
        )
        raise ValueError(
            f"the scheduler's address must begin with one of {', '.join(_DASK_SCHEMES)} and ://, "
            f"got {address!r}{remedy}"
        )

    @staticmethod
    def _checked_file(path: Path) -> str:
        if path.is_file():
            return str(path)
        raise ValueError(
            f"the scheduler file must exist, got {str(path)!r}; "
            f"start the scheduler by: dask scheduler --scheduler-file {path}"
        )


def cluster_at(text: str) -> Cluster:
    """Return the cluster that a text names, to which nothing connects yet.

    Args:
        text: ``ray:ADDRESS``, ``dask:ADDRESS`` or ``dask:FILE``, or what only one of them can mean.

    Raises:
        TypeError, ValueError: If it is not clear which cluster is meant, or the address is none.

    Example:
        >>> cluster_at("ray:auto").describe(), cluster_at("tcp://10.0.0.1:8786").describe()
        ('the Ray cluster at auto', 'the Dask cluster at tcp://10.0.0.1:8786')
    """
    engine, address = _engine_of(text)
    match engine:
        case "ray":
            return RayCluster(address)
        case "dask":
            return DaskCluster(address)
    raise ValueError(
        f"it is not clear whether {text!r} is a Ray or a Dask cluster; write ray:{text} or "
        f"dask:{text}"
    )


def _engine_of(text: str) -> tuple[str, str]:
    """Return the engine, empty if that is not clear, and the address or file.

    Example:
        >>> _engine_of("ray:auto"), _engine_of("tcp://10.0.0.1:8786"), _engine_of("node:1234")
        (('ray', 'auto'), ('dask', 'tcp://10.0.0.1:8786'), ('', 'node:1234'))
    """
    if text == "auto" or text.startswith("ray://"):
        return "ray", text
    engine, colon, address = text.partition(":")
    if engine in _ENGINES and colon and address and not address.startswith("//"):
        return engine, address
    if text.startswith(_DASK_PROTOCOLS) or Path(text).is_file():
        return "dask", text
    return _USUAL_ENGINES.get(text.rpartition(":")[2], ""), text


def _check_nodes(lease_s: Any, scratch_dir: Any) -> None:
    """Raise an error unless these are what `RayCluster` and `DaskCluster` take for nodes."""
    check_seconds("lease_s", lease_s)
    if not _MIN_LEASE_S <= lease_s <= _MAX_LEASE_S:
        raise ValueError(
            f"lease_s must be {_MIN_LEASE_S:g} to {_MAX_LEASE_S:g} seconds, got {lease_s!r}; after "
            "this time a node that does not hear of the driver ends its trials"
        )
    if scratch_dir is None:
        return
    if not isinstance(scratch_dir, str | os.PathLike):
        raise TypeError(f"scratch_dir must be a path or None, got {scratch_dir!r}")
    if not os.path.isabs(scratch_dir):  # noqa: PTH117  (of another machine)
        raise ValueError(
            f"scratch_dir must be an absolute path, got {os.fspath(scratch_dir)!r}; it is a "
            "directory of each node, such as '/local/scratch'"
        )


def _check_names(name: str, value: Any, example: str) -> None:
    """Raise TypeError unless the value is None or a dictionary with texts as keys."""
    if value is not None and (
        not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value)
    ):
        raise TypeError(f"{name} must be a dictionary such as {{{example}}} or None, got {value!r}")


def _ray_shape(given: Any) -> dict[str, float]:
    """Return the resources of an agent in Ray's names, checked."""
    if not isinstance(given, Mapping):
        raise TypeError(
            "agent_resources must be a dictionary of amounts by name, such as "
            f"{{'CPU': 16, 'GPU': 4}}, or None for whole nodes, got {given!r}"
        )
    amounts = {
        name.upper() if name in ("cpu", "gpu") else name: amount
        for name, amount in checked_bundle(given).items()
        if amount
    }
    if not amounts.get("CPU") and not amounts.get("GPU"):
        raise ValueError(
            f"agent_resources must contain 'CPU' or 'GPU', got {dict(given)!r}; trials run with "
            "what it contains"
        )
    if amounts.get("GPU", 0.0) % 1:
        raise ValueError(
            f"agent_resources must ask for whole GPUs, got {given!r}; trials can share one by "
            'with_resources(train, {"gpu": 0.5})'
        )
    return amounts
