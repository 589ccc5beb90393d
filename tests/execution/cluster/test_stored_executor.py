"""The driver's executor for clusters and object stores, with hosts that say what a test says."""

import time

import pytest

from tests.execution.cluster.test_cluster_executor import (
    DONE,
    KEY,
    RESOURCES,
    STARTED,
    Cluster,
    group_on,
    look_after,
    lose,
    told,
)
from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import (
    CheckpointLost,
    NodeDraining,
    NodeLeft,
    Outcome,
    ResultReported,
    ValidationEnded,
    WorkerExited,
)
from tuner.core.trial import CheckpointRecord, Failure, ReportReply, ValidationRequest
from tuner.execution.cluster.stored_executor import StoredClusterExecutor
from tuner.execution.cluster.stored_messages import event_message

pytestmark = pytest.mark.process

RESULT = ResultReported(*KEY, {"training_iteration": 1, "time_total_s": 1.0, "loss": 0.5})


class StoredCluster(Cluster):
    """The same for an experiment in an object store."""

    def make(self, directory):
        executor = StoredClusterExecutor(
            "none:None",
            {},
            "a cluster",
            directory,
            trainable=b"trainable",
            seed_of=lambda trial_id: 5,
        )
        return executor, executor

    def connect(self, setup, proof):
        self.executor.connect(setup, proof, None, is_async=False)

    def do(self, agent, *events, number=1):
        return self.say(agent, *map(event_message, events), number=number)


@pytest.fixture
def cluster(tmp_path):
    made = StoredCluster(tmp_path)
    yield made
    made.executor.shutdown(1.0)


