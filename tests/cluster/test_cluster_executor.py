"""The driver's executor for clusters, with hosts that say what a test has them say."""

import json
import logging
import pickle
import threading
import time
from dataclasses import replace

import pytest

from tests.execution.executor_conversation import result
from tests.execution.fake_processes import ENDED
from tuner.cluster.cluster import RayCluster
from tuner.cluster.executor import ClusterExecutor
from tuner.cluster.files_on_nodes import FilesOnNodes
from tuner.cluster.link import Link, Liveness
from tuner.cluster.node_messages import Hello, Setup, SharedStorage, own_versions
from tuner.cluster.node_processes import NodeProcesses
from tuner.cluster.service_messages import PROCESS_EVENTS, REQUESTS
from tuner.core.commands import AnswerReport, KillWorker, StartValidation, StartWorker
from tuner.core.events import (
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Outcome,
    ValidationEnded,
    WorkerExited,
    WorkerStarted,
)
from tuner.core.worker_records import (
    CheckpointRecord,
    Failure,
    ReportReply,
    ValidationRequest,
    WorkerGroup,
)
from tuner.errors import ClusterError, StorageError
from tuner.execution.assignment import AssignmentBuilder
from tuner.execution.failures import as_message
from tuner.execution.process_executor import ProcessExecutor
from tuner.execution.process_service import Gone, Listening, Said
from tuner.stores.file_service import Source
from tuner.stores.object_checkpoints import ObjectCheckpoints
from tuner.stores.object_store import ObjectStore

pytestmark = pytest.mark.process

RESOURCES = {"cpu": 2.0}
KEY = ("t00001", 1)
STARTED = WorkerStarted(*KEY, 7)
DONE = WorkerExited(*KEY, Outcome.COMPLETED)
SAYS_STARTED = {"kind": "started", "pid": 7}
SAYS_RESULT = result()
SAYS_DONE = {"kind": "exited", "outcome": "completed", "failure": None}
UNLOADABLE = {
    **SAYS_DONE,
    "outcome": "failed",
    "failure": as_message(Failure("ModuleNotFoundError", "No module named 'mine'")),
    "is_unloadable": True,
}


class Connection:
    """The connection to a cluster whose agents say what a test has them say."""

    next_s = None

    def __init__(self):
        self.agents, self.facts, self.error = set(), None, None
        self.lines, self.evicted, self.demands = [], {}, []

    def open(self):
        self.facts = {}

    def tell(self, agent, lines):
        self.lines += [(agent, line) for line in lines]

    def evict(self, agent, why):
        self.agents.discard(agent)
        self.evicted[agent] = why

    def demand(self, unmet):
        self.demands.append(unmet)

    def tick(self, now_s):
        pass

    def close(self, deadline_s):
        pass


class Proof:
    """A proof that takes as long as a test has it take, and then finds fault with some hosts."""

    def __init__(self, faults):
        self.faults = faults
        self.is_waiting, self.may_end = threading.Event(), threading.Event()

    def complaint(self, node):
        self.is_waiting.set()
        self.may_end.wait()
        if isinstance(fault := self.faults.get(node, ""), Exception):
            raise fault
        return fault


def executor_in(directory):
    nodes = NodeProcesses(RayCluster(), trainable=b"trainable")
    assign = AssignmentBuilder(directory, "e", lambda trial_id: 5)
    processes = ProcessExecutor(
        nodes,
        assign,
        capacity={},
        on_unloadable=nodes.gives_up_unloadable,
        assign_validation=assign.validation,
    )
    return ClusterExecutor(nodes, processes)


def group_on(*nodes):
    """Return a command that starts a group over several nodes."""
    group = WorkerGroup(len(nodes), {"cpu": 1.0}, 0, 4)
    return StartWorker("t00002", 1, {}, RESOURCES, (), None, 0, group=group, nodes=nodes)


