"""Restore an experiment from its newest snapshot and the records of the journal after it.

`restore_experiment` is the only place that does so: runs, analysis and simulated experiments call
it. Nothing is started, written or deleted, and no callback is called. Decisions are read from the
journal and not made anew, so another scheduler, stop criterion or searcher decides only about what
comes after.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from searchers.space import SearchSpace
from tuner.core.commands import Effects, Notice, TrialAdded
from tuner.core.events import (
    DriverRestarted,
    Event,
    ResumeType,
    SearchEnded,
    SuggestionPostponed,
    TrialForked,
    TrialSuggested,
    TurnEnded,
)
from tuner.core.experiment import Experiment
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import TerminationReason, Trial
from tuner.core.worker_records import WorkerGroup
from tuner.errors import StorageError, TunerError
from tuner.journal import records
from tuner.journal.reader import read_events
from tuner.journal.snapshot_files import Snapshot
from tuner.spec.experiment_spec import ExperimentSpec
from tuner.storage.checkpoints import locate
from tuner.storage.config_codec import ConfigCodec
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.layout import trial_path
from tuner.wire.declared import Translate

from .search_adapter import Answer, Call, SearchAdapter
from .snapshot_state import ExperimentState, Restored

Observe = Callable[[Event, Effects, float], None]
"""Receives an event, what followed from it, and when it happened."""

_log = logging.getLogger("tuner")
_RECENT_S: Final = 10.0
_MAX_LISTED: Final = 5
_ANSWERS: Final = (TrialSuggested, SuggestionPostponed, SearchEnded)
"""What a searcher may answer when it is asked for a configuration."""
_MISFITS: Final = (
    TunerError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What the state machine raises where an event does not fit its state."""


def restore_experiment(
    directory: Path,
    state: ExperimentState,
    snapshot: Snapshot | None = None,
    *,
    fallback: Callable[[], ExperimentState] | None = None,
    decode: Translate | None = None,
    observe: Observe | None = None,
    recent_s: float = _RECENT_S,
    disk: Disk = LOCAL_DISK,
) -> Restored:
    """Restore an experiment from its directory; a new one where nothing has happened.

    Args:
        directory: The experiment's directory. A torn end of its journal is passed over, and a
            driver may be writing in it.
        state: The experiment without trials, with the settings it was declared with. It is changed.
        snapshot: Where to start; None for the beginning of the journal.
        fallback: Makes the state that the whole journal is replayed into where the snapshot does
            not fit; None to raise then.
        decode: How configurations are read; None for the codec of the state.
        observe: Called with each event that is replayed, what followed from it, and when it
            happened.
        recent_s: How long before the end something may have happened to a trial for it to count as
            recent, in seconds.
        disk: Where the journal lies.

    Raises:
        StorageError: If a configuration cannot be rebuilt, or a record is of an unknown kind.
        DamagedJournal: If the journal does not verify.
    """
    decode = decode or state.configs.decode
    misfit: Exception | None = None
    if snapshot is not None:
        try:
            elapsed_s = state.load_state_dict(snapshot.state, directory, decode)
            after = snapshot.last_sequence
            restored = _replay(directory, state, decode, after, elapsed_s, recent_s, disk, observe)
            return replace(restored, callbacks=snapshot.state.get("callbacks", ()))
        except StorageError:
            raise
        except Exception as error:
            # A scheduler or searcher may raise anything; the journal still holds everything.
            if fallback is None:
                raise
            misfit = error
            state = fallback()
    return replace(
        _replay(directory, state, decode, 0, 0.0, recent_s, disk, observe), misfit=misfit
    )


