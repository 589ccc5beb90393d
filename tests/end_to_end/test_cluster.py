"""Experiments on a cluster of subprocesses whose nodes and network fail."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from searchers import BasicVariantGenerator
from tests.cluster.fake_cluster import FakeCluster
from tests.waiting import wait_until
from tuner.cluster.link import Liveness
from tuner.errors import ClusterError
from tuner.execution.local import orphans
from tuner.journal import reader

SOON = Liveness(silent_s=1.0, node_timeout_s=6.0, lease_s=4.0, reconnect_s=30.0, idle_s=0.5)
NODES = {"a": {"cpu": 2}, "b": {"cpu": 2}}
NUM_STEPS = 8


@pytest.fixture
def executor():
    """Run trials in processes: nodes can do nothing else."""
    return "process"


@pytest.fixture
def cluster():
    made = []

    def make(nodes=None, **options):
        made.append(FakeCluster(nodes or NODES, liveness=SOON, **options))
        return made[-1]

    yield make
    for each in made:
        each.__exit__(None, None, None)


def count(config):
    """Report and save each of some steps."""

    def wait(step):
        if step == 3 and "until_joined" in config:  # a slow start must not leave a node out
            directory = Path(config["until_joined"])
            wait_until(lambda: len(records(directory, "node_joined")) >= len(NODES))
        if step > NUM_STEPS // 2 and "until_draining" in config:
            wait_until(lambda: records(Path(config["until_draining"]), "node_draining"))

    take_steps(config, wait)


def take_steps(config, before_step):
    """Report and save each of some steps, before which a function is called with its number."""
    step = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            step = int(Path(directory, "step").read_text())
    while step < config.get("num_steps", NUM_STEPS):
        step += 1
        before_step(step)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            metrics = {"step": step, "loss": config["x"] / step, "ppid": os.getppid()}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


class Once(tune.Callback):
    """Calls a function once, at the first result for which another one returns True."""

    def __init__(self, when, then):
        self.when, self.then, self.error = when, then, None

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if self.then and self.when(trial, result):
            then, self.then = self.then, None
            then()


def at_step(number):
    return lambda trial, result: result["step"] == number


def run(build, cluster, *, num_samples=6, callbacks=None, space=None, **run):
    tuner = build(
        run.pop("trainable", count),
        space or {"x": tune.uniform(0, 1)},
        tune={
            "metric": "loss",
            "mode": "min",
            "num_samples": num_samples,
            "search_alg": BasicVariantGenerator(),
            "seed": 1,
            "scheduler": run.pop("scheduler", None),
        },
        cluster=cluster,
        callbacks=callbacks,
        **run,
    )
    return tuner.fit()


def on_both(tmp_path):
    """Return a space whose trials go on when both nodes have joined."""
    return {"x": tune.uniform(0, 1), "until_joined": str(tmp_path / "experiment")}


def check_complete(results, num_steps=NUM_STEPS):
    """Check that each trial has all its rows, each once."""
    assert results.num_errors == 0, results.errors
    for result in results:
        steps = list(result.metrics_dataframe["step"])
        assert steps == list(range(1, num_steps + 1)), (result.path, steps)


def processes_of(directory):
    """Return the processes of nodes, and of their trials, that work in a directory."""
    inode = orphans.DriverIdentity.of_host(str(directory / "experiment")).inode
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(orphans.VARIABLE, "").endswith(f":{inode}"):
                found.append(process.cmdline())
    return found


def records(directory, kind):
    return [record for record in reader.read(directory) if record["k"] == kind]


def test_results_are_those_of_one_machine_and_no_process_is_left(build, cluster, tmp_path):
    results = run(build, cluster(), space=on_both(tmp_path))
    assert processes_of(tmp_path) == []
    alone = run(build, None, storage_path=tmp_path / "alone")
    check_complete(results)
    columns = ["trial_id", "step", "loss", "config/x"]
    there, here = (
        each.get_dataframe().sort_values("trial_id")[columns] for each in (results, alone)
    )
    assert there.to_dict("list") == here.to_dict("list")
    nodes = {record["node"] for record in records(tmp_path / "experiment", "node_joined")}
    assert nodes == set(NODES)


def test_trials_of_a_node_that_dies_continue_on_others(build, cluster, tmp_path):
    nodes = cluster()
    die = Once(at_step(3), lambda: nodes.kill_node("a"))
    results = run(build, nodes, callbacks=[die], space=on_both(tmp_path))
    check_complete(results)
    (left,) = records(tmp_path / "experiment", "node_left")
    assert (left["node"], left["why"]) == ("a", "the machine has lost its power")


def test_an_agent_replaces_its_host(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 2}})
    results = run(build, nodes, callbacks=[Once(at_step(3), lambda: nodes.kill_host("a"))])
    check_complete(results)
    joined = [record["node"] for record in records(tmp_path / "experiment", "node_joined")]
    assert joined == ["a", "a.2"]


def test_a_short_cut_of_the_network_costs_nothing(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 2}})

    def cut():
        nodes.set_network("a", is_cut=True)
        threading.Timer(0.7, nodes.set_network, ["a"]).start()

    results = run(build, nodes, callbacks=[Once(at_step(3), cut)])
    check_complete(results)
    assert records(tmp_path / "experiment", "node_left") == []


def test_trials_of_a_node_that_is_cut_off_continue_on_others(build, cluster, tmp_path):
    nodes = cluster()

    def cut():
        nodes.set_network("a", is_cut=True)

    results = run(build, nodes, callbacks=[Once(at_step(3), cut)], space=on_both(tmp_path))
    check_complete(results)
    (left,) = records(tmp_path / "experiment", "node_left")
    assert left["node"] == "a"
    assert left["why"].startswith("nothing was heard of it")


def test_a_node_that_was_cut_off_takes_part_again(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 2}})

    def cut():
        nodes.set_network("a", is_cut=True)
        threading.Timer(7.0, nodes.set_network, ["a"]).start()

    results = run(build, nodes, num_samples=2, callbacks=[Once(at_step(3), cut)])
    check_complete(results)
    joined = [record["node"] for record in records(tmp_path / "experiment", "node_joined")]
    assert joined == ["a", "a.2"]


def test_a_network_that_loses_doubles_and_reorders_changes_nothing(build, cluster, tmp_path):
    nodes = cluster()

    def spoil():
        for name in NODES:
            nodes.set_network(name, jitter_s=0.02, loss=0.1, doubling=0.2)

    results = run(build, nodes, callbacks=[Once(at_step(1), spoil)])
    check_complete(results)
    assert records(tmp_path / "experiment", "node_left") == []


def test_trials_move_from_a_node_that_announces_its_end(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 1}, "b": {"cpu": 1}})
    drain = Once(at_step(3), lambda: nodes.drain_node("a", 30.0))
    results = run(build, nodes, num_samples=2, callbacks=[drain], space=on_both(tmp_path))
    check_complete(results)
    (draining,) = records(tmp_path / "experiment", "node_draining")
    assert (draining["node"], draining["within"]) == ("a", 30.0)
    assert all(record["failure"] is None for record in records(tmp_path / "experiment", "exited"))


def test_a_host_that_is_told_to_end_has_its_trials_moved(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 1}, "b": {"cpu": 1}})

    def is_on_a_at_two(trial, result):  # a host that is still starting would die of the signal
        return trial.node == "a" and result["step"] == 2

    results = run(
        build,
        nodes,
        num_samples=2,
        callbacks=[Once(is_on_a_at_two, lambda: nodes.terminate_host("a"))],
        space={"x": tune.uniform(0, 1), "until_draining": str(tmp_path / "experiment")},
    )
    check_complete(results)
    assert [each["node"] for each in records(tmp_path / "experiment", "node_draining")] == ["a"]


def test_a_host_that_hangs_is_replaced(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 2}})
    results = run(build, nodes, callbacks=[Once(at_step(3), lambda: nodes.freeze_host("a"))])
    check_complete(results)
    joined = [record["node"] for record in records(tmp_path / "experiment", "node_joined")]
    assert joined == ["a", "a.2"]


def test_a_gateway_that_dies_is_replaced(build, cluster, tmp_path):
    nodes = cluster()
    die = Once(at_step(3), nodes.kill_gateway)
    results = run(build, nodes, callbacks=[die], space=on_both(tmp_path))
    check_complete(results)
    joined = [record["node"] for record in records(tmp_path / "experiment", "node_joined")]
    assert sorted(joined) == ["a", "a-2", "b", "b-2"]


def test_a_cluster_that_comes_back_is_found_again(build, cluster):
    nodes = cluster()

    def restart():
        nodes.take_down()
        threading.Timer(2.5, nodes.bring_up).start()

    check_complete(run(build, nodes, callbacks=[Once(at_step(3), restart)]))


def test_a_cluster_that_stays_away_ends_the_experiment_which_can_be_restored(build, tmp_path):
    soon = Liveness(silent_s=1.0, node_timeout_s=6.0, lease_s=4.0, reconnect_s=1.0)
    with (
        FakeCluster(NODES, liveness=soon) as nodes,
        pytest.raises(ClusterError, match="restore the experiment"),
    ):
        run(build, nodes, callbacks=[Once(at_step(3), nodes.take_down)])
    results = tune.Tuner.restore(tmp_path / "experiment", count, callbacks=[]).fit()
    check_complete(results)


def test_a_cluster_that_cannot_be_reached_is_an_error_and_leaves_nothing(build, cluster, tmp_path):
    nodes = cluster()
    (Path(nodes.settings()["directory"]) / "down").touch()
    with pytest.raises(ClusterError, match=r"a fake cluster of 2 nodes cannot be used: .* down"):
        run(build, nodes)
    assert not (tmp_path / "experiment").exists()


def test_requests_are_placed_by_their_labels(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 4}, "b": {"cpu": 4}}, labels={"b": {"kind": "fast"}})
    trainable = tune.with_resources(count, {"cpu": 1}, labels={"kind": "fast"})
    results = run(build, nodes, trainable=trainable, num_samples=3)
    check_complete(results)


def test_nodes_are_added_for_what_waits(build, cluster, tmp_path):
    nodes = cluster({"a": {"cpu": 1}}, spare={"b": {"cpu": 1}})
    check_complete(run(build, nodes, num_samples=4))
    joined = [record["node"] for record in records(tmp_path / "experiment", "node_joined")]
    assert joined == ["a", "b"]


def test_a_population_exploits_across_nodes(build, cluster):
    scheduler = PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    )
    nodes = cluster()
    results = run(build, nodes, num_samples=4, scheduler=scheduler)
    assert results.num_errors == 0
    assert {result.metrics["step"] for result in results} == {NUM_STEPS}


def fail_at(config):
    tune.report({"step": 1, "loss": 1.0})
    raise ValueError("the training code is wrong")


def test_errors_of_trials_are_told_as_on_one_machine(build, cluster):
    results = run(build, cluster({"a": {"cpu": 2}}), trainable=fail_at, num_samples=2)
    assert results.num_errors == 2
    assert all("the training code is wrong" in str(error) for error in results.errors)


SCRIPT = """
import os, sys
sys.path.insert(0, {root!r})
import tuner as tune
from tests.end_to_end.test_cluster import NODES, SOON, Once, at_step, count
from tests.cluster.fake_cluster import FakeCluster
from tests.waiting import wait_until

