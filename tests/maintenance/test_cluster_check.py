"""The check of a cluster, with hosts that say what a test has them say."""

import json
import time

import pytest

from tests.cluster.fake_cluster import FakeCluster
from tuner.cluster.cluster import Cluster
from tuner.cluster.link import Link
from tuner.cluster.node_messages import Hello, own_versions
from tuner.errors import ClusterError
from tuner.maintenance import cluster_check
from tuner.maintenance.cluster_check import ClusterCheck, check_cluster
from tuner.maintenance.doctor import Level


class Blackboards(Cluster):
    engine = "none:None"
    library = "json"

    def settings(self):
        return {}

    def describe(self):
        return "some blackboards"


class Connection:
    """The connection to a cluster whose agents say what a test has them say."""

    def __init__(self):
        self.facts, self.error, self.lines = {"version": "3.0"}, None, []

    def open(self):
        pass

    def tell(self, agent, lines):
        self.lines += [(agent, line) for line in lines]

    def tick(self, now_s):
        pass

    def close(self, deadline_s):
        pass


class Probe:
    """A storage that a node may or may not reach."""

    place, proof = "s3://bucket/x", ("1", "")

    def __init__(self, complaint=""):
        self.complaint = lambda node: complaint


class Nodes:
    """A check, and one end of the link of each host."""

    def __init__(self, probe=None):
        self.check = ClusterCheck(Blackboards(), probe)
        self.connection = self.check._connection = Connection()
        self.links = {}

    def add(self, agent):
        self.check.on_agent(agent)
        self.links[agent] = Link(self.check._token, time.monotonic())

    def say(self, agent, message, number=1):
        self.links[agent].send(message)
        for frame in self.links[agent].take_frames(time.monotonic()):
            self.check.on_lines(agent, [f"[{number},{frame}]"])

    def greet(self, agent, **fields):
        self.add(agent)
        known = {"resources": {"cpu": 4.0}, "labels": {"zone": "x"}, "hostname": "h1"}
        hello = Hello(**{"protocol": 1, "versions": own_versions(), **known, **fields})
        self.say(agent, hello.message)

    def heard(self, agent):
        """Return the kinds of the messages that a host has received."""
        self.check._step(time.monotonic())
        return [
            message["kind"]
            for name, line in self.connection.lines
            if name == agent
            for message in json.loads(line)[1]["m"]
        ]

    def found(self):
        """Return level and text of each finding, by subject."""
        return {
            one.subject: (one.level, one.what, one.remedy)
            for one in self.check.findings()
            if one.level is not Level.OK or one.subject != "cluster"
        }

    @property
    def is_complete(self):
        return self.check.is_complete(time.monotonic() + 1000.0)


@pytest.fixture
def nodes():
    made = []

    def make(probe=None):
        made.append(Nodes(probe))
        return made[-1]

    yield make
    for each in made:
        each.check.close()


def test_a_node_is_described_by_what_it_says(nodes):
    seen = nodes()
    seen.greet("a")
    first, second = seen.check.findings()
    assert (first.level, first.what) == (
        Level.OK, "some blackboards can be reached, version 3.0",
    )  # fmt: skip
    assert (second.subject, second.level) == ("node a", Level.OK)
    assert second.what.startswith("h1; cpu 4; zone=x; tuner ")
    assert seen.heard("a") == []
    assert seen.is_complete
    assert not seen.check.is_complete(time.monotonic())  # others may follow


def test_a_node_with_another_python_would_be_refused(nodes):
    seen = nodes(Probe())
    seen.greet("a", versions={**own_versions(), "python": "3.9"})
    level, what, remedy = seen.found()["node a"]
    assert level is Level.ERROR
    assert what.startswith("would be refused: it has Python 3.9, while the driver has")
    assert remedy == "install the same versions on all nodes"
    assert seen.heard("a") == []
    assert seen.is_complete


def test_a_node_with_another_numpy_is_warned_of(nodes):
    seen = nodes()
    seen.greet("a", versions={**own_versions(), "numpy": "1.0"})
    *_, last = seen.check.findings()
    assert last.level is Level.WARNING
    assert "numpy 1.0 (the driver: " in last.what


