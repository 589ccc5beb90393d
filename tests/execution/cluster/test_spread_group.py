"""A group over two nodes, as the driver knows it, with nodes that say what a test has them say."""

import json
import time
from dataclasses import replace

import pytest

from tuner.core.commands import AnswerReport, KillWorker, StartWorker
from tuner.core.events import (
    LeaseRequested,
    Outcome,
    ResultReported,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.trial import Failure, ReportReply, WorkerGroup
from tuner.execution.cluster.rank_messages import (
    Listening,
    Refused,
    news_message,
    read_news,
    read_start,
)
from tuner.execution.cluster.spread_group import SpreadGroups
from tuner.execution.exit_diagnosis import ExitInfo
from tuner.execution.failures import as_message
from tuner.execution.process_service import Gone, HungUp, Said, Unstarted, Violated

NODES = ("a", "a", "b", "b")
DONE = {"kind": "exited", "outcome": "completed", "failure": None}
FAILED = {**DONE, "outcome": "failed", "failure": as_message(Failure("KeyError", "'x'"))}
KEY = ("t00001", 1)
ENDED = ExitInfo(0)
ENTRY = {"size_bytes": 1, "sha256": "a1", "rank": 0}
CONTENTS = {"files": {"x": ENTRY}, "links": {}, "directories": [], "has_metadata": False}
MEASURED = {"kind": "rank_measured", "index": 0, "conflicts": [], "contents": CONTENTS}


def result(number=1, **fields):
    metrics = {"training_iteration": number, "time_total_s": 1.0}
    return {"kind": "result", "metrics": metrics, "part": None, **fields}


class Cluster:
    """The executor of two nodes, without gateways, and the groups that run on them."""

    def __init__(self, directory):
        self.events, self.asked, self.silent = [], [], set()
        self.groups = SpreadGroups(directory, self, sync=False, environ={})
        group = WorkerGroup(4, {"cpu": 1.0, "gpu": 1.0}, 4, 4)
        resources = {"cpu": 4.0, "gpu": 4.0}
        self.command = StartWorker(
            *KEY, {}, resources, (0, 1, 0, 1), None, 0, group=group, nodes=NODES
        )

    def tell(self, node, message):
        self.asked.append((node, json.loads(json.dumps(message))))

    def is_silent(self, node):
        return node in self.silent

    def emit(self, event):
        self.events.append(event)

    def start_message(self, command):
        return {"devices": list(command.gpu_ids)}

    def watch(self, readable, on_readable):
        self.readable, self.on_readable = readable, on_readable

    def unwatch(self, readable):
        pass

    def news(self, node, news):
        message = news_message(*KEY, news)
        assert read_news(message) == news
        self.groups.on_message(node, message)

    def say(self, rank, *messages):
        self.news(NODES[rank], Said(rank, list(messages)))

    def all_say(self, *messages):
        for rank in range(len(NODES)):
            self.say(rank, *messages)

    def all_gone(self):
        for rank, node in enumerate(NODES):
            self.news(node, Gone(rank, ENDED))

    def take_asked(self, kind):
        found = [(node, message) for node, message in self.asked if message["kind"] == kind]
        self.asked = []
        return found

    def begin(self):
        self.groups.start(self.command)
        self.news("a", Listening("10.0.0.1", 29500))
        return self

    @property
    def end(self):
        (ended,) = [event for event in self.events if isinstance(event, WorkerExited)]
        assert KEY not in self.groups
        return ended


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_rank_0s_node_listens_before_all_are_started_with_its_address(cluster):
    cluster.groups.start(cluster.command)
    ((node, message),) = cluster.asked
    assert (node, message["kind"]) == ("a", "rank_listen")
    cluster.news("b", Listening("10.0.0.2", 1))  # not the one that was asked
    assert len(cluster.asked) == 1
    cluster.news("a", Listening("10.0.0.1", 29500))
    started = dict(cluster.take_asked("rank_start"))
    assert {node: message["devices"] for node, message in started.items()} == {
        "a": [0, 1],
        "b": [0, 1],
    }
    ranks = [rank for message in started.values() for rank in read_start(message)]
    assert [(rank.world_rank, rank.local_rank, rank.node_rank) for rank in ranks] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 1),
        (3, 1, 1),
    ]
    assert {(rank.world_size, rank.local_world_size) for rank in ranks} == {(4, 2)}
    assert {(rank.master_addr, rank.master_port) for rank in ranks} == {("10.0.0.1", 29500)}


