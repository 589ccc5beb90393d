"""The experiment that the fault benches run and kill.

It has 8 trials of 60 reports, two at a time, with a checkpoint at every fifth report. Each value is
computed from the previous one, so that a trial which continues from a wrong state shows in the
table. It runs on this machine, or on the cluster that the environment names. Run as a script, the
module starts the experiment, or restores it if the directory has one, as a user's script does, and
writes the final tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import tuner as tune
from schedulers import ASHAScheduler, PopulationBasedTraining
from searchers import BasicVariantGenerator

from .bystanders import LEAVER
from .clusters import declared_cluster
from .ledger import Ledger

NUM_TRIALS = 8
NUM_REPORTS = 60
CHECKPOINT_EVERY = 5
PACE = "FAULTS_PACE_S"
"""Environment variable: seconds per iteration."""
DURABILITY = "FAULTS_DURABILITY"
"""Environment variable: durability of the journal."""
LOADERS = "FAULTS_LOADERS"
"""Environment variable: if set, each trial starts loader processes."""
SCHEDULER = "FAULTS_SCHEDULER"
"""Environment variable: ``asha`` or ``pbt``; without it every trial runs to its end."""
NAME = "load"
TIMES = ("timestamp", "date", "time_this_iter_s", "time_total_s", "time_since_restore")
"""Columns with times, which differ in each run."""
PROCESSES = ("pid", "iterations_since_restore")
"""Columns that depend on the process, which differ in each run."""


def train(config: dict[str, Any]) -> None:
    """Train from the checkpoint, if there is one, and record each report in the ledger."""
    ledger = Ledger()
    trial = tune.get_context().get_trial_id()
    ledger.note("start", trial)
    state, iteration = config["seed"], 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            state, iteration = json.loads(Path(directory, "state.json").read_text(encoding="utf-8"))
    if LOADERS in os.environ:
        start_loaders()
    while iteration < NUM_REPORTS:
        state, iteration = step(state, config["pace_s"]), iteration + 1
        report(state, iteration)
        ledger.note("report", trial, iteration, loss(state))


def step(state: int, pace_s: float) -> int:
    """Return the next state, after `pace_s` seconds."""
    time.sleep(pace_s)
    return (state * 6364136223846793005 + 1442695040888963407) % 2**64


def loss(state: int) -> float:
    """Return the loss of a state."""
    return state / 2**64


def report(state: int, iteration: int) -> None:
    """Report the loss of a state, with a checkpoint at every fifth iteration.

    The second half of the iterations has an additional column.
    """
    metrics = {"loss": loss(state)} | ({"late": iteration} if 2 * iteration > NUM_REPORTS else {})
    if iteration % CHECKPOINT_EVERY:
        tune.report(metrics)
        return
    with tune.checkpoint_dir() as directory:
        Path(directory, "state.json").write_text(json.dumps([state, iteration]), encoding="utf-8")
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def start_loaders() -> None:
    """Start two processes like data loaders, one of them in a separate session."""
    command = ["sleep", "600"]
    subprocess.Popen(command)  # noqa: S603
    subprocess.Popen(  # noqa: S603
        command, start_new_session=True, env={**os.environ, LEAVER: "1"}
    )


def declared(storage: Path) -> dict[str, Any]:
    """Return the arguments of `Tuner` that all drivers share."""
    return {
        "param_space": {"seed": tune.randint(0, 2**31), "pace_s": float(os.environ[PACE])},
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=BasicVariantGenerator(),
            num_samples=NUM_TRIALS,
            max_concurrent_trials=2,
            scheduler=_scheduler(os.environ.get(SCHEDULER, "")),
            seed=1,
        ),
        "run_config": tune.RunConfig(
            name=NAME,
            storage_path=storage,
            verbose=0,
            durability=cast("Any", os.environ[DURABILITY]),
            cluster=declared_cluster(),
        ),
    }


def _scheduler(name: str) -> tune.Scheduler | None:
    match name:
        case "asha":
            return ASHAScheduler(max_t=NUM_REPORTS, grace_period=20)
        case "pbt":
            mutations = {"pace_s": lambda: float(os.environ[PACE])}
            return PopulationBasedTraining(perturbation_interval=15, hyperparam_mutations=mutations)
    return None


def write_tables(results: tune.ResultGrid, storage: Path) -> None:
    """Write a table of all results and one of all trials, without the columns that differ."""
    volatile = [*TIMES, *PROCESSES]
    rows = "".join(
        result.metrics_dataframe.drop(columns=volatile).to_csv(index=False)
        for result in results
        if result.metrics_dataframe is not None
    )
    (storage / "rows.csv").write_text(rows, encoding="utf-8")
    trials = results.get_dataframe().drop(columns=volatile)
    trials["logdir"] = [os.path.relpath(path, storage) for path in trials["logdir"]]
    (storage / "trials.csv").write_text(trials.to_csv(index=False), encoding="utf-8")


def main(storage: Path) -> None:
    """Run the experiment to its end."""
    ledger = Ledger()
    ledger.note("imported")
    tuner = tune.Tuner(train, **declared(storage), resume="auto")
    results = tuner.fit()
    ledger.note("ended")
    write_tables(results, storage)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
