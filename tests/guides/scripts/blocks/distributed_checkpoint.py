"""Each worker reports its part of one checkpoint.

The storage path of the guide is a bucket; here it is a directory.
"""

import os
import sys
import tempfile

import torch
from torch import nn

from tuner import train
from tuner.train import Checkpoint
from tuner.train.torch import TorchTrainer


def train_func(config):
    torch.manual_seed(train.get_context().get_world_rank())
    shard = nn.Linear(4, 4)  # stands for a part of a larger model
    metrics = {"loss": 0.5}
    with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
        rank = train.get_context().get_world_rank()
        torch.save(
            shard.state_dict(),
            os.path.join(temp_checkpoint_dir, f"model-rank={rank}.pt"),
        )
        checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)

        train.report(metrics, checkpoint=checkpoint)


trainer = TorchTrainer(
    train_func,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=sys.argv[1]),
)
# The checkpoint in cloud storage will contain: model-rank=0.pt, model-rank=1.pt

result = trainer.fit()
with result.checkpoint.as_directory() as directory:
    files = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    first, second = (torch.load(os.path.join(directory, name))["weight"] for name in files)
print(*files)
print("different contents:", not torch.equal(first, second))
print("checkpoints:", len(result.best_checkpoints))
