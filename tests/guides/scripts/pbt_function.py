"""Population based training of a function, and a replay of the best member's schedule.

The population has four members, of which two run at a time.
"""

import json
import sys
import tempfile
from pathlib import Path

import tuner as tune
from schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from tuner import Checkpoint, CheckpointConfig, RunConfig

PERTURBATION_INTERVAL = 3


def train_func(config):
    step, weight = 0, 10.0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            saved = json.loads((Path(checkpoint_dir) / "state.json").read_text())
        step, weight = saved["step"], saved["weight"]
    while True:
        step += 1
        weight -= config["lr"] * weight / (1 + step)
        metrics = {"step": step, "mean_accuracy": 1 / (1 + abs(weight)), "lr": config["lr"]}
        if step % PERTURBATION_INTERVAL == 0:
            with tempfile.TemporaryDirectory() as temporary:
                (Path(temporary) / "state.json").write_text(
                    json.dumps({"step": step, "weight": weight})
                )
                tune.report(metrics, checkpoint=Checkpoint.from_directory(temporary))
        else:
            tune.report(metrics)


if __name__ == "__main__":
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="mean_accuracy",
        mode="max",
        perturbation_interval=PERTURBATION_INTERVAL,
        hyperparam_mutations={"lr": tune.uniform(0.2, 1), "momentum": [0.8, 0.9, 0.99]},
    )
    tuner = tune.Tuner(
        train_func,
        # Far too small, so that the best trial at the end is a clone.
        param_space={
            "lr": tune.uniform(0.001, 0.01),
            "momentum": 0.9,
        },
        tune_config=tune.TuneConfig(
            scheduler=scheduler, num_samples=4, max_concurrent_trials=2, seed=1
        ),
        run_config=RunConfig(
            name="pbt",
            storage_path=sys.argv[1],
            stop={"training_iteration": 18},
            checkpoint_config=CheckpointConfig(
                checkpoint_score_attribute="mean_accuracy", num_to_keep=2
            ),
        ),
    )
    results = tuner.fit()
    best = results.get_best_result(metric="mean_accuracy", mode="max")
    print("members:", len(results), min(result.metrics["step"] for result in results) >= 18)
    print("best:", best.trial_id, best.metrics["mean_accuracy"])
    # Not of the last result: a member that exploits another at its end stops a step further.
    saved = best.metrics_dataframe.dropna(subset=["checkpoint_dir_name"])
    print("best checkpoint:", best.best_checkpoints[-1][1]["step"] == saved["step"].max())

    replay = PopulationBasedTrainingReplay(
        str(Path(results.experiment_path) / f"pbt_policy_{best.trial_id}.txt")
    )
    replayed = tune.Tuner(
        train_func,
        param_space=replay.config,
        tune_config=tune.TuneConfig(scheduler=replay),
        run_config=RunConfig(
            name="replay",
            storage_path=sys.argv[1],
            stop={"training_iteration": best.metrics["training_iteration"]},
        ),
    ).fit()[0]
    print("changes:", [change.iteration for change in replay.changes])
    print(
        "steps of the replay:",
        replayed.metrics_dataframe["step"].tolist() == list(range(1, best.metrics["step"] + 1)),
    )
    print(
        "replayed:",
        replayed.metrics["mean_accuracy"] == best.metrics["mean_accuracy"],
        replayed.config == best.config,
    )
