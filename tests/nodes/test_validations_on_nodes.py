"""Validations on nodes that join, drain and leave."""

from __future__ import annotations

from tests.core.conversation import (
    BOOM,
    Validating,
    cluster,
    later_remarks_of,
    remarks_of,
    report_to_validate,
    started,
    suggest,
    validate,
)
from tuner.core.commands import GrantLease, RefuseLease
from tuner.core.events import (
    CheckpointLost,
    DriverRestarted,
    LeaseOwner,
    LeaseRequested,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    ValidationEnded,
    WorkerStarted,
)
from tuner.core.failure_causes import WORKER_LOST
from tuner.core.settings import ExperimentSettings, ValidationPolicy
from tuner.core.trial import Status
from tuner.core.worker_records import WorkerGroup
from tuner.validation.records import ValidationState

A, B = "t00000", "t00001"


def end(talk, trial_id, outcome, failure=None, metrics=None):
    """End the validation of a trial's first checkpoint; return what is started."""
    num_try = talk.trial(trial_id).validations[0].num_try
    ended = ValidationEnded(trial_id, 0, num_try, outcome, metrics, failure)
    return started(talk.say(ended))


def used(talk):
    """Return the CPUs in use on each node."""
    return {node.name: node.pool.used["cpu"] for node in talk.experiment.trial_table.nodes}


def test_a_checkpoint_is_validated_on_the_node_where_it_was_saved():
    talk = cluster(2, cpu=2.0)
    talk.say(NodeJoined("c", {"cpu": 8.0}))
    [start] = started(validate(talk, B, 1))
    assert start.node == talk.trial(B).node == "b"
    assert used(talk) == {"a": 1, "b": 2, "c": 0}
    talk.restore_from_snapshot()
    assert used(talk) == {"a": 1, "b": 2, "c": 0}
    assert end(talk, B, Outcome.COMPLETED, metrics={}) == []
    assert used(talk) == {"a": 1, "b": 1, "c": 0}


def test_it_is_validated_elsewhere_where_that_node_has_no_room():
    talk = cluster(1, nodes=("a",))
    talk.say(NodeJoined("b", {"cpu": 4.0}), NodeJoined("c", {"cpu": 4.0}))
    [start] = started(validate(talk, A, 1))
    assert start.node == "b"


def test_by_cpu_it_is_validated_where_the_trial_runs_if_no_node_has_room():
    talk = cluster(2)
    [start] = started(validate(talk, B, 1))
    assert start.node == "b"
    assert used(talk) == {"a": 1, "b": 1}
    talk.restore_from_snapshot()
    [again] = started(talk.say(NodeLeft("b", "gone")))
    assert (again.node, again.num_try) == ("a", 2)


def test_it_is_not_validated_on_a_node_that_drains():
    talk = cluster(1, nodes=("a",))
    talk.say(NodeDraining("a"))
    assert started(validate(talk, A, 1)) == []
    [start] = started(talk.say(NodeJoined("b", {"cpu": 1.0})))
    assert start.node == "b"


def test_a_validation_that_is_lost_with_its_node_begins_again_on_another_one():
    talk = cluster(2, cpu=2.0)
    validate(talk, A, 1)
    [start] = started(talk.say(NodeLeft("a", "no sign of life")))
    assert (start.node, start.num_try) == ("b", 2)
    assert talk.trial(A).validations[0].num_failures == 0


def test_a_validation_that_is_lost_too_often_in_a_row_fails_and_names_the_losses():
    talk = cluster(1, nodes=("a", "b", "c", "d"), cpu=2.0, max_validation_losses=3)
    validate(talk, A, 1)
    for name in "abc":
        talk.restore_from_snapshot()
        talk.say(NodeLeft(name, "no sign of life"))
    validation = talk.trial(A).validations[0]
    assert validation.state is ValidationState.FAILED
    assert validation.failure.kind == WORKER_LOST
    assert validation.failure.message.startswith(
        "lost 3 times in a row, in tries 1, 2 and 3: node a is gone: no sign of life; node b"
    )
    assert talk.trial(A).status is Status.RUNNING


def test_on_one_machine_validations_that_are_lost_too_often_fail_as_well():
    talk = Validating(max_validation_losses=2)
    talk.validate(A, 1)
    talk.end(A, 0, outcome=Outcome.LOST)
    talk.end(A, 0, outcome=Outcome.LOST)
    assert talk.state(A, 0) is ValidationState.FAILED
    assert "tries 1 and 2: its process vanished" in talk.trial(A).validations[0].failure.message


def test_losses_of_a_validation_count_while_no_try_ends_otherwise():
    talk = Validating(max_validation_losses=2, validation=ValidationPolicy(max_retries=1))
    talk.validate(A, 1)
    talk.end(A, 0, outcome=Outcome.LOST)
    talk.end(A, 0, outcome=Outcome.FAILED, failure=BOOM)
    talk.end(A, 0, outcome=Outcome.LOST)
    assert talk.state(A, 0) is ValidationState.RUNNING
    talk.say(DriverRestarted(talk.experiment.settings))
    talk.end(A, 0, outcome=Outcome.LOST)
    assert talk.state(A, 0) is ValidationState.RUNNING


def test_losses_with_a_node_that_was_known_to_leave_do_not_count():
    talk = cluster(1, nodes=("a", "b", "c"), cpu=2.0, max_validation_losses=1)
    validate(talk, A, 1)
    talk.say(NodeDraining("a"))
    [start] = started(talk.say(NodeLeft("a", "preempted")))
    talk.say(NodeDraining(start.node))
    [start] = end(talk, A, Outcome.LOST)
    assert start.num_try == 3


