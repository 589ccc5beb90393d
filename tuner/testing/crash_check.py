"""Crash-and-replay check for schedulers: drivers are killed and restored, workers fail."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, final

from schedulers import Scheduler
from searchers.space import uniform
from tuner.callbacks.callback_list import CallbackList
from tuner.core.commands import AnswerReport, WorkerCommand
from tuner.core.events import Event, ResultReported
from tuner.core.result import TRAINING_ITERATION
from tuner.driver.assembly import assemble
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.driver import VIRTUAL_TIME
from tuner.driver.journal_log import JournalLog
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.journal import snapshot_files
from tuner.journal.reader import read, recover
from tuner.journal.segments import START
from tuner.journal.writer import Journal
from tuner.restore.experiment import restore_spec
from tuner.restore.snapshot_state import ExperimentState, Restored
from tuner.spec.config import FailureConfig, ResumeConfig, RunConfig, TuneConfig
from tuner.spec.experiment_spec import ExperimentSpec, make_spec
from tuner.storage import strict_json
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.disk import LocalDisk, Whereabouts
from tuner.virtual.executor import SimulatedExecutor

from .simulation import simulated_settings

_MAX_TURNS: Final = 5_000
"""Turns of all drivers of an experiment; many times what one of this size takes."""
_MEAN_CALLS: Final = 40
"""Calls that a driver makes on average before it is killed; about three for each of its turns."""
_SNAPSHOT_RATE: Final = 0.1
"""Share of turns after which a snapshot is taken."""
_COMPARED: Final = (
    "trial_id", "config", "resources", "status", "attempt", "iteration", "num_rows",
    "num_failures", "checkpoints",
)  # fmt: skip
_log = logging.getLogger("tuner")


class CrashCheckFailed(AssertionError):
    """An experiment did not survive the death of its driver, or did not end."""


@dataclasses.dataclass(slots=True)
class CrashCheck:
    """Counts of a run of `simulate_with_faults`.

    Attributes:
        num_experiments: Number of experiments.
        num_drivers: Number of drivers; each but the first of an experiment restores what the one
            before has left.
        num_worker_failures: How often a worker has failed.
        num_records: Number of records in the journals.
    """

    num_experiments: int = 0
    num_drivers: int = 0
    num_worker_failures: int = 0
    num_records: int = 0


def simulate_with_faults(
    make_scheduler: Callable[[], Scheduler],
    *,
    num_experiments: int = 200,
    seed: int = 0,
    max_trials: int = 8,
) -> CrashCheck:
    """Run a scheduler in experiments whose driver is killed at random and whose workers fail.

    Driver, journal, snapshots and restore are the engine's own; training is replaced by a formula,
    time is virtual, and the experiment's directory is a temporary one. After each crash the check
    compares the restored experiment with the one that was in memory: the scheduler decides about
    the recorded results as it did before, its state is the same, and every result that was
    acknowledged to a worker is in the journal. Each experiment has to end with all trials finished.

    Args:
        make_scheduler: Makes a new scheduler without metric and mode. Trials report ``loss``
            (smaller is better) at each ``training_iteration`` from 1 to 20 at most, and save a
            checkpoint whenever they are asked to.
        num_experiments: Number of experiments.
        seed: Number of the first experiment; the same numbers give the same experiments.
        max_trials: Largest number of trials of an experiment.

    Raises:
        CrashCheckFailed: If a check fails or the scheduler raises. A note names the experiment and
            the call that repeats it.

    Example:
        >>> from schedulers import ASHAScheduler
        >>> make = lambda: ASHAScheduler(max_t=16, reduction_factor=2)
        >>> check = simulate_with_faults(make, num_experiments=20)
        >>> check.num_experiments, check.num_drivers > 20
        (20, True)
    """
    check = CrashCheck()
    for number in range(seed, seed + num_experiments):
        with tempfile.TemporaryDirectory(prefix="tuner-crash-check-") as directory:
            experiment = _CrashingExperiment(
                make_scheduler, number, max_trials, Path(directory), check
            )
            try:
                with _silent_log():
                    experiment.run()
            except CrashCheckFailed as failure:
                failure.add_note(experiment.description)
                raise
            except Exception as error:
                raised = CrashCheckFailed(f"{type(error).__name__}: {error}")
                raised.add_note(experiment.description)
                raise raised from error
        check.num_experiments += 1
    return check


@contextlib.contextmanager
def _silent_log() -> Iterator[None]:
    """Discard what the engine logs about failures that were injected."""
    was_disabled, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = was_disabled


class _DriverKilled(BaseException):
    """The driver's process is gone; nothing that it does afterwards has an effect."""


