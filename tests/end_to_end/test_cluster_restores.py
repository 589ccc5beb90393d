"""Experiments that begin on a cluster and continue elsewhere, and what is told of their nodes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner as tune
from tests.cluster.fake_cluster import FakeCluster
from tests.waiting import wait_until
from tuner.analysis.node_history import read_nodes
from tuner.cluster.shared_directory import SharedProof


class Counter(tune.Trainable):
    """Count, and tell where; it takes up what it has saved."""

    def setup(self, config):
        self.n = 0
        if "started" in config:
            # The first two trials wait for each other, so that each node has one.
            started = Path(config["started"])
            started.mkdir(exist_ok=True)
            (started / str(config["x"])).touch()
            wait_until(lambda: len(list(started.iterdir())) > 1)

    def step(self):
        self.n += 1
        variable = os.environ.get("OF_ALL_TRIALS", "")
        return {"n": self.n, "variable": variable, "loss": self.config["x"] / self.n}

    def save_checkpoint(self, directory):
        Path(directory, "n").write_text(str(self.n))

    def load_checkpoint(self, directory):
        self.n = int(Path(directory, "n").read_text())


@pytest.fixture
def cluster():
    with FakeCluster({"a": {"cpu": 1}, "b": {"cpu": 1}}) as cluster:
        yield cluster


def tuner_on(cluster, path, *, iterations=2, resume=None, **run):
    return tune.Tuner(
        Counter,
        param_space={"x": tune.grid_search([1.0, 2.0, 3.0]), "started": str(path / "started")},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name="e",
            storage_path=path,
            stop={"training_iteration": iterations},
            cluster=cluster,
            verbose=0,
            **run,
        ),
        resume=resume,
    )


def finished_everything():
    return tune.ResumeConfig(finished="resume")


def test_an_experiment_goes_from_a_cluster_to_this_machine_and_to_another_cluster(
    tmp_path, cluster
):
    grid = tuner_on(
        cluster, tmp_path, worker_runtime_env={"env_vars": {"OF_ALL_TRIALS": "here"}}
    ).fit()
    assert [result.metrics["n"] for result in grid] == [2, 2, 2]
    assert {result.metrics["variable"] for result in grid} == {"here"}
    assert {trial.node for trial in grid.trials} == {"a", "b"}

    here = tune.Tuner.restore(
        tmp_path / "e",
        Counter,
        resume_config=finished_everything(),
        stop={"training_iteration": 4},
        resources={"cpu": 2},
    ).fit()
    assert [result.metrics["n"] for result in here] == [4, 4, 4]
    assert {trial.node for trial in here.trials} == {""}

    with FakeCluster({"c": {"cpu": 2}}) as other:
        there = tune.Tuner.restore(
            tmp_path / "e",
            Counter,
            cluster=other,
            resources={},
            resume_config=finished_everything(),
            stop={"training_iteration": 5},
        ).fit()
    assert [result.metrics["n"] for result in there] == [5, 5, 5]
    assert {trial.node for trial in there.trials} == {"c"}

    _, history = read_nodes(tmp_path / "e")
    assert sorted(history.nodes) == ["a", "b", "c"]
    assert sum(len(node.trials) for node in history.nodes.values()) == 6
    assert all(node.num_losses == 0 for node in history.nodes.values())


def test_resume_auto_uses_the_cluster_that_is_given_now(tmp_path, cluster):
    tuner_on(None, tmp_path).fit()
    again = tuner_on(cluster, tmp_path, iterations=3, resume="auto")
    assert again._spec.run.cluster is cluster
    assert [result.metrics["n"] for result in again.fit()] == [2, 2, 2]  # they had ended


def test_the_command_tells_the_nodes_of_a_real_experiment(tmp_path, cluster):
    tuner_on(cluster, tmp_path).fit()
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "nodes", str(tmp_path / "e"), "-f", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    nodes = {node["node"]: node for node in json.loads(done.stdout)}
    assert nodes.keys() <= {"a", "b"}  # the trials may be over before the second one has joined
    assert all(node["resources"] == {"cpu": 1.0} for node in nodes.values())
    assert {node["state"] for node in nodes.values()} == {"left"}
    assert sum(node["trials"] for node in nodes.values()) == 3


def test_tune_run_takes_a_cluster(tmp_path, cluster):
    analysis = tune.run(
        Counter,
        config={"x": 1.0},
        stop={"training_iteration": 1},
        storage_path=tmp_path,
        cluster=cluster,
        verbose=0,
    )
    assert [trial.node for trial in analysis.trials] in (["a"], ["b"])


def test_an_experiment_is_not_replaced_while_nodes_of_a_dead_driver_may_write_there(
    tmp_path, caplog
):
    def run():
        config = tune.RunConfig(
            name="experiment", storage_path=tmp_path, if_exists="replace", verbose=0
        )
        tune.Tuner(lambda config: {"loss": 1.0}, run_config=config).fit()

    run()
    SharedProof(tmp_path / "experiment", 0.01)  # as a driver leaves that was killed
    run()
    assert "waiting for 0.01 s" in caplog.text
