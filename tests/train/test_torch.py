"""PyTorch in two workers: process group, models, data loaders, checkpoints."""

import dataclasses
import os
import signal
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import tuner as tune
from tests.execution.conversation import assignment
from tuner import train
from tuner.execution.assignment import Rank

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")

from tuner.train import torch as train_torch  # noqa: E402  (needs torch)
from tuner.train.torch import TorchConfig, TorchTrainer  # noqa: E402


class Keep(train.UserCallback):
    """Keep what all workers report."""

    def __init__(self):
        self.reports = []

    def after_report(self, run_context, metrics, checkpoint):
        self.reports.append(metrics)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"backend": 3}, TypeError),
        ({"init_method": "file"}, ValueError),
        ({"timeout_s": 0}, ValueError),
        ({"timeout_s": "1"}, TypeError),
        ({"timeout_s": -1.0}, ValueError),
        ({"timeout_s": float("inf")}, ValueError),
        ({"timeout_s": float("nan")}, ValueError),
        ({"timeout_s": 1e15}, ValueError),
        ({"backend": "glo"}, ValueError),
        ({"backend": "cpu:gloo,cuda:ncl"}, ValueError),
        ({"backend": ""}, ValueError),
    ],
)
def test_an_impossible_process_group_is_refused(arguments, error):
    with pytest.raises(error, match=f"{next(iter(arguments))} must be"):
        TorchConfig(**arguments)


@pytest.mark.parametrize("backend", ["gloo", "NCCL", "cpu:gloo,cuda:nccl", "mine"])
def test_backends_of_pytorch_and_registered_ones_are_accepted(backend, monkeypatch):
    monkeypatch.setattr(torch.distributed.Backend, "backend_list", ["gloo", "nccl", "mine"])
    assert TorchConfig(backend, timeout_s=24 * 3600).backend == backend


def test_the_trainer_takes_a_torch_config_only():
    with pytest.raises(TypeError, match="torch_config"):
        TorchTrainer(lambda: None, torch_config={"backend": "gloo"})


def test_outside_a_group_a_model_is_not_wrapped():
    model = torch.nn.Linear(2, 1)
    assert train_torch.prepare_model(model) is model
    assert train_torch.unwrap_model(torch.nn.DataParallel(model)) is model
    assert train_torch.get_devices() == [train_torch.get_device()]
    with pytest.raises(ValueError, match="parallel_strategy"):
        train_torch.prepare_model(model, parallel_strategy="pipeline")


def test_outside_a_group_a_loader_keeps_its_sampler():
    loader = torch.utils.data.DataLoader(list(range(8)), shuffle=True)
    assert train_torch.prepare_data_loader(loader, move_to_device=False) is loader


@pytest.fixture
def rank_with_gpus(monkeypatch, tmp_path):
    """Return a function that makes this process a rank which sees the GPUs of its group."""

    def become(gpu_ids, local_rank, local_world_size, *, world_size=None, gpus=1.0):
        size = world_size or local_world_size
        rank = Rank(local_rank, size, local_rank, local_world_size, 0, "127.0.0.1", 0, "group")
        given = assignment(tmp_path, rank=rank, gpu_ids=gpu_ids, resources={"gpu": gpus * size})
        attempt = SimpleNamespace(assignment=given)
        monkeypatch.setattr(train_torch, "current_attempt", lambda: attempt)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(set(gpu_ids)))

    return become


@pytest.mark.parametrize(
    ("gpu_ids", "gpus", "numbers"),
    [
        ((0, 0), 0.5, [[0], [0]]),
        ((3, 3), 0.5, [[0], [0]]),
        ((0, 1, 1), 0.5, [[0], [1], [1]]),
        ((0, 0, 0, 1), 0.25, [[0], [0], [0], [1]]),
        ((4, 7), 1.0, [[0], [1]]),
        ((2, 3, 5, 6), 2.0, [[0, 1], [2, 3]]),
        ((5,), 0.5, [[0]]),
        ((1, 6), 2.0, [[0, 1]]),
    ],
)
def test_a_rank_uses_the_devices_that_it_was_assigned(rank_with_gpus, gpu_ids, gpus, numbers):
    for local_rank in range(len(numbers)):
        rank_with_gpus(gpu_ids, local_rank, len(numbers), gpus=gpus)
        found = [device.index for device in train_torch.get_devices()]
        assert found == numbers[local_rank]
        assert train_torch.get_device() == torch.device("cuda", found[0])