class Cluster:
    """An executor, and one end of the link of each host."""

    def __init__(self, directory, proof=None):
        self.executor, self.nodes = self.make(directory)
        self.connection = self.nodes._connection = Connection()
        storage = SharedStorage("/nowhere", ("proof", "x"))
        self.executor.wake()  # so that it waits for no node
        self.connect(Setup(storage, environ={}), proof)
        self.executor.wait(0.0)
        self.links = {}

    def make(self, directory):
        """Return the executor, and the nodes that it has."""
        executor = executor_in(directory)
        return executor, executor.nodes

    def connect(self, setup, proof):
        self.executor.connect(setup, proof)

    def add(self, agent, number=1):
        """Have an agent come up, or its next host."""
        if number == 1:
            self.connection.agents.add(agent)
            self.nodes.on_agent(agent)
        self.links[agent, number] = Link(self.nodes._token, time.monotonic())

    def say(self, agent, *messages, number=1):
        """Have a host send messages; return the events."""
        link = self.links[agent, number]
        for message in messages:
            link.send(message)
        for frame in link.take_frames(time.monotonic()):
            self.nodes.on_lines(agent, [f"[{number},{frame}]"])
        return self.executor.wait(0.0)

    def heard(self, agent, number=1):
        """Return the messages that a host has received since."""
        self.nodes._send_frames(time.monotonic())
        mine = [json.loads(line) for name, line in self.connection.lines if name == agent]
        self.connection.lines = [each for each in self.connection.lines if each[0] != agent]
        link, now_s = self.links[agent, number], time.monotonic()
        return [
            message
            for host, frame in mine
            if host == number
            for message in link.receive(frame, now_s)
        ]

    def join(self, agent, number=1, **hello):
        """Have a node join."""
        if (agent, number) not in self.links:
            self.add(agent, number)
        fields = {"resources": RESOURCES, "labels": {}, "hostname": agent, "address": "::1"}
        greeting = Hello(1, **({"versions": own_versions()} | fields | hello))
        self.say(agent, greeting.message, number=number)
        self.heard(agent, number)
        return self.say(agent, {"kind": "ready"}, number=number)

    def start(self, node="a", key=KEY):
        self.executor.carry_out(
            [StartWorker(*key, {"x": 1}, RESOURCES, (), None, 0, nodes=(node,))]
        )

    @property
    def keys(self):
        """The keys of the processes that are there."""
        return list(self.nodes._node_of)

    def hear(self, agent, *records, number=1):
        """Have a node say something about its processes."""
        return self.say(agent, *map(PROCESS_EVENTS.encode, records), number=number)

    def hear_of(self, agent, key, *messages):
        """Have a process send messages."""
        return self.hear(agent, Said(key, list(messages)))

    def end(self, agent, key, *messages):
        """Have a process send messages, and end."""
        said = [Said(key, list(messages))] if messages else []
        return self.hear(agent, *said, Gone(key, ENDED))


def look_after(cluster, seconds):
    """Look at the nodes when so many seconds are over."""
    now_s = time.monotonic() + seconds
    cluster.nodes._looked_s = now_s
    cluster.nodes._look_at_nodes(now_s)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.executor.shutdown(1.0)


def test_a_node_joins_when_it_has_taken_the_code(cluster):
    cluster.add("a")
    hello = Hello(1, own_versions(), resources=RESOURCES, labels={"zone": "x"})
    assert cluster.say("a", hello.message) == []
    assert [message["kind"] for message in cluster.heard("a")] == ["setup", "blob", "blob_end"]
    assert cluster.say("a", {"kind": "ready"}) == [NodeJoined("a", RESOURCES, {"zone": "x"})]
    assert cluster.executor.capacity() == RESOURCES


def test_nodes_join_when_the_driver_has_seen_what_they_have_written(tmp_path, caplog):
    other, broken = "it is another store; give it that", StorageError("no answer")
    proof = Proof({"b.1": other, "c.1": broken})
    cluster = Cluster(tmp_path, proof)
    for name in "abcd":
        assert cluster.join(name) == []
    proof.is_waiting.wait()
    cluster.nodes.on_agent_gone("d", "it has gone meanwhile")
    assert cluster.executor.wait(0.0) == []  # the driver goes on meanwhile
    proof.may_end.set()
    events = []
    while not (events and {"b", "c"} <= cluster.connection.evicted.keys()):
        events += cluster.executor.wait(0.1)
    cluster.executor.shutdown(1.0)
    assert events == [NodeJoined("a", RESOURCES, {})]
    assert f"node b is not used: {other}" in caplog.text
    assert "whether it uses the same storage as the driver: no answer" in caplog.text


