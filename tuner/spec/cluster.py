"""Clusters whose nodes run trials: Ray, Dask, and the base of both."""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from tuner.execution.cluster.link import Liveness


class Cluster(abc.ABC):
    """Base of what ``RunConfig(cluster=...)`` takes: how the nodes of a cluster are reached.

    Subclasses are frozen dataclasses, which check their fields when they are constructed and
    connect to nothing. The driver connects when the experiment runs, in a process of its own for
    the library of the cluster, so that nothing here imports it.

    Attributes:
        engine: The adapter of the library in that process, as ``"module:Class"``.
        library: The module that has to be installed.
        extra: The extra of this package that installs it; empty if there is none.
    """

    __slots__ = ()

    engine: ClassVar[str]
    library: ClassVar[str]
    extra: ClassVar[str] = ""

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
        return Liveness()

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

    Attributes:
        address: Address of the cluster, such as ``"10.0.0.1:6379"``; ``"auto"``, the default, for
            the one that ``RAY_ADDRESS`` or this machine names.
        agent_resources: What is asked for at once, and given to trials, in Ray's names, such as
            ``{"CPU": 16, "GPU": 4}``; None, the default, for whole nodes.
        max_nodes: How many nodes are used at most; None, the default, for all that there are.
        runtime_env: Ray's runtime environment of the actors, such as ``{"working_dir": "."}``;
            trials inherit it. None, the default, for that of the cluster.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If it is out of range.
    """

    engine: ClassVar[str] = "tuner.execution.cluster.ray_engine:RayEngine"
    library: ClassVar[str] = "ray"
    extra: ClassVar[str] = "ray"

    address: str = "auto"
    agent_resources: Mapping[str, float] | None = None
    max_nodes: int | None = None
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.address, str):
            raise TypeError(
                f"address must be a text such as '10.0.0.1:6379' or 'auto', got {self.address!r}"
            )

    def settings(self) -> dict[str, Any]:
        """See `Cluster.settings`."""
        return {
            "address": self.address,
            "agent_resources": dict(self.agent_resources) if self.agent_resources else None,
            "max_nodes": self.max_nodes,
            "runtime_env": dict(self.runtime_env) if self.runtime_env else None,
        }

    def describe(self) -> str:
        """See `Cluster.describe`."""
        return f"the Ray cluster at {self.address}"


@final
@dataclass(frozen=True, slots=True)
class DaskCluster(Cluster):
    """A Dask cluster, of which each worker's machine runs trials beside the worker.

    Attributes:
        cluster: The scheduler: its address, such as ``"tcp://10.0.0.1:8786"``, the path of its
            scheduler file, or a ``distributed.Client`` or a cluster object of Dask, such as a
            ``dask_jobqueue.SLURMCluster``.

    Raises:
        TypeError: If it is none of these.
    """

    engine: ClassVar[str] = "tuner.execution.cluster.dask_engine:DaskEngine"
    library: ClassVar[str] = "distributed"
    extra: ClassVar[str] = "dask"

    cluster: Any

    def settings(self) -> dict[str, Any]:
        """See `Cluster.settings`."""
        return {"address": self.cluster}

    def describe(self) -> str:
        """See `Cluster.describe`."""
        return f"the Dask cluster at {self.cluster}"
