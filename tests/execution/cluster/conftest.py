"""Nodes without a cluster between them, on which groups of real workers run."""

import json
import time

import pytest

from tests.execution.cluster.node_driver import NodeDriver
from tests.execution.local.conftest import DEADLINE_S, Harness, still_alive, trainable_importing
from tuner.core.commands import AnswerReport, StartWorker
from tuner.core.events import ResultReported
from tuner.core.trial import ReportReply, WorkerGroup
from tuner.execution.cluster.node_ranks import NodeRanks
from tuner.execution.cluster.rank_relay import NodeStarter
from tuner.execution.cluster.spread_group import SpreadGroups

__all__ = ["still_alive", "trainable_importing"]


class FewNodes:
    """A driver with executors that take turns; messages between them go through JSON."""

    def __init__(self, directory, trainable, names="ab"):
        (directory / "t00001").mkdir()
        self.events, self.readable, self.commands = [], [], {}
        self.nodes = {name: Harness(directory, trainable, capacity={"cpu": 2}) for name in names}
        self.ranks = {
            name: NodeRanks(
                NodeStarter(harness.executor, harness.processes.lend, harness.assign),
                self.listener(name),
                lambda message: self.commands[message["attempt"]],
                "127.0.0.1",
            )
            for name, harness in self.nodes.items()
        }
        self.groups = SpreadGroups(directory, self, sync=False, environ={})

    def listener(self, name):
        return lambda message: self.groups.on_message(name, json.loads(json.dumps(message)))

    def tell(self, node, message):
        self.ranks[node].on_message(json.loads(json.dumps(message)))

    def is_silent(self, _node):
        return False

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, ResultReported):
            answer = AnswerReport(event.trial_id, event.attempt, ReportReply.CONTINUE)
            self.groups.answer(answer)

    def start_message(self, _command):
        return {}

    def watch(self, _readable, on_readable):
        self.readable.append(on_readable)

    def unwatch(self, _readable):
        self.readable.clear()

    def start(self, attempt=1, nodes=("a", "a", "b", "b"), **config):
        group = WorkerGroup(4, {"cpu": 1.0}, 4, 4)
        command = StartWorker(
            "t00001", attempt, config, group.total, (), None, attempt - 1, group=group, nodes=nodes
        )
        self.commands[attempt] = command
        self.groups.start(command)

    def wait_for(self, kind, attempt=1):
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            for event in self.events:
                if isinstance(event, kind) and event.attempt == attempt:
                    return event
            assert time.monotonic() < deadline_s, self.events
            self.step()

    def step(self):
        for harness in self.nodes.values():
            assert harness.executor.wait(0.01) == []
        for on_readable in self.readable:
            on_readable()
        self.groups.tick()

    def lose(self, name):
        """Have a node leave with all its processes."""
        del self.ranks[name]
        self.nodes.pop(name).executor.shutdown(1.0)
        self.groups.on_node_left(name, 0.0)

    def close(self):
        for ranks in self.ranks.values():
            ranks.close()
        self.groups.close()
        for harness in self.nodes.values():
            harness.executor.shutdown(1.0)


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
