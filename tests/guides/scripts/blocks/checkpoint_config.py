"""Which checkpoints are kept: the latest, or the best by a metric.

The storage path of the second example is a bucket in the guide; here it is a directory.
"""

import sys
import tempfile

from tuner import train
from tuner.train import Checkpoint, CheckpointConfig, RunConfig
from tuner.train.torch import TorchTrainer

# Example 1: Only keep the 2 *most recent* checkpoints and delete the others.
run_config = RunConfig(checkpoint_config=CheckpointConfig(num_to_keep=2))
latest = run_config

# Example 2: Only keep the 2 *best* checkpoints and delete the others.
run_config = RunConfig(
    checkpoint_config=CheckpointConfig(
        num_to_keep=2,
        # *Best* checkpoints are determined by these params:
        checkpoint_score_attribute="mean_accuracy",
        checkpoint_score_order="max",
    ),
    # This will store checkpoints on S3.
    storage_path=sys.argv[1],
)
best = run_config


def train_func(config):
    for accuracy in [0.5, 0.9, 0.8, 0.1, 0.2]:
        with tempfile.TemporaryDirectory() as directory:
            train.report({"mean_accuracy": accuracy}, Checkpoint.from_directory(directory))


for run_config in (latest, best):
    result = TorchTrainer(train_func, run_config=run_config).fit()
    print([metrics["mean_accuracy"] for _, metrics in result.best_checkpoints])