@pytest.mark.parametrize(
    ("complaint", "answer", "expected"),
    [
        ("", "", None),
        ("", "it cannot use it; give it access", "would be refused: it cannot use it"),
        ("not there; share it", "", "would be refused: not there"),
    ],
)
def test_a_node_has_to_reach_the_storage(nodes, complaint, answer, expected):
    seen = nodes(Probe(complaint))
    seen.greet("a")
    assert not seen.is_complete
    assert seen.heard("a") == ["probe"]
    seen.say("a", {"kind": "probed", "why": answer})
    assert seen.is_complete
    *_, last = seen.check.findings()
    if expected is None:
        assert "; reaches s3://bucket/x; " in last.what
    else:
        assert (last.level, last.what) == (Level.ERROR, expected)
        assert last.remedy


def test_a_node_that_does_not_answer_is_named(nodes):
    seen = nodes(Probe())
    seen.add("a")
    seen.greet("b")
    assert not seen.is_complete
    found = seen.found()
    assert found["node a"][:2] == (Level.ERROR, "has not answered")
    assert "has not told whether it reaches s3://bucket/x" in found["node b"][1]


def test_a_node_that_dies_is_named_with_the_cause(nodes):
    seen = nodes()
    for name in ("a", "b", "c"):
        seen.add(name)
    seen.check.on_lines("a", ['{"host_gone": 1, "why": "exit code 5", "next": null}'])
    seen.check.on_agent_gone("b", "its machine is gone")
    seen.check.on_lines("c", ['[1,{"s":"","n":"x"}]'])
    found = seen.found()
    assert found["node a"][1] == "is gone: exit code 5"
    assert found["node b"][1] == "is gone: its machine is gone"
    assert found["node c"][1].startswith("is gone: it sent what it must not send")
    assert seen.is_complete


def test_the_next_host_of_an_agent_is_asked_anew(nodes):
    seen = nodes()
    seen.add("a")
    seen.check.on_lines("a", ['{"host_gone": 1, "why": "exit code 5", "next": 2}'])
    assert not seen.is_complete
    seen.links["a"] = Link(seen.check._token, time.monotonic())
    hello = Hello(1, own_versions(), "h1", resources={"cpu": 1.0}, labels={})
    seen.say("a", hello.message, number=2)
    assert seen.found()["node a"][0] is Level.OK


def test_a_cluster_without_nodes_is_told_from_one_that_cannot_be_reached(nodes):
    seen = nodes()
    seen.check.on_remark("the connection is not encrypted; use TLS")
    found = seen.found()
    assert found["cluster"] == (Level.WARNING, "the connection is not encrypted", "use TLS")
    assert found["nodes"][1].startswith("no node has come up within")
    seen.connection.error = ClusterError("some blackboards cannot be used: no chalk; buy some")
    [only] = seen.check.findings()
    assert (only.level, only.remedy) == (Level.ERROR, "buy some")


def test_a_storage_that_the_driver_cannot_use_is_found_before_any_node_is_asked(tmp_path):
    [found] = check_cluster(Blackboards(), str(tmp_path / "absent"))
    assert (found.subject, found.level) == ("storage", Level.ERROR)
    assert "cannot be written to" in found.what


@pytest.mark.process
@pytest.mark.parametrize("kind", ["directory", "store", "none"])
def test_real_nodes_are_asked_and_ended_again(tmp_path, monkeypatch, kind):
    are_settled = ClusterCheck.is_complete
    monkeypatch.setattr(cluster_check, "_QUIET_S", 0.0)
    monkeypatch.setattr(
        ClusterCheck,
        "is_complete",
        lambda check, now_s: len(check._nodes) == 2 and are_settled(check, now_s),
    )
    place = {"directory": str(tmp_path), "store": f"file://{tmp_path}", "none": None}[kind]
    if kind == "store":
        pytest.importorskip("fsspec")
    with FakeCluster({"a": {"cpu": 2}, "b": {"cpu": 1, "gpu": 1}}) as cluster:
        found = check_cluster(cluster, place)
    assert [(one.subject, one.level) for one in found] == [
        ("cluster", Level.OK), ("node a", Level.OK), ("node b", Level.OK),
    ], found  # fmt: skip
    assert "; cpu 1, gpu 1; " in found[2].what
    assert (f"reaches {place}" in found[1].what) is (place is not None)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
