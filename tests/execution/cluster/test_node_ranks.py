"""A group over two nodes whose workers are real processes, without a cluster between them."""

import json
import os
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.execution.local.conftest import DEADLINE_S, Harness
from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import Outcome, ResultReported, WorkerExited, WorkerStarted
from tuner.core.trial import ReportReply, WorkerGroup
from tuner.execution.cluster.node_ranks import NodeRanks
from tuner.execution.cluster.spread_group import SpreadGroups
from tuner.execution.session import Checkpoint, get_context, report, take_master_socket

KEY = ("t00001", 1)


class TwoNodes:
    """A driver with two executors that take turns; messages between them go through JSON."""

    def __init__(self, directory, trainable):
        (directory / "t00001").mkdir()
        self.events, self.readable = [], []
        self.nodes = {name: Harness(directory, trainable, capacity={"cpu": 2}) for name in "ab"}
        self.ranks = {
            name: NodeRanks(
                harness.executor, self.listener(name), lambda _message: self.command, "127.0.0.1"
            )
            for name, harness in self.nodes.items()
        }
        self.groups = SpreadGroups(directory, self, sync=False, environ={})

    def listener(self, name):
        return lambda message: self.groups.on_message(name, json.loads(json.dumps(message)))

    def tell(self, node, message):
        self.ranks[node].on_message(json.loads(json.dumps(message)))

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, ResultReported):
            self.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))

    def start_message(self, _command):
        return {}

    def watch(self, _readable, on_readable):
        self.readable.append(on_readable)

    def unwatch(self, _readable):
        self.readable.clear()

    def start(self, **config):
        group = WorkerGroup(4, {"cpu": 1.0}, 4, 4)
        self.command = StartWorker(
            *KEY, config, group.total, (), None, 0, group=group, nodes=("a", "a", "b", "b")
        )
        self.groups.start(self.command)

    def wait_for(self, kind):
        deadline_s = time.monotonic() + DEADLINE_S
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            assert time.monotonic() < deadline_s, self.events
            for harness in self.nodes.values():
                assert harness.executor.wait(0.01) == []
            for on_readable in self.readable:
                on_readable()
            self.groups.tick()
        return found[0]

    def close(self):
        for ranks in self.ranks.values():
            ranks.close()
        self.groups.close()
        for harness in self.nodes.values():
            harness.executor.shutdown(1.0)


@pytest.fixture
def two_nodes(tmp_path):
    made = []

    def make(trainable):
        made.append(TwoNodes(tmp_path, trainable))
        return made[-1]

    yield make
    for each in made:
        each.close()


def meet(config):
    """All ranks connect to rank 0's socket, and report once with a part of a checkpoint."""
    context = get_context()
    rank = context.get_world_rank()
    if rank == 0:
        with socket.socket(fileno=take_master_socket()) as listener:
            for _ in range(context.get_world_size() - 1):
                listener.accept()[0].close()
    else:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        socket.create_connection(address, DEADLINE_S).close()
    with TemporaryDirectory() as directory:
        Path(directory, f"part{rank}").write_text(str(context.get_node_rank()))
        report({"rank": rank}, checkpoint=Checkpoint.from_directory(directory))


def test_ranks_on_two_nodes_meet_report_and_store_one_checkpoint(two_nodes, tmp_path):
    nodes = two_nodes(meet)
    nodes.start()
    assert nodes.wait_for(WorkerExited) == WorkerExited(*KEY, Outcome.COMPLETED)
    result = nodes.wait_for(ResultReported)
    parts = tmp_path.glob(f"t00001/{result.checkpoint.directory}/part*")
    assert {part.name: part.read_text() for part in parts} == {
        "part0": "0",
        "part1": "0",
        "part2": "1",
        "part3": "1",
    }
    assert [metrics["rank"] for metrics in result.rank_metrics] == [0, 1, 2, 3]


def wait_or_raise(config):
    report({})
    if get_context().get_world_rank() == config.get("raises"):
        raise KeyError("here")
    time.sleep(DEADLINE_S)


def test_a_rank_that_raises_ends_those_on_the_other_node(two_nodes):
    nodes = two_nodes(wait_or_raise)
    nodes.start(raises=3)
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.FAILED, "rank 3: 'here'")


def test_a_kill_ends_the_ranks_on_all_nodes(two_nodes):
    nodes = two_nodes(wait_or_raise)
    nodes.start()
    nodes.wait_for(ResultReported)
    nodes.groups.kill(KillWorker(*KEY, "enough"))
    ended = nodes.wait_for(WorkerExited)
    assert (ended.outcome, ended.failure.message) == (Outcome.KILLED, "enough")
    assert [type(event) for event in nodes.events] == [WorkerStarted, ResultReported, WorkerExited]
