"""Save the parts of a model from all workers into one checkpoint, and load them over fewer workers.

Each worker holds a part of every parameter (`fully_shard`), and PyTorch's distributed checkpoint
writes the parts side by side, without gathering the model in one process. A second run continues
from that checkpoint with another number of workers; the parts are divided anew while loading. Run
it with ``python examples/sharded_dcp.py``; it takes less than a minute on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tuner as tune
from tuner import train
from tuner.train import Checkpoint, RunConfig, ScalingConfig
from tuner.train.torch import TorchTrainer, get_device


def train_func(config: dict[str, Any]) -> None:
    """Train in one of the workers, which holds a part of each parameter."""
    torch.manual_seed(config["seed"])
    device = get_device()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    fully_shard(model, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # A group of its own: collectives of a checkpoint in the default group can meet those of the
    # training, and wait for each other forever.
    saving = dist.new_group(backend="gloo")

    start = 0
    if checkpoint := train.get_checkpoint():
        weights, state = get_state_dict(model, optimizer)
        saved: dict[str, Any] = {"model": weights, "optimizer": state, "step": 0}
        with checkpoint.as_directory() as directory:
            load(saved, checkpoint_id=directory, process_group=saving)
        set_state_dict(
            model, optimizer, model_state_dict=weights, optim_state_dict=saved["optimizer"]
        )
        start = saved["step"]

    inputs = torch.linspace(-1, 1, 64 * 32, device=device).reshape(32, 64)
    for step in range(start, config["num_steps"]):
        loss = (model(inputs) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 5:
            train.report({"loss": loss.item(), "step": step})
            continue
        weights, state = get_state_dict(model, optimizer)
        saved = {"model": weights, "optimizer": state, "step": step + 1}
        # The directory is one for all workers, and is stored without a copy.
        with tune.checkpoint_dir() as directory:
            save(saved, checkpoint_id=directory, process_group=saving)
            train.report(
                {"loss": loss.item(), "step": step}, checkpoint=Checkpoint.from_directory(directory)
            )


def fit(
    options: argparse.Namespace, name: str, workers: int, steps: int, start: Checkpoint | None
) -> train.Result:
    """Train `steps` steps over `workers` workers, from `start` if it is given."""
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"num_steps": steps, "seed": options.seed},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name=f"{options.name}_{name}" if options.name else None,
            storage_path=options.storage_path,
        ),
        resume_from_checkpoint=start,
    )
    return trainer.fit()


def main(options: argparse.Namespace) -> None:
    """Train over several workers, continue over one, and print what was saved."""
    first = fit(options, "first", options.workers, 10, None)
    assert first.checkpoint is not None  # noqa: S101  (it has saved twice)
    files = sorted(Path(first.checkpoint.path).glob("*.distcp"))
    print(f"\nParts written by {options.workers} workers:", ", ".join(file.name for file in files))
    second = fit(options, "second", 1, 20, first.checkpoint)
    table = second.metrics_dataframe
    print(f"Steps of the second run, over one worker: {table['step'].min()}-{table['step'].max()}")
    losses = (first.metrics["loss"], second.metrics["loss"])
    print("Loss: {:.4f} after 10 steps, {:.4f} after 20".format(*losses))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2, help="how many processes train at first")
    parser.add_argument("--seed", type=int, default=0, help="what the first weights follow from")
    parser.add_argument("--name", help="what the names of the two runs begin with")
    parser.add_argument(
        "--storage-path", help="where the runs' directories are made; default: ~/tuner_results"
    )
    main(parser.parse_args())