def test_a_node_with_another_version_is_refused_and_named(cluster, caplog):
    versions = own_versions() | {"tuner": "0.0.1"}
    assert cluster.join("a", versions=versions) == []
    assert "tuner 0.0.1" in cluster.connection.evicted["a"]
    assert "node a is not used: it has tuner 0.0.1" in caplog.text


def test_a_node_that_is_refused_again_is_not_named_again(cluster, caplog):
    versions = own_versions() | {"tuner": "0.0.1"}
    for agent, host in [("a", "a"), ("a-2", "a"), ("b", "b")]:
        cluster.join(agent, versions=versions, hostname=host)
    assert len(cluster.connection.evicted) == 3
    assert [record.args[0] for record in caplog.records] == ["a", "b"]


def test_a_node_with_another_numpy_joins_with_a_warning(cluster, caplog):
    assert cluster.join("a", versions=own_versions() | {"numpy": "1.0"})
    assert "node a: it has numpy 1.0" in caplog.text


def test_a_process_runs_on_its_node(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("b")
    (key,) = cluster.keys
    (start,) = map(REQUESTS.decode, cluster.heard("b"))
    assert (start.key, start.assignment.trial_id, start.assignment.seed) == (key, "t00001", 5)
    assert pickle.loads(start.assignment.config.data) == {"x": 1}  # noqa: S301  (our own)
    assert cluster.heard("a") == []
    started, reported = cluster.hear_of("b", key, SAYS_STARTED, SAYS_RESULT)
    assert (started, reported.metrics["loss"]) == (STARTED, 0.5)
    cluster.executor.carry_out([AnswerReport(*KEY, ReportReply.CONTINUE)])
    assert cluster.heard("b") == [
        {"kind": "send", "key": key, "line": '{"verdict":"continue","save":false}\n'}
    ]
    cluster.executor.carry_out([KillWorker(*KEY, "enough", 2.0)])
    assert cluster.heard("b") == [{"kind": "kill", "key": key, "grace_s": 2.0}]
    (ended,) = cluster.end("b", key)
    assert ended.outcome is Outcome.KILLED
    cluster.executor.carry_out([KillWorker(*KEY, "late")])
    assert cluster.heard("b") == []


def test_what_a_node_says_about_processes_elsewhere_is_dropped(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("b")
    (key,) = cluster.keys
    assert cluster.end("a", key, SAYS_STARTED, SAYS_DONE) == []
    assert cluster.end("b", key + 7, SAYS_DONE) == []
    assert cluster.end("b", key, SAYS_DONE) == [DONE]
    assert cluster.hear_of("b", key, SAYS_STARTED) == []


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "nonsense"},
        {"kind": "said", "key": 1, "messages": []},
        {"kind": "said", "key": "1", "messages": [{}]},
        {"kind": "listening", "key": 1, "address": "", "port": 1},
        {"kind": "listening", "key": 1, "address": "x", "port": 70000},
        {"kind": "listening", "key": 1, "address": "x", "port": 1},
        {"kind": "gone", "key": 1, "exit_info": {"code": "0"}, "stderr": ""},
        {"kind": "gone", "key": 1},
        {"kind": "unstarted", "key": 1, "failure": "no", "is_shortage": True},
        {"kind": "probed", "why": ""},
        {"kind": "ready"},
        {"kind": "event", "body": {}},
        {},
    ],
)
def test_a_host_that_breaks_the_protocol_is_ended(cluster, message):
    cluster.join("a")
    cluster.start()
    assert cluster.keys == [1]
    (left,) = cluster.say("a", message)
    assert left == NodeLeft("a", cluster.connection.evicted["a"])
    assert left.reason.startswith("it sent what it must not send: ")


