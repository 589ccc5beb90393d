"""One driver's life: opens what the last one has left, as a run and a restore do, and drives the experiment on.

This is the only place of the simulation that knows how the engine's parts are put together; `tuner.run` does the same for real files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from schedulers import Decision
from searchers.space import uniform
from tuner.core.events import CheckpointRequested, DriverRestarted, Event, TurnEnded
from tuner.core.experiment import Experiment
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import CheckpointRecord, Ending, Trial
from tuner.driver import Driver, EventLog
from tuner.loggers.callback import Callback
from tuner.loggers.callback_list import CallbackList
from tuner.observers import Observers
from tuner.proposer import Proposer
from tuner.replay import replay
from tuner.run import JournalLog
from tuner.storage.cleaner import CheckpointCleaner
from tuner.storage.journal import START, Journal, recover

from . import invariants
from .plugins import FragileCallback, FragileScheduler, FragileSearcher
from .scenario import METRIC, MODE
from .workers import Workers
from .world import EXPERIMENT, World

_SPACE = {"x": uniform(0.1, 1.0)}
_REQUEST = {"cpu": 1.0}


@final
class Session:
    """The life of one driver over what lies on the world's disk.

    Args:
        world: The world.
        before: The `portrait` of what the driver before has left in memory, where the journal must hold the same; None otherwise.

    Attributes:
        experiment: What it drives.
        scheduler: Who judges.
    """

    def __init__(self, world: World, before: dict[str, Any] | None = None) -> None:
        """Prepare fresh plug-ins, as a user's script does when it is run again."""
        scenario = world.scenario
        self._world = world
        self._before = before
        self._has_ended = False
        self.scheduler = FragileScheduler(scenario.make_scheduler(), world.fate)
        self.scheduler.inner.set_search_properties(METRIC, MODE, seed=scenario.seed)
        self._searcher = FragileSearcher(scenario.make_searcher(), world.fate)
        self._searcher.inner.set_search_properties(METRIC, MODE, _SPACE, seed=scenario.seed, num_samples=scenario.num_trials)
        self.experiment = Experiment(scenario.settings(), self.scheduler, NoopStopper())
        self._proposer = Proposer(self._searcher, _SPACE, lambda _: _REQUEST)

    def live(self) -> None:
        """Open, replay and drive on, to the end or to whatever comes before it."""
        world = self._world
        tail = recover(EXPERIMENT, disk=world.disk) if world.session > 1 else START
        past = replay(EXPERIMENT, self.experiment, self._proposer, world.disk)
        self._check_restored()
        scenario = world.scenario
        journal = Journal(
            EXPERIMENT, tail, sync=scenario.durability, segment_bytes=scenario.segment_bytes, has_syncer=False, disk=world.disk
        )
        deleting = _Deleting(world, journal)
        with journal, CheckpointCleaner(journal, deleting.discard) as cleaner:
            world.experiment, world.journal = self.experiment, journal
            deleting.cleaner = cleaner
            self._drive(_WatchedLog(JournalLog(journal, cleaner), world, self._check_restarted), deleting, past.elapsed_s)
        self._has_ended = True

    def _check_restored(self) -> None:
        """Hold the replayed state to what was known before."""
        invariants.transitions_are_legal(self.experiment)
        invariants.scheduler_facts_are_kept(self._world, self.scheduler)
        invariants.checkpoints_in_need_are_there(self._world, self.experiment)

    def _check_restarted(self) -> None:
        """Hold the state with which this driver begins to the one in which the driver before it would have begun again."""
        if self._before is not None:
            self._world.seen["state compared with its fold"] += 1
            invariants.fold_gives_the_state(self._before, invariants.portrait(self.experiment, self.scheduler))

    def _drive(self, log: EventLog, deleting: _Deleting, elapsed_s: float) -> None:
        world = self._world
        workers = Workers(world)
        callbacks = CallbackList([_Bystander(world), FragileCallback(world.fate, world.step)])
        observers = Observers(self._proposer, callbacks, self.experiment.trials, EXPERIMENT, METRIC)
        driver = Driver(
            self.experiment,
            workers,
            log,
            self._proposer,
            observers,
            deleting,
            find_damage=world.checkpoints.find_damage,
            elapsed_s=elapsed_s,
            tick_s=None,
        )
        world.request_stop = driver.request_stop
        first: list[Event] = [DriverRestarted(world.scenario.settings())] if world.session > 1 else []
        try:
            driver.run(first)
        finally:
            workers.perish()

    @property
    def is_over(self) -> bool:
        """Whether the driver has come to the end, and nothing was only interrupted."""
        trials, scenario = self.experiment.trials, self._world.scenario
        is_short = len(trials) < scenario.num_trials and scenario.time_budget_s is None
        return self._has_ended and not is_short and not any(trial.ending is Ending.INTERRUPTED for trial in trials)


@final
class _WatchedLog:
    """Passes everything on to the journal's log, and lets look at the state once a driver has taken over."""

    def __init__(self, log: EventLog, world: World, on_restart: Callable[[], None]) -> None:
        self._log = log
        self._world = world
        self._on_restart = on_restart

    def append(self, event: Event, at_s: float, decisions: Sequence[Decision]) -> None:
        """See `EventLog.append`."""
        if isinstance(event, DriverRestarted):
            self._on_restart()
        # Of a wish for a checkpoint that cannot be fulfilled, and of a turn in which trials just go on, nothing follows.
        self._world.is_dirty |= not (isinstance(event, CheckpointRequested) or (isinstance(event, TurnEnded) and event.is_routine))
        self._log.append(event, at_s, decisions)

    def flush(self) -> None:
        """See `EventLog.flush`."""
        self._log.flush()
        self._world.is_dirty = False


@final
class _Deleting:
    """Hands checkpoints to the cleaner, and sees to it that it waits until that is safe.

    Attributes:
        cleaner: The cleaner.
    """

    cleaner: CheckpointCleaner

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._dispensable_by: dict[Path, int] = {}

    def __call__(self, trial_id: str, checkpoint: CheckpointRecord) -> None:
        self._world.step()
        invariants.written_before_acted(self._world, checkpoint)
        path = EXPERIMENT / trial_id / checkpoint.directory
        self._dispensable_by[path] = self._journal.last_sequence
        self.cleaner.delete(path)

    def discard(self, path: Path) -> None:
        """Take what the cleaner lets go."""
        sequence = self._dispensable_by[path]
        if self._world.scenario.durability != "process" and sequence % self._world.check_every == 0:
            invariants.synced_before_destroyed(self._world, sequence)
        self._world.checkpoints.doomed.append(path)


@final
class _Bystander(Callback):
    """Writes down what observers are told, and holds it to what the world knows."""

    def __init__(self, world: World) -> None:
        self._world = world

    def on_trial_result(self, iteration: int, trials: Any, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        ledger = self._world.ledger
        invariants.told_by_the_living(trial, result)
        ledger.told[trial.trial_id] = max(result["training_iteration"], ledger.told.get(trial.trial_id, 0))

    def on_trial_complete(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        if trial.is_finished:  # and not taken up again in the same breath, as one is that a dying driver has interrupted
            self._world.ledger.over[trial.trial_id] = str(trial.ending)

    def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        self._world.ledger.over[trial.trial_id] = str(trial.ending)
