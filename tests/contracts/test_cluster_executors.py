"""Contract tests of the executor for clusters, on each engine."""

import contextlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tuner import DaskCluster, RayCluster
from tuner.core.commands import StartWorker
from tuner.core.events import NodeJoined, NodeLeft
from tuner.execution.cluster.executor import ClusterExecutor
from tuner.execution.cluster.protocol import Setup, SharedStorage
from tuner.execution.cluster.shared_directory import SharedProof
from tuner.execution.pickling import pickle_trainable
from tuner.testing import FakeCluster
from tuner.testing.executor_contract import ExecutorContract

ROOT = Path(__file__).resolve().parents[2]


class OnFirstNode:
    """An executor whose commands name no node, as those of the contract: all is on the first."""

    def __init__(self, executor, first):
        self._executor = executor
        (self._node,) = {event.node for event in first if isinstance(event, NodeJoined)}

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def carry_out(self, commands):
        self._executor.carry_out(
            [
                replace(command, nodes=(self._node,))
                if isinstance(command, StartWorker)
                else command
                for command in commands
            ]
        )

    def wait(self, timeout_s):
        events = self._executor.wait(timeout_s)
        assert not any(isinstance(event, NodeLeft) for event in events), events
        return [event for event in events if not isinstance(event, NodeJoined)]


def connected(cluster, trainable, assign):
    """Return an executor of a cluster with one node, which is there."""
    (directory,) = assign.args
    executor = ClusterExecutor(
        cluster.engine,
        cluster.settings(),
        cluster.describe(),
        directory,
        is_shared=True,
        trainable=pickle_trainable(trainable),
        seed_of=len,
        sync=False,
    )
    shared = SharedProof(directory, 0.01)
    setup = Setup(
        experiment_name="contract",
        storage=SharedStorage(os.fspath(directory), shared.proof),
        environ={},
        sync_checkpoints=False,
        sys_path=sys.path,
        argv=sys.argv,
    )
    events = executor.connect(setup, shared)
    while not events:
        events = executor.wait(60.0)
    return OnFirstNode(executor, events)


@pytest.mark.process
class TestFakeCluster(ExecutorContract):
    @pytest.fixture(autouse=True)
    def one_node(self):
        with FakeCluster({"node": {"cpu": 2}}) as self.cluster:
            yield

    def make_executor(self, trainable, assign):
        return connected(self.cluster, trainable, assign)


@pytest.fixture(scope="module")
def ray_cluster():
    nodes = pytest.importorskip("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    yield RayCluster(nodes.address, runtime_env={"env_vars": {"PYTHONPATH": os.fspath(ROOT)}})
    nodes.shutdown()


@pytest.mark.heavy
class TestRayCluster(ExecutorContract):
    @pytest.fixture(autouse=True)
    def one_node(self, ray_cluster):
        self.cluster = ray_cluster

    def make_executor(self, trainable, assign):
        return connected(self.cluster, trainable, assign)


@pytest.fixture(scope="module")
def dask_cluster():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with contextlib.closing(
        distributed.LocalCluster(silence_logs=logging.ERROR, **options)
    ) as nodes:
        yield DaskCluster(nodes.scheduler_address)


@pytest.mark.heavy
class TestDaskCluster(ExecutorContract):
    @pytest.fixture(autouse=True)
    def one_node(self, dask_cluster):
        self.cluster = dask_cluster

    def make_executor(self, trainable, assign):
        return connected(self.cluster, trainable, assign)