@pytest.mark.parametrize("is_silent", [True, False])
def test_what_a_trial_is_killed_for_while_its_node_is_silent_does_not_count(cluster, is_silent):
    cluster.join("a")
    cluster.start("a")
    if is_silent:
        cluster.nodes._nodes["a"].link.heard_s -= 6.0
    cluster.executor.carry_out([KillWorker(*KEY, "no report", is_silent=True)])
    (ended,) = cluster.end("a", *cluster.keys)
    if is_silent:
        assert ended.outcome is Outcome.LOST
        why = "nothing was heard of node a when the trial was killed: no report"
        assert ended.failure.message.startswith(why)
    else:
        assert ended.outcome is Outcome.KILLED


def test_a_trial_that_ends_by_itself_before_it_is_to_be_killed_has_ended(cluster):
    cluster.join("a")
    cluster.start("a")
    cluster.nodes._nodes["a"].link.heard_s -= 6.0
    assert cluster.hear_of("a", *cluster.keys, SAYS_DONE) == []
    cluster.executor.carry_out([KillWorker(*KEY, "no report", is_silent=True)])
    assert cluster.end("a", *cluster.keys) == [DONE]


def test_an_agent_that_is_gone_is_a_node_that_left(cluster):
    cluster.join("a")
    cluster.start("a")
    cluster.nodes.on_agent_gone("a", "the power went out")
    assert cluster.executor.wait(0.0) == [NodeLeft("a", "the power went out")]
    assert cluster.end("a", 1, SAYS_DONE) == []
    cluster.start("a", ("t00001", 2))  # the core does not know yet
    assert cluster.keys == []


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


def test_an_agent_that_comes_back_too_late_is_ended(cluster):
    cluster.join("a")
    cluster.start("a")
    cluster.nodes.on_agent_gone("a", "its connection is closed", may_live=True)
    cluster.nodes.on_agent("a")
    assert list(cluster.connection.evicted) == ["a"]
    assert cluster.executor.wait(0.0) == [NodeDraining("a", is_cut_off=True)]
    look_after(cluster, 31.0)
    assert cluster.executor.wait(0.0) == [NodeLeft("a", "its connection is closed")]


def test_what_is_found_dead_later_is_not_waited_for(cluster):
    cluster.join("a")
    cluster.start("a")
    cluster.nodes.on_agent_gone("a", "its connection is closed", may_live=True)
    cluster.executor.wait(0.0)
    cluster.nodes.on_agent_gone("a", "it was started again")
    assert cluster.executor.wait(0.0) == [NodeLeft("a", "it was started again")]


def test_the_next_host_of_an_agent_is_another_node(cluster):
    cluster.join("a")
    line = json.dumps({"host_gone": 1, "why": "killed by signal 9", "next": 2})
    cluster.nodes.on_lines("a", [line])
    assert cluster.executor.wait(0.0) == [NodeLeft("a", "killed by signal 9")]
    assert cluster.join("a", 2) == [NodeJoined("a.2", RESOURCES, {})]
    assert cluster.say("a", {"kind": "ready"}) == []  # late, of the first one


def test_a_host_whose_announcement_was_lost_takes_the_place_of_the_one_before(cluster):
    cluster.join("a")
    cluster.add("a", 2)
    (left,) = cluster.say("a", number=2)
    assert left == NodeLeft("a", "its process was replaced by another one")
    assert cluster.join("a", 2) == [NodeJoined("a.2", RESOURCES, {})]
    gone = json.dumps({"host_gone": 1, "why": "killed by signal 9", "next": 2})
    cluster.nodes.on_lines("a", [gone])  # which comes late
    assert cluster.executor.wait(0.0) == []


def test_an_agent_whose_hosts_do_not_start_is_given_up(cluster, caplog):
    cluster.add("a")
    line = json.dumps({"host_gone": 3, "why": "exit code 1", "next": None})
    cluster.nodes.on_lines("a", [line])
    assert list(cluster.connection.evicted) == ["a"]
    assert "node a is not used any more: exit code 1" in caplog.text


