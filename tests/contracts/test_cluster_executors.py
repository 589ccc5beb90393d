"""Contract tests of the executor for clusters, on each engine."""

import contextlib
import itertools
import logging
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.fake_cluster import FakeCluster
from tests.contracts.executor_contract import ExecutorContract
from tuner import DaskCluster, RayCluster
from tuner.cluster.executor import ClusterExecutor
from tuner.cluster.node_messages import Setup, SharedStorage
from tuner.cluster.node_processes import NodeProcesses
from tuner.cluster.shared_directory import SharedProof
from tuner.core.commands import KillWorker, StartWorker
from tuner.core.events import NodeJoined, NodeLeft, WorkerExited
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.pickling import pickle_trainable
from tuner.execution.process_executor import ProcessExecutor

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


def connected(cluster, trainable, directory):
    """Return an executor of a cluster with one node, which is there."""
    nodes = NodeProcesses(cluster, trainable=pickle_trainable(trainable))
    assign = AssignmentBuilder(directory, "contract", len, sync_checkpoints=False)
    executor = ClusterExecutor(nodes, ProcessExecutor(nodes, assign, capacity={}))
    shared = SharedProof(directory, 0.01)
    setup = Setup(
        storage=SharedStorage(os.fspath(directory), shared.proof),
        environ={},
        sys_path=sys.path,
        argv=sys.argv,
    )
    events = executor.connect(setup, shared)
    while not events:
        events = executor.wait(60.0)
    return OnFirstNode(executor, events)


class Lent:
    """An executor that one test after another uses, each for trials with names of its own."""

    _numbers = itertools.count()

    def __init__(self, executor):
        self._executor = executor
        self._prefix = f"{next(self._numbers)}-"
        self._running = set()

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def carry_out(self, commands):
        for command in commands:
            if isinstance(command, StartWorker):
                self._running.add((command.trial_id, command.attempt))
        self._executor.carry_out(
            [replace(command, trial_id=self._prefix + command.trial_id) for command in commands]
        )

    def wait(self, timeout_s):
        events = [
            replace(event, trial_id=event.trial_id.removeprefix(self._prefix))
            for event in self._executor.wait(timeout_s)
        ]
        for event in events:
            if isinstance(event, WorkerExited):
                self._running.remove((event.trial_id, event.attempt))
        return events

    def shutdown(self, deadline_s):
        """End the trials that are left, and nothing else."""
        self.carry_out([KillWorker(*worker, "the test has ended") for worker in self._running])
        while self._running:
            self.wait(None)


class Lender:
    """Keeps one connection to a cluster, for tests of the same trainable.

    To connect to an engine, and to leave it, takes seconds.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self._trainable = self._executor = None
        self._ending = contextlib.ExitStack()

    def lend(self, trainable):
        if trainable is not self._trainable:
            self.close()
            directory = self._ending.enter_context(tempfile.TemporaryDirectory())
            self._executor = connected(self.cluster, trainable, Path(directory))
            self._ending.callback(self._executor.shutdown, 10.0)
            self._trainable = trainable
        return Lent(self._executor)

    def close(self):
        self._trainable = None
        self._ending.close()


class EngineContract(ExecutorContract):
    """The contract, of whose tests only those of the end have connections of their own."""

    @pytest.fixture(autouse=True)
    def is_shut_down(self, request):
        self.is_own = "shut_down" in request.node.name

    def make_executor(self, trainable, assign):
        if not self.is_own:
            return self.lender.lend(trainable)
        self.lender.close()
        return connected(self.lender.cluster, trainable, *assign.args)


@pytest.mark.process
class TestFakeCluster(ExecutorContract):
    @pytest.fixture(autouse=True)
    def one_node(self):
        with FakeCluster({"node": {"cpu": 2}}) as self.cluster:
            yield

    def make_executor(self, trainable, assign):
        return connected(self.cluster, trainable, *assign.args)


@pytest.fixture(scope="module")
def ray_lender():
    nodes = pytest.importorskip("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    environment = {"env_vars": {"PYTHONPATH": os.fspath(ROOT)}}
    lender = Lender(RayCluster(nodes.address, runtime_env=environment))
    yield lender
    lender.close()
    nodes.shutdown()


@pytest.mark.heavy
class TestRayCluster(EngineContract):
    @pytest.fixture(autouse=True)
    def one_node(self, ray_lender):
        self.lender = ray_lender


@pytest.fixture(scope="module")
def dask_lender():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with contextlib.closing(
        distributed.LocalCluster(silence_logs=logging.ERROR, **options)
    ) as nodes:
        lender = Lender(DaskCluster(nodes.scheduler_address))
        yield lender
        lender.close()


@pytest.mark.heavy
class TestDaskCluster(EngineContract):
    @pytest.fixture(autouse=True)
    def one_node(self, dask_lender):
        self.lender = dask_lender
