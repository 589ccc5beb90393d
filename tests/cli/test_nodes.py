"""``tuner nodes``, and what other commands tell about the nodes of a cluster."""

import json

import pytest

from tests.analysis.clustered import B, Recorded, write
from tuner.storage.lock import ExperimentLock


@pytest.fixture
def spread(storage):
    return write(storage / "spread")


def test_each_node_is_a_line_with_all_that_happened_to_it(call, spread):
    with ExperimentLock(spread):
        found = json.loads(call("nodes", "spread", "-f", "json").stdout)
    by_name = {node["node"]: node for node in found}
    assert list(by_name) == ["a", "b", "c"]
    assert by_name["b"] == {
        "node": "b",
        "state": "left",
        "resources": {"cpu": 1.0},
        "labels": {},
        "running": [],
        "trials": 1,
        "losses": 1,
        "joined_s": 5.0,
        "left_s": 50.0,
        "why": "nothing was heard of it for 30 s",
    }
    assert (by_name["a"]["state"], by_name["a"]["labels"]) == ("draining", {"zone": "x"})
    assert by_name["c"]["state"] == "present"
    assert sum(len(node["running"]) for node in found) == 2


def test_the_table_is_for_people(call, spread):
    header, first, *_ = call("nodes", "spread").stdout.splitlines()
    assert header.split()[:4] == ["node", "state", "resources", "labels"]
    assert "cpu 1, gpu 1" in first
    assert "zone=x" in first
    assert "the experiment is not running" in first


def test_an_experiment_on_one_machine_has_no_nodes(call, plain):
    done = call("nodes", "plain", code=1)
    assert "plain runs on one machine, without a cluster; RunConfig(cluster=...)" in done.stderr
    assert done.stdout == ""


def test_an_experiment_that_waits_for_its_first_node_says_so(call, storage):
    talk = Recorded(node_wait_s=300.0, capacity={}, max_trials=1)
    talk.say()
    write(storage / "waits", talk)
    assert "no node has joined" in call("nodes", "waits", code=1).stderr


def test_the_node_of_a_trial_is_shown_with_it(call, spread):
    records = json.loads(call("show", "spread", "-f", "json").stdout)
    nodes = {record["trial_id"]: record["node"] for record in records}
    assert nodes["t00000"] == "a"
    header, first, *_ = call("show", "spread").stdout.splitlines()
    assert "node" in header.split()
    assert "a" in first.split()
    assert "node" in call("show", "spread", "0").stdout
    explained = call("explain", "spread", B).stdout
    assert "attempt 1 begins on b" in explained
    assert "attempt 1 is lost with node b: nothing was heard of it for 30 s" in explained


def test_an_experiment_on_one_machine_has_no_column_for_nodes(call, plain):
    records = json.loads(call("show", "plain", "-f", "json").stdout)
    assert all("node" not in record for record in records)
    assert "node" not in call("show", "plain").stdout.splitlines()[0].split()
