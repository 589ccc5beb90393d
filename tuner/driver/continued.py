"""How a run continues an experiment that exists, and what it says about it at its start."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from schedulers import FIFOScheduler
from searchers.searcher import unwrapped
from tuner.callbacks.callback import Callback
from tuner.callbacks.console.silent import ON_CONSOLE, SilentConsole
from tuner.core.events import DriverRestarted, Event, ResumeType
from tuner.core.experiment import Experiment
from tuner.core.metric_watch import error_for, why_unknown
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.errors import MetricNotReported
from tuner.execution.group_trainable import GroupTrainable
from tuner.execution.local.process_setup import rare_garbage_collection
from tuner.journal.mark import read_mark
from tuner.journal.rows import JournalRows, histories_of
from tuner.journal.segments import JournalPosition
from tuner.restore.experiment import nothing_new, restore_spec, with_new_groups, with_work_left
from tuner.restore.snapshot_state import Restored, usable_snapshot
from tuner.restore.takeover import remove_unfinished, take_over
from tuner.spec.config import ResumeConfig
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.spec.record import Record
from tuner.storage.array_store import ArrayStore
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.lock import ExperimentLock

from .beginning import Beginning, end_former_trials
from .checkpoint_store import CheckpointStore
from .storage_session import StorageSession

_log = logging.getLogger("tuner")
_FINISHED: Final = "finished"
_PAUSED: Final = "paused"
_TO_CONTINUE: Final = "to continue"
_TO_START: Final = "to start"
_LEFT_OUT: Final = "left out"
_PLACES: Final = ("tune_config.", "run_config.")
"""What precedes the names of arguments that users give `Tuner.restore` without it."""


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


@final
class ContinuedExperiment(Beginning):
    """Continues an experiment; see `Beginning`.

    Args:
        spec: What is declared now.
        directory: The directory in which the driver works.
        storage: Where the experiment is kept.
        resumption: How to continue it.
    """

    def __init__(
        self,
        spec: ExperimentSpec,
        directory: Path,
        storage: StorageSession,
        resumption: Resumption,
    ) -> None:
        super().__init__(spec, directory, storage)
        self.remarks = []
        self.steals = resumption.steal
        self._resumption = resumption
        self._left_out: Sequence[str] = ()
        self._num_started = 0
        self._stays_ended = False

    def hints(self, plain: Sequence[str], withheld: Sequence[str]) -> Iterable[str]:
        """Return nothing: the user has been told when the experiment began."""
        return []

    @contextlib.contextmanager
    def opened(self, lock: ExperimentLock, settings: ExperimentSettings) -> Iterator[None]:
        """Bring the directory up to date."""
        self._storage.resume(lock, is_salvage=self._resumption.salvage)
        yield

    def take_over(
        self, settings: ExperimentSettings, configs: ConfigCodec
    ) -> tuple[JournalPosition, ExperimentSpec, Restored]:
        """Take over the experiment, and return where its journal ends and how it was left."""
        end_former_trials(self._directory)
        # A restore of 10,000 trials makes half a million objects, and none of them is garbage.
        with rare_garbage_collection():
            end, spec, restored = self._take_over(configs)
        self._check_metrics(settings, restored.state.experiment)
        return end, spec, restored

    def _take_over(self, configs: ConfigCodec) -> tuple[JournalPosition, ExperimentSpec, Restored]:
        directory, is_salvage = self._directory, self._resumption.salvage
        spec = self._spec

        def restore() -> Restored:
            nonlocal spec
            snapshot = None if is_salvage else usable_snapshot(spec, directory)
            began_with = self._resumption.settings
            spec, restored = restore_spec(spec, directory, began_with, snapshot, configs)
            return restored

        if is_salvage:
            from tuner.journal.salvage import cut_at_damage  # noqa: PLC0415  (seldom)

            cut_at_damage(directory)
        mark = read_mark(directory)
        takeover = take_over(directory, mark, restore, is_salvage=is_salvage)
        trials = takeover.restored.state.experiment.trials
        remove_unfinished(directory, self._recorded_checkpoints(trials))
        return takeover.end, spec, takeover.restored

    def _check_metrics(self, settings: ExperimentSettings, experiment: Experiment) -> None:
        """Check that trials have reported the metrics that are named or bounded from now on.

        Raises:
            MetricNotReported: If one of them is in no result, though a trial has completed. Those
                that are named again may be reported by training code that was corrected.
        """
        if settings.validation or not settings.is_metric_required:
            return
        named_before = experiment.settings.watched_metrics
        added = [metric for metric in settings.watched_metrics if metric not in named_before]
        if reason := why_unknown(added, experiment.trials):
            from tuner.restore.resume_command import how_to_name_the_metric  # noqa: PLC0415  (here)

            how = how_to_name_the_metric(self._directory, self._spec, reason, is_new=True)
            raise MetricNotReported(f"{error_for(reason)}\n{how}")

    def _recorded_checkpoints(self, trials: Sequence[Trial]) -> dict[str, set[str] | None]:
        """Return the names of each trial's recorded checkpoints, None to keep unrecorded ones."""
        return {
            trial.trial_id: None
            if self._resumption.salvage
            else {checkpoint.directory for checkpoint in trial.checkpoints}
            for trial in trials
        }

    def clean_up(self, store: CheckpointStore, trials: Sequence[Trial]) -> None:
        """Delete what the object store holds beside the recorded checkpoints."""
        if not self._resumption.salvage:
            store.clean_up(trials)

    def first_events(
        self, spec: ExperimentSpec, settings: ExperimentSettings, restored: Restored
    ) -> list[Event]:
        """Return what becomes of the trials, and remark how much is left to do."""
        experiment = restored.state.experiment
        event = self._resumption.resume.event(settings)
        event = with_work_left(event, restored.state.search_adapter, spec)
        event = with_new_groups(event, experiment, spec)
        self._left_out = event.left_out
        self._num_started = _num_started(experiment.trials)
        self._stays_ended = _stays_ended(experiment, event)
        self.remarks.append(continuing_line(self._directory.name, experiment, event, spec))
        return [event]

    def announce(
        self, console: SilentConsole, callbacks: Sequence[Callback], restored: Restored
    ) -> None:
        """Show what has changed, and add to log files and trackers what they lack."""
        for change in self._resumption.changes:
            console.print_notice(changed_line(change))
            _log.warning("changed since the last run: %s", change, extra=ON_CONSOLE)
        trials = restored.state.experiment.trials
        rows = JournalRows(self._directory, histories_of(trials))
        for callback in callbacks:
            callback.catch_up_with_journal(self._directory, trials, restored.recent, rows.of)

    def remark_at_end(self, spec: ExperimentSpec, trials: Sequence[Trial]) -> str:
        """Return that there was nothing to run; empty if there was, or the search had ended."""
        if self._stays_ended or self._num_started != _num_started(trials):
            return ""
        from tuner.restore.resume_command import shell_line  # noqa: PLC0415  (at the end)

        line = shell_line(self._directory, spec, "-n NUMBER, or --retry-failed")
        more = line or "restore with a larger num_samples or a resume_config"
        return f"{nothing_new(spec, trials, self._left_out)}; to go on, {more}"