@pytest.mark.parametrize(
    ("gpu_ids", "gpus", "world_size", "backend"),
    [
        ((4, 7), 1.0, 2, "nccl"),
        ((0, 1, 2, 3), 2.0, 2, "nccl"),
        ((0, 0), 0.5, 2, "gloo"),
        ((0,), 0.5, 1, "nccl"),
        # The ranks of one node cannot see whether those of another share; all must choose the same.
        ((0, 1), 0.5, 4, "gloo"),
    ],
)
def test_workers_that_share_a_gpu_join_with_gloo(
    rank_with_gpus, gpu_ids, gpus, world_size, backend
):
    num_here = int(len(gpu_ids) // max(gpus, 1))
    rank_with_gpus(gpu_ids, 0, num_here, world_size=world_size, gpus=gpus)
    assert train_torch._default_backend(world_size) == backend


def test_a_single_trial_uses_all_gpus_that_it_sees(monkeypatch, tmp_path):
    attempt = SimpleNamespace(assignment=assignment(tmp_path, gpu_ids=(2, 5)))
    monkeypatch.setattr(train_torch, "current_attempt", lambda: attempt)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert train_torch.get_devices() == [torch.device("cpu")]  # it has asked for none
    attempt.assignment = dataclasses.replace(attempt.assignment, resources={"gpu": 2.0})
    assert [device.index for device in train_torch.get_devices()] == [0, 1]


@pytest.fixture
def wrapped(monkeypatch):
    """Return what a model is wrapped with in one of two workers with a GPU each."""
    given = {}

    def wrap(model, **arguments):
        given.update(arguments)
        return model

    monkeypatch.setattr(train_torch, "_world_size", lambda: 2)
    monkeypatch.setattr(train_torch, "get_device", lambda: torch.device("cuda", 1))
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", wrap)
    monkeypatch.setattr("torch.distributed.fsdp.FullyShardedDataParallel", wrap)
    return given


def test_a_model_that_is_not_moved_is_wrapped_where_it_is(wrapped):
    model = torch.nn.Linear(2, 1)
    train_torch.prepare_model(model, move_to_device=False)
    assert wrapped == {}
    train_torch.prepare_model(model, False, "fsdp")
    assert wrapped == {}  # PyTorch looks where the parameters are


def test_a_model_on_the_gpu_is_wrapped_for_it(wrapped, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, device: model)
    train_torch.prepare_model(torch.nn.Linear(2, 1))
    assert wrapped == {
        "device_ids": [torch.device("cuda", 1)],
        "output_device": torch.device("cuda", 1),
    }


@pytest.mark.parametrize(
    ("sampler", "warning"),
    [
        ({"shuffle": True}, None),
        ({"shuffle": False}, None),
        ({"replacement": True}, "draws with replacement"),
        ({"num_samples": 3}, "draws 3 of 8"),
        ({"weights": [1.0] * 8, "num_samples": 3}, "WeightedRandomSampler"),
    ],
)
def test_what_a_distributed_sampler_does_not_do_is_a_warning(sampler, warning, monkeypatch):
    context = SimpleNamespace(get_world_size=lambda: 2, get_world_rank=lambda: 1)
    monkeypatch.setattr(train_torch, "_world_size", lambda: 2)
    monkeypatch.setattr(train_torch, "get_context", lambda: context)
    data = list(range(8))
    if "shuffle" not in sampler:
        kind = "WeightedRandomSampler" if "weights" in sampler else "RandomSampler"
        source = () if "weights" in sampler else (data,)
        sampler = {"sampler": getattr(torch.utils.data, kind)(*source, **sampler)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = train_torch.prepare_data_loader(torch.utils.data.DataLoader(data, **sampler))
    assert isinstance(loader.sampler, torch.utils.data.DistributedSampler)
    assert [warning in str(one.message) for one in caught] == ([True] if warning else [])


def loop(config):
    """Train a linear model on known data, and report what shows that workers work together."""
    context = train.get_context()
    rank = context.get_world_rank()
    train_torch.enable_reproducibility(3)
    model = train_torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    inputs = torch.arange(24.0).reshape(12, 2) / 24
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    loader = train_torch.prepare_data_loader(loader)
    first, checkpoint = 0, train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory, "state.pt"))
        train_torch.unwrap_model(model).load_state_dict(state["model"])
        first = state["epoch"] + 1
    for epoch in range(first, config["epochs"]):
        loader.sampler.set_epoch(epoch)
        for batch, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        own = train_torch.unwrap_model(model)
        metrics = {
            "weight": own.weight.sum().item(),
            "rows": len(loader.sampler),
            "backend": torch.distributed.get_backend(),
            "epoch": epoch,
        }
        with train.checkpoint_dir() as directory:
            saved = None
            if rank == 0:
                state = {"model": own.state_dict(), "epoch": epoch}
                torch.save(state, Path(directory, "state.pt"))
                saved = train.Checkpoint.from_directory(directory)
            train.report(metrics, saved)
        if config.get("fails_after") == epoch and not first:
            raise RuntimeError("on purpose")