@final
class _Killer:
    """Kills drivers after a random number of calls that leave them.

    Attributes:
        is_dead: Whether the present driver has been killed.
    """

    def __init__(self, rng: Random, num_kills: int) -> None:
        self._rng = rng
        self._num_kills_left = num_kills
        self._num_calls_left = 0
        self.is_dead = False

    def start_driver(self) -> None:
        """Choose when the next driver dies."""
        self.is_dead = False
        self._num_calls_left = 1 + int(self._rng.expovariate(1 / _MEAN_CALLS))

    def step(self) -> None:
        """Count a call.

        Raises:
            _DriverKilled: If the driver dies in this call, or has died before.
        """
        if not self.is_dead:
            self._num_calls_left -= 1
            self.is_dead = self._num_calls_left == 0 and self._num_kills_left > 0
            self._num_kills_left -= self.is_dead
        # Also for calls that clean up after the kill: a dead driver has no effect any more.
        if self.is_dead:
            raise _DriverKilled


@final
class _CrashingDisk:
    """A disk on which a write may be the driver's last, so that only a part of it is there."""

    def __init__(self, killer: _Killer, rng: Random) -> None:
        self._killer = killer
        self._rng = rng
        self._disk = LocalDisk()

    def write(self, descriptor: int, data: bytes) -> int:
        was_dead = self._killer.is_dead
        try:
            self._killer.step()
        except _DriverKilled:
            # A torn write: the process died in the middle of it.
            if not was_dead:
                self._disk.write(descriptor, data[: self._rng.randint(0, len(data))])
            raise
        return self._disk.write(descriptor, data)

    def names(self, directory: Path) -> list[str]:
        return self._disk.names(directory)

    def read(self, path: Path) -> bytes:
        return self._disk.read(path)

    def create(self, path: Path) -> int:
        return self._disk.create(path)

    def sync(self, descriptor: int) -> None:
        """Do nothing: the power does not fail here."""

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._disk.truncate(descriptor, size_bytes)

    def close(self, descriptor: int) -> None:
        self._disk.close(descriptor)

    def hold(self, descriptor: int) -> None:
        self._disk.hold(descriptor)

    def whereabouts(self, descriptor: int, path: Path) -> Whereabouts:
        return self._disk.whereabouts(descriptor, path)

    def rename(self, source: Path, target: Path) -> None:
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        self._disk.remove(path)

    def make_directory(self, path: Path) -> None:
        self._disk.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: the power does not fail here."""


@final
class _CrashingExecutor:
    """A simulated executor in every call of which the driver may die.

    Attributes:
        acknowledged: Results whose report was answered: trial, attempt and iteration.
    """

    def __init__(self, executor: SimulatedExecutor, killer: _Killer) -> None:
        self._executor = executor
        self._killer = killer
        self._reported: dict[tuple[str, int], int] = {}
        self.acknowledged: set[tuple[str, int, int]] = set()
        self.num_turns = 0

    def capacity(self) -> Mapping[str, float]:
        return self._executor.capacity()

    def clock(self) -> float:
        return self._executor.clock()

    def wake(self) -> None:
        self._executor.wake()

    def shutdown(self, deadline_s: float) -> None:
        self._executor.shutdown(deadline_s)

    def carry_out(self, commands: Sequence[WorkerCommand]) -> None:
        for command in commands:
            self._killer.step()
            if isinstance(command, AnswerReport):
                attempt = (command.trial_id, command.attempt)
                if attempt in self._reported:
                    self.acknowledged.add((*attempt, self._reported[attempt]))
            self._executor.carry_out([command])

    def wait(self, timeout_s: float | None) -> list[Event]:
        self.num_turns += 1
        self._killer.step()
        events = self._executor.wait(timeout_s)
        for event in events:
            if isinstance(event, ResultReported):
                iteration = event.metrics[TRAINING_ITERATION]
                self._reported[event.trial_id, event.attempt] = iteration
        return events


@final
class _CrashingExperiment:
    """One experiment: driver after driver until it is over.

    Args:
        make_scheduler: Makes the scheduler of each driver.
        seed: Determines the experiment and its failures.
        max_trials: Largest number of trials.
        directory: The experiment's directory, empty.
        totals: Where to count.
    """

    def __init__(
        self,
        make_scheduler: Callable[[], Scheduler],
        seed: int,
        max_trials: int,
        directory: Path,
        totals: CrashCheck,
    ) -> None:
        self._rng = rng = Random(seed)  # noqa: S311  (not a secret)
        self._make_scheduler = make_scheduler
        self._seed = seed
        self._directory = directory
        self._totals = totals
        self._num_trials = min(rng.choice((2, 2, 3, 4, 8)), max_trials)
        self._num_results = rng.choice((3, 5, 8, 20))
        self._num_slots = rng.choice((1, 2, 3))
        self._max_failures = rng.choice((0, 1, 3, -1))
        self._save_every = rng.choice((0, 1, 2, 3))
        self._num_failures_left = rng.choice((0, 1, 2, 5))
        self._killer = _Killer(rng, rng.choice((1, 2, 3, 5)))
        self._disk = _CrashingDisk(self._killer, rng)
        self._acknowledged: set[tuple[str, int, int]] = set()
        self._num_turns = 0
        self._before: dict[str, str] | None = None
        """What the killed driver had in memory, where all of it was in the journal."""

    @property
    def description(self) -> str:
        """The experiment in one sentence, and how to repeat it."""
        return (
            f"in experiment {self._seed}: {self._num_trials} trials with {self._num_results} "
            f"results each, {self._num_slots} at a time, max_failures={self._max_failures}; repeat "
            f"it with simulate_with_faults(make_scheduler, num_experiments=1, seed={self._seed})"
        )

    def run(self) -> None:
        """Run the experiment to its end.

        Raises:
            CrashCheckFailed: If a check fails.
        """
        is_first = True
        while not self._run_driver(is_first=is_first):
            is_first = False
        self._totals.num_records += sum(1 for _ in read(self._directory))

    def _run_driver(self, *, is_first: bool) -> bool:
        """Run one driver until it ends or is killed; return whether the experiment is over."""
        self._totals.num_drivers += 1
        self._killer.start_driver()
        spec, restored = self._restore()
        experiment = restored.state.experiment
        _require(restored.misfit is None, f"a snapshot cannot be loaded: {restored.misfit!r}")
        if not is_first:
            self._check_restored(restored.state)
        simulated = SimulatedExecutor(
            spec.trainable, capacity=self._capacity, duration_s=self._duration_s
        )
        executor = _CrashingExecutor(simulated, self._killer)
        tail = START if is_first else recover(self._directory)
        journal: Journal | None = None
        try:
            with (
                Journal(self._directory, tail, sync="process", disk=self._disk) as journal,
                CheckpointDeleter(journal) as deleter,
            ):
                log = JournalLog(journal, deleter, configs=restored.state.configs)
                self._drive(restored, executor, log, is_first=is_first)
        except _DriverKilled:
            # What was not written is lost, as it should be; then there is nothing to compare with.
            is_written = journal and journal.written_sequence == journal.last_sequence
            self._before = _state_to_compare(restored.state) if is_written else None
            return False
        finally:
            executor.shutdown(0.0)
            self._acknowledged |= executor.acknowledged
            self._num_turns += executor.num_turns
            _require(self._num_turns < _MAX_TURNS, "the experiment does not end")
        experiment.check()
        _require(not experiment.stall_reason, experiment.stall_reason)
        # A trial that never started when the experiment ended early is left for a restore.
        left = experiment.trial_table.left
        unfinished = [
            repr(trial)
            for trial in experiment.trials
            if not trial.is_finished and trial.trial_id not in left
        ]
        _require(not unfinished, f"the experiment ended with unfinished trials: {unfinished}")
        num_trials = len(experiment.trials)
        _require(
            num_trials == self._num_trials,
            f"there are {num_trials} trials, {self._num_trials} were asked for",
        )
        self._check_acknowledged()
        return True

    def _restore(self) -> tuple[ExperimentSpec, Restored]:
        """Return the experiment as restored from its directory, with a new scheduler."""
        spec = make_spec(
            self._train,
            {"x": uniform(0.1, 1.0)},
            TuneConfig(
                metric="loss",
                mode="min",
                num_samples=self._num_trials,
                scheduler=self._make_scheduler(),
                seed=self._seed,
            ),
            RunConfig(failure_config=FailureConfig(max_failures=self._max_failures)),
        )
        spec.connect()
        settings = simulated_settings(spec, self._capacity)
        checkpoints = dataclasses.replace(settings.checkpoints, frequency=self._save_every)
        settings = dataclasses.replace(settings, checkpoints=checkpoints)
        configs = ConfigCodec(spec.space, ArrayStore(self._directory))
        snapshot = snapshot_files.load_newest(self._directory)
        return restore_spec(spec, self._directory, settings, snapshot, configs)

    @property
    def _capacity(self) -> dict[str, float]:
        return {"cpu": float(self._num_slots)}

    def _drive(
        self, restored: Restored, executor: _CrashingExecutor, log: JournalLog, *, is_first: bool
    ) -> None:
        state = restored.state
        experiment = state.experiment
        suggestions = SuggestionQueue(state.search_adapter)
        driver = assemble(
            experiment,
            executor,
            log,
            suggestions,
            CallbackList([]),
            self._directory,
            timing=VIRTUAL_TIME,
            elapsed_s=restored.elapsed_s,
            take_snapshot=lambda elapsed_s: self._take_snapshot(state, log, suggestions, elapsed_s),
        ).driver
        driver.run([] if is_first else [ResumeConfig().event(experiment.settings)])
        log.close(driver.elapsed_s)

    def _take_snapshot(
        self,
        state: ExperimentState,
        log: JournalLog,
        suggestions: SuggestionQueue,
        elapsed_s: float,
    ) -> None:
        """Take a snapshot after some of the turns, so that some restores begin with one."""
        if self._rng.random() >= _SNAPSHOT_RATE or not state.keeps_state:
            return
        if suggestions.is_answering or not suggestions.settle(0.0):
            # The searcher's state is not the one after the last record.
            return
        log.settle()
        snapshot_files.write(
            self._directory,
            state.snapshot(elapsed_s),
            log.journal.last_sequence,
            sync=False,
            disk=self._disk,
        )

    def _check_restored(self, state: ExperimentState) -> None:
        """Compare the restored experiment with the one that was in memory."""
        state.experiment.check()
        self._check_acknowledged()
        num_deviations = state.experiment.policies.num_deviations
        _require(
            num_deviations == 0,
            f"the scheduler decided otherwise in {num_deviations} places when the journal was "
            "replayed; its decisions must depend on its calls and its seed only",
        )
        if self._before is None:
            return
        for name, after in _state_to_compare(state).items():
            before = self._before[name]
            _require(
                before == after,
                f"the state of the {name} was {before} before the driver was killed, and "
                f"is {after} after the restore",
            )

    def _check_acknowledged(self) -> None:
        results = (record for record in read(self._directory) if record["k"] == "result")
        kept = {(record["id"], record["a"], record["m"][TRAINING_ITERATION]) for record in results}
        lost = self._acknowledged - kept
        _require(not lost, f"results were acknowledged and are not in the journal: {sorted(lost)}")

    def _train(self, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the results of a trial, or fail."""
        for iteration in range(1, self._num_results + 1):
            if self._num_failures_left and self._rng.random() < 0.1:  # noqa: PLR2004
                self._num_failures_left -= 1
                self._totals.num_worker_failures += 1
                raise RuntimeError("injected failure of a worker")
            yield {"loss": config["x"] / iteration}

    def _duration_s(self, config: Mapping[str, Any], iteration: int) -> float:
        return self._rng.choice((1.0, 1.0, 1.0, 2.5))


def _state_to_compare(state: ExperimentState) -> dict[str, str]:
    experiment = state.experiment
    trials = [
        {name: str(getattr(trial, name)) for name in _COMPARED} for trial in experiment.trials
    ]
    scheduler = strict_json.to_bytes(
        experiment.policies.scheduler.state_dict(), strict_json.opaque
    ).decode()
    return {"scheduler": scheduler, "trials": str(trials)}


def _require(holds: object, message: str) -> None:
    if not holds:
        raise CrashCheckFailed(message)
