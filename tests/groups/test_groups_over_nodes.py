"""Attempts on nodes, and groups over several, as the executor knows them; nodes may be lost."""

import time

import pytest

from tests.execution.executor_conversation import CRASHED, DONE, FAILED, STARTED, STAYS, result
from tests.execution.fake_processes import ENDED
from tuner.core.events import NodeLeft, Outcome, WorkerExited, WorkerStarted
from tuner.core.worker_records import Failure
from tuner.execution.failures import ExitInfo, as_message
from tuner.execution.process_service import Gone, Listening, NodeChanged, Unstarted

NODES = ("a", "a", "b", "b")
SHORTAGE = Failure("OSError", "too many open files")
LEFT = NodeLeft("b", "no power")


class OverNodes:
    """A group of four workers, two of them on node b."""

    def __init__(self, talk):
        self.talk, self.processes = talk, talk.processes
        self.keys = talk.start(num_workers=4, nodes=NODES, gpu_ids=(0, 1, 0, 1))

    def say(self, rank, *messages):
        self.processes.send_from(self.keys[rank], *messages)
        return self.talk.events()

    def end(self, *ranks):
        for rank in ranks:
            self.processes.end(self.keys[rank], ExitInfo(-9))
        return self.talk.events()

    def lose(self, node="b", alive_s=0.0):
        return lose(self.talk, node, alive_s)

    def take_killed(self):
        return [
            self.keys.index(key) for what, key, *_ in self.processes.take_asked() if what == "kill"
        ]


def lose(talk, node="b", alive_s=0.0):
    """Lose a node; return all events but that it has left."""
    left = NodeLeft(node, "no power")
    talk.processes.say(NodeChanged(left, alive_s))
    events = talk.events()
    events.remove(left)
    return events


@pytest.fixture
def group(talk):
    return OverNodes(talk)


def test_rank_0_listens_before_all_are_started_with_its_address(talk):
    talk.processes.listens = False
    assert talk.start(num_workers=4, nodes=NODES, gpu_ids=(0, 1, 0, 1)) == []
    [(key, asked)] = talk.processes.listening.items()
    assert asked == ("a", False)
    talk.processes.say(Listening(key, "10.0.0.1", 29500))
    assert talk.events() == []
    given = list(talk.processes.assigned.values())
    places = [
        (each.node, each.rank.world_rank, each.rank.local_rank, each.rank.node_rank)
        for each in given
    ]
    assert places == [("a", 0, 0, 0), ("a", 1, 1, 0), ("b", 2, 0, 1), ("b", 3, 1, 1)]
    assert {(each.rank.master_addr, each.rank.master_port) for each in given} == {
        ("10.0.0.1", 29500)
    }
    assert {each.gpu_ids for each in given} == {(0, 1)}


def test_a_group_on_one_node_listens_where_no_other_can_reach_it(talk):
    talk.processes.listens = False
    talk.start(num_workers=2, nodes=("b", "b"))
    assert list(talk.processes.listening.values()) == [("b", True)]


def test_a_kill_before_rank_0_listens_ends_the_attempt_at_once(talk):
    talk.processes.listens = False
    talk.start(num_workers=4, nodes=NODES)
    (key,) = talk.processes.listening
    talk.kill()
    assert talk.exit().outcome is Outcome.KILLED
    assert talk.processes.listening == {}
    talk.processes.say(Listening(key, "10.0.0.1", 29500))
    assert (talk.events(), talk.processes.keys) == ([], [])


@pytest.mark.usefixtures("at_once")
def test_a_node_that_cannot_listen_fails_the_attempt_unless_it_lacks_something_for_now(talk):
    talk.processes.listens = False
    talk.start(num_workers=4, nodes=NODES)
    (key,) = talk.processes.listening
    talk.processes.say(Unstarted(key, SHORTAGE))
    assert talk.events() == []
    assert talk.events() == []
    again = max(talk.processes.listening)
    assert again > key
    failure = Failure("OSError", "cannot listen at 10.0.0.1")
    talk.processes.say(Unstarted(again, failure, is_shortage=False))
    assert talk.exit() == WorkerExited("t00001", 1, Outcome.FAILED, failure)


def test_when_a_node_leaves_the_ranks_elsewhere_are_killed_and_then_the_group_is_lost(group):
    assert group.lose() == []
    assert group.take_killed() == [0, 1]
    group.talk.kill()
    assert group.say(0, result(part=None)) == []
    assert group.end(0) == []
    [ended] = group.end(1)
    assert ended.outcome in {Outcome.LOST, Outcome.KILLED}


def rank_raises(group):
    return group.say(0, FAILED)


def rank_dies(group):
    group.processes.end(group.keys[0], CRASHED)
    return group.talk.events()


def all_hang(group):
    group.talk.kill(is_silent=True)
    return []


HAPPENS = [rank_raises, rank_dies, all_hang]


