"""One driver's life: opens what the last one has left, as a run and a restore do, and drives the experiment on.

This is the only place of the simulation that knows how the parts of the engine fit together; `tuner.driver.run` and `tuner.restore.rebuild`
do it for
real files. Snapshots are taken at random moments and written at once, where `tuner.driver.snapshots` has a clock and a thread.
"""

from __future__ import annotations

import contextlib
from typing import Any, final

from searchers.space import uniform
from tuner.callbacks.callback_list import CallbackList
from tuner.core.events import Event, StopRequested
from tuner.core.experiment import Experiment
from tuner.core.policies import TIME_BUDGET
from tuner.core.stoppers import NoopStopper
from tuner.core.trial import Status, TerminationReason
from tuner.driver.checkpoint_deleter import CheckpointDeleter
from tuner.driver.control import RequestHandler
from tuner.driver.driver import Driver
from tuner.driver.event_dispatch import EventDispatch
from tuner.driver.journal_log import JournalLog
from tuner.driver.storage_retry import StorageRetry
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.errors import StorageError
from tuner.journal import completeness, snapshot_files
from tuner.journal.completeness import Known
from tuner.journal.writer import START, Journal, recover
from tuner.restore.replay import Replayed, replay
from tuner.restore.search_adapter import Proposer
from tuner.restore.snapshot_state import State, take_up
from tuner.spec.config import ResumeConfig
from tuner.storage import strict_json
from tuner.storage.array_store import ObjectStore
from tuner.storage.config_codec import ConfigCodec

from . import invariants
from .environment import World
from .plugins import FragileCallback, FragileScheduler, FragileSearcher
from .probes import Bystander, Deleting, WatchedLog
from .scenario import METRIC, MODE
from .simulated_user import Hand
from .virtual_log_files import RECENT_S, Logs
from .virtual_workers import SlowCaller, Workers