def die():
    os.kill(os.getpid(), 9)

with FakeCluster(NODES, liveness=SOON) as nodes:
    tune.Tuner(
        count,
        param_space={{"x": tune.uniform(0, 1)}},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=6, seed=1),
        run_config=tune.RunConfig(
            name="experiment", storage_path={storage!r}, verbose=0, cluster=nodes,
            callbacks=[Once(at_step(4), die)],
        ),
    ).fit()
"""


def test_a_driver_that_is_killed_takes_all_with_it_and_is_restored(cluster, tmp_path):
    root = os.fspath(Path(__file__).resolve().parents[2])
    script = SCRIPT.format(root=root, storage=os.fspath(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    results = tune.Tuner.restore(
        tmp_path / "experiment", count, cluster=cluster(), callbacks=[]
    ).fit()
    check_complete(results)
    assert processes_of(tmp_path) == []


def test_the_output_of_trials_is_in_their_directories(build, cluster):
    def speak(config):
        print("hello from", os.getpid())
        tune.report({"step": 1, "loss": 0.0})

    (result,) = run(build, cluster({"a": {"cpu": 1}}), trainable=speak, num_samples=1)
    assert Path(result.path, "stdout").read_text().startswith("hello from")
    assert json.loads(Path(result.path, "params.json").read_text())
