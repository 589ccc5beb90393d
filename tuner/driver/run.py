"""One run of an experiment: puts directory, executor, journal and observers together."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.analysis.explain import why_never_compared
from tuner.analysis.failed_validations import why_none_validated
from tuner.analysis.result_grid import Persistence
from tuner.background import BackgroundJobs
from tuner.callbacks import Callback, Console, ErrorLog, PolicyLog, TrialFileLogger, default_loggers
from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.console.console import ON_CONSOLE
from tuner.callbacks.registry import named_callbacks
from tuner.callbacks.trackers.tracker import TrackerCallback
from tuner.core.events import Event, StopRequested
from tuner.core.experiment import Experiment
from tuner.core.failure_causes import COMMON_FAILURE, common_failure
from tuner.core.metric_watch import METRIC_NOT_REPORTED
from tuner.core.node_waits import NO_NODE
from tuner.core.policies import TIME_BUDGET
from tuner.core.progress import Progress, look_at
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.errors import CannotPause, ClusterError, MetricNotReported, StorageError, StorageLost
from tuner.execution.cluster.shared_directory import await_former_nodes
from tuner.execution.executor import Executor
from tuner.execution.leasing import lease, lease_holder
from tuner.execution.local import orphans
from tuner.execution.local.process_setup import open_standard_streams
from tuner.execution.resources import machine_capacity
from tuner.execution.store_waits import waiting_line
from tuner.execution.trainable import (
    can_be_saved,
    is_class_trainable,
)
from tuner.journal import takeover_cleanup
from tuner.journal.completeness import read_mark
from tuner.journal.rows import JournalRows, histories_of
from tuner.journal.salvage import cut_at_damage
from tuner.journal.segments import START, JournalPosition
from tuner.journal.writer import Journal
from tuner.restore.continuation import changed_line, continuing_line
from tuner.restore.experiment import (
    Restored,
    nothing_new,
    restore_spec,
    with_new_groups,
    with_work_left,
)
from tuner.restore.log_repair import repair_logs
from tuner.restore.resume_command import (
    how_to_continue,
    how_to_name_the_metric,
    how_to_recover,
    restore_line,
    shell_line,
)
from tuner.restore.snapshot_state import usable_snapshot
from tuner.restore.takeover import take_over
from tuner.spec.config import ResumeConfig
from tuner.spec.default_algorithms import full_iteration
from tuner.spec.environment import EnvironmentRecorder
from tuner.spec.experiment_directory import (
    Record,
    check_unused,
    number_remark,
    replace_experiment,
    rewrite_declaration,
    write_declaration,
)
from tuner.spec.experiment_location import ExperimentLocation
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.param_space import check_secrets, names_of_secrets
from tuner.spec.secret_hints import plain_secrets, secret_hints
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.control_requests import RequestInbox
from tuner.storage.declaration import is_experiment
from tuner.storage.directories import inspect_folder
from tuner.storage.lock import ExperimentLock

from .assembly import Assembly, assemble
from .checkpoint_store import CheckpointDeleter, CheckpointStore
from .control import RequestQueue
from .driver import Timing
from .event_dispatch import EventDispatch
from .executors import leased_group, make_executor
from .journal_log import JournalLog
from .persistence_cost import PersistenceAccount, PersistenceCosts
from .remote_session import RemoteSession
from .signals import Interrupts, cause_of_interruption, exit_code, has_failed, is_script
from .snapshots import Snapshots
from .storage_retry import StorageRetry
from .suggestion_queue import SuggestionQueue

if TYPE_CHECKING:
    from .cluster_session import ClusterSession

_SHUTDOWN_S = 10.0
_log = logging.getLogger("tuner")


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome of a run.

    Attributes:
        directory: The experiment's directory.
        trials: All trials.
        exit_code: Exit code with which a script has to end, since a signal or the time limit
            interrupted it, or no trial succeeded; None where it continues.
        persistence: What saving has cost, None where nothing was run.
        is_searching: Whether the searcher still computes a suggestion in its thread, which nothing
            can end.
    """

    directory: Path
    trials: Sequence[Trial]
    exit_code: int | None = None
    persistence: Persistence | None = None
    is_searching: bool = False


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to continue an experiment.

    Attributes:
        record: What its directory declares.
        resume: Which trials are resumed, restarted or skipped.
        changes: Differences between the recorded and the present declaration, a line each.
        steal: Whether a driver of this machine that still holds the experiment is killed.
        salvage: Whether a damaged journal is cut; checkpoints that it no longer
            contains are kept then.
    """

    record: Record
    resume: ResumeConfig = field(default_factory=ResumeConfig)
    changes: Sequence[str] = ()
    steal: bool = False
    salvage: bool = False

    @property
    def settings(self) -> ExperimentSettings:
        """The settings with which it began."""
        return self.record.settings


class Run:
    """One session of an experiment, from taking its lock to the end of its last worker.

    Args:
        spec: What was declared.
        location: Where the experiment is. Its directory exists, unless an experiment of an object
            store is continued.
        resumption: How to continue the experiment that is there; None for a new one.
    """

    def __init__(
        self,
        spec: ExperimentSpec,
        location: ExperimentLocation,
        resumption: Resumption | None = None,
    ) -> None:
        # Before the console uses them, and before the journal or a socket gets the number of one
        # that is closed: what is printed would be written into it.
        open_standard_streams()
        self._spec = spec
        self._location = location
        self._directory = directory = location.directory
        self._resumption = resumption
        self._remote = (
            RemoteSession(
                location,
                location.store,
                spec.run,
                steal=resumption is not None and resumption.steal,
            )
            if location.store
            else None
        )
        self._cluster: ClusterSession | None = None
        self._objects = ArrayStore(directory, sync=spec.run.durability != "process")
        self._callbacks = _callbacks(spec)
        plain = plain_secrets(spec.space)
        self._environment = EnvironmentRecorder(
            directory, names_of_secrets(spec.space), set[str]().union(*plain.values())
        )
        self._hints = [] if resumption else secret_hints(list(plain), self._environment.withheld)
        self._policies = PolicyLog() if getattr(spec.scheduler, "log_config", False) else None
        self._began_s = 0.0
        self._request_queue = RequestQueue()
        self._remarks = [] if resumption else [spec.remark]
        self._progress: Callable[[], Progress]  # once there is a driver to ask
        look = lambda: self._progress()  # noqa: E731, PLW0108  (looked up when it is called)
        # What a trial or a validation prints goes to its log, in which tables are of no use.
        verbose = 0 if lease_holder() else min(spec.run.verbose, 2)
        self._console = Console(look, verbose, reporter=spec.run.progress_reporter)

    def execute(self, requests: RequestQueue | None = None) -> Finished:
        """Run the experiment to its end.

        Args:
            requests: Control requests from other threads of this process; None for none.
        """
        self._request_queue = requests or self._request_queue
        if self._spec.run.logging_config:
            _log.setLevel(self._spec.run.logging_config.log_level)
        if self._remote:
            self._remote.prepare()
        inspect_folder(self._directory)
        check_secrets(self._spec.space)
        # Given back last: while a worker of this experiment is alive, it occupies them.
        with lease(leased_group(self._spec)) as borrowed:
            return self._execute_with(borrowed.capacity if borrowed else self._spec.run.resources)

    def _execute_with(self, resources: Mapping[str, float] | None) -> Finished:
        spec, directory = self._spec, self._directory
        # Before scheduler and searcher are connected, so that after a refusal they can be used
        # again.
        spec.check_resources(machine_capacity(resources))
        spec.connect()
        with self._console.showing_warnings(), contextlib.ExitStack() as closing:
            for hint in self._hints:
                _log.warning("%s", hint)
            executor = self._make_executor(resources)
            if self._cluster:
                closing.callback(self._cluster.close)  # after the executor
            closing.callback(executor.shutdown, _SHUTDOWN_S)
            self._began_s = executor.clock()
            settings = spec.settings(executor.capacity())
            # The lock leaves a file, so it is taken when all arguments have been checked. The
            # executor is shut down inside it: as long as a worker of this driver may write, no
            # other driver may begin.
            steal = self._resumption is not None and self._resumption.steal
            remote = self._remote
            with (
                ExperimentLock(directory, steal=steal) as lock,
                remote or contextlib.nullcontext(),
                closing,
            ):
                if remote and self._cluster:
                    remote.open_checkpoints()  # which the nodes upload
                elif remote:
                    executor = remote.uploading(executor)
                    closing.callback(executor.shutdown, _SHUTDOWN_S)
                if self._resumption:
                    if remote:
                        remote.resume(lock, is_salvage=self._resumption.salvage)
                    return self._execute_locked(executor, settings, lock, remote)
                self._make_room(remote)
                lock.note_segment(0, 0)  # there may be a note of an experiment that was replaced
                with takeover_cleanup.removed_on_error(directory):
                    if remote:
                        remote.begin()
                    write_declaration(spec, settings, directory)
                    return self._execute_locked(executor, settings, lock, remote)

    def _make_executor(self, resources: Mapping[str, float] | None) -> Executor:
        spec, directory, environment = self._spec, self._directory, self._environment
        if spec.run.cluster:
            from .cluster_session import ClusterSession  # noqa: PLC0415  (few need its many modules)

            on_packages = environment.add_packages
            self._cluster = ClusterSession(
                spec.run.cluster, spec, directory, on_packages, self._remote
            )
            return self._cluster.executor
        store = self._location.store
        return make_executor(
            spec,
            directory,
            self._objects,
            environment,
            resources,
            stored_in=store.url if store else "",
        )

    def _make_room(self, remote: RemoteSession | None) -> None:
        """Clear or check the directory of a new experiment, and note a remark for the user."""
        if self._spec.run.if_exists == "replace":
            if remote:
                remote.replace()
            if is_experiment(self._directory):
                # They would write into the new experiment, whose trials may have the same names.
                await_former_nodes(self._directory)
                _kill_orphans(self._directory)
            self._remarks.append(replace_experiment(self._directory))
        else:
            check_unused(self._directory)
            self._remarks.append(number_remark(self._spec, self._directory))

    def _execute_locked(
        self,
        executor: Executor,
        settings: ExperimentSettings,
        lock: ExperimentLock,
        remote: RemoteSession | None,
    ) -> Finished:
        spec, directory = self._spec, self._directory
        configs = ConfigCodec(spec.space, self._objects)
        if self._resumption:
            await_former_nodes(directory)
            _kill_orphans(directory)
            # A restore of 10,000 trials makes half a million objects, and none of them is garbage.
            with rare_garbage_collection():
                end, restored_spec, restored = self._restore(self._resumption, configs)
        else:
            end = START
            restored_spec, restored = restore_spec(spec, directory, settings, None, configs)
        with (
            Journal(
                directory,
                end,
                sync=spec.run.durability,
                on_segment=lock.note_segment,
                is_ours=lambda: lock.is_in_place,
                mirror=remote.open_mirror() if remote else None,
            ) as journal,
            CheckpointDeleter(journal) as deleter,
        ):
            rewrite_declaration(spec, directory, journal.epoch)
            stage = _Stage(restored_spec, restored, executor, settings, journal, deleter, remote)
            earlier = [
                (trial.trial_id, kept.index)
                for trial in restored.state.experiment.trials
                for kept in trial.checkpoints
            ]
            in_store = remote.checkpoints if remote else None
            store = CheckpointStore(directory, deleter, earlier, in_store)
            if remote and self._resumption and not self._resumption.salvage:
                store.clean_up(restored.state.experiment.trials)
            return self._drive(stage, self._assemble(stage, store))

    def _restore(
        self, resumption: Resumption, configs: ConfigCodec
    ) -> tuple[JournalPosition, ExperimentSpec, Restored]:
        """Take over the experiment, and return where its journal ends and how it was left."""
        directory, is_salvage = self._directory, resumption.salvage
        spec = self._spec

        def restore() -> Restored:
            nonlocal spec
            snapshot = None if is_salvage else usable_snapshot(spec, directory)
            spec, restored = restore_spec(spec, directory, resumption.settings, snapshot, configs)
            return restored

        if is_salvage:
            cut_at_damage(directory)
        mark = read_mark(directory)
        takeover = take_over(directory, mark, restore, is_salvage=is_salvage)
        trials = takeover.restored.state.experiment.trials
        takeover_cleanup.remove_unfinished(directory, _recorded_checkpoints(trials, resumption))
        return takeover.end, spec, takeover.restored

    def _assemble(self, stage: _Stage, store: CheckpointStore) -> _Session:
        spec, directory, state = stage.spec, self._directory, stage.restored.state
        account = PersistenceAccount()
        place = stage.remote.store.url if stage.remote else str(directory)
        table = state.experiment.trial_table
        storage_retry = StorageRetry(
            spec.run.storage_retry_s,
            line=lambda waited_s: waiting_line(place, len(table.live), waited_s),
        )
        log = JournalLog(stage.journal, stage.deleter, account, state.configs, storage_retry)
        policies = [self._policies] if self._policies else []
        files = [stage.remote.start(stage.journal, stage.executor.wake)] if stage.remote else []
        callbacks = CallbackList([*self._callbacks, *policies, ErrorLog(), *files, self._console])
        callbacks.set_state(stage.restored.callbacks)
        account.log_files = _log_file_costs(callbacks, self._callbacks)
        account.add_source(lambda: PersistenceCosts(thread_s=stage.deleter.thread_cpu_s))
        if mirror := stage.journal.mirror:
            account.add_source(lambda: PersistenceCosts(thread_s=mirror.thread_cpu_s))
        # With the inline executor everything happens in one thread, in an order that only the seed
        # determines.
        num_threads = 0 if spec.run.executor == "inline" else 1
        calls = BackgroundJobs("tuner-searcher", num_threads=num_threads)
        suggestions = SuggestionQueue(state.search_adapter, calls, stage.executor.wake)
        snapshots = Snapshots(directory, spec, state, suggestions, callbacks, log, account)
        leave_at_s = None if spec.run.leave_at_s is None else self._began_s + spec.run.leave_at_s
        assembly = assemble(
            state.experiment,
            stage.executor,
            log,
            suggestions,
            callbacks,
            directory,
            timing=Timing(in_microseconds=True, leave_at_s=leave_at_s),
            elapsed_s=stage.restored.elapsed_s,
            checkpoint_files=store,
            take_snapshot=snapshots.take_if_due,
            request_sources=[
                self._request_queue,
                RequestInbox(directory),
                *([stage.remote.request_inbox(stage.executor.wake)] if stage.remote else []),
            ],
            trainable=spec.trainable,
            print_notice=self._console.print_notice,
        )
        look = partial(
            look_at,
            state.experiment,
            directory.name,
            full_iteration=full_iteration(spec.run.stop, spec.scheduler),
        )
        self._progress = lambda: look(assembly.driver.elapsed_s)
        return _Session(assembly, log, suggestions, snapshots, account)

    def _drive(self, stage: _Stage, session: _Session) -> Finished:
        spec, directory, console = stage.spec, self._directory, self._console
        experiment, log = stage.restored.state.experiment, session.log
        driver, event_dispatch = session.assembly.driver, session.assembly.event_dispatch
        first: list[Event] = []
        left_out: Sequence[str] = ()
        if self._resumption:
            event = self._resumption.resume.event(stage.settings)
            event = with_work_left(event, stage.restored.state.search_adapter, spec)
            event = with_new_groups(event, experiment, spec)
            first, left_out = [event], event.left_out
            self._remarks.append(continuing_line(directory.name, experiment, event, spec))
        num_started = _num_started(experiment.trials)

        def request_stop(request: StopRequested) -> None:
            log.ask_to_stop(request)
            driver.request_stop(request)
            for callback in self._callbacks:
                if isinstance(callback, TrackerCallback):  # the end may be waiting for it
                    callback.stop_waiting()

        is_searching = False
        # Inside a trial or a validation, the outer driver heeds signals, and ends this one.
        takes_signals = lease_holder() is None
        with Interrupts(request_stop, takes_signals=takes_signals) as interrupts:
            try:
                with (
                    contextlib.nullcontext()
                    if spec.run.executor == "inline"
                    else rare_garbage_collection()
                ):
                    self._begin(event_dispatch, stage)
                    joined = self._cluster.connect(experiment) if self._cluster else []
                    self._environment.start()
                    self._request_queue.open(stage.executor.wake, request_stop)
                    driver.run([*first, *joined])
                    # The record that the driver has ended normally comes last.
                    session.snapshots.close(driver.elapsed_s)
                    log.close(driver.elapsed_s)
            except (Exception, KeyboardInterrupt) as error:
                _explain(error, how_to_recover(error, directory, spec), interrupts)
                raise
            finally:
                # The searcher first: its thread must not call it while callbacks end. Pending
                # requests are refused before those, since a callback may take long.
                is_searching = session.suggestions.close()
                session.assembly.control.close()
                event_dispatch.end_experiment()
                console.close()
                self._environment.close()
            if self._resumption and num_started == _num_started(experiment.trials):
                line = shell_line(directory, spec, "-n NUMBER, or --retry-failed")
                more = line or "restore with a larger num_samples or a resume_config"
                console.print_notice(
                    f"{nothing_new(spec, experiment.trials, left_out)}; to go on, {more}"
                )
            rule = self._report_end(experiment, console)
        persistence = session.account.report()
        _log.info("%s", persistence)
        return Finished(
            directory,
            experiment.trials,
            exit_code(
                rule,
                interrupts.received,
                has_failed=spec.failure.fail_script
                and takes_signals
                and has_failed(experiment.trials, rule),
            ),
            persistence,
            is_searching,
        )

    def _report_end(self, experiment: Experiment, console: Console) -> str:
        """Report why the experiment ended early, and return the rule of its stop; empty for none.

        Raises:
            CannotPause: If its scheduler pauses trials that cannot be paused.
            ClusterError: If no node has joined on which anything can run.
            MetricNotReported: If a trial has completed and no trial has reported the metric.
        """
        how = how_to_continue(self._directory, self._spec)
        rule = experiment.stop_reason.rule if experiment.stop_reason else ""
        if experiment.stop_reason and rule == METRIC_NOT_REPORTED:
            is_validated = "num_failed_validations" in experiment.stop_reason.numbers
            why = f"; {why_none_validated(experiment.trials)}" if is_validated else ""
            raise MetricNotReported(
                f"{experiment.fatal_error}{why}\n"
                f"{how_to_name_the_metric(self._directory, self._spec, experiment.stop_reason)}"
            )
        if rule == NO_NODE:
            refused = self._cluster.why_refused if self._cluster else ""
            raise ClusterError(f"{experiment.fatal_error}{refused}; {how}")
        if experiment.fatal_error:
            raise CannotPause(f"{experiment.fatal_error}; when this is mended, {how}")
        if experiment.stall_reason:
            _log.warning(
                "the experiment ended with trials left to run: %s", experiment.stall_reason
            )
        if rule == TIME_BUDGET:
            budget_s = experiment.settings.time_budget_s
            line = shell_line(self._directory, self._spec, "--time-limit TIME")
            more = line or "restore with a larger time_budget_s"
            console.print_notice(f"the time budget of {budget_s:g} s is used up; to go on, {more}")
        if rule in ("", TIME_BUDGET) and (
            why := why_never_compared(self._spec.scheduler, experiment.trials)
        ):
            console.print_notice(why)
        if experiment.stop_reason and rule == COMMON_FAILURE:
            line = shell_line(self._directory, self._spec, "--retry-failed")
            again = line or restore_line(self._directory, self._spec, restart_errored="True")
            console.print_notice(
                f"stopped: {common_failure(experiment.stop_reason)}; mend that and continue with\n"
                f"    {again}"
            )
            if not line:
                console.print_notice(
                    "FailureConfig(max_common_failures=None) has all trials run whatever they fail "
                    "with"
                )
        if cause := cause_of_interruption(rule):
            console.print_notice(f"interrupted by {cause}; {how}")
        return rule

    def _begin(self, event_dispatch: EventDispatch, stage: _Stage) -> None:
        """Notify callbacks and the user of the start, and repair log files."""
        spec, trials = stage.spec, stage.restored.state.experiment.trials
        event_dispatch.begin_experiment(
            stop=spec.run.stop,
            num_samples=spec.tune.num_samples,
            total_num_samples=stage.settings.max_trials,
            mode=stage.settings.mode,
            space=spec.space,
            experiment_id=spec.experiment_id,
            trainable=spec.trainable,
        )
        for remark in filter(None, self._remarks):
            event_dispatch.remark(remark)
        if is_class_trainable(spec.trainable) and not can_be_saved(spec.trainable):
            _log.warning(
                "%s cannot be saved; implement save_checkpoint and load_checkpoint to go on "
                "after a failure or a pause",
                spec.name,
            )
        if self._resumption:
            for change in self._resumption.changes:
                self._console.print_notice(changed_line(change))
                _log.warning("changed since the last run: %s", change, extra=ON_CONSOLE)
            rows = JournalRows(self._directory, histories_of(trials))
            if self._policies:
                self._policies.mend(self._directory, trials)
            repair_logs(self._callbacks, trials, rows, stage.restored.recent)


def read(spec: ExperimentSpec, directory: Path, resumption: Resumption) -> Finished:
    """Return the state of a stored experiment, without running or changing anything.

    Raises:
        StorageError: If it cannot be restored from its journal.
    """
    spec = spec.copy()
    spec.connect()
    _, restored = restore_spec(
        spec,
        directory,
        resumption.settings,
        usable_snapshot(spec, directory),
        ConfigCodec(spec.space, ArrayStore(directory)),
    )
    return Finished(directory, restored.state.experiment.trials)


@dataclass(frozen=True, slots=True)
class _Stage:
    """The restored or new experiment, and the parts that are open before its driver starts."""

    spec: ExperimentSpec
    restored: Restored
    executor: Executor
    settings: ExperimentSettings
    journal: Journal
    deleter: CheckpointDeleter
    remote: RemoteSession | None


@dataclass(frozen=True, slots=True)
class _Session:
    """A driver, and the parts that are closed or asked when it has ended."""

    assembly: Assembly
    log: JournalLog
    suggestions: SuggestionQueue
    snapshots: Snapshots
    account: PersistenceAccount


def _recorded_checkpoints(
    trials: Sequence[Trial], resumption: Resumption
) -> dict[str, set[str] | None]:
    """Return the names of each trial's recorded checkpoints, None to keep unrecorded ones, too."""
    return {
        trial.trial_id: None
        if resumption.salvage
        else {checkpoint.directory for checkpoint in trial.checkpoints}
        for trial in trials
    }


