"""Driver time per event as the number of trials grows.

The experiment uses ASHA, random search and the journal, but no worker processes and no log files.
Trials are simulated in virtual time, eight at once, and report up to nine times, so that only the
driver's work is measured.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tuner as tune
from schedulers import ASHAScheduler
from tuner.callbacks.callback_list import CallbackList
from tuner.core.events import Event
from tuner.core.experiment import Experiment
from tuner.core.recorded_decisions import RecordedDecision
from tuner.driver.assembly import assemble
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.journal_log import JournalLog
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.execution.local.process_setup import rare_garbage_collection
from tuner.journal.writer import Journal
from tuner.restore.search_adapter import SearchAdapter
from tuner.spec.experiment_spec import make_spec
from tuner.virtual.executor import SimulatedExecutor

from .figure import Figure

SIZES = (100, 1_000, 10_000, 100_000)
NUM_REPORTS = 9


def curve(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Yield a loss that falls towards the `x` of the configuration."""
    for step in range(1, NUM_REPORTS + 1):
        yield {"loss": config["x"] + 1.0 / step}


class CountingLog:
    """Writes the journal as a real run does and counts the events."""

    def __init__(self, log: JournalLog) -> None:
        self._log = log
        self.num_events = 0

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Append an event."""
        self.num_events += 1
        self._log.append(event, at_s, recorded)

    def flush(self) -> None:
        """Flush the journal."""
        self._log.flush()


def time_per_event_s(num_trials: int) -> float:
    """Return the driver's mean seconds per event in an experiment with `num_trials` trials."""
    scheduler = ASHAScheduler(
        max_t=NUM_REPORTS, grace_period=1, reduction_factor=3, type="stopping"
    )
    settings = tune.TuneConfig(
        metric="loss", mode="min", num_samples=num_trials, scheduler=scheduler, seed=0
    )
    spec = make_spec(lambda _: None, {"x": tune.uniform(0.0, 1.0)}, settings, None)
    spec.connect()
    executor = SimulatedExecutor(
        curve, capacity={"cpu": 8.0}, duration_s=lambda config, _: 1.0 + config["x"]
    )
    experiment = Experiment(spec.settings(executor.capacity()), spec.scheduler, spec.stopper)
    suggestions = SuggestionQueue(SearchAdapter(spec.searcher, spec.space, spec.request_for))
    with (
        tempfile.TemporaryDirectory() as directory,
        Journal(directory) as journal,
        CheckpointDeleter(journal) as cleaner,
    ):
        log = CountingLog(JournalLog(journal, cleaner))
        driver = assemble(
            experiment, executor, log, suggestions, CallbackList([]), Path(directory)
        ).driver
        start = time.perf_counter()
        with rare_garbage_collection():
            driver.run()
        return (time.perf_counter() - start) / log.num_events


if __name__ == "__main__":
    time_per_event_s(SIZES[0])  # warm-up: imports on first use are not measured
    for size in SIZES:
        cost_s = time_per_event_s(size)
        Figure(f"driver, {size:,} trials: time per event", 1e6 * cost_s, "us", "flat").print()
        Figure(f"driver, {size:,} trials: events", 1 / cost_s, "/s", "20,000/s").print()
