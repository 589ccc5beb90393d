"""Nodes without a cluster between them, on which groups of real workers run."""

import sys
import time

import pytest

from tests.cluster.node_driver import NodeDriver
from tests.cluster.test_cluster_executor import Cluster
from tests.execution.local.conftest import DEADLINE_S, still_alive, trainable_importing
from tuner.cluster.node_messages import Setup, SharedStorage
from tuner.cluster.node_service import NodeService
from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import ResultReported
from tuner.core.worker_records import ReportReply, WorkerGroup
from tuner.execution.local.trainable_blob import PickledCode
from tuner.execution.pickling import pickle_trainable

__all__ = ["still_alive", "trainable_importing"]


class FewNodes:
    """A driver and nodes that take turns; what is between them is a link alone."""

    def __init__(self, directory, trainable, names="ab"):
        self.cluster, self.events = Cluster(directory), []
        self.executor = self.cluster.executor
        storage = SharedStorage(str(directory), ("proof", "x"))
        setup = Setup(storage, environ={})
        code = PickledCode(pickle_trainable(trainable), b"", sys.path, sys.argv)
        self.nodes = {}
        for name in names:
            self.cluster.join(name)
            tell = self.cluster.links[name, 1].send
            self.nodes[name] = NodeService(setup, str(directory), code, {}, "127.0.0.1", tell)

    def start(self, attempt=1, nodes=("a", "a", "b", "b"), **config):
        group = WorkerGroup(4, {"cpu": 1.0}, 4, 4)
        command = StartWorker(
            "t00001", attempt, config, group.total, (), None, attempt - 1, group=group, nodes=nodes
        )
        self.executor.carry_out([command])

    def kill(self, reason, term_grace_s=0.0):
        self.executor.carry_out([KillWorker("t00001", 1, reason, term_grace_s)])

    def wait_for(self, kind, attempt=1):
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            for event in self.events:
                if isinstance(event, kind) and event.attempt == attempt:
                    return event
            assert time.monotonic() < deadline_s, self.events
            self.step()

    def step(self):
        for name, node in list(self.nodes.items()):
            node.take(self.cluster.heard(name))
            node.wait(0.01)
            self.take(self.cluster.say(name))

    def take(self, events):
        for event in events:
            self.events.append(event)
            if isinstance(event, ResultReported):
                answer = AnswerReport(event.trial_id, event.attempt, ReportReply.CONTINUE)
                self.executor.carry_out([answer])

    def lose(self, name):
        """Have a node leave with all its processes."""
        self.nodes.pop(name).close()
        self.cluster.nodes.on_agent_gone(name, "no power")

    def close(self):
        for node in self.nodes.values():
            node.close()
        self.executor.shutdown(1.0)


@pytest.fixture
def few_nodes(tmp_path):
    made = []

    def make(trainable, names="ab"):
        made.append(FewNodes(tmp_path, trainable, names))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def start_node(tmp_path):
    """Return a function that starts a node and a driver of it, which are closed after the test."""
    opened = []

    def start(trainable, **options):
        opened.append(NodeDriver(tmp_path, trainable, **options))
        return opened[-1]

    yield start
    for driver in opened:
        driver.close()
