"""DDP: only rank 0 saves a checkpoint and reports it; the others report metrics.

The guide passes an undefined name to `from_directory`; here it is the temporary directory.
"""

import tempfile
from pathlib import Path

import tuner.train.torch
from tuner import train
from tuner.train import Checkpoint


def train_fn(config):
    rank = train.get_context().get_world_rank()
    metrics = {"rank": rank, "world_size": train.get_context().get_world_size()}

    with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
        checkpoint = None

        # Only the global rank 0 worker saves and reports the checkpoint
        if train.get_context().get_world_rank() == 0:
            Path(temp_checkpoint_dir, "saved_by").write_text(str(rank))
            checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)

        train.report(metrics, checkpoint=checkpoint)


trainer = tuner.train.torch.TorchTrainer(
    train_fn, scaling_config=train.ScalingConfig(num_workers=2)
)
result = trainer.fit()

print("metrics of rank", result.metrics["rank"], "of", result.metrics["world_size"])
with result.checkpoint.as_directory() as directory:
    print("saved by rank", Path(directory, "saved_by").read_text())