def restore_spec(
    spec: ExperimentSpec,
    directory: Path,
    declared: ExperimentSettings,
    snapshot: Snapshot | None,
    configs: ConfigCodec,
) -> tuple[ExperimentSpec, Restored]:
    """Restore an experiment that is going to be driven on.

    Args:
        spec: What is declared now, connected.
        directory: The experiment's directory.
        declared: The settings with which the experiment began.
        snapshot: Where to start; None for the beginning of the journal.
        configs: How configurations are written down.

    Returns:
        The specification with the scheduler, searcher and stopper that were restored, and the
        experiment.

    Raises:
        StorageError: If it cannot be restored.
    """
    # A snapshot that does not fit may leave scheduler and searcher half loaded. Then the journal is
    # replayed into a copy made before.
    spare = _copy(spec) if snapshot else None

    def new_state(spec: ExperimentSpec) -> ExperimentState:
        return ExperimentState.new(spec, declared, configs)

    if snapshot is None or spare is None:
        return spec, restore_experiment(directory, new_state(spec))
    restored = restore_experiment(
        directory, new_state(spec), snapshot, fallback=lambda: new_state(spare)
    )
    if restored.misfit is None:
        return spec, restored
    _log.warning(
        "the newest snapshot does not fit (%s: %s); the whole journal was replayed",
        type(restored.misfit).__name__,
        restored.misfit,
    )
    return spare, restored


def with_work_left(
    event: DriverRestarted, search: SearchAdapter, spec: ExperimentSpec
) -> DriverRestarted:
    """Return the event with what is left to do: what is declared now, but for what has been run.

    Args:
        event: What the new driver adds to the journal first.
        search: The restored searcher, which knows what has been run.
        spec: What is declared now.
    """
    num_samples = spec.tune.num_samples
    settings = replace(event.settings, max_trials=search.num_trials_for(num_samples))
    return replace(
        event,
        settings=settings,
        left_out=tuple(search.surplus_trials(num_samples)),
        declaration=search.declaration,
    )


def nothing_new(
    spec: ExperimentSpec, trials: Sequence[Trial], left_out: Collection[str] = ()
) -> str:
    """Return that a restore had nothing to run, since all that is declared was run.

    Args:
        spec: What is declared.
        trials: The trials of the experiment.
        left_out: The ids of those that it does not have, as it is declared now.
    """
    if not trials or any(
        trial.ending is TerminationReason.INTERRUPTED and trial.trial_id not in left_out
        for trial in trials
    ):
        return "nothing was left to run"
    space, num_samples = SearchSpace(spec.space), spec.tune.num_samples
    if space.grid_axes:
        num_combinations = math.prod(map(len, space.grid_axes.values()))
        times = f" {num_samples} times each" if num_samples > 1 else ""
        what = f"{num_combinations} combinations were run{times}"
    elif num_samples < 0 or len(trials) < num_samples:
        what = f"configurations of the space were run, {len(trials)} trials in all"
    else:
        what = f"{num_samples} samples were run"
    return f"nothing new: all {what}, so nothing was left to run"


def with_new_groups(
    event: DriverRestarted, experiment: Experiment, spec: ExperimentSpec
) -> DriverRestarted:
    """Return the event with the workers of trials that train over others from now on.

    Args:
        event: What the new driver adds to the journal first.
        experiment: The restored experiment.
        spec: What is declared now.
    """
    before, now = experiment.settings.default_group, event.settings.default_group
    if before is None or now is None or now.is_declared_like(before):
        return event
    groups: dict[str, WorkerGroup] = {}
    for trial in experiment.trials:
        is_over = trial.is_finished and trial.ending is not TerminationReason.INTERRUPTED
        if trial.group is None or (is_over and event.treatment_of(trial) is ResumeType.SKIP):
            continue
        try:
            group = spec.group_for(trial.config)
        except Exception as error:  # noqa: BLE001  (the user's function)
            _log.warning(
                "trial %s trains over as many workers as before, since it could not be told over "
                "how many it is to train now (%s: %s)",
                trial.trial_id,
                type(error).__name__,
                error,
            )
            continue
        if group and not group.is_declared_like(trial.group):
            groups[trial.trial_id] = group
    if groups:
        _log.warning(
            "trials that are not over train over %s from now on, and not over %s, as they are "
            "declared now: %s",
            now.shown,
            before.shown,
            _listed(list(groups)),
        )
    return replace(event, groups=groups)


def _listed(trial_ids: Sequence[str]) -> str:
    shown = ", ".join(trial_ids[:_MAX_LISTED])
    num_more = len(trial_ids) - _MAX_LISTED
    return f"{shown} and {num_more} more" if num_more > 0 else shown