def test_a_trial_runs_on_its_node(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("b")
    (start,) = cluster.heard("b")
    assert (start["kind"], start["trial_id"], start["seed"]) == ("start", "t00001", 5)
    assert cluster.heard("a") == []
    assert cluster.do("b", STARTED, RESULT) == [STARTED, RESULT]
    cluster.executor.carry_out([AnswerReport(*KEY, ReportReply.CONTINUE)])
    (answer,) = cluster.heard("b")
    assert (answer["kind"], answer["reply"]) == ("answer", "continue")
    cluster.executor.carry_out([KillWorker(*KEY, "enough")])
    assert [message["kind"] for message in cluster.heard("b")] == ["kill"]
    assert cluster.do("b", DONE) == [DONE]
    cluster.executor.carry_out([KillWorker(*KEY, "late")])
    assert cluster.heard("b") == []


def test_events_of_what_does_not_run_there_are_dropped(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("b")
    assert cluster.do("a", RESULT, DONE) == []
    assert cluster.do("b", WorkerExited("t00001", 2, Outcome.COMPLETED)) == []
    assert cluster.do("b", DONE, RESULT) == [DONE]


def test_a_checkpoint_lost_on_the_way_to_a_trial_is_reported_for_its_owner(cluster):
    cluster.join("a")
    lost = CheckpointLost("t00009", 3, "its hash is wrong")
    assert cluster.do("a", lost) == [lost]


@pytest.mark.parametrize("is_silent", [True, False])
def test_what_a_trial_is_killed_for_while_its_node_is_silent_does_not_count(cluster, is_silent):
    cluster.join("a")
    cluster.start("a")
    if is_silent:
        cluster.nodes._nodes["a"].link.heard_s -= 6.0
    cluster.executor.carry_out([KillWorker(*KEY, "no report", is_silent=True)])
    killed = WorkerExited(*KEY, Outcome.KILLED, Failure("killed", "no report"))
    (ended,) = cluster.do("a", killed)
    if is_silent:
        assert ended.outcome is Outcome.LOST
        why = "nothing was heard of node a when the trial was killed: no report"
        assert ended.failure == Failure("lost", why)
    else:
        assert ended == killed


def test_a_trial_that_ends_by_itself_although_it_was_to_be_killed_has_ended(cluster):
    cluster.join("a")
    cluster.start("a")
    cluster.nodes._nodes["a"].link.heard_s -= 6.0
    cluster.executor.carry_out([KillWorker(*KEY, "no report", is_silent=True)])
    assert cluster.do("a", DONE) == [DONE]


def test_what_may_run_still_is_not_started_elsewhere_before_its_lease_is_over(cluster):
    for name in "abc":
        cluster.join(name)
    cluster.start("a")
    cluster.executor.carry_out([group_on("b", "d")])
    cluster.connection.agents.clear()
    for name in "abc":
        cluster.nodes.on_agent_gone(name, "the cluster is gone", may_live=True)
    assert cluster.executor.wait(0.0) == [
        NodeDraining("a", is_cut_off=True),  # so that nothing more is started there
        NodeDraining("b", is_cut_off=True),
        NodeLeft("c", "the cluster is gone"),  # on which nothing has run
    ]
    look_after(cluster, 29.0)
    assert cluster.executor.wait(0.0) == []
    look_after(cluster, 31.0)
    left = [event for event in cluster.executor.wait(0.0) if isinstance(event, NodeLeft)]
    assert left == [NodeLeft("a", "the cluster is gone"), NodeLeft("b", "the cluster is gone")]


def test_the_loss_of_a_node_is_told_with_what_becomes_of_its_trials(cluster, caplog):
    for name in "abcd":
        cluster.join(name)
    for number in (3, 7, 8):
        cluster.start("a", (f"t0000{number}", 1))
    cluster.executor.carry_out([group_on("b", "a")])
    lose(cluster, "a", "d")
    starts = [
        StartWorker(f"t0000{number}", 2, {}, RESOURCES, (), None, 0, nodes=nodes)
        for number, nodes in [(3, ("b",)), (7, ("b",)), (2, ("b", "c"))]
    ]
    cluster.executor.carry_out(starts)
    fates = (
        "t00003, t00007 continue on b",
        "t00002 continues on b and c",
        "t00008 is not running any more (no power)",
    )
    assert told(caplog) == [
        f"a lost: {'; '.join(fates)}",
        "d lost: nothing was running there (no power)",
    ]
    cluster.start("c", ("t00008", 2))
    assert caplog.records[-1].getMessage() == "t00008, which ran on a, continues on c"


def test_what_a_node_says_after_it_has_left_is_dropped(cluster):
    cluster.join("a")
    cluster.start()
    began_s = time.monotonic()
    cluster.nodes._looked_s = began_s + 31.0
    cluster.nodes._look_at_nodes(began_s + 31.0)
    (left,) = cluster.executor.wait(0.0)
    assert isinstance(left, NodeLeft)
    assert cluster.do("a", STARTED, RESULT, DONE) == []


def test_code_that_one_node_alone_cannot_load_is_that_nodes_fault(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    cluster.do("a", STARTED)
    cluster.start("b", ("t00002", 1))
    unloadable = {"kind": "unloadable", "why": "No module named 'mine'"}
    (left,) = cluster.say("b", unloadable)
    assert left == NodeLeft("b", "the training code cannot be loaded there: No module named 'mine'")


def test_code_that_no_node_can_load_is_the_trials_fault(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    failure = Failure("ModuleNotFoundError", "No module named 'mine'")
    failed = WorkerExited(*KEY, Outcome.FAILED, failure)
    unloadable = {"kind": "unloadable", "why": "No module named 'mine'"}
    assert cluster.say("a", unloadable, event_message(failed)) == [failed]


def test_a_validation_runs_on_its_node(cluster):
    cluster.join("a")
    checkpoint = CheckpointRecord(0, 1)
    request = ValidationRequest()
    command = StartValidation(
        "t00001", checkpoint, 1, request, RESOURCES, config={}, node="a", is_last_try=True
    )
    cluster.executor.carry_out([command])
    (start,) = cluster.heard("a")
    assert (start["kind"], start["num_try"], start["has_payload"]) == ("start_validation", 1, False)
    ended = ValidationEnded("t00001", 0, 1, Outcome.COMPLETED, {"accuracy": 0.5})
    assert cluster.do("a", ended, ended) == [ended]


def test_a_payload_of_this_session_is_told_to_the_node_that_validates(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    request = ValidationRequest(payload=f".validation-0-{'0' * 64}.pkl")
    report = ResultReported(*KEY, RESULT.metrics, CheckpointRecord(0, 1), validation=request)
    cluster.do("a", report)
    command = StartValidation("t00001", CheckpointRecord(0, 1), 1, request, RESOURCES, node="b")
    cluster.executor.carry_out([command])
    (start,) = cluster.heard("b")
    assert start["has_payload"]


def test_a_node_with_workers_of_a_group_is_not_idle(cluster):
    for name in "abc":
        cluster.join(name)
    cluster.connection.facts = {"is_elastic": True}
    cluster.executor.carry_out([group_on("a", "b")])
    cluster.nodes._look_at_demand(time.monotonic() + 61.0)
    assert list(cluster.connection.evicted) == ["c"]