def test_a_validation_of_a_lost_checkpoint_that_is_lost_with_its_node_names_the_checkpoint():
    talk = cluster(1, nodes=("a", "b"), cpu=2.0, max_validation_losses=1)
    validate(talk, A, 1)
    talk.say(CheckpointLost(A, 0, "it is damaged"))
    talk.say(NodeLeft("a", "gone"))
    assert talk.trial(A).validations[0].failure.kind == "CheckpointLost"


def test_an_unlimited_number_of_losses_is_not_recorded():
    fields = ExperimentSettings({"cpu": 1.0}).as_fields()
    assert "max_validation_losses" not in fields
    limited = ExperimentSettings({"cpu": 1.0}, max_validation_losses=5)
    assert ExperimentSettings.from_fields(limited.as_fields()) == limited


def test_a_validation_that_no_node_could_run_is_waited_for_and_then_fails():
    talk = cluster(1, nodes=("a",), cpu=2.0, validation=ValidationPolicy({"cpu": 1.0, "gpu": 1.0}))
    [warning] = later_remarks_of(talk, report_to_validate(talk, A, 1))
    assert "a validation waits for a node: the validation asks for" in warning
    talk.restore_from_snapshot()
    talk.exit(A, Outcome.COMPLETED)
    assert not talk.experiment.is_finished
    talk.say(after_s=300.0)
    failure = talk.trial(A).validations[0].failure
    assert "none that has this has joined within node_wait_s=300" in failure.message
    assert talk.experiment.is_finished


def test_a_node_that_joins_in_time_runs_what_has_waited():
    talk = cluster(1, nodes=("a",), cpu=2.0, validation=ValidationPolicy({"gpu": 1.0}))
    validate(talk, A, 1)
    [start] = started(talk.say(NodeJoined("b", {"gpu": 1}), after_s=300.0))
    assert (start.node, start.gpu_ids) == ("b", (0,))
    talk.say(after_s=300.0)
    assert talk.trial(A).validations[0].state is ValidationState.RUNNING


def test_an_experiment_of_which_only_validations_are_left_waits_for_a_node_and_can_be_continued():
    talk = cluster(1, nodes=("a",), cpu=2.0)
    validate(talk, A, 1)
    talk.exit(A, Outcome.COMPLETED)
    [warning] = later_remarks_of(talk, NodeLeft("a", "gone"))
    assert "the experiment waits for a node: the validation asks for" in warning
    talk.say(after_s=300.0)
    assert "nothing can run: the validation asks for" in talk.experiment.fatal_error
    assert talk.experiment.is_finished
    talk.say(DriverRestarted(talk.experiment.settings))
    [start] = started(talk.say(NodeJoined("x", {"cpu": 1.0})))
    assert start.node == "x"


def test_no_node_is_waited_for_that_only_trials_would_need_when_validations_alone_are_left():
    request = {"cpu": 1.0, "gpu": 1.0}
    talk = cluster(0, nodes=(), max_trials=1, default_request=request)
    talk.say(NodeJoined("a", request), NodeJoined("b", {"cpu": 4.0}))
    talk.say(suggest(A, **request))
    talk.say(WorkerStarted(A, 1, pid=1))
    validate(talk, A, 1)
    talk.exit(A, Outcome.COMPLETED)
    assert remarks_of(talk, NodeLeft("a", "gone")) == []
    talk.say(after_s=900.0)
    assert talk.experiment.stop_reason is None


def test_what_a_validation_waits_for_is_kept_for_it_on_one_node_alone():
    policy = ValidationPolicy({"gpu": 2.0, "cpu": 2.0})
    talk = cluster(3, cpu=2.0, max_trials=9, validation=policy)
    talk.say(NodeJoined("g", {"cpu": 4.0, "gpu": 2.0}), NodeJoined("h", {"cpu": 1.0, "gpu": 1.0}))
    talk.say(suggest("t00003", cpu=1.0, gpu=1.0))
    assert talk.trial("t00003").node == "g"
    validate(talk, A, 1)
    talk.say(suggest("t00004", cpu=1.0, gpu=1.0), suggest("t00005", cpu=1.0, gpu=1.0))
    assert talk.trial("t00004").node == "h"
    assert talk.trial("t00005").status is Status.PENDING
    [start] = started(talk.exit("t00003", Outcome.COMPLETED))
    assert start.node == "g"


def test_a_validator_leases_resources_of_its_own_node():
    talk = cluster(1, nodes=("a", "b"))
    [start] = started(validate(talk, A, 1))
    assert start.node == "b"
    owner, group = LeaseOwner(A, 1, 0), WorkerGroup(1, {"cpu": 1.0}, 1, 1)
    [refused] = talk.say(LeaseRequested(owner, "x", group))
    assert isinstance(refused, RefuseLease)
    assert "node b has 1 cpu in all" in refused.reason


def test_what_a_lease_waits_for_is_kept_on_its_node_alone():
    talk = cluster(2, nodes=("a",), cpu=3.0, max_trials=9)
    two = WorkerGroup(2, {"cpu": 1.0}, 2, 2)
    assert talk.say(LeaseRequested(LeaseOwner(A, 1), "x", two)) == []
    talk.say(suggest("t00002"))
    assert talk.trial("t00002").status is Status.PENDING
    talk.say(NodeJoined("b", {"cpu": 1.0}))
    assert talk.trial("t00002").node == "b"
    granted = [each for each in talk.exit(B, Outcome.COMPLETED) if isinstance(each, GrantLease)]
    assert [each.num_workers for each in granted] == [2]