def test_it_is_one_attempt_with_one_start_one_result_a_report_and_one_exit(cluster):
    cluster.begin()
    cluster.all_say({"kind": "started", "pid": 7})
    for number in (1, 2):
        cluster.all_say(result(number))
        cluster.asked.clear()
        cluster.groups.answer(AnswerReport(*KEY, ReportReply.CONTINUE))
        sent = cluster.take_asked("rank_send")
        assert [(node, message["rank"]) for node, message in sent] == list(
            zip(NODES, range(4), strict=True)
        )
        assert {json.loads(message["data"])["verdict"] for _, message in sent} == {"continue"}
    cluster.all_say(DONE)
    assert [json.loads(message["data"]) for _, message in cluster.take_asked("rank_send")] == [
        {"leave": True}
    ] * 4
    cluster.all_gone()
    assert list(map(type, cluster.events)) == [
        WorkerStarted,
        ResultReported,
        ResultReported,
        WorkerExited,
    ]
    assert cluster.end.outcome is Outcome.COMPLETED


@pytest.mark.process
def test_the_checkpoint_of_a_report_is_committed_from_the_parts_of_both_nodes(cluster, tmp_path):
    cluster.begin()
    for rank in range(4):
        name = f".tmp-000000-1-{rank:08x}"
        staged = tmp_path / "t00001" / name
        staged.mkdir(parents=True)
        (staged / f"weights{rank}").write_text("1")
        cluster.say(rank, result(part={"kind": "staged", "name": name}))
    while not cluster.events:
        cluster.on_readable()
    (event,) = cluster.events
    files = {path.name for path in (tmp_path / "t00001" / event.checkpoint.directory).iterdir()}
    assert {f"weights{rank}" for rank in range(4)} <= files


def test_when_a_rank_fails_the_others_are_killed_on_their_nodes(cluster):
    cluster.begin()
    cluster.asked.clear()
    cluster.news("b", HungUp(3))
    cluster.news("b", Gone(3, ExitInfo(-9, peak_bytes=2**20, is_oom=True)))
    killed = cluster.take_asked("rank_kill")
    assert [(node, message["rank"]) for node, message in killed] == [("a", 0), ("a", 1), ("b", 2)]
    cluster.all_gone()
    ended = cluster.end
    assert (ended.outcome, ended.failure.kind) == (Outcome.FAILED, "killed by SIGKILL")
    assert ended.failure.message.startswith("rank 3: the kernel ended the process")


def test_a_rank_that_raises_fails_the_attempt_with_what_it_raised(cluster):
    cluster.begin()
    cluster.all_say(FAILED)
    cluster.all_gone()
    assert cluster.end.failure.message.startswith("rank 0: ")
    assert [rank for rank, _ in cluster.end.failure.ranks] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("news", "said"),
    [
        (Violated(1, "a line is too long"), "too long"),
        (Said(1, [{"kind": "nonsense"}]), "kind must be"),
        (Said(1, [result(), result()]), "before the last one was answered"),
    ],
)
def test_a_violation_of_the_protocol_fails_the_attempt(cluster, news, said):
    cluster.begin()
    cluster.news("a", news)
    cluster.all_gone()
    assert (cluster.end.outcome, cluster.end.failure.kind) == (Outcome.FAILED, "malformed message")
    assert said in cluster.end.failure.message


def test_where_the_zygote_of_one_node_dies_the_ranks_elsewhere_are_killed_and_all_is_lost(cluster):
    cluster.begin()
    cluster.asked.clear()
    cluster.news("b", Gone(2, None))
    killed = cluster.take_asked("rank_kill")
    assert [(node, message["rank"]) for node, message in killed] == [("a", 0), ("a", 1), ("b", 3)]
    cluster.news("b", Gone(3, None))
    for rank in (0, 1):
        cluster.news("a", Gone(rank, ExitInfo(-9)))
    assert cluster.end.outcome is Outcome.LOST


def test_a_kill_reaches_all_ranks_with_their_grace(cluster):
    cluster.begin()
    cluster.asked.clear()
    cluster.groups.kill(KillWorker(*KEY, "it took too long", term_grace_s=3.0))
    killed = cluster.take_asked("rank_kill")
    assert [(message["rank"], message["grace_s"]) for _, message in killed] == [
        (rank, 3.0) for rank in range(4)
    ]
    cluster.all_gone()
    assert (cluster.end.outcome, cluster.end.failure.message) == (
        Outcome.KILLED,
        "it took too long",
    )


