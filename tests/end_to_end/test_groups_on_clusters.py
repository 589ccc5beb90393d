"""Trials that train over several processes on several nodes of a cluster."""

import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tuner as tune
from tests.cluster.fake_cluster import FakeCluster
from tests.end_to_end.test_cluster import SOON, Once, at_step
from tuner.train import Checkpoint, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from tuner.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.heavy

NUM_STEPS = 5


class WithoutOptimizers(TorchConfig):
    """Has nodes not load what the first optimizer of a process needs, which takes seconds."""

    preloaded_modules = ("torch", "torch.distributed")


def train(config):
    """Sum the ranks over all processes, step by step, with a part of a checkpoint from each."""
    context, step = get_context(), 0
    if checkpoint := get_checkpoint():
        with checkpoint.as_directory() as directory:
            step = json.loads(Path(directory, "step").read_text())
    while step < NUM_STEPS:
        step += 1
        total = torch.tensor([context.get_world_rank() + 1])
        dist.all_reduce(total)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"part{context.get_world_rank()}").write_text(f"{step}")
            if context.get_world_rank() == 0:
                Path(directory, "step").write_text(f"{step}")
            metrics = {
                "step": step,
                "total": int(total),
                "node_rank": context.get_node_rank(),
                "local_world_size": context.get_local_world_size(),
                "address": os.environ["MASTER_ADDR"],
            }
            report(metrics, checkpoint=Checkpoint.from_directory(directory))


def search(directory, cluster, strategy, callbacks=()):
    trainer = TorchTrainer(
        train,
        train_loop_config={"x": 1},
        torch_config=WithoutOptimizers(),
        scaling_config=ScalingConfig(num_workers=4, placement_strategy=strategy),
        run_config=RunConfig(),
    )
    return tune.Tuner(
        trainer,
        run_config=tune.RunConfig(
            name="experiment",
            storage_path=directory,
            verbose=0,
            cluster=cluster,
            callbacks=list(callbacks),
        ),
    ).fit()


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD"])
def test_two_ranks_on_each_of_two_nodes_train_together(tmp_path, strategy):
    with FakeCluster({"a": {"cpu": 2}, "b": {"cpu": 2}}, liveness=SOON) as cluster:
        (result,) = search(tmp_path, cluster, strategy)
    assert result.error is None
    rows = result.metrics_dataframe
    assert list(rows["step"]) == list(range(1, NUM_STEPS + 1))
    assert set(rows["total"]) == {1 + 2 + 3 + 4}
    assert set(rows["local_world_size"]) == {2}
    with result.checkpoint.as_directory() as directory:
        parts = {path.name for path in Path(directory).glob("part*")}
    assert parts == {f"part{rank}" for rank in range(4)}


def test_a_group_that_loses_a_node_goes_on_over_others(tmp_path):
    def die():
        """Have the ranks on another node find their connections closed, and then hear nothing."""
        cluster.set_network("b", is_cut=True)
        cluster.kill_host("b")

    nodes = {name: {"cpu": 2} for name in "abc"}
    with FakeCluster(nodes, liveness=SOON) as cluster:
        (result,) = search(tmp_path, cluster, "SPREAD", [Once(at_step(2), die)])
    assert result.error is None
    assert list(result.metrics_dataframe["step"]) == list(range(1, NUM_STEPS + 1))
    assert set(result.metrics_dataframe["total"]) == {10}