@pytest.mark.parametrize("is_heard", [False, True])
def test_the_verdict_on_a_group_waits_while_a_node_of_it_is_silent(cluster, is_heard, monkeypatch):
    monkeypatch.setattr("tuner.groups.group._COLLATERAL_S", 0.0)
    for name in "ab":
        cluster.join(name)
    cluster.executor.carry_out([group_on("a", "b")])
    assert cluster.heard("a") == [{"kind": "listen", "key": 1, "is_local": False}]
    cluster.hear("a", Listening(1, "10.0.0.1", 1))
    (start,) = map(REQUESTS.decode, cluster.heard("b"))
    assert (start.assignment.rank.world_rank, start.assignment.rank.master_addr) == (1, "10.0.0.1")
    raised = {"kind": "exited", "outcome": "failed", "failure": as_message(Failure("OSError", "x"))}
    assert cluster.end("a", 1, raised) == []
    cluster.executor.wait(0.0)
    if is_heard:
        assert cluster.heard("b") == [{"kind": "kill", "key": start.key, "grace_s": 0.0}]
        for frame in cluster.links["b", 1].take_frames(time.monotonic() + 1.0):
            cluster.nodes.on_lines("b", [f"[1,{frame}]"])  # a sign of life, and then nothing
    look_after(cluster, 31.0)
    [ended] = [each for each in cluster.executor.wait(0.0) if isinstance(each, WorkerExited)]
    assert ended.outcome is (Outcome.FAILED if is_heard else Outcome.LOST)


def lose(cluster, *agents):
    """Lose nodes, and let the core know of it."""
    for agent in agents:
        cluster.nodes.on_agent_gone(agent, "no power")
    cluster.executor.wait(0.0)


def told(caplog):
    return [text for each in caplog.records if "power" in (text := each.getMessage())]


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


def test_the_loss_of_a_node_is_told_where_nothing_can_be_started(cluster, caplog):
    cluster.join("a")
    cluster.start("a")
    lose(cluster, "a")
    assert told(caplog) == []  # the core is about to decide
    cluster.executor.wait(0.0)
    assert told(caplog) == ["a lost: t00001 is not running any more (no power)"]


def test_a_node_that_is_given_back_is_not_lost(cluster, caplog):
    cluster.join("a")
    cluster.nodes._evict(cluster.nodes._nodes["a"], "no power needed")
    cluster.executor.wait(0.0)
    cluster.executor.wait(0.0)
    assert told(caplog) == []


def test_why_nodes_are_not_used_is_kept(cluster):
    cluster.join("a", versions=own_versions() | {"tuner": "0.0.1"})
    cluster.nodes.on_remark("it has no TLS")
    cluster.nodes.on_remark("a worker runs no trials", is_refusal=True)
    first, second = cluster.nodes.refusals
    assert first.startswith("a: it has tuner 0.0.1")
    assert second == "a worker runs no trials"


def test_a_silent_node_is_told_and_then_has_left(cluster, caplog):
    cluster.join("a")
    began_s = time.monotonic()
    cluster.nodes._looked_s = began_s + 11.0
    cluster.nodes._look_at_nodes(began_s + 11.0)
    assert "nothing was heard of node a for 11 s" in caplog.text
    cluster.nodes._looked_s = began_s + 31.0
    cluster.nodes._look_at_nodes(began_s + 31.0)
    assert [event.node for event in cluster.executor.wait(0.0)] == ["a"]
    assert cluster.connection.evicted == {}  # its host ends itself, and another one may follow


def test_a_host_that_starts_slowly_is_waited_for(cluster, caplog):
    cluster.add("a")
    look_after(cluster, 60.0)
    assert not caplog.text
    assert cluster.join("a") == [NodeJoined("a", RESOURCES, {})]


def test_a_host_that_never_greets_is_given_up(cluster, caplog):
    cluster.add("a")
    look_after(cluster, 91.0)
    assert list(cluster.connection.evicted) == ["a"]
    assert "node a is not used: nothing was heard of it for 91 s" in caplog.text


