"""Function API: a checkpoint every epoch or every third, and training that continues from it."""

import json
import sys
import tempfile
from pathlib import Path

import tuner as tune
from tuner import Checkpoint, FailureConfig, RunConfig


def train_func(config):
    start, total = 1, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            saved = json.loads((Path(checkpoint_dir) / "state.json").read_text())
        start, total = saved["epoch"] + 1, saved["total"]
    print("starts with epoch", start)
    for epoch in range(start, config["epochs"] + 1):
        total += epoch
        metrics = {"epoch": epoch, "total": total}
        if epoch % config["every"] == 0:
            with tempfile.TemporaryDirectory() as temporary:
                (Path(temporary) / "state.json").write_text(json.dumps(metrics))
                tune.report(metrics, checkpoint=Checkpoint.from_directory(temporary))
        else:
            tune.report(metrics)
        if epoch == config["preempted_at"] and not checkpoint:
            raise RuntimeError("the machine was preempted")


if __name__ == "__main__":
    tuner = tune.Tuner(
        train_func,
        param_space={
            "epochs": 12,
            "every": tune.grid_search([1, 3]),
            "preempted_at": tune.grid_search([0, 5]),
        },
        run_config=RunConfig(
            name="function", storage_path=sys.argv[1], failure_config=FailureConfig(max_failures=1)
        ),
    )
    for result in tuner.fit():
        print(
            result.config["every"],
            result.config["preempted_at"],
            result.metrics["total"],
            len(result.best_checkpoints),
        )