@pytest.mark.parametrize("node", ["a", "b"])
def test_what_a_group_is_killed_for_while_a_node_is_silent_does_not_count(cluster, node):
    cluster.begin()
    cluster.silent = {node}
    cluster.groups.kill(KillWorker(*KEY, "no report for more than 10 s", is_silent=True))
    cluster.silent = set()  # it is heard again, and says that it has killed the ranks
    cluster.all_gone()
    assert cluster.end.outcome is Outcome.LOST
    assert f"nothing was heard of node {node} when" in cluster.end.failure.message
    assert "no report for more than 10 s" in cluster.end.failure.message


def test_a_kill_before_rank_0s_node_listens_ends_the_attempt_at_once(cluster):
    cluster.groups.start(cluster.command)
    cluster.groups.kill(KillWorker(*KEY, "it took too long"))
    assert [node for node, _ in cluster.take_asked("rank_abandon")] == ["a"]
    assert cluster.end.outcome is Outcome.KILLED
    cluster.news("a", Listening("10.0.0.1", 29500))
    assert cluster.asked == []


def test_a_node_that_cannot_listen_fails_the_attempt_unless_it_lacks_something_for_now(cluster):
    cluster.groups.start(cluster.command)
    failure = Failure("OSError", "cannot listen at 10.0.0.1")
    cluster.news("a", Refused(failure, is_shortage=True))
    assert cluster.events == []
    assert cluster.groups.deadline_s is not None
    cluster.groups.start(cluster.command)
    cluster.news("a", Refused(failure, is_shortage=False))
    assert (cluster.end.outcome, cluster.end.failure) == (Outcome.FAILED, failure)


def test_when_a_rank_cannot_be_started_now_all_are_started_again_later(cluster):
    cluster.begin()
    cluster.asked.clear()
    cluster.news("b", Unstarted(2, SHORTAGE))
    assert [message["rank"] for _, message in cluster.take_asked("rank_kill")] == [0, 1, 3]
    cluster.all_gone()
    assert cluster.events == []
    assert cluster.groups.deadline_s is not None


def test_when_a_node_leaves_the_ranks_elsewhere_are_killed_and_then_the_group_is_lost(cluster):
    cluster.begin()
    cluster.asked.clear()
    cluster.groups.on_node_left("b", 0.0)
    assert [(node, each["rank"]) for node, each in cluster.take_asked("rank_kill")] == [
        ("a", 0),
        ("a", 1),
    ]
    cluster.groups.kill(KillWorker("t00001", 1, "node b is gone"))
    cluster.say(0, result())
    cluster.news("a", Gone(0, ENDED))
    assert cluster.events == []
    cluster.news("a", Gone(1, ENDED))
    [exited] = cluster.events
    assert (exited.trial_id, exited.attempt) == ("t00001", 1)
    assert exited.outcome in {Outcome.LOST, Outcome.KILLED}


ABORTED = ExitInfo(-6)
SHORTAGE = Failure("OSError", "too many open files")


def rank_raises(cluster):
    cluster.say(0, FAILED)


def rank_dies(cluster):
    cluster.news("a", Gone(0, ABORTED))


def all_hang(cluster):
    cluster.groups.kill(KillWorker(*KEY, "no report", is_silent=True))


def some_wait_too_long(cluster):
    cluster.say(0, result())
    cluster.groups.tick()


COLLATERAL = [rank_raises, rank_dies, all_hang, some_wait_too_long]


@pytest.fixture
def impatient(cluster):
    cluster.groups._patience = replace(cluster.groups._patience, timeout_s=0.0)
    return cluster.begin()


@pytest.mark.parametrize("happens", COLLATERAL)
def test_what_happens_to_the_others_before_the_loss_of_a_node_is_known_does_not_count(
    impatient, happens
):
    alive_s = time.monotonic()
    happens(impatient)
    for rank in (0, 1):
        impatient.news("a", Gone(rank, ExitInfo(-9)))
    assert impatient.events == []  # node b may be heard again
    impatient.groups.on_node_left("b", alive_s)
    assert impatient.end.outcome is Outcome.LOST
    assert impatient.end.failure.message == "node b is gone; the trial is not at fault"


