"""Replays a recorded experiment under another scheduler, with the real core in virtual time."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, final

from schedulers.decisions import Decision, Exploit, Resize
from schedulers.fifo import FIFOScheduler
from schedulers.scheduler import Scheduler
from tuner.analysis.flat_results import value_at
from tuner.analysis.ranking import Mode, is_number, rank
from tuner.core.commands import (
    AttemptFailed,
    CheckpointValidated,
    Notice,
    ResultRecorded,
    TrialEnded,
    TrialPaused,
    TrialStarted,
)
from tuner.core.events import Event, TrialSuggested
from tuner.core.experiment import Experiment
from tuner.core.recorded_decisions import RecordedDecision, StopExperiment
from tuner.core.resources import GPU, Request, ResourcePool, amounts_of, request_shape
from tuner.core.result import TRAINING_ITERATION
from tuner.core.settings import ExperimentSettings
from tuner.core.stoppers import Stopper
from tuner.core.trial import Trial
from tuner.core.worker_records import WorkerGroup
from tuner.driver.driver import VIRTUAL_TIME, Driver
from tuner.virtual.executor import Curve, ReplayExecutor
from tuner.virtual.suggestions import KnownSuggestions

from .recording import RecordedTrial, Recording


@dataclass(frozen=True, slots=True)
class Objective:
    """The measure of quality.

    Attributes:
        metric: Flattened name of the metric.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised.
    """

    metric: str
    mode: Mode


@dataclass(frozen=True, slots=True)
class Slots:
    """Resources that the trials of a replay share.

    Attributes:
        capacity: Total resources.
        max_concurrent: Maximum number of trials that run at once; None for as many as fit.
        request: The most frequent request of a trial.
        count: How many trials with that request run at once.
    """

    capacity: Mapping[str, float]
    max_concurrent: int | None
    request: Request
    count: int


def slots_for(recording: Recording, num_slots: int | None) -> Slots:
    """Return the resources and slots of a replay.

    Args:
        recording: The recording.
        num_slots: How many trials run at once, independent of their requests; None for the
            recorded resources.

    Raises:
        TypeError: If it is not a whole number.
        ValueError: If it is less than 1, or is not given and not recorded.
    """
    request = _usual_request(recording.trials)
    if num_slots is None and recording.is_inline:
        num_slots = 1  # trials that share one process train one at a time
    if num_slots is None:
        return _recorded(recording, request)
    if isinstance(num_slots, bool) or not isinstance(num_slots, int):
        raise TypeError(
            f"slots must be a whole number, got {num_slots!r}; it is how many trials run at once"
        )
    if num_slots < 1:
        raise ValueError(
            f"slots must be at least 1, got {num_slots}; it is how many trials run at once"
        )
    needed = [_whole_amounts(trial) for trial in recording.trials]
    names = {name for amounts in needed for name in amounts}
    return Slots(
        {name: max(amounts.get(name, 0) for amounts in needed) * num_slots for name in names},
        num_slots,
        request,
        num_slots,
    )


def _whole_amounts(trial: RecordedTrial) -> dict[str, int]:
    """Return what a trial needs if it shares nothing with others: whole amounts and devices."""
    amounts = {name: math.ceil(amount) for name, amount in trial.resources.items()}
    share = trial.group.resources_per_worker.get(GPU, 0.0) if trial.group else 0.0
    if trial.group and 0 < share < 1:
        per_device = ResourcePool({GPU: 1}).num_fitting({GPU: share}, trial.group.num_workers)
        amounts[GPU] = math.ceil(trial.group.num_workers / per_device)
    return amounts


def _recorded(recording: Recording, request: Request) -> Slots:
    if recording.settings is None:
        raise ValueError(
            f"slots must be given, got None: {recording.path!r} does not record how many trials "
            f"could run at once; pass slots=4"
        )
    if recording.settings.node_wait_s is not None:
        raise ValueError(
            f"slots must be given, got None: {recording.path!r} was begun on a cluster, whose "
            "nodes come and go; pass slots=4 for as many trials at once"
        )
    capacity, limit = recording.settings.capacity, recording.max_concurrent
    count = ResourcePool(capacity).num_fitting(request, limit or len(recording.trials))
    return Slots(capacity, limit, request, count)


def _usual_request(trials: Sequence[RecordedTrial]) -> Request:
    usual, _ = Counter(map(_shape, trials)).most_common(1)[0]
    return next(trial.request for trial in trials if _shape(trial) == usual)


def _shape(trial: RecordedTrial) -> tuple[Any, ...]:
    return request_shape(trial.request)


@dataclass(frozen=True, slots=True)
class TimedValue:
    """A value of the metric with the time at which it was reported.

    Attributes:
        time_s: Running time of the experiment, in seconds.
        value: The metric's value.
        trial_id: The trial that reported it.
    """

    time_s: float
    value: float
    trial_id: str


@final
@dataclass(frozen=True, slots=True)
class RunTotals:
    """Time and quality of an experiment or of a replay.

    The best trial is the feasible one whose last value is best, as in `ResultGrid.get_best_result`;
    whether it is feasible is judged by all of its recorded results.

    Attributes:
        wall_clock_s: Its running time, in seconds.
        worker_s: How long its trials occupied workers, all together, in seconds.
        num_iterations: How many results its trials reported.
        best_trial_id: The trial with the best last value; of equal ones the one created first. None
            if no last value is finite.
        best_value: That value.
        progress: Each result with a finite value that was better than all before it, in order.
    """

    wall_clock_s: float
    worker_s: float
    num_iterations: int
    best_trial_id: str | None
    best_value: float | None
    progress: Sequence[TimedValue]

    @property
    def best_at_any_iteration(self) -> float | None:
        """The best value that any trial reported at any iteration; None without a finite one."""
        return self.progress[-1].value if self.progress else None


def last_of(results: Iterable[Mapping[str, Any]], metric: str) -> float | None:
    """Return the newest value of a metric; None if there is none or it is not finite."""
    value = None
    for result in results:
        if is_number(found := value_at(result, metric)):
            value = found
    return value if value is not None and math.isfinite(value) else None


def best_last(
    lasts: Iterable[tuple[str, float | None]], mode: Mode
) -> tuple[str, float] | tuple[None, None]:
    """Return the trial with the best last value, the first of equals, and that value.

    Both are None without a value.

    Args:
        lasts: Each trial with its last value, None for none, in the order of their creation.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are.

    Example:
        >>> best_last([("a", 0.5), ("b", None), ("c", 0.5)], "min")
        ('a', 0.5)
    """
    known = [(trial_id, value) for trial_id, value in lasts if value is not None]
    return max(known, key=lambda pair: rank(pair[1], mode), default=(None, None))


def improvements(
    finite_values: Iterable[TimedValue], mode: Mode, *, infeasible: Collection[str] = ()
) -> tuple[TimedValue, ...]:
    """Return the values that were better than all before them.

    Args:
        finite_values: In the order of their times.
        mode: ``"min"`` if smaller values are better, ``"max"`` if larger ones are.
        infeasible: Trials whose values are left out.

    Example:
        >>> values = [TimedValue(1, 0.5, "a"), TimedValue(2, 0.7, "b"), TimedValue(3, 0.2, "a")]
        >>> [point.value for point in improvements(values, "min")]
        [0.5, 0.2]
    """
    found: list[TimedValue] = []
    for point in finite_values:
        if point.trial_id in infeasible:
            continue
        if not found or rank(point.value, mode) > rank(found[-1].value, mode):
            found.append(point)
    return tuple(found)


@dataclass(slots=True)
class ReplayedTrial:
    """Counts of one trial in a replay.

    Attributes:
        worker_s: How long it occupied a worker, in seconds.
        num_results: How many results it reported, repeated ones included.
        last_iteration: Its largest ``training_iteration``.
        num_pauses: How often it was paused.
        num_resumes: How often it was resumed after a pause.
        first_s: When it got its first worker, in seconds of virtual time.
        started_s: Since when it has a worker; None if it has none.
    """

    worker_s: float = 0.0
    num_results: int = 0
    last_iteration: int = 0
    num_pauses: int = 0
    num_resumes: int = 0
    first_s: float = 0.0
    started_s: float | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Outcome of a replay.

    Attributes:
        totals: Its time and quality.
        trials: The engine's records of the trials, in the order in which they were recorded.
        replayed_trials: The counts of each trial, by its id.
        decisions: Decisions about trials, in order.
        remarks: Messages of the scheduler to the user.
        state: The scheduler's `debug_string` at the end.
    """

    totals: RunTotals
    trials: Sequence[Trial]
    replayed_trials: Mapping[str, ReplayedTrial]
    decisions: Sequence[Decision]
    remarks: Sequence[str]
    state: str


