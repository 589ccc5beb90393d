"""Trials that ask for labels of their nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedulers.decisions import Pause, Reason, Resize, Resume
from tests.core.conversation import (
    BOOM,
    Conversation,
    ScriptedScheduler,
    cluster,
    later_remarks_of,
    remarks_of,
    starts,
    suggest,
)
from tuner.core.checkpoints import CheckpointPolicy
from tuner.core.commands import AskSearcher
from tuner.core.events import (
    DriverRestarted,
    NodeJoined,
    NodeLeft,
    Outcome,
    TrialForked,
    TrialSuggested,
    TurnEnded,
    WorkerStarted,
)
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status, trial_fields, trial_from
from tuner.core.worker_records import CheckpointRecord, WorkerGroup
from tuner.journal.records import decode, encode
from tuner.nodes.unmet_demand import unmet_demand
from tuner.wire.declared import encode as encode_record

A, B, C = "t00000", "t00001", "t00002"
CPU, A100 = {"cpu": 1.0}, {"accelerator": "A100"}
SAVES = CheckpointPolicy(can_save_on_demand=True)


def labelled(trial_id, labels=A100, **resources):
    """Return the suggestion of a trial that asks for labels."""
    return replace(suggest(trial_id, **resources), labels=labels)


def of_group(trial_id, group):
    return TrialSuggested(trial_id, {"x": 1}, group.total, group=group)


def on_a_and_b(num_trials=2, scheduler=None, **settings):
    """Return a conversation with node a, which has no labels, and b, which is A100."""
    talk = cluster(0, scheduler, nodes=(), max_trials=num_trials, **settings)
    talk.say(NodeJoined("a", {"cpu": 4.0}), NodeJoined("b", {"cpu": 2.0}, A100))
    return talk


def test_a_trial_is_started_on_a_node_with_the_labels_that_it_asks_for():
    talk = on_a_and_b(4)
    talk.say(labelled(A), labelled(B), labelled(C), suggest("t00003"))
    nodes = [talk.trial(trial_id).node for trial_id in (A, B, C, "t00003")]
    assert nodes == ["b", "b", "", "a"]
    assert starts(talk.exit(A, Outcome.COMPLETED)) == [(C, 1)]
    assert talk.trial(C).node == "b"


def test_a_retry_and_a_trial_of_a_lost_node_ask_for_the_same_labels():
    talk = on_a_and_b(1, max_failures=1)
    talk.say(labelled(A))
    talk.exit(A, Outcome.FAILED, BOOM)
    assert talk.trial(A).node == "b"
    assert starts(talk.say(NodeLeft("b", "gone"))) == []
    talk.restore_from_snapshot()
    assert starts(talk.say(NodeJoined("c", {"cpu": 9.0}, {"accelerator": "H100"}))) == []
    assert starts(talk.say(NodeJoined("d", {"cpu": 1.0}, A100 | {"zone": "x"}))) == [(A, 3)]


def test_slots_are_counted_by_the_labels_of_the_latest_trial():
    talk = on_a_and_b(9)
    commands = talk.say(labelled(A))
    # Four CPUs are free on a, which does not count: six were asked for at first.
    assert not any(isinstance(each, AskSearcher) for each in commands)
    assert talk.experiment.trial_table.num_free_slots(talk.experiment.starter.typical) == 1
    talk.restore_from_snapshot()
    assert talk.experiment.starter.typical.labels == A100


def test_slots_are_counted_by_the_declared_labels_at_first():
    talk = on_a_and_b(9, default_labels=A100)
    assert talk.experiment.suggestion_budget.num_outstanding == 2


def test_trials_with_other_labels_are_not_held_up_in_the_queue():
    talk = on_a_and_b(4)
    talk.say(labelled(A, cpu=2.0), labelled(B), suggest(C))
    assert [talk.trial(each).status for each in (A, B, C)] == [
        Status.RUNNING, Status.PENDING, Status.RUNNING,
    ]  # fmt: skip


def test_what_is_held_for_the_oldest_trial_is_held_on_nodes_that_it_can_use():
    talk = on_a_and_b(9, max_overtaken_s=60.0)
    talk.say(labelled(A), labelled(B, cpu=2.0), labelled(C))
    assert talk.trial(B).status is Status.PENDING  # overtaken by C
    talk.say(after_s=60.0)
    talk.say(labelled("t00003"), suggest("t00004"))
    talk.exit(C, Outcome.COMPLETED)
    assert talk.trial("t00003").status is Status.PENDING
    assert talk.trial("t00004").node == "a"
    assert starts(talk.exit(A, Outcome.COMPLETED)) == [(B, 1)]


def test_trials_that_no_node_could_run_do_not_keep_others_from_being_suggested():
    talk = cluster(0, nodes=(), max_trials=40)
    asked = talk.say(NodeJoined("a", {"cpu": 1.0}))
    for number in range(20):
        assert [type(command) for command in asked].count(AskSearcher) == 1, number
        trial_id = next(each.trial_id for each in asked if isinstance(each, AskSearcher))
        if number == 3:
            break
        asked = talk.say(suggest(trial_id, cpu=3.0))
    assert starts(talk.say(suggest(trial_id, cpu=1.0))) == [("t00003", 1)]


def test_of_trials_that_no_node_could_run_a_few_are_suggested():
    talk = cluster(0, nodes=(), max_trials=40)
    asked, num_asked = talk.say(NodeJoined("a", {"cpu": 1.0})), 0
    while waiting := [each.trial_id for each in asked if isinstance(each, AskSearcher)]:
        num_asked += 1
        asked = talk.say(suggest(waiting[0], cpu=3.0))
    assert num_asked == 17


def test_labels_that_no_node_has_are_waited_for_and_named():
    talk = on_a_and_b(3)
    talk.say(suggest(A))
    [first] = later_remarks_of(talk, labelled(B, {"zone": "x"}))
    assert f"trial {B} waits for a node: the trial asks for" in first
    assert "on a node with the labels {'zone': 'x'}, which no node has" in first
    [second] = later_remarks_of(talk, labelled(C, {"zone": "y"}), after_s=85.0)
    assert C in second
    talk.restore_from_snapshot()
    assert remarks_of(talk) == []
    talk.say(NodeJoined("c", {"cpu": 1.0}, {"zone": "y"}), after_s=185.0)
    assert talk.trial(B).status is Status.ERROR
    assert "{'zone': 'x'}" in talk.trial(B).failures[-1].message
    assert talk.trial(C).node == "c"


def test_an_experiment_waits_for_the_declared_labels():
    talk = cluster(0, nodes=(), max_trials=1, default_labels=A100)
    talk.say(NodeJoined("a", {"cpu": 4.0}))
    assert talk.remarks == []
    [warning] = remarks_of(talk, after_s=15.0)
    assert "the experiment waits for a node" in warning
    assert "'A100'" in warning
    talk.say(after_s=300.0)
    assert "nothing can run: the trial asks for" in talk.experiment.fatal_error


def test_unmet_demand_names_labels():
    talk = on_a_and_b(9)
    talk.say(*[labelled(f"t0000{number}") for number in range(4)], suggest("t00004", gpu=1.0))
    demand = unmet_demand(talk.experiment)
    assert (CPU, A100, 2 + 4) in demand  # four more are yet to be suggested
    assert ({"gpu": 1.0}, {}, 1) in demand


def test_the_workers_of_a_group_are_on_nodes_with_its_labels():
    group = WorkerGroup(4, CPU, 2, 4, labels=A100)
    talk = on_a_and_b(1, default_group=group, default_request=group.total)
    talk.say(of_group(A, group))
    trial = talk.trial(A)
    assert (trial.nodes, trial.group.num_workers, trial.labels) == (("b",), 2, A100)
    talk.restore_from_snapshot()
    talk.say(NodeLeft("b", "gone"))
    assert unmet_demand(talk.experiment) == [(CPU, A100, 4)]
    talk.say(NodeJoined("c", CPU, A100), NodeJoined("d", CPU, A100))
    assert talk.trial(A).nodes == ("c", "d")


def test_a_group_that_is_declared_anew_has_its_new_labels():
    group = WorkerGroup(2, CPU, 2, 2, labels=A100)
    talk = on_a_and_b(1, default_group=group, default_request=group.total)
    talk.say(of_group(A, group))
    other = replace(group, labels={})
    assert not other.is_declared_like(group)
    talk.say(DriverRestarted(talk.experiment.settings, groups={A: other}))
    assert starts(talk.say(NodeJoined("x", {"cpu": 2.0}))) == [(A, 2)]


def test_labels_stay_when_a_trial_is_resized():
    bigger = Resize(A, {"cpu": 2.0}, Reason("grow"))
    talk = on_a_and_b(1, ScriptedScheduler({(A, 1): [bigger]}), checkpoints=SAVES)
    talk.say(labelled(A))
    talk.say(WorkerStarted(A, 1, pid=1))
    talk.report(A, 1)
    talk.saved(A, 0, 1)
    assert starts(talk.exit(A, Outcome.STOPPED)) == [(A, 2)]
    assert (talk.trial(A).node, talk.trial(A).resources) == ("b", {"cpu": 2.0})


def test_a_paused_trial_keeps_its_labels():
    scheduler = ScriptedScheduler({(A, 1): [Pause(A, Reason("x"))]}, [[Resume(A, Reason("y"))]])
    talk = on_a_and_b(1, scheduler, checkpoints=SAVES)
    talk.say(labelled(A))
    talk.say(WorkerStarted(A, 1, pid=1))
    talk.report(A, 1)
    talk.saved(A, 0, 1)
    talk.restore_from_snapshot()
    assert starts(talk.exit(A, Outcome.STOPPED)) == [(A, 2)]
    assert talk.trial(A).node == "b"


def test_a_fork_asks_for_the_labels_that_it_is_given():
    talk = on_a_and_b(1)
    talk.say(suggest(A))
    talk.say(WorkerStarted(A, 1, pid=1))
    talk.report(A, 1, CheckpointRecord(0, 1))
    talk.say(TrialForked("f00000", A, {"x": 2}, CPU, 0, labels=A100))
    assert (talk.trial(A).node, talk.trial("f00000").node) == ("a", "b")


def test_one_machine_runs_trials_with_labels_that_a_cluster_has_begun():
    talk = on_a_and_b(1)
    talk.say(labelled(A))
    here = replace(talk.experiment.settings, node_wait_s=None, capacity={"cpu": 1.0})
    assert starts(talk.say(DriverRestarted(here))) == [(A, 2)]
    assert talk.trial(A).nodes == ()
    talk.restore_from_snapshot()
    assert unmet_demand(talk.experiment) == []
    talk.say(DriverRestarted(replace(here, node_wait_s=300.0)))
    assert starts(talk.say(NodeJoined("a", CPU))) == []
    assert starts(talk.say(NodeJoined("b", CPU, A100))) == [(A, 3)]


def test_a_cluster_runs_trials_that_one_machine_has_begun():
    talk = Conversation(max_trials=1, capacity={"cpu": 1.0}, max_losses=3)
    talk.begin(1)
    there = replace(talk.experiment.settings, node_wait_s=300.0, capacity={})
    assert starts(talk.say(DriverRestarted(there))) == []
    assert starts(talk.say(NodeJoined("a", CPU))) == [(A, 2)]
    talk.restore_from_snapshot()
    assert talk.trial(A).nodes == ("a",)
    assert starts(talk.say(NodeLeft("a", "gone"), NodeJoined("b", CPU))) == [(A, 3)]


@pytest.mark.parametrize(
    "event",
    [
        labelled(A),
        of_group(A, WorkerGroup(1, CPU, 1, 1, labels=A100)),
        TrialForked("f00000", A, {"x": 2}, CPU, 0, labels=A100),
    ],
)
def test_labels_are_recorded(event):
    assert decode(encode(event, 1.5)) == (event, 1.5, ())


def test_what_asks_for_no_labels_is_recorded_as_before_there_were_any():
    group = WorkerGroup(1, CPU, 1, 1)
    assert "labels" not in encode(suggest(A), 1.0)
    assert "labels" not in encode(TrialForked("f00000", A, {"x": 2}, CPU, 0), 1.0)
    assert "labels" not in encode_record(group)
    fields = ExperimentSettings({"cpu": 1.0}, default_group=group).as_fields()
    assert "default_labels" not in fields
    assert "labels" not in fields["default_group"]
    talk = cluster(1)
    assert "labels" not in trial_fields(talk.trial(A))
    assert "typical_labels" not in talk.experiment.state_dict()


def test_settings_with_labels_are_recorded():
    group = WorkerGroup(1, CPU, 1, 1, labels=A100)
    for settings in (
        ExperimentSettings({}, default_group=group),
        ExperimentSettings({}, default_labels=A100),
    ):
        assert ExperimentSettings.from_fields(settings.as_fields()) == settings
        assert settings.usual_demand.labels == A100


def test_a_trial_with_labels_outlasts_a_snapshot():
    talk = on_a_and_b(1)
    talk.say(labelled(A))
    assert trial_from(trial_fields(talk.trial(A))).labels == A100


def test_a_turn_in_which_a_trial_leaves_the_backlog_is_recorded_though_no_node_can_run_it_yet():
    talk = cluster(0, nodes=(), max_trials=4, max_pending=4)
    h100 = {"accelerator": "H100"}
    for number, labels in enumerate([A100, A100, A100, h100]):
        talk.say(labelled(f"t0000{number}", labels))
    admitted = talk.experiment.trial_table.admitted
    events = [NodeJoined("a", {"cpu": 1.0}, h100), *[TurnEnded()] * 6]
    for event in events:
        num_before = len(admitted)
        is_noop = talk.experiment.handle(event, talk.now_s).is_noop
        assert not (is_noop and len(admitted) > num_before)
    assert talk.trial("t00003").status is Status.RUNNING