def test_workers_share_gradients_and_data(trainer):
    keep = Keep()
    config = {"lr": 0.1, "epochs": 2}
    result = trainer(loop, config, kind=TorchTrainer, run={"callbacks": [keep]}).fit()
    for first, second in keep.reports:
        assert first["weight"] == second["weight"]
        assert first["rows"] == second["rows"] == 6
    assert result.metrics["backend"] == "gloo"


def test_a_retried_training_ends_like_an_undisturbed_one(trainer):
    def train_once(name, **config):
        run = {"name": name, "failure_config": train.FailureConfig(max_failures=1)}
        given = {"lr": 0.1, "epochs": 4, **config}
        return trainer(loop, given, kind=TorchTrainer, run=run).fit()

    undisturbed, retried = train_once("undisturbed"), train_once("retried", fails_after=1)
    assert retried.metrics["weight"] == undisturbed.metrics["weight"]
    assert retried.metrics_dataframe["epoch"].tolist() == [0, 1, 2, 3]


def test_population_based_training_exchanges_checkpoints_of_groups(trainer):
    scheduler = tune.create_scheduler(
        "pbt",
        time_attr="training_iteration",
        perturbation_interval=1,
        synch=True,  # a member that exploits one that is done has nothing left to train
        hyperparam_mutations={"train_loop_config": {"lr": [0.01, 0.1]}},
    )
    grid = tune.Tuner(
        trainer(loop, {"lr": 1, "epochs": 3}, kind=TorchTrainer),
        param_space={"train_loop_config": {"lr": tune.grid_search([0.01, 0.1])}},
        tune_config=tune.TuneConfig(metric="weight", mode="max", scheduler=scheduler, seed=1),
    ).fit()
    assert not grid.errors
    assert [result.metrics["epoch"] for result in grid] == [2, 2]


def test_what_prepare_model_imports_is_loaded_before_the_workers_are_forked(trainer):
    def count(config):
        before, parent = set(sys.modules), os.getppid()
        model = train_torch.prepare_model(torch.nn.Linear(2, 1))
        torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
        late = sorted(name for name in set(sys.modules) - before if name.startswith("torch."))
        train.report({"late": late, "parent": parent})

    keep = Keep()
    trainer(count, kind=TorchTrainer, run={"callbacks": [keep]}).fit()
    (reported,) = keep.reports
    assert all(len(own["late"]) < 20 for own in reported), reported  # 800 of torch._dynamo
    # Both are forks of one process: loading has started no threads, or each would load for itself.
    assert len({own["parent"] for own in reported}) == 1


def shard_model(config):
    """Train a model in shards, and report whether all parameters arrived."""
    model = train_torch.prepare_model(torch.nn.Linear(4, 2), parallel_strategy="fsdp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(3, 4)).sum()
    loss.backward()
    optimizer.step()
    train.report({"loss": loss.item(), "kind": type(model).__name__})


def test_a_model_can_be_sharded(trainer):
    metrics = trainer(shard_model, kind=TorchTrainer).fit().metrics
    assert metrics["kind"] == "FullyShardedDataParallel"


def test_a_collective_operation_that_never_ends_raises_after_the_timeout(trainer):
    def wait_alone(config):
        if train.get_context().get_world_rank() == 0:
            torch.distributed.barrier()
        else:
            signal.pause()

    given = {"torch_config": TorchConfig(timeout_s=1)}
    with pytest.raises(train.WorkerGroupError, match="rank 0"):
        trainer(wait_alone, kind=TorchTrainer, **given).fit()


def test_enable_reproducibility_seeds_all_generators():
    def draw():
        train_torch.enable_reproducibility(3)
        return torch.rand(1).item()

    try:
        assert draw() == draw()
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.raises(TypeError, match="seed"):
        train_torch.enable_reproducibility("3")
