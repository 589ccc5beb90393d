"""Runs a recording once more under another scheduler: real core, real driver, virtual time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from schedulers.decisions import Decision, Exploit, Resize
from schedulers.scheduler import Scheduler
from tuner.analysis.ranking import Mode, is_number
from tuner.core.commands import (
    AttemptFailed,
    Notice,
    ResultRecorded,
    TrialEnded,
    TrialPaused,
    TrialStarted,
)
from tuner.core.events import Event, SearchEnded, TrialSuggested
from tuner.core.experiment import Experiment
from tuner.core.policies import RecordedDecision, StopExperiment
from tuner.core.result import TRAINING_ITERATION
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import Stopper
from tuner.core.trial import CheckpointRecord, Trial
from tuner.driver.driver import Driver
from tuner.execution.replay_executor import RecordedExecutor

from .recording import RecordedTrial, Recording
from .run_totals import Account, Moment, best_last, improvements, last_of
from .slots import Slots


@dataclass(slots=True)
class Stint:
    """What became of one trial in a replay.

    Attributes:
        worker_s: How long it had a worker, in seconds.
        num_results: How many results it reported, repeated ones included.
        farthest: The largest ``training_iteration`` it came to.
        num_pauses: How often it was paused.
        num_resumes: How often it went on after a pause.
        first_s: When it got its first worker, in seconds of virtual time.
        started_s: Since when it has a worker; None where it has none.
    """

    worker_s: float = 0.0
    num_results: int = 0
    farthest: int = 0
    num_pauses: int = 0
    num_resumes: int = 0
    first_s: float = 0.0
    started_s: float | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """What a recording came to under another scheduler.

    Attributes:
        account: What it took and found.
        trials: The engine's records of the trials, in the order in which they were recorded.
        stints: What became of each trial meanwhile, by its id.
        decisions: What was decided about trials, in order.
        remarks: What the scheduler had to say to the user.
        state: What it told of itself in the end.
    """

    account: Account
    trials: Sequence[Trial]
    stints: Mapping[str, Stint]
    decisions: Sequence[Decision]
    remarks: Sequence[str]
    state: str


class CannotPauseRecording(Exception):
    """The scheduler wants trials paused that never saved anything."""


def replay(
    recording: Recording,
    scheduler: Scheduler,
    slots: Slots,
    metric: str,
    mode: Mode,
    *,
    can_save: bool,
    supposes_saves: bool = False,
) -> Replay:
    """Return what a recording would have come to.

    Args:
        recording: The recording.
        scheduler: The scheduler, with its search properties, that has not been told of any trial.
        slots: What its trials share.
        metric: What counts as quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
        can_save: Whether trials save when they are asked to.
        supposes_saves: Whether that is only supposed, and so costs nothing.

    Raises:
        CannotPauseRecording: If the scheduler pauses a trial, and none has ever saved a checkpoint.
        ValueError: If it gives a trial another configuration, or other resources.
    """
    timing = recording.timing
    executor = RecordedExecutor(
        {trial.trial_id: trial.curve for trial in recording.trials},
        capacity=slots.capacity,
        restart_s=timing.start_s,
        leave_s=timing.leave_s,
        save_s=0.0 if supposes_saves else timing.save_s,
    )
    experiment = Experiment(
        _settings(recording, slots, metric, mode, can_save=can_save),
        scheduler,
        _RecordedStops(recording.trials),
    )
    witness, watchman = _Witness(executor, metric, timing.begin_s), _Watchman(scheduler)
    driver = Driver(
        experiment,
        executor,
        watchman,
        _Desk(recording.trials),
        witness,
        _delete_nothing,
        tick_s=None,
    )
    driver.run()
    if experiment.fatal_error:
        raise CannotPauseRecording(experiment.fatal_error)
    stints = witness.stints
    best_trial_id, best_value = best_last(_lasts(recording, stints, metric), mode)
    return Replay(
        Account(
            wall_clock_s=timing.begin_s + driver.elapsed_s,
            worker_s=math.fsum(stint.worker_s for stint in stints.values()),
            num_iterations=sum(stint.num_results for stint in stints.values()),
            best_trial_id=best_trial_id,
            best_value=best_value,
            progress=improvements(witness.moments, mode),
        ),
        experiment.trials,
        stints,
        tuple(watchman.decisions),
        tuple(witness.remarks),
        scheduler.debug_string(),
    )


def _lasts(
    recording: Recording, stints: Mapping[str, Stint], metric: str
) -> Iterator[tuple[str, float | None]]:
    for trial in recording.trials:
        farthest = stints[trial.trial_id].farthest if trial.trial_id in stints else 0
        yield trial.trial_id, last_of(results_until(trial, farthest), metric)


def results_until(recorded: RecordedTrial, iteration: int) -> Iterator[Mapping[str, Any]]:
    """Yield a trial's recorded results up to an iteration."""
    return (
        point.metrics
        for point in recorded.curve.points
        if point.metrics[TRAINING_ITERATION] <= iteration
    )


