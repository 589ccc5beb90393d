"""Trials that train over several processes on several nodes, which share only an object store."""

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tuner as tune
from tests.cluster.fake_cluster import FakeCluster
from tests.end_to_end.test_cluster import SOON, Once, at_step
from tests.end_to_end.test_groups_on_clusters import WithoutOptimizers
from tuner.storage import strict_json
from tuner.storage.layout import MANIFEST
from tuner.stores.object_store import ObjectStore
from tuner.train import (
    Checkpoint,
    CheckpointUploadMode,
    RunConfig,
    ScalingConfig,
    get_checkpoint,
    get_context,
    report,
)
from tuner.train.torch import TorchTrainer

pytestmark = pytest.mark.heavy

NUM_STEPS = 5
NODES = {"a": {"cpu": 2}, "b": {"cpu": 2}}


def train(config):
    """Sum the ranks over all processes, step by step, with a part of a checkpoint from each."""
    context, step = get_context(), 0
    rank = context.get_world_rank()
    print("rank", rank, "begins", flush=True)
    if checkpoint := get_checkpoint():
        with checkpoint.as_directory() as directory:
            parts = {Path(directory, f"part{rank}").read_text() for rank in range(4)}
            (step,) = map(int, parts)
    while step < config["num_steps"]:
        step += 1
        if step == config["fails_at"] and not Path(config["marker"]).exists():
            Path(config["marker"]).touch()
            raise RuntimeError("as the test wants")
        total = torch.tensor([rank + 1])
        dist.all_reduce(total)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"part{rank}").write_text(f"{step}")
            Path(directory, "all").write_text(f"{step}")
            report(
                {"step": step, "total": int(total)},
                checkpoint=Checkpoint.from_directory(directory),
                checkpoint_upload_mode=config["mode"],
            )
    if config["mode"] is CheckpointUploadMode.SYNC:
        with get_checkpoint().as_directory() as directory:
            assert {path.name for path in Path(directory).glob("part*")} >= {"part0", "part3"}


@pytest.fixture
def search(s3_url, tmp_path, monkeypatch):
    """Return a function that trains one trial, with two ranks on each of two nodes."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))

    def search(
        cluster,
        callbacks=(),
        mode=CheckpointUploadMode.SYNC,
        fails_at=0,
        **options,
    ):
        trainer = search.trainer = TorchTrainer(
            train,
            train_loop_config={
                "num_steps": NUM_STEPS,
                "mode": mode,
                "fails_at": fails_at,
                "marker": str(tmp_path / "marker"),
            },
            torch_config=WithoutOptimizers(),
            scaling_config=ScalingConfig(num_workers=4, placement_strategy="SPREAD"),
            run_config=RunConfig(),
        )
        return tune.Tuner(
            trainer,
            run_config=tune.RunConfig(
                name="experiment",
                storage_path=s3_url,
                local_dir=tmp_path / "local",
                verbose=0,
                cluster=cluster,
                callbacks=list(callbacks),
                **options,
            ),
        ).fit()

    return search


@pytest.fixture
def stored(s3_url):
    return ObjectStore(f"{s3_url}/experiment")


def check(result):
    assert result.error is None
    rows = result.metrics_dataframe
    assert list(rows["step"]) == list(range(1, NUM_STEPS + 1))
    assert set(rows["total"]) == {1 + 2 + 3 + 4}
    with result.checkpoint.as_directory() as directory:
        found = {path.name: path.read_text() for path in Path(directory).glob("[!.]*")}
    assert found == dict.fromkeys(("all", "part0", "part1", "part2", "part3"), f"{NUM_STEPS}")


def manifests(stored):
    return [name for name in stored.list() if name.endswith(f"/{MANIFEST}")]


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_each_node_uploads_its_part_and_the_manifest_lists_them_all(search, stored, mode):
    with FakeCluster(NODES, liveness=SOON) as cluster:
        (result,) = search(cluster, mode=mode)
    check(result)
    (*_, name) = manifests(stored)
    manifest = strict_json.unseal(stored.get(name))
    assert (manifest["format"], manifest["world_size"]) == (2, 4)
    assert {key: entry["rank"] for key, entry in manifest["files"].items()} == {
        "all": 3, "part0": 0, "part1": 1, "part2": 2, "part3": 3,
    }  # fmt: skip
    for key, entry in manifest["files"].items():
        content = stored.get(name.replace(MANIFEST, key))
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    trial_id = result.metrics["trial_id"]
    for rank in range(4):
        output = stored.get(f"{trial_id}/stdout{f'.rank{rank}' if rank else ''}")
        assert output == f"rank {rank} begins\n".encode()


def test_a_group_that_loses_a_node_goes_on_over_others_from_the_store(search):
    with FakeCluster({**NODES, "c": {"cpu": 2}}, liveness=SOON) as cluster:
        die = Once(at_step(2), lambda: cluster.kill_node("b"))
        (result,) = search(cluster, [die])
    check(result)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_another_machine_continues_where_only_the_store_is_left(
    search, s3_url, tmp_path, is_damaged, caplog
):
    with FakeCluster(NODES, liveness=SOON) as cluster:
        (result,) = search(cluster, fails_at=3)
    assert "as the test wants" in str(result.error)
    shutil.rmtree(tmp_path / "local")
    if is_damaged:
        stored = ObjectStore(f"{s3_url}/experiment")
        _, latest = manifests(stored)
        stored.delete([latest.replace(MANIFEST, "part3")])
    with FakeCluster(NODES, liveness=SOON) as cluster:
        (result,) = tune.Tuner.restore(
            f"{s3_url}/experiment",
            search.trainer,
            resume_errored=True,
            local_dir=tmp_path / "other",
            cluster=cluster,
        ).fit()
    check(result)
    told = "takes the one before it" in caplog.text
    assert told == is_damaged


def test_results_may_be_passed_on_before_their_checkpoints_are_stored(search, stored):
    with FakeCluster(NODES, liveness=SOON) as cluster:
        (result,) = search(cluster, checkpoint_config=tune.CheckpointConfig(upload="async"))
    check(result)
    assert manifests(stored)
