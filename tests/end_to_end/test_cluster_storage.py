"""Experiments on the nodes of a cluster whose files are in an object store."""

import shutil
from pathlib import Path

import pytest

import tuner as tune
from schedulers import PopulationBasedTraining
from tests.end_to_end.test_cluster import NUM_STEPS, SOON, Once, at_step, check_complete, count
from tuner.storage.object_store import ObjectStore
from tuner.testing import FakeCluster

NODES = {"a": {"cpu": 2}, "b": {"cpu": 2}}


@pytest.fixture
def search(s3_url, tmp_path):
    """Return a function that runs trials on nodes, with all files in a bucket."""
    made = []

    def run(*, callbacks=None, num_samples=4, scheduler=None, trainable=count, **options):
        cluster = FakeCluster(NODES, liveness=SOON)
        made.append(cluster)
        return tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=num_samples, seed=1, scheduler=scheduler
            ),
            run_config=tune.RunConfig(
                name="experiment",
                storage_path=s3_url,
                local_dir=tmp_path / "driver",
                verbose=0,
                cluster=cluster,
                callbacks=callbacks(cluster) if callbacks else None,
                **options,
            ),
        ).fit()

    yield run
    for each in made:
        each.__exit__(None, None, None)


def test_trials_of_a_node_that_dies_continue_elsewhere_from_the_store(search, s3_url, tmp_path):
    results = search(
        callbacks=lambda cluster: [Once(at_step(3), lambda: cluster.kill_node("a"))],
        durability="storage",
    )
    check_complete(results)
    shutil.rmtree(tmp_path / "driver")
    again = tune.ResultGrid.from_directory(f"{s3_url}/experiment")
    check_complete(again)
    with again[0].checkpoint.as_directory() as directory:
        assert Path(directory, "step").read_text() == str(NUM_STEPS)


def test_a_population_exploits_across_nodes_through_the_store(search):
    scheduler = PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    )
    results = search(scheduler=scheduler)
    assert results.num_errors == 0, results.errors
    assert {result.metrics["step"] for result in results} == {NUM_STEPS}


def speak(config):
    print("hello")
    Path(tune.get_context().get_trial_dir(), "figure.txt").write_text("drawn")
    tune.report({"loss": 0.0})


def test_output_and_files_of_trials_are_in_the_store(search, s3_url):
    (result,) = search(trainable=speak, num_samples=1)
    store = ObjectStore(f"{s3_url}/experiment/{result.trial_id}")
    assert b"hello" in store.get("stdout")
    assert store.get("figure.txt") == b"drawn"