def _copy(spec: ExperimentSpec) -> ExperimentSpec | None:
    """Return a copy to fall back on, None where a part cannot be copied."""
    try:
        return spec.copy()
    except Exception:  # noqa: BLE001  (a lock or a connection of the user's)
        return None


def _replay(  # noqa: C901, PLR0917  (the order of its steps is the subject)
    directory: Path,
    state: ExperimentState,
    decode: Translate,
    after: int,
    elapsed_s: float,
    recent_s: float,
    disk: Disk,
    observe: Observe | None = None,
) -> Restored:
    """Fold the records after a number into the experiment, and repeat the calls of its searcher."""
    experiment, search = state.experiment, state.search
    last_notice_s: dict[str, float] = {}
    past_search = _PastSearch(experiment, search) if search else None
    for past in read_events(directory, after, elapsed_s, disk):
        elapsed_s = past.at_s
        if past.event is None:
            continue
        event, recorded = records.with_configs(past.event, past.recorded, decode)
        if past_search and isinstance(event, _ANSWERS):
            event = past_search.replay(event)
        elif search and isinstance(event, TrialForked):
            search.exclude(event.trial_id, is_awaited=False)
        try:
            outcome = experiment.handle(event, elapsed_s, recorded)
        except _MISFITS as cause:
            # With a searcher there is a scheduler of the user's, too, whose error it may be.
            # Without one the experiment is only read, so it is the record that does not fit.
            if search:
                raise
            raise StorageError(
                f"the journal of {str(directory)!r} tells what cannot have happened: "
                f"{event!r:.200} ({cause!r:.200})"
            ) from cause
        if observe:
            observe(event, outcome, elapsed_s)
        for notice in outcome.notices:
            if isinstance(notice, TrialAdded):
                locate(notice.trial, trial_path(directory, notice.trial.trial_id))
            last_notice_s[notice.trial.trial_id] = elapsed_s
        if past_search:
            past_search.follow(event, outcome.notices)
    if past_search:
        past_search.notify()
        _log_deviations(experiment, past_search.search)
    recent = [trial_id for trial_id, at_s in last_notice_s.items() if at_s >= elapsed_s - recent_s]
    return Restored(state, elapsed_s, recent)


class _PastSearch:
    """Calls a searcher in the order in which `SuggestionQueue` has called it.

    At the end of a turn without questions under way, the searcher got all waiting notices and then
    the open questions.
    """

    def __init__(self, experiment: Experiment, search: SearchAdapter) -> None:
        self._budget = experiment.suggestion_budget
        self.search = search
        self._pending_calls: list[Call] = []
        # A snapshot is taken just before the searcher is asked, so these questions are still open.
        self._num_asked = self._budget.num_outstanding
        self._has_refused = False

    def replay(self, recorded: Answer) -> Answer:
        """Ask the searcher again, where it was asked.

        After a refusal, the other questions of that turn were answered without asking it.
        """
        if self._has_refused:
            return recorded
        self._has_refused = not isinstance(recorded, TrialSuggested)
        return self.search.replay(recorded)

    def follow(self, event: Event, notices: Sequence[Notice]) -> None:
        """Take note of an event that has been folded, and of what followed from it."""
        self._pending_calls += filter(None, map(self.search.call_for, notices))
        # A restarted driver does not get the answers that the last one was waiting for: the core
        # has fewer questions open than were asked.
        self._num_asked = min(
            self._num_asked - isinstance(event, _ANSWERS), self._budget.num_outstanding
        )
        if isinstance(event, TurnEnded) and self._num_asked <= 0:
            self.notify()
            self._num_asked = self._budget.num_outstanding
            self._has_refused = False

    def notify(self) -> None:
        """Make the calls that wait."""
        calls, self._pending_calls = self._pending_calls, []
        for call in calls:
            call()


def _log_deviations(experiment: Experiment, search: SearchAdapter) -> None:
    if num_changes := experiment.policies.num_deviations:
        _log.info(
            "scheduler and stop criterion would decide otherwise now in %d places; what was "
            "decided stays decided",
            num_changes,
        )
    if search.excluded:
        _log.info(
            "the searcher proposes other configurations now for %d trials; the recorded ones are "
            "kept, and it learns nothing from them",
            len(search.excluded),
        )
