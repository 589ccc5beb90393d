"""Experiments on a cluster of subprocesses that share nothing but an object store."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

import tuner as tune
from schedulers import PopulationBasedTraining
from searchers import BasicVariantGenerator
from tests.end_to_end.test_cluster import (
    NODES,
    NUM_STEPS,
    Once,
    at_step,
    check_complete,
    cluster,
    count,
    executor,
    records,
)
from tuner.stores.object_store import ObjectStore
from tuner.train import report as report_as_worker

__all__ = ["cluster", "executor"]  # fixtures

ONE = {"a": {"cpu": 2}}
TWO = {"a": {"cpu": 2}, "b": {"cpu": 2}}
SOME = {"metric": "loss", "mode": "min", "num_samples": 4, "seed": 1}


@pytest.fixture
def run(build, s3_url, tmp_path, monkeypatch):
    """Return a function that runs an experiment in the store."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))

    def run(trainable, nodes, **options):
        tuner = build(
            trainable,
            options.pop("space", {"x": tune.uniform(0, 1)}),
            tune={**SOME, "search_alg": BasicVariantGenerator(), **options.pop("tune", {})},
            storage_path=s3_url,
            local_dir=tmp_path / "local",
            cluster=nodes,
            **options,
        )
        return tuner.fit()

    return run


@pytest.mark.heavy
def test_results_and_checkpoints_are_complete_and_nothing_stays_on_the_nodes(
    run, cluster, s3_url, tmp_path
):
    results = run(count, cluster())
    check_complete(results)
    stored = ObjectStore(f"{s3_url}/experiment").list()
    for result in results:
        trial_id = result.metrics["trial_id"]
        assert [name for name in stored if name.startswith(f"{trial_id}/checkpoint_")]
        with result.checkpoint.as_directory() as directory:
            assert Path(directory, "step").read_text() == str(NUM_STEPS)
    assert list((tmp_path / "scratch").glob("tuner-node-*")) == []
    assert [name for name in stored if name.startswith("probe/")] == []


def open_store(directory):
    """Return a store that is another one for the first process to open it than for the others."""
    with contextlib.suppress(FileExistsError):
        Path(directory, "is-taken").mkdir()
        return OwnStore(directory, "elsewhere")
    return OwnStore(directory, "here")


class OwnStore(DirFileSystem):
    """A store that is opened anew by each process that gets it."""

    protocol = "own"
    cachable = False

    def __init__(self, directory, name):
        super().__init__(f"{directory}/{name}", LocalFileSystem(auto_mkdir=True))
        self.directory = directory

    def __reduce__(self):
        return open_store, (self.directory,)


def test_a_node_whose_store_is_another_one_is_refused(build, cluster, tmp_path, caplog):
    store = OwnStore(str(tmp_path), "here")
    tuner = build(
        count,
        {"x": tune.uniform(0, 1)},
        tune=SOME,
        storage_path="bucket",
        storage_filesystem=store,
        storage_lock="none",
        local_dir=tmp_path / "local",
        cluster=cluster(TWO),
    )
    with pytest.warns(RuntimeWarning, match="two drivers"):
        results = tuner.fit()
    check_complete(results)
    (joined,) = records(tmp_path / "local" / "experiment", "node_joined")
    assert joined["node"] in NODES
    assert "is another storage of that name; give the node" in caplog.text
    assert not list(tmp_path.glob("*/bucket/experiment/probe/*"))


@pytest.mark.heavy
def test_trials_of_a_node_that_dies_continue_from_the_store(run, cluster):
    nodes = cluster()
    results = run(count, nodes, callbacks=[Once(at_step(3), lambda: nodes.kill_node("a"))])
    check_complete(results)


@pytest.mark.heavy
def test_a_population_exploits_across_nodes_through_the_store(run, cluster):
    scheduler = PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
    )
    results = run(count, cluster(TWO), tune={"scheduler": scheduler})
    assert results.num_errors == 0, results.errors
    assert {result.metrics["step"] for result in results} == {NUM_STEPS}


@pytest.mark.heavy
def test_an_experiment_continues_without_a_cluster_where_only_the_store_is_left(
    run, cluster, s3_url, tmp_path
):
    run(count, cluster(TWO))
    shutil.rmtree(tmp_path / "local")
    again = tune.Tuner.restore(
        f"{s3_url}/experiment", count, num_samples=5, local_dir=tmp_path / "other"
    )
    results = again.fit()
    assert len(results) == 5
    check_complete(results)


@pytest.mark.heavy
def test_output_and_files_of_trials_are_in_the_store(run, cluster, s3_url):
    def speak(config):
        Path(tune.get_context().get_trial_dir(), "notes.txt").write_text("noted")
        print("hello from", os.getpid())
        tune.report({"step": 1, "loss": 0.0})

    (result,) = run(speak, cluster(ONE), tune={"num_samples": 1})
    stored = ObjectStore(f"{s3_url}/experiment").child(result.metrics["trial_id"])
    assert stored.get("stdout").startswith(b"hello from")
    assert stored.get("notes.txt") == b"noted"


def validated(config):
    offset = {config["x"]}

    def validate(checkpoint, config):
        return {"score": max(offset) + int(Path(checkpoint.path, "step").read_text())}

    for step in range(3):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            report_as_worker(
                {"loss": step},
                checkpoint=tune.Checkpoint.from_directory(directory),
                validate_fn=validate,
            )


def check_validated(results):
    assert results.num_errors == 0
    for result in results:
        assert result.metrics["score"] == result.config["x"] + 2


SMALL = {name: {"cpu": 1} for name in NODES}


@pytest.mark.heavy
def test_validations_run_on_any_node(run, cluster, s3_url):
    check_validated(run(validated, cluster(SMALL), tune={"num_samples": 3}))
    stored = ObjectStore(f"{s3_url}/experiment").list()
    assert [name for name in stored if "/.validation" in name] == []


def test_validations_run_on_any_node_of_a_shared_directory(build, cluster, tmp_path):
    tuner = build(
        validated,
        {"x": tune.uniform(0, 1)},
        tune={**SOME, "num_samples": 3},
        cluster=cluster(SMALL),
    )
    check_validated(tuner.fit())
    assert list(tmp_path.glob("experiment/*/.validation*")) == []
