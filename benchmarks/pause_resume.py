"""Time of a pause and a resume: the same function trial is run with and without pauses."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import tuner as tune
from schedulers import Decision, FIFOScheduler, Pause, Reason, Resume, Scheduler, TrialView

from .figure import Figure

NUM_CYCLES = 200
GOAL = "20 ms"
WHY = Reason("benchmark")


@final
class PausesAlways(Scheduler):
    """Pauses a trial at each result and resumes it at once."""

    def on_trial_result(self, trial: TrialView, result: Mapping[str, Any]) -> Sequence[Decision]:
        """Pause."""
        return [Pause(trial.trial_id, WHY)]

    def on_idle(self, trials: Sequence[TrialView], num_free_slots: int) -> Sequence[Decision]:
        """Resume."""
        return [Resume(trial.trial_id, WHY) for trial in trials]


def steps(_: dict[str, Any]) -> None:
    """Report `NUM_CYCLES` results, each with a checkpoint."""
    first = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            first = int(json.loads(Path(directory, "step.json").read_text(encoding="utf-8")))
    for step in range(first + 1, NUM_CYCLES + 1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step.json").write_text(str(step), encoding="utf-8")
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(directory))


def elapsed_s(scheduler: Scheduler) -> tuple[float, int]:
    """Run one trial, and return its seconds and the number of its attempts."""
    with tempfile.TemporaryDirectory(prefix="pauses-") as storage:
        keep = tune.CheckpointConfig(num_to_keep=1)
        run = tune.RunConfig(
            storage_path=storage,
            verbose=0,
            checkpoint_config=keep,
            stop={"training_iteration": NUM_CYCLES},
        )
        tuner = tune.Tuner(steps, tune_config=tune.TuneConfig(scheduler=scheduler), run_config=run)
        start_s = time.perf_counter()
        results = tuner.fit()
        took_s = time.perf_counter() - start_s
        assert not results.errors  # noqa: S101  (a failed trial has nothing to measure)
        return took_s, results.trials[0].attempt


def main() -> None:
    """Measure, and print the figure."""
    plain_s, _ = elapsed_s(FIFOScheduler())
    paused_s, num_starts = elapsed_s(PausesAlways())
    Figure(
        "pause and resume of a function trial, without its own work",
        1000 * (paused_s - plain_s) / (num_starts - 1),
        "ms",
        GOAL,
    ).print()


if __name__ == "__main__":
    main()