def test_the_host_after_a_silent_one_is_spoken_to(cluster):
    # So that its agent knows that the driver lives, and starts another one if need be.
    cluster.join("a")
    look_after(cluster, 31.0)
    cluster.add("a", 2)
    cluster.nodes._send_frames(time.monotonic())
    assert [line[:3] for _, line in cluster.connection.lines] == ["[2,"]
    assert isinstance(cluster.join("a", 2)[-1], NodeJoined)


def test_what_a_node_says_after_it_has_left_is_dropped(cluster):
    cluster.join("a")
    cluster.start()
    began_s = time.monotonic()
    cluster.nodes._looked_s = began_s + 31.0
    cluster.nodes._look_at_nodes(began_s + 31.0)
    (left,) = cluster.executor.wait(0.0)
    assert isinstance(left, NodeLeft)
    assert cluster.end("a", 1, SAYS_STARTED, SAYS_DONE) == []


def test_a_node_that_is_heard_again_in_time_goes_on(cluster, caplog):
    cluster.join("a")
    cluster.nodes._looked_s = time.monotonic() + 11.0
    cluster.nodes._look_at_nodes(time.monotonic() + 11.0)
    cluster.start("a")
    assert cluster.hear_of("a", *cluster.keys, SAYS_STARTED) == [STARTED]
    assert "node a can be heard again" in caplog.text


def test_after_a_sleep_of_the_machine_what_has_arrived_is_read_first(cluster):
    cluster.join("a")
    cluster.nodes._look_at_nodes(time.monotonic() + 3600.0)
    assert cluster.executor.wait(0.0) == []


def test_a_drain_is_passed_on_once(cluster):
    cluster.join("a")
    cluster.nodes.on_draining("a", 30.0)
    assert cluster.executor.wait(0.0) == [NodeDraining("a", 30.0)]
    assert cluster.say("a", {"kind": "draining", "deadline_s": None}) == []


def test_a_node_that_drains_while_it_starts_is_not_used(cluster):
    cluster.add("a")
    cluster.nodes.on_draining("a", None)
    assert cluster.join("a") == [NodeJoined("a", RESOURCES, {}), NodeDraining("a")]


