"""One run of an experiment: puts plan, directory, executor, journal and observers together and lets the driver work."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedulers.decisions import Decision
from tuner.analysis.rows import JournalRows
from tuner.core.commands import StartWorker
from tuner.core.events import DriverRestarted, Event, TurnEnded
from tuner.core.experiment import Experiment
from tuner.core.progress import look_at
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.execution.devices import machine_capacity
from tuner.execution.executor import Executor
from tuner.execution.inline import InlineExecutor
from tuner.execution.messages import Assignment
from tuner.execution.processes import ProcessExecutor
from tuner.loggers import Callback, Console, ErrorLog, TrialFileLogger, default_loggers
from tuner.loggers.callback_list import CallbackList
from tuner.storage import layout, records
from tuner.storage.cleaner import CheckpointCleaner
from tuner.storage.journal import START, Journal, recover
from tuner.storage.lock import ExperimentLock
from tuner.storage.store import CheckpointStore

from .config import RunConfig, TuneConfig
from .directory import write_declaration
from .driver import Driver
from .interrupts import Interrupts
from .observers import Observers
from .plan import Plan, derived_seed
from .proposer import Proposer
from .replay import Replayed, replay

_SHUTDOWN_S = 10.0
_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run leaves behind.

    Attributes:
        directory: The experiment's directory.
        trials: All trials.
        signal: The signal that ended it, None where it ran to its end.
    """

    directory: Path
    trials: Sequence[Trial]
    signal: signal.Signals | None


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to continue an experiment.

    Attributes:
        settings: The settings it was declared with.
        resume_unfinished: Whether trials that were not over go on.
        resume_errored: Whether failed trials are tried again.
    """

    settings: ExperimentSettings
    resume_unfinished: bool = True
    resume_errored: bool = False

    def event(self, settings: ExperimentSettings) -> DriverRestarted:
        """Return the event with which the new driver, and what holds for it, enters the journal."""
        return DriverRestarted(settings, self.resume_unfinished, self.resume_errored)


class JournalLog:
    """Writes events to the journal, and lets the cleaner know how far it has been synced."""

    def __init__(self, journal: Journal, cleaner: CheckpointCleaner) -> None:
        self._journal = journal
        self._cleaner = cleaner
        self._routine_end_s: float | None = None

    def append(self, event: Event, at_s: float, decisions: Sequence[Decision]) -> None:
        """Take in an event, to be written with the next `flush`.

        Of a turn that ended in routine only the next record tells, which saves half of the records.
        """
        if isinstance(event, TurnEnded) and event.is_routine:
            if self._routine_end_s is None:  # of several in a row the first is the one that answered
                self._routine_end_s = at_s
            return
        body = records.encode(event, at_s, decisions)
        if self._routine_end_s is not None:
            body[records.ROUTINE_END] = self._routine_end_s
            self._routine_end_s = None
        self._journal.append(body)

    def flush(self) -> None:
        """Write everything taken in, in one piece."""
        self._journal.flush()
        self._cleaner.release()


class Assigner:
    """Completes a `StartWorker` to what the worker has to know, and makes the trial's directory."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory

    def __call__(self, command: StartWorker) -> Assignment:
        """Return the assignment of the attempt that is to be started."""
        trial_dir = layout.trial_directory(self._directory, command.trial_id)
        trial_dir.mkdir(exist_ok=True)
        checkpoint = command.checkpoint
        return Assignment(
            trial_id=command.trial_id,
            attempt=command.attempt,
            config=command.config,
            experiment_name=self._directory.name,
            trial_dir=os.fspath(trial_dir),
            experiment_tag=command.experiment_tag,
            resources=command.resources,
            gpu_ids=command.gpu_ids,
            checkpoint_dir=os.fspath(trial_dir / checkpoint.directory) if checkpoint else None,
            iteration=checkpoint.iteration if checkpoint else 0,
            time_total_s=checkpoint.time_total_s if checkpoint else 0.0,
            counters=checkpoint.counters if checkpoint else {},
            next_checkpoint=command.next_checkpoint,
            seed=derived_seed(self._plan.seed, command.trial_id),
            sync_checkpoints=self._plan.run.durability != "process",
        )


