"""One driver process: restores what the last one has left, and runs the experiment.

The driver is assembled and the experiment restored by the engine's own functions. Only snapshots
are taken otherwise: at random turns and written at once, where `tuner.driver.snapshots` has a clock
and a thread.
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
from tuner.driver.assembly import assemble
from tuner.driver.checkpoint_store import CheckpointDeleter
from tuner.driver.driver import VIRTUAL_TIME
from tuner.driver.event_dispatch import EventDispatch
from tuner.driver.journal_log import JournalLog
from tuner.driver.storage_retry import StorageRetry
from tuner.driver.suggestion_queue import SuggestionQueue
from tuner.errors import StorageError
from tuner.journal import snapshot_files
from tuner.journal.segments import START, JournalPosition
from tuner.journal.snapshot_files import Snapshot
from tuner.journal.writer import Journal
from tuner.restore.experiment import restore_experiment
from tuner.restore.search_adapter import SearchAdapter
from tuner.restore.snapshot_state import ExperimentState, Restored
from tuner.restore.takeover import take_over
from tuner.spec.config import ResumeConfig
from tuner.storage import strict_json
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec

from . import invariants
from .environment import Environment
from .faulty_executor import DelayedCalls, FaultyExecutor
from .plugins import FragileCallback, FragileScheduler, FragileSearcher
from .probes import DeletionProbe, LogProbe, NoticeProbe
from .scenario import METRIC, MODE
from .simulated_user import SimulatedUser
from .virtual_log_files import RECENT_S, VirtualLogFiles

_SPACE = {"x": uniform(0.1, 1.0)}
_REQUEST = {"cpu": 1.0}
_SNAPSHOT_RATE = 0.03
_RETRY_S = 3.0


@final
class DriverProcess:
    """One driver process over what is on the environment's disk.

    Args:
        env: The environment.
        before: The `comparable_state` of what the driver before has left in memory, where the
            journal must hold the same; None otherwise.

    Attributes:
        experiment: What it drives.
        scheduler: The scheduler, wrapped so that it may raise.
    """

    def __init__(self, env: Environment, before: dict[str, Any] | None = None) -> None:
        """Create new plug-ins, as a user's script does when it is run again."""
        scenario = env.scenario
        self._env = env
        self._before = before
        self._has_ended = False
        self.scheduler = FragileScheduler(scenario.make_scheduler(), env.faults)
        self.scheduler.inner.set_search_properties(METRIC, MODE, seed=scenario.seed)
        searcher = FragileSearcher(scenario.make_searcher(), env.faults)
        searcher.inner.set_search_properties(
            METRIC, MODE, _SPACE, seed=scenario.seed, num_samples=scenario.num_trials
        )
        self.experiment = Experiment(scenario.settings(), self.scheduler, NoopStopper())
        training = scenario.training
        search_adapter = SearchAdapter(
            searcher,
            _SPACE,
            lambda config: training.group_for(config).total if training else _REQUEST,
            scenario.group_for,
            lambda config: {} if training else scenario.labels_for(config),
        )
        self._state = ExperimentState(
            self.experiment, search_adapter, ConfigCodec(_SPACE, ArrayStore(env.directory))
        )

    @property
    def is_over(self) -> bool:
        """True once the driver has ended and no trial is left to be continued."""
        trials, scenario = self.experiment.trials, self._env.scenario
        num_sampled = len(trials) - self.experiment.trial_table.num_forked
        is_short = num_sampled < scenario.num_trials and scenario.time_budget_s is None
        why = self.experiment.stop_reason
        is_time_up = why is not None and why.rule == TIME_BUDGET
        is_paused = any(trial.status is Status.PAUSED for trial in trials) and not is_time_up
        is_open = any(trial.open_validations for trial in trials) and not is_time_up
        is_left = any(map(is_interrupted, trials)) or (
            bool(self.experiment.trial_table.left) and not is_time_up
        )
        return self._has_ended and not (is_short or is_paused or is_open or is_left)

    def run(self) -> None:
        """Restore the experiment and run it until it ends or the driver is killed."""
        env, scenario = self._env, self._env.scenario
        end, past = (START, self._restore(None)) if env.driver_number == 1 else self._take_over()
        self._check_restored()
        journal = Journal(
            env.directory,
            end,
            sync=scenario.durability,
            segment_bytes=scenario.segment_bytes,
            has_syncer=False,
            disk=env.disk,
            on_segment=env.note_segment,
            look_period_s=0.0,
        )
        deletions = DeletionProbe(env, journal)
        with journal, CheckpointDeleter(journal, deletions.discard) as cleaner:
            env.declare(journal.epoch)
            env.experiment, env.journal = self.experiment, journal
            deletions.cleaner = cleaner
            self._drive(journal, deletions, past)
        self._has_ended = True

    def _take_over(self) -> tuple[JournalPosition, Restored]:
        env, mark = self._env, self._env.mark()
        takeover = take_over(
            env.directory, mark, self._restore_newest, disk=env.disk, current_boot=env.boot_id
        )
        env.seen["journal lacked what a power cut had taken"] += bool(takeover.missing)
        return takeover.end, takeover.restored

    def _restore_newest(self) -> Restored:
        newest = snapshot_files.load_newest(self._env.directory, self._env.disk)
        self._env.seen["restored from a snapshot"] += newest is not None
        return self._restore(newest)

    def _restore(self, snapshot: Snapshot | None) -> Restored:
        env = self._env
        return restore_experiment(
            env.directory, self._state, snapshot, recent_s=RECENT_S, disk=env.disk
        )

    def _check_restored(self) -> None:
        """Check the restored state against the acknowledgement log."""
        env = self._env
        invariants.transitions_are_legal(self.experiment)
        invariants.rungs_are_complete(env, self.scheduler)
        invariants.needed_checkpoints_exist(env, self.experiment)
        env.checkpoints.sweep(self.experiment.trials)

    def _check_restarted(self) -> None:
        """Compare the restored state with the one that the previous driver had in memory."""
        if self._before is not None:
            self._env.seen["state compared with its fold"] += 1
            invariants.replay_restores_the_state(
                self._before, invariants.comparable_state(self.experiment, self.scheduler)
            )

    def _drive(self, journal: Journal, deletions: DeletionProbe, past: Restored) -> None:
        env = self._env
        workers = FaultyExecutor(env)
        storage_retry = StorageRetry(_RETRY_S, clock=workers.clock, sleep=env.sleep)
        log = JournalLog(
            journal, deletions.cleaner, configs=self._state.configs, storage_retry=storage_retry
        )
        loggers = env.logs.start_driver() if env.logs else ()
        callbacks = CallbackList(
            [NoticeProbe(env), FragileCallback(env.faults, env.step), *loggers]
        )
        caller = DelayedCalls(env, workers) if env.scenario.is_search_slow else None
        suggestions = SuggestionQueue(self._state.search_adapter, caller, workers.wake)
        assembly = assemble(
            self.experiment,
            workers,
            LogProbe(log, env, self._check_restarted),
            suggestions,
            callbacks,
            env.directory,
            timing=VIRTUAL_TIME,
            elapsed_s=past.elapsed_s,
            checkpoint_files=deletions,
            take_snapshot=lambda at_s: self._perhaps_take_snapshot(log, suggestions, at_s),
            request_sources=[SimulatedUser(env, self.experiment)],
        )
        driver = assembly.driver

        def request_stop(request: StopRequested) -> None:
            log.ask_to_stop(request)
            driver.request_stop(request)

        env.request_stop = request_stop
        first: list[Event] = (
            [ResumeConfig().event(env.scenario.settings())] if env.driver_number > 1 else []
        )
        try:
            if env.logs:
                self._begin_logs(env.logs, assembly.event_dispatch, past)
            driver.run(first)
            log.close(driver.elapsed_s)
        finally:
            suggestions.close()
            workers.kill_all()
            if env.logs and not env.faults.is_dead:
                env.step()
                env.logs.close()

    def _begin_logs(
        self, logs: VirtualLogFiles, event_dispatch: EventDispatch, past: Restored
    ) -> None:
        event_dispatch.begin_experiment(mode=MODE, space=_SPACE)
        if self._env.driver_number > 1:
            trials = self.experiment.trials
            rows = invariants.table_of(trials, self._env.read_journal())
            logs.mend(trials, past.recent, rows.of)

    def _perhaps_take_snapshot(
        self, log: JournalLog, suggestions: SuggestionQueue, elapsed_s: float
    ) -> None:
        env = self._env
        if env.rng.random() >= _SNAPSHOT_RATE or not self._state.experiment.trials:
            return
        if suggestions.is_answering or not suggestions.settle(0.0):
            env.seen["snapshot put off for the searcher"] += 1
            return
        with contextlib.suppress(StorageError):
            log.settle()
            snapshot = self._state.snapshot(elapsed_s)
            env.snapshots.update(strict_json.to_bytes(snapshot))
            log.journal.sync()
            snapshot_files.write(
                env.directory,
                snapshot,
                log.journal.last_sequence,
                sync=env.scenario.durability != "process",
                disk=env.disk,
            )
            env.seen["snapshot taken"] += 1


def is_interrupted(trial: Any) -> bool:
    """Return whether a trial is resumed at a restore; not after the time budget is used up."""
    return trial.ending is TerminationReason.INTERRUPTED and trial.reason.rule != TIME_BUDGET