def _log_file_costs(
    callbacks: CallbackList, members: Sequence[Callback]
) -> Callable[[], PersistenceCosts]:
    """Return a function that sums up the loggers' hooks and the threads that write for them."""
    loggers = [member for member in members if isinstance(member, TrialFileLogger)]
    writers = {logger.writer for logger in loggers}  # several loggers share one

    def costs() -> PersistenceCosts:
        return PersistenceCosts(
            loop_s=callbacks.file_logging_s,
            thread_s=sum(writer.thread_cpu_s for writer in writers),
            num_bytes=sum(logger.num_bytes for logger in loggers),
        )

    return costs


def _num_started(trials: Sequence[Trial]) -> int:
    """Return how often a worker or a validation has been started."""
    return sum(
        trial.attempt + sum(validation.num_try for validation in trial.validations.values())
        for trial in trials
    )


def _callbacks(spec: ExperimentSpec) -> list[Callback]:
    own = list(spec.run.callbacks or ())
    own += named_callbacks(own)
    is_bare = os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS") == "1"
    return own if is_bare else [*own, *default_loggers(own)]


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector rarely, and not on objects that exist already.

    The driver makes no cycles, but many small objects: some 30,000 wait for their log files where a
    thousand reports come a second. For a process in which nothing is trained: garbage of a training
    may hold a device's memory.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _kill_orphans(directory: Path) -> None:
    # Before the journal is read: a worker that still runs would write into the same directories.
    for orphan in orphans.kill_orphans(directory):
        _log.warning(
            "%s was still running, left behind by a trial of a driver that is dead; it has "
            "been killed",
            orphan,
        )


def _explain(error: BaseException, how: str, interrupts: Interrupts) -> None:
    """Add to an error how the experiment is continued.

    A script that was asked to end anyway ends with one line instead of a traceback.

    Raises:
        SystemExit: If a signal came while the storage took nothing.
    """
    if (
        isinstance(error, StorageError)
        and not isinstance(error, StorageLost)
        and interrupts.received
        and is_script()
    ):
        _log.error("%s; %s", error, " ".join(how.split()))
        raise SystemExit(exit_code("", interrupts.received, has_failed=False)) from None
    error.add_note(how)
