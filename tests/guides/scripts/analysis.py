"""Looking at the results: the best trial, tables for pandas, and the files themselves."""

import json
import sys
import tempfile
from pathlib import Path

import pandas as pd

import tuner as tune
from tuner import Checkpoint, CheckpointConfig, RunConfig


def train_func(config):
    for epoch in range(1, 6):
        accuracy = config["lr"] * epoch if epoch < 4 else config["lr"]
        with tempfile.TemporaryDirectory() as temporary:
            (Path(temporary) / "epoch.txt").write_text(str(epoch))
            tune.report(
                {"accuracy": accuracy, "nested": {"epoch": epoch}},
                checkpoint=Checkpoint.from_directory(temporary),
            )


if __name__ == "__main__":
    tuner = tune.Tuner(
        train_func,
        param_space={"lr": tune.grid_search([0.1, 0.2, 0.3])},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
        run_config=RunConfig(
            name="analysis",
            storage_path=sys.argv[1],
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="accuracy", checkpoint_score_order="max"
            ),
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print("best lr:", best.config["lr"])
    print(
        "latest epoch:",
        best.metrics["nested"]["epoch"],
        (Path(best.checkpoint.path) / "epoch.txt").read_text(),
    )
    print(
        "best epochs:",
        [
            int((Path(checkpoint.path) / "epoch.txt").read_text())
            for checkpoint, _ in best.best_checkpoints
        ],
    )
    print(
        "best checkpoint:",
        (Path(best.get_best_checkpoint("accuracy", "max").path) / "epoch.txt").read_text(),
    )

    last = results.get_dataframe()
    print("last:", [round(value, 1) for value in last["accuracy"]])
    peak = results.get_dataframe(filter_metric="accuracy", filter_mode="max")
    print("peak:", [round(value, 1) for value in peak["accuracy"]], list(peak["nested/epoch"]))
    print("columns:", all(Path(path).is_dir() for path in last["logdir"]), list(last["config/lr"]))

    print("rows:", len(best.metrics_dataframe), best.metrics_dataframe["nested/epoch"].tolist())
    table = pd.read_csv(Path(best.path) / "progress.csv")
    print("csv:", table["nested/epoch"].tolist())
    lines = (Path(best.path) / "result.json").read_text().splitlines()
    print("json:", [json.loads(line)["nested"]["epoch"] for line in lines])
    print("errors:", results.errors, results.num_errors, results.num_terminated)
