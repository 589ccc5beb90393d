"""Nodes that join, drain and leave, and trials that are placed on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedulers.decisions import Exploit, Pause, Reason, Resize, Resume
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    answers,
    cluster,
    kills,
    later_remarks_of,
    remarks_of,
    result,
    starts,
    suggest,
)
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import AskSearcher, StartWorker
from tuner.core.events import (
    DriverRestarted,
    LeaseOwner,
    LeaseReleased,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    PauseRequested,
    ResumeRequested,
    StopRequested,
    SuggestionPostponed,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import Status, TerminationReason
from tuner.core.worker_records import CheckpointRecord, Failure, WorkerGroup
from tuner.errors import InvalidTransition
from tuner.journal.records import decode, encode

A, B = "t00000", "t00001"
SAVES = CheckpointPolicy(can_save_on_demand=True)


def places(talk):
    """Return the node of each trial that runs."""
    return {trial.trial_id: trial.node for trial in talk.experiment.trial_table.live.values()}


@pytest.mark.parametrize(
    "event",
    [
        NodeJoined("a", {"cpu": 2.0, "gpu": 1}, {"zone": "x"}),
        NodeDraining("a", 30.0),
        NodeDraining("a"),
        NodeDraining("a", is_cut_off=True),
        NodeLeft("a", "silent for 30 s"),
    ],
)
def test_what_happens_to_nodes_is_recorded(event):
    assert decode(encode(event, 1.5)) == (event, 1.5, ())


def test_trials_are_started_on_nodes_that_have_room():
    talk = cluster(2, max_trials=3)
    assert places(talk) == {A: "a", B: "b"}
    talk.exit(B, Outcome.COMPLETED)
    [start] = [each for each in talk.say(suggest("t00002")) if isinstance(each, StartWorker)]
    assert (start.trial_id, start.node, start.nodes) == ("t00002", "b", ("b",))


def test_nothing_starts_before_a_node_joins_and_what_waits_starts_then():
    talk = cluster(1, nodes=())
    talk.say()
    assert places(talk) == {}
    commands = talk.say(NodeJoined("a", {"cpu": 1.0}))
    [ask] = [each for each in commands if isinstance(each, AskSearcher)]
    assert starts(talk.say(suggest(ask.trial_id))) == [(A, 1)]


def test_on_one_machine_no_node_can_join():
    talk = Conversation(max_trials=1)
    with pytest.raises(InvalidTransition, match="one machine"):
        talk.say(NodeJoined("a", {"cpu": 1.0}))


def test_a_trial_is_started_again_where_it_has_run():
    talk = cluster(2, max_failures=1)
    talk.say(NodeJoined("c", {"cpu": 8.0}))
    talk.exit(B, Outcome.FAILED, BOOM)
    assert places(talk) == {A: "a", B: "b"}


def test_a_trial_that_takes_over_anothers_training_is_started_on_its_own_node_or_the_donors():
    exploit = Exploit(B, A, {"x": 2}, Reason("pbt"), 0)
    scheduler = ScriptedScheduler({(B, 1): [exploit]}, idle=[[Resume(B, Reason("pbt"))]])
    talk = cluster(2, scheduler, checkpoints=SAVES)
    talk.say(NodeJoined("c", {"cpu": 1.0}), NodeLeft("b", "gone"))
    assert places(talk) == {A: "a", B: "c"}
    talk.say(NodeJoined("d", {"cpu": 9.0}), NodeDraining("c"), NodeJoined("e", {"cpu": 9.0}))
    talk.report(A, 1, CheckpointRecord(0, 1))
    talk.say(WorkerStarted(B, 2, 1))
    talk.report(B, 1)
    talk.say(NodeLeft("e", "gone"), NodeJoined("a2", {"cpu": 1.0}))
    talk.exit(A, Outcome.COMPLETED)
    talk.exit(B, Outcome.STOPPED)
    assert talk.trial(B).grafts
    assert places(talk) == {B: "a"}


def test_trials_of_a_node_that_has_left_continue_elsewhere_from_their_checkpoints():
    talk = cluster(2, nodes=("a", "b", "c"), checkpoints=SAVES)
    first = CheckpointRecord(0, 1)
    talk.report(A, 1, first)
    commands = talk.say(NodeLeft("a", "silent for 30 s"))
    [start] = [each for each in commands if isinstance(each, StartWorker)]
    assert (start.trial_id, start.attempt, start.node, start.checkpoint) == (A, 2, "c", first)
    assert talk.trial(A).num_failures == 0
    assert talk.trial(A).failures == []
    assert talk.say(WorkerExited(A, 1, Outcome.FAILED, BOOM)) == []  # it comes late
    assert talk.say(NodeLeft("a", "again")) == []
    assert talk.say(NodeDraining("a")) == []


def test_a_node_that_joins_again_has_lost_what_ran_on_it():
    talk = cluster(1, nodes=("a",))
    assert starts(talk.say(NodeJoined("a", {"cpu": 1.0}))) == [(A, 2)]


def test_a_trial_that_ends_the_nodes_it_runs_on_is_given_up_and_the_nodes_are_named():
    talk = cluster(1, nodes=("a", "b", "c", "d"), max_losses=3)
    for name in "abc":
        talk.say(NodeLeft(name, "no sign of life"))
    trial = talk.trial(A)
    assert trial.status is Status.ERROR
    assert "node a is gone: no sign of life; node b is gone" in trial.failures[-1].message


def test_nodes_that_leave_as_announced_do_not_count_as_losses():
    talk = cluster(1, nodes=("a", "b", "c", "d"), max_losses=3)
    for name in "abc":
        talk.say(NodeDraining(name, 30.0))
        talk.say(NodeLeft(name, "preempted"))
    assert places(talk) == {A: "d"}


def test_nodes_that_are_cut_off_count_as_losses():
    talk = cluster(1, nodes=("a", "b", "c", "d"), max_losses=3)
    for name in "abc":
        talk.say(NodeDraining(name, is_cut_off=True))
        talk.restore_from_snapshot()
        assert (
            starts(talk.say(NodeJoined(f"{name}2", {"cpu": 9.0}), NodeLeft(f"{name}2", ""))) == []
        )
        talk.say(NodeLeft(name, "its connection is closed"))
    assert talk.trial(A).status is Status.ERROR


def test_a_trial_on_a_draining_node_saves_at_its_next_report_and_continues_elsewhere():
    talk = cluster(2, nodes=("a", "b"), cpu=2.0, checkpoints=SAVES)
    assert places(talk) == {A: "a", B: "b"}
    assert talk.say(NodeDraining("a", 30.0)) == []
    assert answers(talk.report(A, 1)) == [(A, "pause", True)]
    talk.saved(A, 0, 1)
    commands = talk.exit(A, Outcome.STOPPED)
    [start] = [each for each in commands if isinstance(each, StartWorker)]
    assert (start.node, start.checkpoint) == ("b", CheckpointRecord(0, 1))
    assert talk.trial(A).num_failures == 0


def draining_talk(scheduler=None, **settings):
    """Return a conversation in which node a, where the only trial runs, leaves in 30 seconds."""
    talk = cluster(1, scheduler, checkpoints=SAVES, **{"preemption_grace_s": 5.0} | settings)
    talk.say(NodeDraining("a", 30.0))
    return talk


def test_a_trial_that_has_not_left_in_time_is_killed_and_continues_elsewhere():
    talk = draining_talk(max_losses=1)
    talk.restore_from_snapshot()
    assert talk.experiment.next_deadline_s() == 35.0
    assert kills(talk.say(after_s=34.9)) == []
    assert kills(talk.say(after_s=0.1)) == [A]
    talk.restore_from_snapshot()
    commands = talk.exit(A, Outcome.KILLED, Failure("killed", "too slow"))
    assert [each.node for each in commands if isinstance(each, StartWorker)] == ["b"]
    assert (talk.trial(A).num_failures, talk.trial(A).failures, talk.trial(A).losses) == (0, [], ())
    talk.say(WorkerStarted(A, 2, pid=1))
    assert kills(talk.say(after_s=99.0)) == []


def test_a_trial_that_is_killed_with_its_node_is_not_charged_whatever_was_decided_for_it():
    scheduler = ScriptedScheduler({(A, 1): [Pause(A, Reason("asha"))]}, [[Resume(A, Reason("x"))]])
    talk = draining_talk(scheduler, stop_grace_s=900.0)
    talk.report(A, 1)  # it is told to save and leave for the pause
    assert kills(talk.say(after_s=35.0)) == [A]
    assert kills(talk.say(after_s=900.0)) == []
    assert starts(talk.exit(A, Outcome.KILLED, Failure("killed", "too slow"))) == [(A, 2)]
    assert talk.trial(A).num_failures == 0


@pytest.mark.parametrize(("grace_s", "deadline_s"), [(None, 30.0), (5.0, None)])
def test_without_a_time_or_a_limit_a_trial_stays_until_its_node_is_gone(grace_s, deadline_s):
    talk = cluster(1, preemption_grace_s=grace_s)
    talk.say(NodeDraining("a", deadline_s))
    assert kills(talk.say(after_s=900.0)) == []
    assert starts(talk.say(NodeLeft("a", "gone"))) == [(A, 2)]


def test_a_trial_is_told_how_much_time_its_node_leaves_it():
    talk = draining_talk(stop_grace_s=900.0)
    [answer] = talk.report(A, 1)
    assert answer.interruption.within_s == 35.0


def test_why_a_trial_has_to_leave_is_told_to_it():
    talk = cluster(1, checkpoints=SAVES)
    talk.say(NodeDraining("a", 30.0))
    [answer] = talk.report(A, 1)
    assert answer.interruption.rule == "node.draining"


def test_nothing_is_started_on_a_draining_node():
    talk = cluster(2, nodes=("a",))
    assert places(talk) == {A: "a"}
    talk.say(NodeDraining("a"))
    assert starts(talk.exit(A, Outcome.COMPLETED)) == []


def test_a_trial_that_cannot_save_trains_on_until_its_node_leaves():
    talk = cluster(1)
    talk.say(NodeDraining("a", 5.0))
    assert answers(talk.report(A, 1)) == [(A, "continue", False)]
    assert starts(talk.say(NodeLeft("a", "preempted"))) == [(A, 2)]


@pytest.mark.parametrize(
    ("outcome", "failure", "status"),
    [
        (Outcome.COMPLETED, None, Status.TERMINATED),
        (Outcome.KILLED, Failure("killed", "too slow"), Status.RUNNING),
        (Outcome.LOST, Failure("lost", "gone"), Status.RUNNING),
        (Outcome.FAILED, BOOM, Status.ERROR),
        (Outcome.UNSAVED, BOOM, Status.ERROR),
    ],
)
def test_on_its_way_to_another_node_a_trial_fails_only_by_itself(outcome, failure, status):
    talk = cluster(1, checkpoints=SAVES)
    talk.say(NodeDraining("a"))
    talk.report(A, 1)
    talk.exit(A, outcome, failure)
    assert talk.trial(A).status is status
    assert talk.trial(A).failures == ([BOOM] if status is Status.ERROR else [])


def test_what_else_is_decided_for_a_trial_outweighs_its_move_to_another_node():
    scheduler = ScriptedScheduler({(A, 1): [Pause(A, Reason("asha"))]})
    talk = cluster(1, scheduler, checkpoints=SAVES)
    talk.say(NodeDraining("a"))
    talk.report(A, 1)
    talk.saved(A, 0, 1)
    scheduler.idle = [[]]
    talk.exit(A, Outcome.STOPPED)
    assert talk.trial(A).ending is TerminationReason.STOPPED_EARLY  # paused, and never resumed


def test_a_trial_whose_pause_is_taken_back_still_leaves_its_draining_node():
    talk = cluster(1, checkpoints=SAVES)
    talk.say(NodeDraining("a"))
    talk.say(PauseRequested(A))
    talk.say(ResumeRequested(A))
    talk.restore_from_snapshot()
    assert answers(talk.report(A, 1)) == [(A, "pause", True)]
    talk.saved(A, 0, 1)
    assert starts(talk.exit(A, Outcome.STOPPED)) == [(A, 2)]
    assert talk.trial(A).node == "b"


def test_an_experiment_that_is_interrupted_while_a_trial_moves_can_be_continued():
    talk = cluster(1, checkpoints=SAVES)
    talk.say(NodeDraining("a"))
    talk.say(StopRequested("signal.SIGINT"))
    talk.report(A, 1)
    talk.exit(A, Outcome.STOPPED)
    assert talk.trial(A).ending is TerminationReason.INTERRUPTED
    assert talk.experiment.is_finished


def test_what_no_node_has_is_waited_for_with_one_warning_and_then_fails():
    talk = cluster(1, nodes=("a",), max_trials=2, max_concurrent=None, cpu=4.0)
    [warning] = later_remarks_of(talk, suggest(B, gpu=1.0))
    assert f"trial {B} waits for a node" in warning
    assert "node_wait_s=300" in warning
    assert remarks_of(talk, after_s=185.0) == []
    assert talk.experiment.next_deadline_s() == 300.0
    assert talk.trial(B).status is Status.PENDING
    talk.say(after_s=100.0)
    assert talk.trial(B).status is Status.ERROR
    assert "none that has this has joined within node_wait_s=300" in str(talk.trial(B).failures[-1])
    assert talk.trial(A).status is Status.RUNNING


def test_an_experiment_is_over_when_its_last_trial_has_waited_in_vain():
    talk = cluster(1, nodes=("a",), max_trials=2, cpu=4.0)
    talk.say(suggest(B, gpu=1.0))
    talk.exit(A, Outcome.COMPLETED)
    talk.say(after_s=300.0)
    assert talk.trial(B).status is Status.ERROR
    assert talk.experiment.is_finished


def test_a_searcher_that_waits_for_results_is_asked_again_once_a_trial_has_waited_in_vain():
    talk = cluster(1, nodes=("a",), max_trials=3, max_concurrent=None, cpu=4.0)
    talk.say(suggest(B, gpu=1.0))
    assert talk.say(SuggestionPostponed("t00002")) == []
    assert talk.say(after_s=300.0) == [AskSearcher("t00002")]


def test_a_node_that_joins_in_time_ends_the_wait():
    talk = cluster(1, nodes=("a",), max_trials=2, cpu=4.0)
    talk.say(suggest(B, gpu=1.0))
    talk.say(NodeJoined("b", {"cpu": 1.0, "gpu": 1}), after_s=299.0)
    assert places(talk) == {A: "a", B: "b"}
    talk.say(after_s=9.0)
    assert talk.trial(B).status is Status.RUNNING


def test_without_any_node_the_experiment_ends_and_can_be_continued():
    talk = cluster(1, nodes=("a",))
    [warning] = later_remarks_of(talk, NodeLeft("a", "gone"))
    assert "the experiment waits for a node" in warning
    talk.restore_from_snapshot()
    talk.say(after_s=284.0)
    assert talk.experiment.stop_reason is None
    talk.say(after_s=1.0)
    assert "nothing can run" in talk.experiment.fatal_error
    assert talk.trial(A).status is Status.PENDING
    assert talk.experiment.is_finished
    talk.say(DriverRestarted(talk.experiment.settings))
    assert starts(talk.say(NodeJoined("x", {"cpu": 1.0}))) == [(A, 2)]


def test_trials_suggested_ahead_wait_for_the_first_node():
    talk = cluster(2, nodes=(), max_pending=4)
    assert talk.experiment.stall_reason == ""
    talk.say(NodeJoined("a", {"cpu": 2.0}))
    assert places(talk) == {A: "a", B: "a"}


def test_a_new_driver_has_no_nodes_until_they_join():
    talk = cluster(1, nodes=("a",))
    assert starts(talk.say(DriverRestarted(talk.experiment.settings))) == []
    assert starts(talk.say(NodeJoined("b", {"cpu": 1.0}))) == [(A, 2)]


def test_nodes_and_what_is_held_on_them_outlast_a_snapshot():
    talk = cluster(2, nodes=("a", "b", "c"), cpu=2.0)
    talk.say(NodeDraining("c"))
    talk.restore_from_snapshot()
    assert places(talk) == {A: "a", B: "b"}
    nodes = talk.experiment.trial_table.nodes
    assert [(node.name, node.pool.used["cpu"]) for node in nodes] == [("a", 1), ("b", 1), ("c", 0)]
    assert [node.name for node in nodes.usable] == ["a", "b"]


def test_a_scheduler_sees_what_the_nodes_have_together_and_the_most_of_one():
    talk = cluster(1)
    view = talk.scheduler.experiment
    assert (view.resources, view.node_resources) == ({"cpu": 2.0}, {"cpu": 1.0})
    talk.say(NodeJoined("c", {"cpu": 8.0, "gpu": 1.0}), NodeLeft("b", "gone"))
    assert view.resources == {"cpu": 9.0, "gpu": 1.0}
    assert view.node_resources == {"cpu": 8.0, "gpu": 1.0}


def test_a_trial_is_not_resized_to_what_no_node_has():
    large, small = (Resize(A, {"cpu": amount}, Reason("test")) for amount in (5.0, 2.0))
    scheduler = ScriptedScheduler({(A, 1): [large], (A, 2): [small]}, idle=[])
    talk = cluster(1, scheduler, cpu=3.0, checkpoints=SAVES)
    talk.report(A, 1)
    assert talk.trial(A).resize is None
    talk.report(A, 2)
    assert talk.trial(A).resize == {"cpu": 2.0}


def spread(*nodes, fewest=2, **settings):
    """Return a conversation in which trial A trains on nodes of one CPU each, and its start."""
    group = WorkerGroup(len(nodes), {"cpu": 1.0}, fewest, len(nodes), "SPREAD")
    settings |= {"default_group": group, "default_request": group.total}
    talk = cluster(0, nodes=nodes, max_trials=1, **settings)
    [start] = talk.say(replace(suggest(A, **group.total), group=group))
    talk.say(WorkerStarted(A, 1, pid=1))
    return talk, start


def test_a_group_is_spread_over_nodes_and_what_is_left_of_it_is_killed_when_one_leaves():
    talk, start = spread("a", "b", "c")
    assert start.nodes == ("a", "b", "c")
    [kill] = talk.say(NodeLeft("c", "x"))
    assert (kill.trial_id, kill.attempt, kill.reason) == (A, 1, "node c is gone: x")
    talk.restore_from_snapshot()
    assert talk.experiment.trial_table.nodes.used == {"cpu": 2.0}
    [start] = talk.exit(A, Outcome.KILLED, Failure("killed", "node c is gone"))
    assert (start.attempt, start.nodes, start.group.num_workers) == (2, ("a", "b"), 2)
    assert (talk.trial(A).num_failures, talk.trial(A).failures) == (0, [])


def test_a_group_whose_end_is_not_heard_of_counts_as_gone_after_a_while():
    talk, _ = spread("a", "b", "c")
    talk.say(NodeLeft("c", "x"))
    talk.restore_from_snapshot()
    assert talk.say(after_s=119.9) == []
    assert talk.experiment.next_deadline_s() == 120.0
    assert starts(talk.say(after_s=0.1)) == [(A, 2)]
    assert talk.exit(A, Outcome.LOST, None) != []  # of the second attempt
    assert talk.say(WorkerExited(A, 1, Outcome.LOST)) == []


def test_a_group_loses_one_attempt_with_all_its_nodes():
    talk, _ = spread("a", "b", "c", fewest=1, max_losses=2)
    assert kills(talk.say(NodeLeft("c", "x"))) == [A]
    assert talk.say(NodeLeft("b", "x")) == []
    assert starts(talk.say(NodeJoined("d", {"cpu": 1.0}), NodeLeft("a", "x"))) == [(A, 2)]
    assert len(talk.trial(A).losses) == 1
    assert talk.trial(A).nodes == ("d",)


def test_a_node_that_joins_again_has_nothing_of_what_is_left_of_a_group():
    talk, _ = spread("a", "b")
    talk.say(NodeLeft("b", "x"))
    assert starts(talk.say(NodeJoined("b", {"cpu": 1.0}))) == [(A, 2)]
    assert talk.experiment.trial_table.nodes.used == {"cpu": 2.0}


def test_what_is_left_of_a_group_is_told_nothing_and_gets_no_lease():
    talk, _ = spread("a", "b")
    talk.say(NodeJoined("c", {"cpu": 4.0}))
    owner, group = LeaseOwner(A, 1), WorkerGroup(1, {"cpu": 1.0}, 1, 1)
    talk.say(LeaseRequested(owner, "x", group))
    assert kills(talk.say(result(A, 1), NodeLeft("b", "x"))) == [A]
    assert talk.say(result(A, 1)) == []
    assert talk.experiment.trial_table.lent == {}
    talk.say(LeaseReleased(owner, "x"))
    assert starts(talk.exit(A, Outcome.FAILED, BOOM)) == [(A, 2)]
    assert talk.trial(A).failures == []


def test_an_interrupted_experiment_waits_for_what_is_left_of_a_group():
    talk, _ = spread("a", "b")
    talk.say(NodeLeft("b", "x"))
    talk.say(StopRequested("signal.SIGINT"))
    assert not talk.experiment.is_finished
    talk.exit(A, Outcome.KILLED, Failure("killed", ""))
    assert talk.trial(A).status is Status.PENDING
    assert talk.experiment.is_finished


def test_a_node_that_joins_in_the_last_moment_ends_the_wait():
    talk = cluster(1, nodes=("a",), max_trials=2, cpu=4.0)
    talk.say(suggest(B, gpu=1.0))
    talk.say(NodeJoined("b", {"cpu": 1.0, "gpu": 1}), after_s=300.0)
    assert places(talk) == {A: "a", B: "b"}
    talk.say(NodeLeft("a", "gone"), NodeLeft("b", "gone"))
    assert starts(talk.say(NodeJoined("c", {"cpu": 1.0}), after_s=300.0)) == [(A, 2)]


def test_processes_of_one_node_that_wait_for_each_other_are_a_deadlock_whatever_runs_elsewhere():
    talk = cluster(3, nodes=("a", "b"), cpu=2.0)
    assert places(talk) == {A: "a", B: "b", "t00002": "a"}
    one = WorkerGroup(1, {"cpu": 1.0}, 1, 1)
    assert talk.say(LeaseRequested(LeaseOwner(A, 1), "x", one)) == []
    [refused] = talk.say(LeaseRequested(LeaseOwner("t00002", 1), "y", one))
    assert (refused.owner.trial_id, refused.is_deadlock) == ("t00002", True)
    assert "the 0 cpu that are free on node a, and all 2 processes" in refused.reason
    [granted] = talk.exit("t00002", Outcome.COMPLETED)
    assert granted.owner.trial_id == A


def test_a_lease_is_granted_on_the_node_of_the_process_that_asks_for_it():
    talk = cluster(1, cpu=2.0)
    talk.say(NodeJoined("c", {"cpu": 8.0}))
    one, two = (WorkerGroup(num, {"cpu": 1.0}, num, num) for num in (1, 2))
    [refused] = talk.say(LeaseRequested(LeaseOwner(A, 1), "x", two))
    assert "node a has 2 cpu in all, of which that process holds 1 cpu" in refused.reason
    [granted] = talk.say(LeaseRequested(LeaseOwner(A, 1), "y", one))
    assert granted.num_workers == 1
    nodes = talk.experiment.trial_table.nodes
    assert {node.name: node.pool.used["cpu"] for node in nodes} == {"a": 2, "b": 0, "c": 0}
    talk.restore_from_snapshot()
    talk.say(NodeLeft("a", "gone"))
    assert talk.experiment.trial_table.nodes.used == {"cpu": 1.0}  # the trial's next attempt