def test_code_that_one_node_alone_cannot_load_is_that_nodes_fault(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    cluster.hear_of("a", 1, SAYS_STARTED)
    cluster.start("b", ("t00002", 1))
    assert cluster.end("b", 2, UNLOADABLE) == []  # though it says in one frame how it has ended
    (left,) = cluster.executor.wait(0.0)
    why = "the training code cannot be loaded there: ModuleNotFoundError: No module named 'mine'"
    assert left == NodeLeft("b", why)


def test_code_that_no_node_can_load_is_the_trials_fault(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    (failed,) = cluster.end("a", 1, UNLOADABLE)
    assert (failed.outcome, failed.failure.kind) == (Outcome.FAILED, "ModuleNotFoundError")


def test_a_validation_runs_on_its_node(cluster):
    cluster.join("a")
    command = StartValidation(
        "t00001", CheckpointRecord(0, 1), 1, ValidationRequest(), RESOURCES, config={}, node="a"
    )
    cluster.executor.carry_out([command])
    (start,) = map(REQUESTS.decode, cluster.heard("a"))
    assert (start.key, start.assignment.num_try, start.assignment.has_payload) == (1, 1, False)
    said = {"kind": "validated", "metrics": {"accuracy": 0.5}}
    ended = ValidationEnded("t00001", 0, 1, Outcome.COMPLETED, {"accuracy": 0.5})
    assert cluster.end("a", 1, said) == [ended]


def test_a_payload_of_this_session_is_told_to_the_node_that_validates(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.start("a")
    payload = f".validation-0-{'0' * 64}.pkl"
    request = ValidationRequest(payload=payload)
    checkpoint = {"index": 0, "iteration": 1, "time_total_s": 1.0, "counters": {}}
    says = {**SAYS_RESULT, "checkpoint": checkpoint, "validation": {"payload": payload}}
    (reported,) = cluster.hear_of("a", 1, says)
    command = StartValidation("t00001", reported.checkpoint, 1, request, RESOURCES, node="b")
    cluster.executor.carry_out([command])
    (start,) = map(REQUESTS.decode, cluster.heard("b"))
    assert start.assignment.has_payload


def test_of_a_group_that_cannot_be_pickled_nothing_is_left(cluster):
    cluster.join("a")
    cluster.join("b")
    command = replace(group_on("a", "b"), config={"x": threading.Lock()})
    cluster.executor.carry_out([command])
    (failed,) = cluster.hear("a", Listening(1, "10.0.0.1", 1))
    assert (failed.outcome, failed.failure.kind) == (Outcome.FAILED, "TypeError")
    assert [message["kind"] for message in cluster.heard("a")] == ["listen", "kill"]
    assert (cluster.heard("b"), cluster.keys) == ([], [])


def test_demand_is_told_and_idle_nodes_are_given_back_where_the_engine_adds_nodes(cluster):
    cluster.join("a")
    cluster.join("b")
    cluster.connection.facts = {"is_elastic": True}
    unmet = [({"cpu": 1.0}, {}, 3)]
    cluster.nodes.unmet = lambda: unmet
    now_s = time.monotonic() + Liveness().idle_s + 1.0
    cluster.nodes._look_at_demand(now_s)
    assert cluster.connection.demands[-1] == unmet
    assert cluster.connection.evicted == {}
    unmet.clear()
    cluster.nodes._look_at_demand(now_s + 2.0)
    assert len(cluster.connection.evicted) == 1  # one is kept for what comes


def test_a_node_that_moves_files_is_not_idle(cluster, tmp_path):
    for name in "ab":
        cluster.join(name)
    cluster.connection.facts = {"is_elastic": True}
    store = ObjectStore(f"memory://bucket{tmp_path}")
    checkpoints = ObjectCheckpoints(store, tmp_path, 7)
    files = cluster.nodes.files = FilesOnNodes(cluster.nodes, checkpoints, tmp_path)
    record = CheckpointRecord(0, 1, remote="checkpoint_000000.e7a1")
    for name in "ab":
        files.fetch(name, Source("t00001", record, "source", "t00001"), pytest.fail)
    cluster.nodes._look_at_demand(time.monotonic() + Liveness().idle_s + 1.0)
    assert cluster.connection.evicted == {}


def test_a_node_with_workers_of_a_group_is_not_idle(cluster):
    for name in "abc":
        cluster.join(name)
    cluster.connection.facts = {"is_elastic": True}
    cluster.executor.carry_out([group_on("a", "b")])
    cluster.hear("a", Listening(1, "10.0.0.1", 1))
    cluster.nodes._look_at_demand(time.monotonic() + 61.0)
    assert list(cluster.connection.evicted) == ["c"]


def test_a_request_to_stop_ends_the_attempt_to_connect(tmp_path):
    executor = executor_in(tmp_path)
    connection = executor.nodes._connection = Connection()
    connection.open = lambda: None  # nothing answers
    executor.wake()
    storage = SharedStorage("/nowhere", ("proof", "x"))
    assert executor.connect(Setup(storage, environ={})) == []
    executor.shutdown(1.0)


def test_a_cluster_that_is_given_up_is_an_error(cluster):
    cluster.connection.error = ClusterError("it is gone; restore")
    with pytest.raises(ClusterError, match="restore"):
        cluster.executor.wait(1.0)


def test_lines_that_make_no_sense_are_dropped(cluster, caplog):
    caplog.set_level(logging.DEBUG, "tuner")
    cluster.join("a")
    deep = "[" * 100_000
    cluster.nodes.on_lines("a", ['{"x": 1}', "[0, {}]", "no JSON", f"[1, {deep}"])
    assert cluster.executor.wait(0.0) == []


def test_a_lease_has_to_end_before_a_node_is_given_up():
    with pytest.raises(ValueError, match="below node_timeout_s"):
        Liveness(lease_s=30.0)