@pytest.mark.parametrize("happens", HAPPENS)
def test_what_happens_to_the_others_before_the_loss_of_a_node_is_known_does_not_count(
    group, happens
):
    alive_s = time.monotonic()
    assert happens(group) == []
    assert group.end(0, 1) == []  # node b may be heard again
    [ended] = group.lose("b", alive_s)
    assert ended.outcome is Outcome.LOST
    assert ended.failure.message == "node b is gone; the trial is not at fault"


@pytest.mark.parametrize("happens", HAPPENS)
@pytest.mark.parametrize("is_lost_later", [False, True])
def test_where_the_node_was_only_silent_at_that_moment_it_counts(group, happens, is_lost_later):
    happens(group)
    group.end(0, 1)
    [ended] = group.lose("b", time.monotonic()) if is_lost_later else group.end(2, 3)
    assert ended.outcome in {Outcome.FAILED, Outcome.KILLED}


def test_the_other_order_a_node_that_is_lost_before_the_others_notice(group):
    group.lose("b", time.monotonic())
    group.say(0, FAILED)
    [ended] = group.end(0, 1)
    assert ended.outcome is Outcome.LOST


def test_of_two_nodes_that_are_lost_one_was_there_when_the_group_failed(group):
    alive_s = time.monotonic()
    group.say(0, FAILED)
    assert group.lose("a", time.monotonic()) == []
    [ended] = group.lose("b", alive_s)
    assert ended.outcome is Outcome.LOST


def test_a_group_that_is_to_be_started_again_is_lost_with_its_node(group):
    group.processes.say(Unstarted(group.keys[0], SHORTAGE))
    assert group.end(1) == []
    [ended] = group.lose()
    assert ended.outcome is Outcome.LOST


@pytest.mark.parametrize(("num_done", "outcome"), [(4, Outcome.COMPLETED), (3, Outcome.LOST)])
def test_the_loss_of_a_node_matters_until_all_ranks_have_returned(group, num_done, outcome):
    for rank in range(4)[-num_done:]:
        group.say(rank, DONE)
    group.lose()
    [ended] = group.end(0, 1)
    assert ended.outcome is outcome


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_group_that_was_not_started_yet_is_lost_with_one_of_its_nodes(talk, is_refused):
    talk.processes.listens = False
    talk.start(num_workers=4, nodes=NODES)
    if is_refused:
        talk.processes.say(Unstarted(*talk.processes.listening, SHORTAGE))
        talk.processes.say(NodeChanged(LEFT))
        left, ended = talk.events()
    else:
        talk.processes.say(NodeChanged(LEFT))
        left, ended = talk.events()
        assert talk.processes.listening == {}
    assert (ended.outcome, left) == (Outcome.LOST, LEFT)
    assert talk.events() == []


# Attempts on one node, of which the core knows that they are over when the node has left.


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_what_has_run_on_a_node_ends_with_it_without_a_word(talk, num_workers):
    nodes = ("b",) * (num_workers or 1)
    talk.start(num_workers=num_workers, nodes=nodes)
    keys = talk.processes.keys
    other = talk.start("t00002", nodes=("a",))
    assert lose(talk) == []
    for key in keys:
        talk.processes.send_from(key, STARTED, DONE)
        talk.processes.end(key)
    talk.processes.send_from(other, STARTED)
    assert talk.events() == [WorkerStarted("t00002", 1, 4711)]
    assert talk.start(attempt=2, nodes=("a",)) is not None


@pytest.mark.usefixtures("at_once")
def test_what_was_to_be_started_again_on_a_node_that_has_left_is_not(talk):
    key = talk.start(nodes=("b",))
    talk.processes.say(Unstarted(key, SHORTAGE), NodeChanged(LEFT))
    del talk.processes.assigned[key]
    assert talk.events() == [LEFT]
    assert (talk.events(), talk.processes.keys) == ([], [])


def test_a_process_is_kept_for_an_attempt_on_its_own_node_alone(talk):
    key = talk.start(nodes=("a",))
    talk.processes.send_from(key, STAYS)
    talk.events()
    other = talk.start(attempt=2, nodes=("b",))
    assert other not in {None, key}
    assert talk.processes.take_asked() == [("kill", key, 0.0)]


@pytest.mark.parametrize("gives_nodes_up", [False, True])
def test_an_attempt_whose_code_cannot_be_loaded_fails_unless_its_node_is_given_up(
    talk, gives_nodes_up
):
    talk.gives_nodes_up = gives_nodes_up
    key = talk.start(nodes=("b",))
    failure = as_message(Failure("ImportError", "no torch"))
    talk.processes.send_from(key, {**FAILED, "failure": failure, "is_unloadable": True})
    talk.processes.say(*([NodeChanged(LEFT)] if gives_nodes_up else []), Gone(key, ENDED))
    [event] = talk.events()
    assert talk.unloadable[0][0] == "b"
    assert event == LEFT if gives_nodes_up else event.outcome is Outcome.FAILED
