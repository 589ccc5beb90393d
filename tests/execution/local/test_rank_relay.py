"""What the ranks on one node do is passed on to their group on another machine."""

from pathlib import Path

import pytest

from tuner.core.commands import StartWorker
from tuner.core.trial import WorkerGroup
from tuner.execution.local.exit_diagnosis import ExitInfo
from tuner.execution.local.rank_relay import (
    RankGone,
    RankHungUp,
    RankRelay,
    RankSaid,
    RankUnstarted,
    RankViolated,
)
from tuner.execution.local.remote_worker import RemoteWorker

STARTED = {"kind": "started", "pid": 7}
REPORT = {
    "kind": "result",
    "metrics": {"training_iteration": 1, "time_total_s": 1.0},
    "part": {"kind": "staged", "name": ".tmp-000000-1-0a1b2c3d"},
}
DONE = {"kind": "exited", "outcome": "completed", "failure": None}


class Node:
    """An executor of two of four ranks, without processes."""

    def __init__(self, directory):
        command = StartWorker("t00001", 1, {}, {"cpu": 4.0}, (), None, 0, group=GROUP)
        self.done, self.news = [], []
        self.workers = {
            rank: RemoteWorker(rank, command, None, Path(directory, "e"), rank, is_relayed=True)
            for rank in (2, 3)
        }
        self.relay = RankRelay(list(self.workers.values()), self, self.news.append)

    def say(self, rank, *messages):
        worker = self.workers[rank]
        try:
            self.relay.on_messages(worker, worker._events(list(messages)))
        except ValueError as error:
            worker._note_violation(error)
            self.relay.on_violation(worker)

    def send(self, worker, data):
        self.done.append((worker.rank, data))

    def end(self, worker, grace_s):
        self.done.append((worker.rank, "end", grace_s))

    def dump_stack(self, worker):
        self.done.append((worker.rank, "dump"))

    def expect_exit(self, worker):
        self.done.append((worker.rank, "expect"))

    def forget_ranks(self, trial_id, attempt):
        self.done.append((trial_id, attempt, "forgotten"))


GROUP = WorkerGroup(4, {"cpu": 1.0}, 4, 4)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_messages_are_passed_on_as_they_came(node):
    node.say(3, STARTED, REPORT)
    assert node.news == [RankSaid(3, (STARTED, REPORT))]
    node.say(3)
    assert len(node.news) == 1  # nothing new


def test_a_rank_may_report_again_once_the_group_has_answered(node):
    node.say(2, REPORT)
    node.relay.send(2, b"answer")
    node.say(2, REPORT)
    assert node.news == [RankSaid(2, (REPORT,))] * 2
    assert node.done == [(2, b"answer")]


def test_a_violation_is_passed_on_behind_what_came_before_it(node):
    node.say(2, REPORT, REPORT)
    said, violated = node.news
    assert said == RankSaid(2, (REPORT,))
    assert isinstance(violated, RankViolated)
    assert "before the last one was answered" in violated.failure.message


def test_an_end_is_passed_on_with_its_reason_unless_the_rank_has_given_it(node):
    node.say(2, DONE)
    node.relay.on_hangup(node.workers[2])
    node.relay.on_gone(node.workers[2], ExitInfo(0, 100))
    assert node.news[1:] == [RankHungUp(2), RankGone(2, peak_bytes=100)]
    node.relay.on_gone(node.workers[3], ExitInfo(-9, 7))
    gone = node.news[-1]
    assert (gone.failure.kind, gone.is_observed, gone.peak_bytes) == ("killed by SIGKILL", True, 7)
    assert node.done == [("t00001", 1, "forgotten")]


def test_an_end_that_nobody_observed_has_no_reason(node):
    node.relay.on_gone(node.workers[2], None)
    assert node.news == [RankGone(2, is_observed=False)]


def test_nothing_is_asked_of_ranks_that_are_gone(node):
    node.relay.on_unstarted(node.workers[2])
    assert node.news == [RankUnstarted(2)]
    for rank in (2, 3):
        node.relay.send(rank, b"x")
        node.relay.dump_stack(rank)
        node.relay.expect_exit(rank)
    node.relay.kill(3, 5.0)
    node.relay.kill_all()
    assert node.done == [(3, b"x"), (3, "dump"), (3, "expect"), (3, "end", 5.0), (3, "end", 0.0)]