def _settings(
    recording: Recording, slots: Slots, metric: str, mode: Mode, *, can_save: bool
) -> ExperimentSettings:
    """Return the settings of the recording for a replay, which ends with the curves, and where no trial is tried again."""
    recorded = recording.settings or ExperimentSettings(slots.capacity)
    # A scheduler may ask how many trials there will be: as many as there are, unless nobody could tell then.
    is_open = recording.settings is not None and recorded.max_trials is None
    return dataclasses.replace(
        recorded,
        capacity=slots.capacity,
        default_request=slots.request,
        metric=metric,
        mode=mode,
        max_trials=None if is_open else len(recording.trials),
        max_concurrent=slots.max_concurrent,
        max_failures=0,
        fail_fast=False,
        is_metric_required=False,
        max_common_failures=None,
        max_pending=0,
        time_budget_s=None,
        stop_grace_s=math.inf,
        report_timeout_s=None,
        checkpoints=dataclasses.replace(recorded.checkpoints, can_save_on_demand=can_save),
    )


@final
class _Desk:
    """Proposes the recorded configurations in their order, whatever has become of the trials before."""

    def __init__(self, trials: Sequence[RecordedTrial]) -> None:
        self._coming = iter(trials)

    def ask(self, trial_ids: list[str], /) -> list[Event]:
        """Return the next trials under the ids that they had."""
        return [self._next() for _ in trial_ids]

    def take(self) -> list[Event]:
        """Return nothing: all answers are there at once."""
        return []

    def withdraw(self) -> None:
        """Do nothing: nothing is under way."""

    def settle(self, timeout_s: float | None, /) -> bool:
        """Return True: nothing is under way."""
        return True

    def _next(self) -> Event:
        trial = next(self._coming, None)
        if trial is None:
            return SearchEnded()
        return TrialSuggested(
            trial.trial_id, trial.config, trial.resources, trial.experiment_tag, trial.refusal
        )


@final
class _RecordedStops(Stopper):
    """Stops trials where the recorded stop criterion stopped them."""

    def __init__(self, trials: Sequence[RecordedTrial]) -> None:
        self._last: dict[str, int] = {
            trial.trial_id: trial.curve.points[-1].metrics[TRAINING_ITERATION]
            for trial in trials
            if trial.is_stopped_by_criterion and trial.curve.points
        }

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Return whether this was its last result."""
        return bool(self._last.get(trial_id) == result[TRAINING_ITERATION])


@final
class _Watchman:
    """Takes the place of the journal, and lets no decision pass that a recording has no answer to."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.decisions: list[Decision] = []

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Look at what was decided."""
        for said in recorded:
            if isinstance(said.decision, Exploit | Resize):
                raise ValueError(cannot_be_replayed(self._scheduler))  # noqa: TRY004  (the scheduler's value, not its type)
            if not isinstance(said.decision, StopExperiment):
                self.decisions.append(said.decision)

    def flush(self) -> None:
        """Do nothing: there is nothing to be lost."""


def cannot_be_replayed(scheduler: Scheduler) -> str:
    """Return why a scheduler that changes trials is refused."""
    return (
        f"scheduler must only stop, pause and resume trials, got {type(scheduler).__name__}, which gives them other configurations or "
        "resources; no recording tells what becomes of them then, so run it"
    )


@final
class _Witness:
    """Hears all notices and writes down what matters of them."""

    def __init__(self, executor: RecordedExecutor, metric: str, begin_s: float) -> None:
        self._executor = executor
        self._metric = metric
        self._begin_s = begin_s
        self.stints: dict[str, Stint] = {}
        self.moments: list[Moment] = []
        self.remarks: list[str] = []

    def begin_turn(self) -> None:
        """Do nothing."""

    def end_turn(self) -> None:
        """Do nothing."""

    def remark(self, text: str, /) -> None:
        """Write down what the scheduler says."""
        self.remarks.append(text)

    def tell(self, notice: Notice, /) -> bool:
        """Write down what has happened; nobody wants a checkpoint."""
        match notice:
            case ResultRecorded(trial, _, flat):
                self._report(trial.trial_id, flat)
            case TrialStarted(trial, _, is_resumed):
                stint = self.stints.setdefault(
                    trial.trial_id, Stint(first_s=self._executor.clock())
                )
                stint.started_s = self._executor.clock()
                stint.num_resumes += is_resumed
            case TrialPaused(trial):
                self._retire(trial)
                self.stints[trial.trial_id].num_pauses += 1
            case TrialEnded(trial) | AttemptFailed(trial):
                self._retire(trial)
            case _:
                pass
        return False

    def _report(self, trial_id: str, flat: Mapping[str, Any]) -> None:
        stint = self.stints[trial_id]
        stint.num_results += 1
        stint.farthest = max(stint.farthest, flat[TRAINING_ITERATION])
        value = flat.get(self._metric)
        if is_number(value) and math.isfinite(value):
            self.moments.append(Moment(self._begin_s + self._executor.clock(), value, trial_id))

    def _retire(self, trial: Trial) -> None:
        # One that ends in the queue, or while it is paused, has no worker any more.
        if (stint := self.stints.get(trial.trial_id)) and stint.started_s is not None:
            stint.worker_s += self._executor.clock() - stint.started_s
            stint.started_s = None


def _delete_nothing(trial_id: str, checkpoint: CheckpointRecord) -> None:
    """Stand in for the deletion of a superseded checkpoint."""
