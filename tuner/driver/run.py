"""One run of an experiment: puts directory, executor, journal and observers together."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner import callbacks
from tuner.background import BackgroundJobs
from tuner.callbacks.callback import Callback
from tuner.callbacks.callback_list import CallbackList
from tuner.callbacks.console.silent import SilentConsole
from tuner.callbacks.files.defaults import default_loggers
from tuner.callbacks.files.error_log import ErrorLog
from tuner.callbacks.files.trial_file import TrialFileLogger
from tuner.core.events import StopRequested
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Trial
from tuner.execution.executor import Executor
from tuner.execution.leasing import lease, lease_holder
from tuner.execution.local.process_setup import open_standard_streams, rare_garbage_collection
from tuner.execution.resources import machine_capacity
from tuner.execution.trainable import can_be_saved, is_class_trainable
from tuner.journal.saving_cost import Persistence
from tuner.journal.writer import Journal
from tuner.restore.snapshot_state import Restored
from tuner.spec.default_algorithms import full_iteration
from tuner.spec.environment import EnvironmentRecorder
from tuner.spec.experiment_location import ExperimentLocation
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.param_space import check_secrets, names_of_secrets, plain_secrets
from tuner.spec.record import rewrite_declaration
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.control_requests import RequestInbox, requests_in
from tuner.storage.directories import inspect_folder
from tuner.storage.lock import ExperimentLock, read_owner
from tuner.wire.record import record

from .assembly import Assembly, assemble
from .beginning import Beginning
from .checkpoint_store import CheckpointDeleter, CheckpointStore
from .control import RequestQueue
from .driver import Timing
from .endings import explain_error, report_end
from .event_dispatch import EventDispatch
from .executors import Processes, leased_group, processes_for
from .journal_log import JournalLog, beat_for
from .signals import Interrupts, exit_code, has_failed
from .snapshots import Snapshots
from .storage_retry import StorageRetry, waiting_line
from .storage_session import storage_session
from .suggestion_queue import SuggestionQueue

if TYPE_CHECKING:
    from tuner.core.progress import Progress

    from .continued import Resumption

_SHUTDOWN_S = 10.0
_log = logging.getLogger("tuner")


@record
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
        self._directory = directory = location.directory
        steal = resumption is not None and resumption.steal
        self._storage = storage_session(spec, location, steal=steal)
        self._beginning: Beginning
        if resumption:
            from .continued import ContinuedExperiment  # noqa: PLC0415  (restores only)

            self._beginning = ContinuedExperiment(spec, directory, self._storage, resumption)
        else:
            self._beginning = Beginning(spec, directory, self._storage)
        self._objects = ArrayStore(directory, sync=spec.run.durability != "process")
        self._callbacks = _callbacks(spec)
        plain = plain_secrets(spec.space)
        self._environment = EnvironmentRecorder(
            directory, names_of_secrets(spec.space), set[str]().union(*plain.values())
        )
        self._hints = self._beginning.hints(list(plain), self._environment.withheld)
        self._began_s = 0.0
        self._request_queue = RequestQueue()
        self._progress: Callable[[], Progress]  # once there is a driver to ask
        self._console = self._make_console()

    def _make_console(self) -> SilentConsole:
        # What a trial or a validation prints goes to its log, in which tables are of no use.
        verbose = 0 if lease_holder() else min(self._spec.run.verbose, 2)
        if not verbose:
            return SilentConsole()
        from tuner.callbacks.console.console import Console  # noqa: PLC0415  (imports tables)

        look = lambda: self._progress()  # noqa: E731, PLW0108  (looked up when it is called)
        return Console(look, verbose, reporter=self._spec.run.progress_reporter)

    def execute(self, requests: RequestQueue | None = None) -> Finished:
        """Run the experiment to its end.

        Args:
            requests: Control requests from other threads of this process; None for none.
        """
        self._request_queue = requests or self._request_queue
        if self._spec.run.logging_config:
            _log.setLevel(self._spec.run.logging_config.log_level)
        self._storage.prepare()
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
            processes = processes_for(
                spec, directory, self._objects, self._environment, resources, self._storage
            )
            closing.callback(processes.close)  # after the executor
            executor = processes.executor
            closing.callback(executor.shutdown, _SHUTDOWN_S)
            self._began_s = executor.clock()
            settings = spec.settings(executor.capacity())
            # The lock leaves a file, so it is taken when all arguments have been checked. The
            # executor is shut down inside it: as long as a worker of this driver may write, no
            # other driver may begin.
            with (
                ExperimentLock(directory, steal=self._beginning.steals) as lock,
                self._storage as storage,
                closing,
            ):
                storing = processes.storing(storage)
                if storing is not executor:
                    closing.callback(storing.shutdown, _SHUTDOWN_S)
                with self._beginning.opened(lock, settings):
                    return self._execute_locked(processes, storing, settings, lock)

    def _execute_locked(
        self,
        processes: Processes,
        executor: Executor,
        settings: ExperimentSettings,
        lock: ExperimentLock,
    ) -> Finished:
        spec, directory = self._spec, self._directory
        configs = ConfigCodec(spec.space, self._objects)
        end, restored_spec, restored = self._beginning.take_over(settings, configs)
        with (
            Journal(
                directory,
                end,
                sync=spec.run.durability,
                on_segment=lock.note_segment,
                is_ours=lambda: lock.is_in_place,
                mirror=self._storage.open_mirror(),
            ) as journal,
            CheckpointDeleter(journal) as deleter,
        ):
            rewrite_declaration(spec, directory, journal.epoch)
            stage = _Stage(restored_spec, restored, processes, executor, settings, journal, deleter)
            trials = restored.state.experiment.trials
            earlier = [
                (trial.trial_id, kept.index) for trial in trials for kept in trial.checkpoints
            ]
            store = CheckpointStore(directory, deleter, earlier, self._storage.checkpoints)
            self._beginning.clean_up(store, trials)
            return self._drive(stage, self._assemble(stage, store))

    def _assemble(self, stage: _Stage, store: CheckpointStore) -> _Session:
        spec, directory, state = stage.spec, self._directory, stage.restored.state
        table = state.experiment.trial_table
        storage_retry = StorageRetry(
            spec.run.storage_retry_s,
            line=lambda waited_s: waiting_line(self._storage.place, len(table.live), waited_s),
        )
        log = JournalLog(
            stage.journal,
            stage.deleter,
            state.configs,
            storage_retry,
            beat_s=beat_for(stage.settings),
        )
        wake = stage.executor.wake
        self._storage.start(stage.journal, wake)
        callbacks = CallbackList([*self._callbacks, ErrorLog(), self._console])
        callbacks.set_state(stage.restored.callbacks)
        # With the inline executor everything happens in one thread, in an order that only the seed
        # determines.
        if spec.run.executor == "inline" or spec.is_searched_at_once:
            suggestions = SuggestionQueue(state.search_adapter)
        else:
            calls = BackgroundJobs("tuner-searcher")
            suggestions = SuggestionQueue(state.search_adapter, calls, wake)
        snapshots = Snapshots(directory, spec, state, suggestions, callbacks, log)
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
                RequestInbox(requests_in(directory), read_owner(directory)),
                *self._storage.request_sources(wake),
            ],
            trainable=spec.trainable,
            print_notice=self._console.print_notice,
        )
        full = full_iteration(spec.run.stop, spec.scheduler)

        def progress() -> Progress:
            from tuner.core.progress import look_at  # noqa: PLC0415  (the console alone asks)

            return look_at(state.experiment, directory.name, assembly.driver.elapsed_s, full)

        self._progress = progress
        return _Session(assembly, log, suggestions, snapshots, callbacks)

    def _drive(self, stage: _Stage, session: _Session) -> Finished:
        spec, directory, console = stage.spec, self._directory, self._console
        experiment, log = stage.restored.state.experiment, session.log
        driver, event_dispatch = session.assembly.driver, session.assembly.event_dispatch
        first = self._beginning.first_events(spec, stage.settings, stage.restored)

        def request_stop(request: StopRequested) -> None:
            log.ask_to_stop(request)
            driver.request_stop(request)
            for callback in self._callbacks:
                callback.end_waits_at_stop()

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
                    joined = stage.processes.connect(experiment)
                    self._environment.start()
                    self._request_queue.open(stage.executor.wake, request_stop)
                    driver.run([*first, *joined])
                    # The record that the driver has ended normally comes last.
                    session.snapshots.take_last(driver.elapsed_s)
                    log.close(driver.elapsed_s)
            except (Exception, KeyboardInterrupt) as error:
                from tuner.restore import resume_command  # noqa: PLC0415  (after errors only)

                how = resume_command.how_to_recover(error, directory, spec)
                explain_error(error, how, interrupts)
                raise
            finally:
                # The searcher first: its thread must not call it while callbacks end. Pending
                # requests are refused before those, since a callback may take long.
                is_searching = session.suggestions.close()
                session.snapshots.close()
                session.assembly.control.close()
                event_dispatch.end_experiment()
                console.close()
                self._environment.close()
            if remark := self._beginning.remark_at_end(spec, experiment.trials):
                console.print_notice(remark)
            rule = report_end(
                experiment, self._spec, directory, console, stage.processes.why_refused
            )
        persistence = _persistence(stage.journal, session.callbacks, self._callbacks)
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

    def _begin(self, event_dispatch: EventDispatch, stage: _Stage) -> None:
        """Notify callbacks and the user of the start, and repair log files."""
        spec = stage.spec
        event_dispatch.begin_experiment(
            stop=spec.run.stop,
            num_samples=spec.tune.num_samples,
            total_num_samples=stage.settings.max_trials,
            mode=stage.settings.mode,
            space=spec.space,
            experiment_id=spec.experiment_id,
            trainable=spec.trainable,
        )
        for remark in filter(None, self._beginning.remarks):
            event_dispatch.remark(remark)
        if is_class_trainable(spec.trainable) and not can_be_saved(spec.trainable):
            _log.warning(
                "%s cannot be saved; implement save_checkpoint and load_checkpoint to go on "
                "after a failure or a pause",
                spec.name,
            )
        self._beginning.announce(self._console, self._callbacks, stage.restored)


@record
class _Stage:
    """The restored or new experiment, and the parts that are open before its driver starts."""

    spec: ExperimentSpec
    restored: Restored
    processes: Processes
    executor: Executor
    settings: ExperimentSettings
    journal: Journal
    deleter: CheckpointDeleter


@record
class _Session:
    """A driver, and the parts that are closed or asked when it has ended."""

    assembly: Assembly
    log: JournalLog
    suggestions: SuggestionQueue
    snapshots: Snapshots
    callbacks: CallbackList


def _persistence(
    journal: Journal, callbacks: CallbackList, members: Sequence[Callback]
) -> Persistence:
    """Return what saving has cost."""
    cost = journal.cost
    loggers = [member for member in members if isinstance(member, TrialFileLogger)]
    writers = {logger.writer for logger in loggers}  # several loggers share one
    log_files_s = callbacks.file_logging_s + sum(writer.cpu_s for writer in writers)
    return Persistence(
        share=cost.share,
        worst_share=cost.worst_share,
        log_files_share=log_files_s / cost.elapsed_s,
        longest_pause_s=cost.longest_pause_s,
        num_bytes=cost.num_bytes + sum(logger.num_bytes for logger in loggers),
        # Each snapshot syncs its file and the directory as well.
        num_syncs=cost.num_syncs + 2 * cost.num_snapshots,
        num_snapshots=cost.num_snapshots,
    )


def _callbacks(spec: ExperimentSpec) -> list[Callback]:
    own = list(spec.run.callbacks or ())
    if os.environ.get("TUNER_CALLBACKS"):
        from tuner.callbacks.registry import named_callbacks  # noqa: PLC0415  (seldom set)

        own += named_callbacks(own)
    if os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS") != "1":
        own += default_loggers(own)
    return [*own, callbacks.PolicyLog()] if getattr(spec.scheduler, "log_config", False) else own
