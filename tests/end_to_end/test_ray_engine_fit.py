"""Experiments on a Ray cluster of this machine, whose nodes and processes die."""

import os
import tempfile
from pathlib import Path

import psutil
import pytest

import tuner as tune
from searchers import BasicVariantGenerator
from tuner.cluster.cluster import RayCluster

pytest.importorskip("ray")

from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parents[2]
NUM_STEPS = 20
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's own processes
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300), QUIET]


@pytest.fixture(scope="module")
def cluster():
    # A node that does not answer is dead after two seconds.
    checks = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
    }
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": checks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


def count(config):
    """Report and save each of some steps."""
    step = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            step = int(Path(directory, "step").read_text())
    while step < NUM_STEPS:
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            metrics = {"step": step, "loss": config["x"] / step, "ppid": os.getppid()}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


class Once(tune.Callback):
    """Calls a function with a trial's result, once, at a step."""

    def __init__(self, step, then):
        self.step, self.then = step, then

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if self.then and result["step"] == self.step:
            then, self.then = self.then, None
            then(result)


def run(storage, cluster, callback, num_samples=8):
    grid = tune.Tuner(
        count,
        param_space={"x": tune.uniform(1, 2)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_samples,
            search_alg=BasicVariantGenerator(),
        ),
        run_config=tune.RunConfig(
            name="experiment",
            storage_path=storage,
            cluster=RayCluster(
                cluster.address,
                runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
                lease_s=10.0,  # what a node runs that is merely cut off lives as long
            ),
            callbacks=[callback],
            verbose=0,
        ),
    ).fit()
    assert callback.then is None
    assert [result.error for result in grid] == [None] * num_samples
    # No result is counted twice, and none is missing.
    for result in grid:
        assert result.metrics_dataframe["step"].tolist() == list(range(1, NUM_STEPS + 1))


def actor_of(result):
    """Return the process of the Ray actor above a trial."""
    actor = psutil.Process(result["ppid"]).parent().parent()
    assert "AgentActor" in actor.name()
    return actor


def test_trials_of_an_actor_that_dies_continue(tmp_path, cluster):
    run(tmp_path, cluster, Once(3, lambda result: actor_of(result).kill()))


def test_trials_of_a_node_that_dies_continue_on_others(tmp_path, cluster):
    def kill_node(result):
        raylet = actor_of(result).parent()
        for process in [raylet, *raylet.children(recursive=True)]:
            process.kill()

    run(tmp_path, cluster, Once(3, kill_node))
