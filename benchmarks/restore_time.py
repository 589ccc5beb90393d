"""Time and memory to restore a killed experiment, and time to read its results.

Trials are simulated in virtual time, eight at once, with 100 reports each. Journal and snapshots
are written as in a real run, and the driver stops before the end without a last snapshot. A fresh
process then restores the experiment, or opens its directory and makes data frames of the results.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tuner as tune
from schedulers import ASHAScheduler
from tuner.callbacks.callback_list import CallbackList
from tuner.driver.assembly import assemble
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import JournalLog
from tuner.driver.snapshots import Snapshots
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.execution.local.process_setup import rare_garbage_collection
from tuner.journal.reader import recover
from tuner.journal.writer import Journal
from tuner.restore.experiment import restore_spec
from tuner.restore.snapshot_state import usable_snapshot
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.spec.record import write_declaration
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.declaration import read_declaration
from tuner.virtual.executor import SimulatedExecutor

from .figure import Figure

GOALS = {1_000: "1 s", 10_000: "2 s"}
FRAME_GOALS = {(500, 100): "0.5 s", (1, 300_000): "1.5 s"}
"""Goals by number of trials and number of results per trial."""
NUM_REPORTS = 100
SHARE_DONE = 0.99


class Killed(Exception):
    """Ends the driver as a kill would."""


def curve(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Yield a loss that falls towards the `x` of the configuration."""
    for step in range(1, config["steps"] + 1):
        yield {"loss": config["x"] + 1.0 / step}


def spec_for(num_trials: int, num_reports: int = NUM_REPORTS) -> ExperimentSpec:
    """Return the connected specification of the experiment; nothing is stopped early."""
    scheduler = ASHAScheduler(max_t=num_reports, grace_period=num_reports)
    settings = tune.TuneConfig(
        metric="loss", mode="min", num_samples=num_trials, scheduler=scheduler, seed=0
    )
    spec = make_spec(curve, {"x": tune.uniform(0.0, 1.0), "steps": num_reports}, settings, None)
    spec.connect()
    return spec


def settings_for(spec: ExperimentSpec) -> Any:
    """Return the settings of the core for an experiment on eight CPUs."""
    return spec.settings({"cpu": 8.0})


def run_until_killed(directory: Path, num_trials: int, num_reports: int = NUM_REPORTS) -> None:
    """Run the experiment until its driver is killed."""
    spec = spec_for(num_trials, num_reports)
    write_declaration(spec, settings_for(spec), directory)
    _, restored = restore_spec(
        spec, directory, settings_for(spec), None, ConfigCodec(spec.space, ArrayStore(directory))
    )
    state = restored.state
    executor = SimulatedExecutor(
        curve, capacity={"cpu": 8.0}, duration_s=lambda config, _: 1.0 + config["x"]
    )
    turns = itertools.count()
    callbacks = CallbackList([])
    with Journal(directory) as journal, CheckpointDeleter(journal) as deleter:
        log = JournalLog(journal, deleter)
        suggestions = SuggestionQueue(state.search_adapter)
        snapshots = Snapshots(directory, spec, state, suggestions, callbacks, log)

        def take_snapshot(elapsed_s: float) -> None:
            snapshots.take_if_due(elapsed_s)
            if next(turns) > num_trials * num_reports * SHARE_DONE:
                raise Killed

        driver = assemble(
            state.experiment,
            executor,
            log,
            suggestions,
            callbacks,
            directory,
            take_snapshot=take_snapshot,
        ).driver
        try:
            with rare_garbage_collection():
                driver.run()
        except Killed:
            pass
    print(
        json.dumps({"share": journal.cost.share, "pause_s": journal.cost.longest_pause_s}),
        file=sys.stderr,
    )


def restore(directory: Path, num_trials: int) -> None:
    """Restore the experiment, and print the seconds and the peak memory of this process."""
    spec = spec_for(num_trials)
    start = time.perf_counter()
    snapshot = usable_snapshot(spec, directory)
    recover(directory)
    read_declaration(directory)
    _, restored = restore_spec(
        spec,
        directory,
        settings_for(spec),
        snapshot,
        ConfigCodec(spec.space, ArrayStore(directory)),
    )
    took_s = time.perf_counter() - start
    assert len(restored.state.experiment.trials) > num_trials * SHARE_DONE * 0.9  # noqa: S101  (else the figures are wrong)
    print(json.dumps([took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def read_frames(directory: Path) -> None:
    """Make a data frame of each trial and one of all trials, and print the seconds of both."""
    import pandas as pd  # noqa: F401, PLC0415  (its import is not measured)

    start = time.perf_counter()
    frames = [result.metrics_dataframe for result in tune.ResultGrid.from_directory(directory)]
    frames_s = time.perf_counter() - start
    start = time.perf_counter()
    joined = tune.ResultGrid.from_directory(directory).get_metrics_dataframe()
    joined_s = time.perf_counter() - start
    assert len(joined) == sum(map(len, frames))  # noqa: S101  (else the figures are wrong)
    print(json.dumps([frames_s, joined_s]))


def measured(*arguments: object) -> Any:
    """Run this module in a fresh process, and return the figures it prints."""
    command = [sys.executable, "-m", "benchmarks.restore_time", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603  (our own module)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        if sys.argv[1] == "frames":
            read_frames(Path(sys.argv[2]))
        else:
            restore(Path(sys.argv[1]), int(sys.argv[2]))
        sys.exit()
    for size, goal in GOALS.items():
        with tempfile.TemporaryDirectory() as storage:
            run_until_killed(Path(storage), size)
            took_s, memory_mib = measured(storage, size)
        Figure(
            f"restore, {size:,} trials with {NUM_REPORTS} results each", took_s, "s", goal
        ).print()
        Figure(f"restore, {size:,} trials: memory", memory_mib, "MiB", "300 MiB").print()
    for (size, num_reports), goal in FRAME_GOALS.items():
        with tempfile.TemporaryDirectory() as storage:
            run_until_killed(Path(storage), size, num_reports)
            frames_s, joined_s = measured("frames", storage)
        experiment = (
            f"{size:,} trials with {num_reports:,} results each"
            if size > 1
            else f"a trial with {num_reports:,} results"
        )
        Figure(f"open and make frames, {experiment}", frames_s, "s", goal).print()
        Figure(f"the same as one frame, {experiment}", joined_s, "s", goal).print()