class Run:
    """One driver's life over one experiment.

    Args:
        plan: What was declared.
        directory: The experiment's directory, which exists.
        resumption: How to continue the experiment that lies there; None for a new one.
    """

    def __init__(self, plan: Plan, directory: Path, resumption: Resumption | None = None) -> None:
        self._plan = plan
        self._directory = directory
        self._resumption = resumption
        self._callbacks = _callbacks(plan)

    def execute(self) -> Finished:
        """Run the experiment to its end."""
        plan, directory = self._plan, self._directory
        plan.connect()
        with contextlib.closing(_Shutdown(_make_executor(plan, directory))) as opened:
            settings = plan.settings(opened.executor.capacity())
            # The lock leaves a file, so it is taken once nothing can be refused any more; it is held until no worker is left.
            with ExperimentLock(directory), contextlib.closing(opened):
                return self._execute_locked(opened.executor, settings)

    def _execute_locked(self, executor: Executor, settings: ExperimentSettings) -> Finished:
        plan, directory = self._plan, self._directory
        tail = recover(directory) if self._resumption else START
        if not self._resumption:
            write_declaration(plan, settings, directory)
        declared = self._resumption.settings if self._resumption else settings
        experiment = Experiment(declared, plan.scheduler, plan.stopper)
        proposer = Proposer(plan.searcher, plan.space, plan.request_for)
        past = replay(directory, experiment, proposer)
        stage = _Stage(experiment, executor, proposer, past, settings)
        with Journal(directory, tail, sync=plan.run.durability) as journal, CheckpointCleaner(journal) as cleaner:
            return self._drive(stage, JournalLog(journal, cleaner), CheckpointStore(directory, cleaner))

    def _drive(self, stage: _Stage, log: JournalLog, store: CheckpointStore) -> Finished:
        experiment, settings = stage.experiment, stage.settings
        plan, directory = self._plan, self._directory
        console = Console(lambda: look_at(experiment, directory.name, driver.elapsed_s), min(plan.run.verbose, 2))
        callbacks = CallbackList([*self._callbacks, ErrorLog(), console])
        score = settings.checkpoints.retention.score_attribute
        observers = Observers(stage.proposer, callbacks, experiment.trials, directory, settings.metric, score_attribute=score)
        driver = Driver(
            experiment,
            stage.executor,
            log,
            stage.proposer,
            observers,
            store.delete,
            find_damage=store.find_damage,
            elapsed_s=stage.past.elapsed_s,
        )
        first = [self._resumption.event(settings)] if self._resumption else []
        try:
            with rare_garbage_collection(), Interrupts(driver.request_stop) as interrupts:
                observers.begin_experiment(
                    stop=plan.run.stop,
                    num_samples=plan.tune.num_samples,
                    total_num_samples=settings.max_trials,
                    mode=settings.mode,
                    space=plan.space,
                )
                self._mend_logs(stage)
                driver.run(first)
        except Exception as defect:
            defect.add_note(f"what had been reported is kept; when this is mended, continue with\n    {restore_line(directory, plan)}")
            raise
        finally:
            observers.end_experiment()
            console.close()
        if experiment.stall:
            _log.warning("the experiment ended with trials left to run: %s", experiment.stall)
        if interrupts.received:
            console.print_notice(f"interrupted by {interrupts.received.name}; continue with\n    {restore_line(directory, plan)}")
        return Finished(directory, experiment.trials, interrupts.received)

    def _mend_logs(self, stage: _Stage) -> None:
        """Write the log files anew whose last rows a killed driver may have left out; the journal has them all."""
        rows = JournalRows(self._directory)
        loggers = [callback for callback in self._callbacks if isinstance(callback, TrialFileLogger)]
        for trial_id in stage.past.recent if loggers else ():
            trial, results = stage.experiment.roster[trial_id], rows.of(trial_id)
            for logger in loggers:
                logger.rewrite(trial, results)


def read(plan: Plan, directory: Path, resumption: Resumption) -> Finished:
    """Return what a stored experiment has come to, without running or changing anything.

    Raises:
        StorageError: If it cannot be rebuilt from its journal.
    """
    plan = plan.copy()
    plan.connect()
    experiment = Experiment(resumption.settings, plan.scheduler, plan.stopper)
    replay(directory, experiment, Proposer(plan.searcher, plan.space, plan.request_for))
    return Finished(directory, experiment.trials, None)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is ready before the driver takes over: the experiment as the journal leaves it, and those who work for it."""

    experiment: Experiment
    executor: Executor
    proposer: Proposer
    past: Replayed
    settings: ExperimentSettings


class _Shutdown:
    """Shuts an executor down when it is closed."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def close(self) -> None:
        """Kill what still runs."""
        self.executor.shutdown(_SHUTDOWN_S)


def _callbacks(plan: Plan) -> list[Callback]:
    own = list(plan.run.callbacks or ())
    is_bare = os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS") == "1"
    return own if is_bare else [*own, *default_loggers(own)]


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Let the collector look less often, and not at what was there before.

    The driver makes no cycles, but many small objects and, with them, hundreds of needless collections a second.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def restore_line(directory: Path, plan: Plan) -> str:
    """Return the line of Python that continues an experiment; what was given to the `Tuner` is given again."""
    given = {"param_space": plan.space, "tune_config": plan.tune != TuneConfig(), "run_config": plan.run != RunConfig()}
    again = "".join(f", {name}={name}" for name, is_given in given.items() if is_given)
    return f"Tuner.restore({os.fspath(directory)!r}, {plan.name}{again}).fit()"


def _make_executor(plan: Plan, directory: Path) -> Executor:
    assign = Assigner(plan, directory)
    if plan.run.executor == "inline":
        return InlineExecutor(plan.trainable, assign, capacity=machine_capacity(plan.run.resources))
    return ProcessExecutor(plan.trainable, assign, capacity=plan.run.resources)