def recorded_trials(
    spec: ExperimentSpec, directory: Path, resumption: Resumption
) -> Sequence[Trial]:
    """Return the trials of a stored experiment, without running or changing anything.

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
    return restored.state.experiment.trials


def _num_started(trials: Sequence[Trial]) -> int:
    """Return how often a worker or a validation has been started."""
    return sum(
        trial.attempt + sum(validation.num_try for validation in trial.validations.values())
        for trial in trials
    )


def continuing_line(
    name: str, experiment: Experiment, event: DriverRestarted, spec: ExperimentSpec
) -> str:
    """Return how much of an experiment is done, what is left, and who decides about it.

    Args:
        name: Its name.
        experiment: Its state at the end of the last session.
        event: What becomes of its trials now.
        spec: What is declared now.

    Returns:
        Empty for a single training, which is no search.
    """
    if isinstance(spec.trainable, GroupTrainable) and not spec.space:
        return ""
    table, total = experiment.trial_table, event.settings.max_trials
    treatments = table.treatments_of_never_admitted(total, event.left_out)
    trials = [
        (trial, _standing(trial, treatments.get(trial) or event.treatment_of(trial)))
        for trial in experiment.trials
    ]
    counts = Counter(standing for _, standing in trials)
    of = ""
    if total is not None:
        total = len(trials) if _stays_ended(experiment, event) else total + table.num_forked
        counts[_TO_START] += max(total - len(trials), 0)
        of = f" of {max(total, len(trials) - counts[_LEFT_OUT])}"
    num_failed = sum(
        trial.status is Status.ERROR and standing == _FINISHED for trial, standing in trials
    )
    failed = f" ({num_failed} failed)" if num_failed else ""
    done = f"{counts[_FINISHED]}{of} trials finished{failed}"
    left = [f"{counts[kind]} {kind}" for kind in (_PAUSED, _TO_CONTINUE, _TO_START) if counts[kind]]
    return f"Continuing {name}: {', '.join([done, *left])} ({_algorithms(spec)})"


def _stays_ended(experiment: Experiment, event: DriverRestarted) -> bool:
    return experiment.suggestion_budget.why_ended_for(event.declaration) is not None


def changed_line(change: str) -> str:
    """Return how a difference between two declarations is shown.

    Example:
        >>> changed_line("tune_config.num_samples: 20 -> 70")
        'Changed since the last run: num_samples 20 → 70'
    """
    place, _, values = change.partition(": ")
    for prefix in _PLACES:
        place = place.removeprefix(prefix)
    return f"Changed since the last run: {place} {values.replace(' -> ', ' → ', 1)}"


def _standing(trial: Trial, treatment: ResumeType) -> str:
    """Return what becomes of a trial in this session, by its word in the line."""
    if treatment is ResumeType.SKIP:
        is_over = trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
        return _FINISHED if is_over else _LEFT_OUT
    if treatment is ResumeType.RESTART or not (trial.last_result or trial.source):
        return _TO_START
    return _PAUSED if trial.status is Status.PAUSED else _TO_CONTINUE


def _algorithms(spec: ExperimentSpec) -> str:
    scheduler: Any = getattr(spec.scheduler, "adapted", spec.scheduler)
    searcher = unwrapped(spec.searcher)
    is_none = isinstance(scheduler, FIFOScheduler)
    shown = "no scheduler" if is_none else f"scheduler {type(scheduler).__name__}"
    return f"searcher {type(searcher).__name__}, {shown}"
