"""What the ranks on one node do is passed on to their group on another machine."""

import errno

import pytest

from tests.execution.conversation import assignment
from tests.execution.fake_processes import FakeProcesses
from tuner.core.commands import StartWorker
from tuner.core.trial import Failure, WorkerGroup
from tuner.execution.cluster.rank_relay import NodeStarter
from tuner.execution.cluster.spread_group import ranks_by_node
from tuner.execution.exit_diagnosis import ExitInfo
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import (
    Gone,
    HungUp,
    Said,
    StackDumped,
    Unstarted,
    Violated,
)

GROUP = WorkerGroup(4, {"cpu": 1.0}, 4, 4)
NODES = ("a", "a", "b", "b")
COMMAND = StartWorker("t00001", 1, {}, {"cpu": 4.0}, (), None, 0, group=GROUP, nodes=NODES)
STARTED = {"kind": "started", "pid": 7}
DONE = {"kind": "exited", "outcome": "completed", "failure": None, "packages": {"torch": "2.9"}}
SHORTAGE = OSError(errno.EMFILE, "too many open files")


class Node:
    """A node that runs ranks 2 and 3 of a group."""

    def __init__(self, directory):
        self.processes, self.told, self.packages = FakeProcesses(), [], {}
        self.executor = ProcessExecutor(
            self.processes,
            lambda command: assignment(directory, trial_id=command.trial_id),
            capacity={"cpu": 4.0},
            on_packages=self.packages.update,
        )
        self.starter = NodeStarter(
            self.executor, lambda _key, socket: socket.close(), lambda _: assignment(directory)
        )

    def start(self):
        ranks = ranks_by_node(COMMAND, "10.0.0.1", 29500)["b"]
        return self.starter.start_ranks(COMMAND, ranks, None, self.told.append)

    def say(self, *events):
        self.processes.say(*events)
        assert self.executor.wait(0.0) == []  # none of it is an event here


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_ranks_get_their_places_and_what_they_do_is_told_by_their_numbers(node):
    node.start()
    two, three = node.processes.keys
    assert [each.rank.world_rank for each in node.processes.assigned.values()] == [2, 3]
    gone = ExitInfo(-9, 7, True)
    node.say(Said(three, [STARTED, 3]), Violated(two, "no message"), HungUp(two))
    node.say(StackDumped(three, "in train"), Gone(two, gone, "words"))
    node.say(Said(three, [DONE]), Unstarted(three, Failure("OSError", "why")))
    assert node.told == [
        Said(3, [STARTED, 3]),
        Violated(2, "no message"),
        HungUp(2),
        StackDumped(3, "in train"),
        Gone(2, gone, "words"),
        Said(3, [DONE]),
        Unstarted(3, Failure("OSError", "why")),
    ]
    assert node.packages == {"torch": "2.9"}


def test_what_the_group_decides_is_done_with_the_rank_it_names(node):
    relay = node.start()
    two, three = node.processes.keys
    relay.send(3, b'{"verdict":"stop"}\n')
    relay.dump_stack(3)
    relay.expect_exit(2)
    relay.kill(3, 5.0)
    relay.kill_all()
    assert node.processes.sent == {two: [], three: [{"verdict": "stop"}]}
    assert node.processes.asked == [
        ("dump_stack", three),
        ("expect_exit", two),
        ("kill", three, 5.0),
        ("kill", two, 0.0),
        ("kill", three, 0.0),
    ]


def test_where_one_rank_cannot_be_started_the_others_are_killed_and_nothing_is_told(node):
    node.processes.refusals = [None, SHORTAGE]
    with pytest.raises(OSError, match="too many"):
        node.start()
    (two,) = node.processes.keys
    assert node.processes.asked == [("kill", two, 0.0)]
    node.say(Said(two, [STARTED]), Gone(two, None))
    assert node.told == []