class CannotPauseRecording(Exception):
    """The scheduler pauses trials although none ever saved a checkpoint."""


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
    """Replay a recording under a scheduler.

    Args:
        recording: The recording.
        scheduler: The scheduler, which has its search properties but has seen no trial.
        slots: Resources that the trials share.
        metric: The metric that measures quality, flattened.
        mode: ``"min"`` or ``"max"``: the direction in which the metric is optimised.
        can_save: Whether trials save on demand.
        supposes_saves: Whether `can_save` is only assumed, so that saving takes no time.

    Raises:
        CannotPauseRecording: If the scheduler pauses a trial, but trials cannot save.
        ValueError: If it gives a trial another configuration, or other resources.
    """
    timing = recording.timing
    executor = ReplayExecutor(
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
    observer = _ReplayObserver(executor, metric, timing.begin_s)
    recorder = _DecisionRecorder(scheduler)
    driver = Driver(
        experiment,
        executor,
        recorder,
        KnownSuggestions(map(_suggested, recording.trials)),
        observer,
        timing=VIRTUAL_TIME,
    )
    driver.run()
    if experiment.fatal_error:
        raise CannotPauseRecording(experiment.fatal_error)
    replayed_trials = observer.replayed_trials
    best_trial_id, best_value = best_last(_lasts(recording, replayed_trials, metric), mode)
    return Replay(
        RunTotals(
            wall_clock_s=timing.begin_s + driver.elapsed_s,
            worker_s=math.fsum(replayed.worker_s for replayed in replayed_trials.values()),
            num_iterations=sum(replayed.num_results for replayed in replayed_trials.values()),
            best_trial_id=best_trial_id,
            best_value=best_value,
            progress=improvements(observer.finite_values, mode, infeasible=recording.infeasible),
        ),
        experiment.trials,
        replayed_trials,
        tuple(recorder.decisions),
        tuple(observer.remarks),
        scheduler.debug_string(),
    )


def _lasts(
    recording: Recording, replayed_trials: Mapping[str, ReplayedTrial], metric: str
) -> Iterator[tuple[str, float | None]]:
    for trial in recording.trials:
        last_iteration = (
            replayed_trials[trial.trial_id].last_iteration
            if trial.trial_id in replayed_trials
            else 0
        )
        last = last_of(results_until(trial, last_iteration), metric)
        yield trial.trial_id, last if trial.is_feasible else None


def results_until(recorded: RecordedTrial, iteration: int) -> Iterator[Mapping[str, Any]]:
    """Yield a trial's recorded results up to an iteration, with what was validated."""
    return (
        point.result
        for point in recorded.curve.points
        if point.metrics[TRAINING_ITERATION] <= iteration
    )


def _settings(
    recording: Recording, slots: Slots, metric: str, mode: Mode, *, can_save: bool
) -> ExperimentSettings:
    """Return the recording's settings for a replay, with retries and timeouts disabled."""
    recorded = recording.settings or ExperimentSettings(slots.capacity)
    # A scheduler may ask for the number of trials: it is that of the recording, unless the recorded
    # experiment was open-ended, so that it was unknown.
    is_open = recording.settings is not None and recorded.max_trials is None
    # The recorded results are final: failed attempts were retried when they were recorded, and
    # limits of time and of common failures applied then.
    return dataclasses.replace(
        recorded,
        capacity=slots.capacity,
        default_request=amounts_of(slots.request),
        default_group=slots.request if isinstance(slots.request, WorkerGroup) else None,
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
        budget={},
        stop_grace_s=math.inf,
        report_timeout_s=None,
        node_wait_s=None,
        checkpoints=dataclasses.replace(recorded.checkpoints, can_save_on_demand=can_save),
    )


def _suggested(trial: RecordedTrial) -> TrialSuggested:
    return TrialSuggested(
        trial.trial_id,
        trial.config,
        trial.resources,
        trial.experiment_tag,
        trial.refusal,
        trial.group,
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
class _DecisionRecorder:
    """Stands in for the journal: records decisions, refusing those that cannot be replayed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.decisions: list[Decision] = []

    def append(self, event: Event, at_s: float, recorded: Sequence[RecordedDecision]) -> None:
        """Record the decisions of a turn."""
        for entry in recorded:
            if isinstance(entry.decision, Exploit | Resize):
                raise ValueError(cannot_be_replayed(self._scheduler))  # noqa: TRY004
            if not isinstance(entry.decision, StopExperiment):
                self.decisions.append(entry.decision)

    def flush(self) -> None:
        """Do nothing: decisions are kept in memory only."""


def cannot_be_replayed(scheduler: Scheduler) -> str:
    """Return why a scheduler that changes trials is refused."""
    return (
        f"scheduler must only stop, pause and resume trials, got {type(scheduler).__name__}, "
        f"which gives them other configurations or resources; their results were not recorded, "
        "so run an experiment with it"
    )


@final
class _ReplayObserver:
    """Observer that records results, running times and remarks of a replay."""

    def __init__(self, executor: ReplayExecutor, metric: str, begin_s: float) -> None:
        self._executor = executor
        self._metric = metric
        self._begin_s = begin_s
        self.replayed_trials: dict[str, ReplayedTrial] = {}
        self.finite_values: list[TimedValue] = []
        self.remarks: list[str] = []

    def begin_turn(self) -> None:
        """Do nothing."""

    def end_turn(self) -> None:
        """Do nothing."""

    def remark(self, text: str, /) -> None:
        """Record a message of the scheduler."""
        self.remarks.append(text)

    def notify(self, notice: Notice, /) -> bool:
        """Record a notice; return False, since no checkpoint is requested."""
        match notice:
            case ResultRecorded(trial, _, flat):
                self._report(trial.trial_id, flat)
            case CheckpointValidated(trial, is_delivered=True):
                self._take_value(trial.trial_id, notice.flat)
            case TrialStarted(trial, _, is_resumed):
                replayed = self.replayed_trials.setdefault(
                    trial.trial_id, ReplayedTrial(first_s=self._executor.clock())
                )
                replayed.started_s = self._executor.clock()
                replayed.num_resumes += is_resumed
            case TrialPaused(trial):
                self._end_interval(trial)
                self.replayed_trials[trial.trial_id].num_pauses += 1
            case TrialEnded(trial) | AttemptFailed(trial):
                self._end_interval(trial)
            case _:
                pass
        return False

    def _report(self, trial_id: str, flat: Mapping[str, Any]) -> None:
        replayed = self.replayed_trials[trial_id]
        replayed.num_results += 1
        replayed.last_iteration = max(replayed.last_iteration, flat[TRAINING_ITERATION])
        self._take_value(trial_id, flat)

    def _take_value(self, trial_id: str, flat: Mapping[str, Any]) -> None:
        value = flat.get(self._metric)
        if is_number(value) and math.isfinite(value):
            self.finite_values.append(
                TimedValue(self._begin_s + self._executor.clock(), value, trial_id)
            )

    def _end_interval(self, trial: Trial) -> None:
        # A trial that ends while it is pending or paused has no worker.
        replayed = self.replayed_trials.get(trial.trial_id)
        if replayed and replayed.started_s is not None:
            replayed.worker_s += self._executor.clock() - replayed.started_s
            replayed.started_s = None


def run_as_recorded(recording: Recording, objective: Objective) -> RunTotals | None:
    """Return time and quality of the experiment as it really ran; None without a journal."""
    timing = recording.timing
    if timing.elapsed_s is None:
        return None
    finite_values: list[TimedValue] = []
    for trial in recording.trials:
        reported_s = timing.of_trial(trial.trial_id).reported_s
        finite_values += _finite_values(
            trial,
            (reported_s.get(point.metrics[TRAINING_ITERATION]) for point in trial.curve.points),
            objective.metric,
        )
    worker_s = math.fsum(timing.of_trial(trial.trial_id).worker_s for trial in recording.trials)
    return _run_totals(recording, timing.elapsed_s, worker_s, finite_values, objective)


def run_in_full(recording: Recording, slots: Slots, objective: Objective) -> RunTotals:
    """Return time and quality if every trial runs through its whole recorded curve."""
    # No scheduler compares results here, so each curve is replayed as a single step.
    trials = [
        replace(trial, curve=_in_one(trial.curve), is_stopped_by_criterion=False)
        for trial in recording.trials
    ]
    run = replay(
        replace(recording, trials=trials),
        FIFOScheduler(),
        slots,
        objective.metric,
        objective.mode,
        can_save=False,
    )
    finite_values: list[TimedValue] = []
    for trial in recording.trials:
        if replayed := run.replayed_trials.get(trial.trial_id):
            begin_s = recording.timing.begin_s + replayed.first_s + trial.curve.start_s
            # The first of the sums is the beginning itself.
            times_s = list(
                accumulate((point.took_s for point in trial.curve.points), initial=begin_s)
            )[1:]
            finite_values += _finite_values(trial, times_s, objective.metric)
    return _run_totals(
        recording, run.totals.wall_clock_s, run.totals.worker_s, finite_values, objective
    )


def _in_one(curve: Curve) -> Curve:
    return replace(
        curve, points=(), exit_s=math.fsum(point.took_s for point in curve.points) + curve.exit_s
    )


def _finite_values(
    trial: RecordedTrial, times_s: Iterable[float | None], metric: str
) -> Iterator[TimedValue]:
    """Yield the finite values of a trial whose times are known."""
    for point, time_s in zip(trial.curve.points, times_s, strict=True):
        value = value_at(point.result, metric)
        if time_s is not None and is_number(value) and math.isfinite(value):
            yield TimedValue(time_s, value, trial.trial_id)


def _run_totals(
    recording: Recording,
    wall_clock_s: float,
    worker_s: float,
    finite_values: list[TimedValue],
    objective: Objective,
) -> RunTotals:
    lasts = [
        (trial.trial_id, last_of((point.result for point in trial.curve.points), objective.metric))
        for trial in recording.trials
        if trial.is_feasible
    ]
    best_trial_id, best_value = best_last(lasts, objective.mode)
    return RunTotals(
        wall_clock_s=wall_clock_s,
        worker_s=worker_s,
        num_iterations=sum(len(trial.curve.points) for trial in recording.trials),
        best_trial_id=best_trial_id,
        best_value=best_value,
        progress=improvements(
            sorted(finite_values, key=lambda point: point.time_s),
            objective.mode,
            infeasible=recording.infeasible,
        ),
    )