@pytest.mark.parametrize("happens", COLLATERAL)
@pytest.mark.parametrize("is_lost_later", [False, True])
def test_where_the_node_was_only_silent_at_that_moment_it_counts(impatient, happens, is_lost_later):
    happens(impatient)
    for rank in (0, 1):
        impatient.news("a", Gone(rank, ENDED))
    if is_lost_later:
        impatient.groups.on_node_left("b", time.monotonic())
    else:
        for rank in (2, 3):
            impatient.news("b", Gone(rank, ENDED))
    assert impatient.end.outcome in {Outcome.FAILED, Outcome.KILLED}


def test_the_other_order_a_node_that_is_lost_before_the_others_notice(cluster):
    cluster.begin()
    cluster.groups.on_node_left("b", time.monotonic())
    cluster.say(0, FAILED)
    for rank in (0, 1):
        cluster.news("a", Gone(rank, ENDED))
    assert cluster.end.outcome is Outcome.LOST


def test_of_two_nodes_that_are_lost_one_was_there_when_the_group_failed(cluster):
    cluster.begin()
    alive_s = time.monotonic()
    cluster.say(0, FAILED)
    cluster.groups.on_node_left("a", time.monotonic())
    cluster.groups.on_node_left("b", alive_s)
    assert cluster.end.outcome is Outcome.LOST


def test_a_group_that_is_to_be_started_again_is_lost_with_its_node(cluster):
    cluster.begin()
    cluster.news("a", Unstarted(0, SHORTAGE))
    cluster.news("a", Gone(1, ENDED))
    cluster.groups.on_node_left("b", 0.0)
    assert cluster.end.outcome is Outcome.LOST


@pytest.mark.parametrize(("num_done", "outcome"), [(4, Outcome.COMPLETED), (3, Outcome.LOST)])
def test_the_loss_of_a_node_matters_until_all_ranks_have_returned(cluster, num_done, outcome):
    cluster.begin()
    for rank in range(4)[-num_done:]:
        cluster.say(rank, DONE)
    cluster.groups.on_node_left("b", 0.0)
    for rank in (0, 1):
        cluster.news("a", Gone(rank, ENDED))
    assert cluster.end.outcome is outcome


@pytest.mark.parametrize("has_left", [False, True])
def test_what_waits_to_be_started_again_is_given_up_when_a_node_leaves(
    cluster, monkeypatch, has_left
):
    monkeypatch.setattr("tuner.execution.start_retry._RETRY_S", 0.0)
    cluster.groups.start(cluster.command)
    cluster.news("a", Refused(Failure("OSError", "no descriptors"), is_shortage=True))
    if has_left:
        cluster.groups.on_node_left("b", 0.0)
    cluster.asked.clear()
    cluster.groups.tick()
    assert len(cluster.take_asked("rank_listen")) == (0 if has_left else 1)


def test_another_node_than_its_own_says_nothing_about_a_rank(cluster):
    cluster.begin()
    cluster.news("b", Gone(0, ENDED))
    cluster.news("a", Gone(7, ENDED))
    cluster.all_say({"kind": "started", "pid": 7})
    assert list(map(type, cluster.events)) == [WorkerStarted]


def test_the_answer_to_a_request_goes_to_the_node_that_asked(cluster):
    cluster.begin()
    fields = {"min_workers": 1, "num_workers": 1, "max_workers": 1, "strategy": "PACK"}
    group = {**fields, "resources_per_worker": {"cpu": 1.0}}
    cluster.say(2, {"kind": "lease", "token": "7-1", "group": group})
    assert isinstance(cluster.events[0], LeaseRequested)
    assert cluster.groups.take_asker(*KEY, "7-1") == "b"
    assert cluster.groups.take_asker(*KEY, "7-1") is None


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "rank_listening", "address": "", "port": 1},
        {"kind": "rank_listening", "address": "x", "port": 70000},
        {"kind": "rank_gone", "rank": 1},
        {"kind": "rank_said", "rank": "1", "messages": []},
        {"kind": "rank_violated", "rank": 1},
        {"kind": "rank_measured", "index": 0, "conflicts": [], "contents": {"files": {}}},
        {**MEASURED, "contents": {**CONTENTS, "links": {"../x": "y"}}},
        {**MEASURED, "contents": {**CONTENTS, "files": {"x": {**ENTRY, "size_bytes": "1"}}}},
        {**MEASURED, "contents": {**CONTENTS, "files": {"x": {"size_bytes": 1}}}},
        {"kind": "rank_unstored", "index": 0, "why": "x"},
        {"kind": "started"},
    ],
)
def test_malformed_news_are_refused(message):
    with pytest.raises(ValueError, match="got"):
        read_news(message)