_SPACE = {"x": uniform(0.1, 1.0)}
_REQUEST = {"cpu": 1.0}
_SNAPSHOT_RATE = 0.03
_RETRY_S = 3.0


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
        searcher = FragileSearcher(scenario.make_searcher(), world.fate)
        searcher.inner.set_search_properties(
            METRIC, MODE, _SPACE, seed=scenario.seed, num_samples=scenario.num_trials
        )
        self.experiment = Experiment(scenario.settings(), self.scheduler, NoopStopper())
        proposer = Proposer(searcher, _SPACE, lambda _: _REQUEST)
        self._state = State(
            self.experiment, proposer, ConfigCodec(_SPACE, ObjectStore(world.directory))
        )

    @property
    def is_over(self) -> bool:
        """Whether the driver has come to the end, and nothing is left to be continued."""
        trials, scenario = self.experiment.trials, self._world.scenario
        num_sampled = len(trials) - self.experiment.trial_table.num_forked
        is_short = num_sampled < scenario.num_trials and scenario.time_budget_s is None
        why = self.experiment.stop_reason
        is_time_up = why is not None and why.rule == TIME_BUDGET
        is_paused = any(trial.status is Status.PAUSED for trial in trials) and not is_time_up
        return self._has_ended and not (is_short or is_paused or any(map(is_interrupted, trials)))

    def live(self) -> None:
        """Open, rebuild and drive on, to the end or to whatever comes before it."""
        world, scenario = self._world, self._world.scenario
        tail, past = (START, self._replayed()) if world.session == 1 else self._taken_up()
        self._check_restored()
        journal = Journal(
            world.directory,
            tail,
            sync=scenario.durability,
            segment_bytes=scenario.segment_bytes,
            has_syncer=False,
            disk=world.disk,
            on_segment=world.note_segment,
            look_period_s=0.0,
        )
        deleting = Deleting(world, journal)
        with journal, CheckpointDeleter(journal, deleting.discard) as cleaner:
            world.declare(journal.epoch)
            world.experiment, world.journal = self.experiment, journal
            deleting.cleaner = cleaner
            self._drive(journal, deleting, past)
        self._has_ended = True

    def _taken_up(self) -> tuple[Any, Replayed]:
        world = self._world
        mark, disk, now = world.mark(), world.disk, world.boot_id
        tail, lacks = completeness.checked_end(world.directory, mark, disk=disk, now=now)
        newest = snapshot_files.load_newest(world.directory, disk)
        if newest is None:
            past = self._replayed()
        else:
            world.seen["restored from a snapshot"] += 1
            past = self._replayed(
                newest.last_sequence, take_up(newest, self._state, world.directory)
            )
        lacks += completeness.settled(
            world.directory, mark, self.experiment.trials, tail, disk=disk, now=now
        )
        known = {trial.trial_id: Known.of(trial) for trial in self.experiment.trials}
        ahead = completeness.compared(
            world.checkpoints.witnesses(), known, has_segment=tail.epoch > 0
        )
        if not all(mark.allows(lack.lost_s, now) for lack in ahead):
            raise completeness.incomplete(world.directory, ahead, tail)
        world.seen["journal lacked what a power cut had taken"] += bool(lacks or ahead)
        tail = recover(world.directory, disk=disk)
        return tail._replace(epoch=max(tail.epoch, mark.epoch)), past

    def _replayed(self, after: int = 0, elapsed_s: float = 0.0) -> Replayed:
        return replay(
            self._world.directory,
            self.experiment,
            self._state.proposer,
            after=after,
            elapsed_s=elapsed_s,
            recent_s=RECENT_S,
            disk=self._world.disk,
        )

    def _check_restored(self) -> None:
        """Hold the rebuilt state to what was known before."""
        world = self._world
        invariants.transitions_are_legal(self.experiment)
        invariants.scheduler_facts_are_kept(world, self.scheduler)
        invariants.checkpoints_in_need_are_there(world, self.experiment)
        world.checkpoints.sweep(self.experiment.trials)

    def _check_restarted(self) -> None:
        """Hold the state with which this driver begins to the one in which the driver before it would have begun again."""
        if self._before is not None:
            self._world.seen["state compared with its fold"] += 1
            invariants.fold_gives_the_state(
                self._before, invariants.portrait(self.experiment, self.scheduler)
            )

    def _drive(self, journal: Journal, deleting: Deleting, past: Replayed) -> None:
        world = self._world
        workers = Workers(world)
        storage_retry = StorageRetry(_RETRY_S, clock=workers.clock, sleep=world.sleep)
        log = JournalLog(
            journal, deleting.cleaner, configs=self._state.configs, storage_retry=storage_retry
        )
        loggers = world.logs.begin_session() if world.logs else ()
        callbacks = CallbackList(
            [Bystander(world), FragileCallback(world.fate, world.step), *loggers]
        )
        caller = SlowCaller(world, workers) if world.scenario.is_search_slow else None
        suggestions = SuggestionQueue(self._state.proposer, caller, workers.wake)
        observers = EventDispatch(
            suggestions, callbacks, self.experiment.trials, world.directory, METRIC
        )
        driver = Driver(
            self.experiment,
            workers,
            WatchedLog(log, world, self._check_restarted),
            suggestions,
            observers,
            deleting,
            find_damage=world.checkpoints.find_damage,
            at_rest=lambda at_s: self._perhaps_take_snapshot(log, suggestions, at_s),
            elapsed_s=past.elapsed_s,
            tick_s=None,
            control=RequestHandler(
                self.experiment, self._state.proposer, [Hand(world, self.experiment)]
            ),
        )

        def request_stop(request: StopRequested) -> None:
            log.ask_to_stop(request)
            driver.request_stop(request)

        world.request_stop = request_stop
        first: list[Event] = (
            [ResumeConfig().event(world.scenario.settings())] if world.session > 1 else []
        )
        try:
            if world.logs:
                self._begin_logs(world.logs, observers, past)
            driver.run(first)
            log.close(driver.elapsed_s)
        finally:
            suggestions.close()
            workers.perish()
            if world.logs and not world.fate.is_dead:
                world.step()
                world.logs.close()

    def _begin_logs(self, logs: Logs, observers: EventDispatch, past: Replayed) -> None:
        observers.begin_experiment(mode=MODE, space=_SPACE)
        if self._world.session > 1:
            trials = self.experiment.trials
            logs.mend(trials, invariants.table_of(trials, self._world.read_journal()), past.recent)

    def _perhaps_take_snapshot(
        self, log: JournalLog, suggestions: SuggestionQueue, elapsed_s: float
    ) -> None:
        world = self._world
        if world.chance.random() >= _SNAPSHOT_RATE or not self._state.experiment.trials:
            return
        if suggestions.is_answering or not suggestions.settle(0.0):
            world.seen["snapshot put off for the searcher"] += 1
            return
        with contextlib.suppress(StorageError):
            log.settle()
            trials = [
                strict_json.loads(self._state.words_for(trial)) for trial in self.experiment.trials
            ]
            state = {**self._state.put_down(), "elapsed_s": elapsed_s, "trials": trials}
            log.journal.sync()
            snapshot_files.write(
                world.directory,
                state,
                log.journal.last_sequence,
                sync=world.scenario.durability != "process",
                disk=world.disk,
            )
            world.seen["snapshot taken"] += 1


def is_interrupted(trial: Any) -> bool:
    """Return whether a trial goes on when the experiment is taken up again; where time was up, it would be up again at once."""
    return trial.ending is TerminationReason.INTERRUPTED and trial.reason.rule != TIME_BUDGET
