"""Reads a recorded experiment as learning curves and durations that can be replayed."""

from __future__ import annotations

import contextlib
import math
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, final

from searchers.objectives.outcome_constraint import Constraints, outcome_constraints
from tuner.analysis.ranking import Mode
from tuner.analysis.result import Result
from tuner.analysis.result_grid import ResultGrid
from tuner.core.events import USER_FORK, Outcome
from tuner.core.pareto import Objectives
from tuner.core.resources import Request, ResourcePool, request_shape
from tuner.core.result import CHECKPOINT_DIR_NAME, TIME_THIS_ITER_S, TRAINING_ITERATION
from tuner.core.settings import ExperimentSettings
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.worker_records import Failure, WorkerGroup
from tuner.journal.reader import read
from tuner.journal.records import RESULT, ROUTINE_END, VALIDATED
from tuner.journal.rows import Row
from tuner.spec.argument_codec import Absent, constructed
from tuner.storage.declaration import read_declaration
from tuner.storage.layout import DECLARATION
from tuner.virtual.executor import Curve, CurvePoint, VirtualValidation

_INDEPENDENT: Final = frozenset({"BasicVariantGenerator"})
"""Searchers whose suggestions do not depend on results."""
_LIMITER: Final = "ConcurrencyLimiter"
_MAX_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class RecordedValidation:
    """The validation of a result's checkpoint.

    Attributes:
        reported: The result as it was reported, without what the validation has returned.
        course: How the validation went.
    """

    reported: Row
    course: VirtualValidation


@dataclass(slots=True)
class TrialTiming:
    """Times of one trial that its results do not include, in seconds.

    Attributes:
        start_s: In the first attempt, time from when it could have started until its training code
            ran.
        exit_s: In the last attempt, time from its last result, and its last checkpoint, until its
            worker had exited.
        waits_s: By ``training_iteration``: time since the result before, without training, e.g. for
            waiting for the answer or saving. Only if the same attempt reported both results, or the
            result was the trial's first.
        reported_s: By ``training_iteration``: when the result was reported, in seconds of
            experiment time.
        worker_s: How long the trial occupied a worker, without the starts of later attempts.
        validations: By ``training_iteration``: how the checkpoint of the result was validated, and
            the result as it was reported.
    """

    start_s: float = 0.0
    exit_s: float = 0.0
    waits_s: dict[int, float] = field(default_factory=dict)
    reported_s: dict[int, float] = field(default_factory=dict)
    worker_s: float = 0.0
    validations: dict[int, RecordedValidation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in an experiment, in seconds.

    Attributes:
        elapsed_s: Its running time; None without a journal.
        begin_s: Time until the first trial was requested from the searcher.
        start_s: Median time until a trial's training code ran.
        leave_s: Median time until a stopped trial's worker exited.
        save_s: Median time of a save on demand.
        by_trial: Times of each trial, by its id.
    """

    elapsed_s: float | None = None
    begin_s: float = 0.0
    start_s: float = 0.0
    leave_s: float = 0.0
    save_s: float = 0.0
    by_trial: Mapping[str, TrialTiming] = field(default_factory=dict)

    def of_trial(self, trial_id: str) -> TrialTiming:
        """Return the times of a trial; all are 0 if none were recorded."""
        return self.by_trial.get(trial_id) or TrialTiming()


def read_timing(
    experiment_path: str | os.PathLike[str], *, is_uniform: bool, num_slots: int | None = None
) -> Timing:
    """Return the durations recorded in an experiment's journal; empty without a journal.

    Args:
        experiment_path: Directory of the experiment.
        is_uniform: Whether all trials requested the same resources, so that each could start as
            soon as it was suggested.
        num_slots: How many trials could run at once, if trials were suggested before a slot was
            free for them; else None.

    Raises:
        DamagedJournal: If the journal does not verify.
    """
    reader = _TimingReader(is_uniform=is_uniform, num_slots=num_slots)
    for record in read(experiment_path):
        reader.see(record)
    return reader.timing()


@final
class _TimingReader:
    """Measures durations while reading a journal."""

    def __init__(self, *, is_uniform: bool, num_slots: int | None = None) -> None:
        self._is_uniform = is_uniform
        self._num_slots = num_slots
        self._freed_s: deque[float] = deque([0.0] * (num_slots or 0))
        """Since when each free slot is free."""
        self._elapsed_s: float | None = None
        self._first_s: float | None = None
        self._turn_s = self._exit_s = 0.0
        self._asked_s: dict[str, float] = {}
        self._began_s: dict[str, float] = {}
        self._last_sign_s: dict[str, float] = {}
        self._saved_s: dict[str, float] = {}
        self._waited: set[str] = set()
        """Trials whose next result has a waiting time: all but the first one of a later attempt."""
        self._by_trial: defaultdict[str, TrialTiming] = defaultdict(TrialTiming)
        self._validators: dict[str, _ValidationReader] = {}
        self._leaves_s: list[float] = []
        self._saves_s: list[float] = []

    def see(self, record: Mapping[str, Any]) -> None:  # noqa: C901  (one case for each kind)
        at_s = float(record["t"])
        self._turn_s = record.get(ROUTINE_END, self._turn_s)
        self._first_s = record.get(ROUTINE_END, at_s) if self._first_s is None else self._first_s
        match record["k"]:
            case "turn":
                self._turn_s = at_s
            case "suggested":
                # It was requested in the turn before, usually because a slot was free.
                self._asked_s[record["id"]] = self._turn_s
            case "started":
                self._start(record["id"], record["a"], at_s)
            case kind if kind == RESULT:
                self._report(record["id"], record["m"], at_s)
                if record.get("v") is not None:
                    self._validator_of(record["id"]).request(record, at_s)
            case kind if kind == VALIDATED:
                self._validator_of(record["id"]).end(record, at_s)
            case "saved":
                self._saves_s.append(at_s - self._last_sign_s.get(record["id"], at_s))
                self._saved_s[record["id"]] = at_s
            case "exited":
                self._exit(record["id"], record["outcome"], at_s)
            case "restarted":
                for trial_id in list(self._began_s):
                    self._close(trial_id, self._elapsed_s or 0.0)
                self._freed_s = deque([at_s] * (self._num_slots or 0))
            case _:
                pass
        self._elapsed_s = max(self._elapsed_s or 0.0, at_s)

    def timing(self) -> Timing:
        for trial_id in list(self._began_s):
            self._close(trial_id, self._elapsed_s or 0.0)
        # If no trial was stopped, the quickest exit is the best estimate for a worker that
        # has nothing more to do.
        exits_s = [trial_timing.exit_s for trial_timing in self._by_trial.values()]
        leave_s = _median(self._leaves_s) if self._leaves_s else min(exits_s, default=0.0)
        return Timing(
            elapsed_s=self._elapsed_s,
            begin_s=self._first_s or 0.0,
            # The median, since the first trials also wait for the training code to be loaded, which
            # happens once for all.
            start_s=_median([trial_timing.start_s for trial_timing in self._by_trial.values()]),
            leave_s=leave_s,
            save_s=_median(self._saves_s),
            by_trial=dict(self._by_trial),
        )

    def _validator_of(self, trial_id: str) -> _ValidationReader:
        found = self._validators.get(trial_id)
        if found is None:
            found = _ValidationReader(self._by_trial[trial_id].validations)
            self._validators[trial_id] = found
        return found

    def _start(self, trial_id: str, attempt: int, at_s: float) -> None:
        trial_timing = self._by_trial[trial_id]
        freed_s = self._take_slot()
        if attempt == 1 and trial_id in self._asked_s:
            since_s = max(self._asked_s[trial_id], freed_s if self._is_uniform else self._exit_s)
            trial_timing.start_s = max(at_s - since_s, 0.0)
            trial_timing.worker_s += trial_timing.start_s
            self._waited.add(trial_id)
        else:
            # The first result of a later attempt includes loading, which the curve does not.
            self._waited.discard(trial_id)
        self._began_s[trial_id] = self._last_sign_s[trial_id] = at_s

    def _report(self, trial_id: str, metrics: Mapping[str, Any], at_s: float) -> None:
        trial_timing, iteration = self._by_trial[trial_id], metrics.get(TRAINING_ITERATION, 0)
        trained_s = metrics.get(TIME_THIS_ITER_S, 0.0)
        if trial_id in self._waited:
            trial_timing.waits_s[iteration] = max(
                at_s - self._last_sign_s.get(trial_id, at_s) - trained_s, 0.0
            )
        trial_timing.reported_s[iteration] = at_s
        self._last_sign_s[trial_id] = at_s
        self._waited.add(trial_id)

    def _take_slot(self) -> float:
        """Take the slot that has been free for longest, and return since when."""
        return self._freed_s.popleft() if self._freed_s else 0.0

    def _exit(self, trial_id: str, outcome: str, at_s: float) -> None:
        if trial_id not in self._began_s:
            self._take_slot()
        if self._num_slots:
            self._freed_s.append(at_s)
        lag_s = at_s - max(self._last_sign_s.get(trial_id, at_s), self._saved_s.get(trial_id, 0.0))
        self._by_trial[trial_id].exit_s = lag_s
        if outcome == Outcome.STOPPED:
            self._leaves_s.append(lag_s)
        self._close(trial_id, at_s)
        self._exit_s = at_s

    def _close(self, trial_id: str, at_s: float) -> None:
        self._by_trial[trial_id].worker_s += at_s - self._began_s.pop(trial_id, at_s)


@final
class _ValidationReader:
    """Measures the validations of one trial while reading a journal.

    Args:
        found: Where they are noted.
    """

    def __init__(self, found: dict[int, RecordedValidation]) -> None:
        self._found = found
        self._requested: dict[int, tuple[Mapping[str, Any], float]] = {}
        self._ended_s = 0.0

    def request(self, record: Mapping[str, Any], at_s: float) -> None:
        checkpoint = record["c"]["index"] if record["c"] else record.get("upload")
        if checkpoint is not None:
            self._requested[checkpoint] = record["m"], at_s

    def end(self, record: Mapping[str, Any], at_s: float) -> None:
        """Note how long a validation took, at most since the one before it has ended."""
        if record["index"] not in self._requested:
            return
        reported, requested_s = self._requested[record["index"]]
        took_s = max(at_s - max(requested_s, self._ended_s), 0.0)
        self._ended_s = at_s
        failure = Failure("ValidationFailed", "as it was recorded")
        course = VirtualValidation(
            took_s, record["metrics"], failure if record["metrics"] is None else None
        )
        self._found[reported.get(TRAINING_ITERATION, 0)] = RecordedValidation(
            dict(reported), course
        )


def _median(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One trial of a recording.

    Attributes:
        trial_id: The trial.
        config: Its hyperparameters.
        resources: The resources that it occupies while it runs.
        experiment_tag: See `Trial.experiment_tag`.
        curve: Its results with their durations.
        is_cut: Whether it would have trained further: a scheduler ended it, or the experiment was
            interrupted.
        is_stopped_by_criterion: Whether the stop criterion ended it at its last result.
        refusal: Why it could not run at all; None if it could.
        group: The workers over which its last attempt trained; None for a single process.
        is_feasible: Whether it kept all constraints, by its newest values.
    """

    trial_id: str
    config: Mapping[str, Any]
    resources: Mapping[str, float]
    experiment_tag: str
    curve: Curve
    is_cut: bool
    is_stopped_by_criterion: bool
    refusal: Failure | None = None
    group: WorkerGroup | None = None
    is_feasible: bool = True

    @property
    def request(self) -> Request:
        """What it occupies while it runs."""
        return self.group or self.resources


@dataclass(frozen=True, slots=True)
class Recording:
    """An experiment that has been run.

    Attributes:
        path: Its directory.
        trials: Its trials that ran, in the order of their creation.
        settings: Its settings; None if not recorded.
        seed: Its seed; 0 if not recorded.
        metric: The metric that it optimised, flattened; None for none.
        mode: ``"min"`` or ``"max"``: its direction.
        timing: Its durations.
        max_concurrent: Limit of the trials that ran at once, in addition to the resources; None for
            no limit.
        is_inline: Whether its trials shared one process, so that one trained at a time.
        caveats: Why a replay may be inexact, one sentence each.
        several: Metric and mode of each objective if it optimised several; there is no single
            `metric` then.
        constraints: What its trials had to keep.
        space: Its search space; empty if not recorded, or not completely.
    """

    path: str
    trials: Sequence[RecordedTrial]
    settings: ExperimentSettings | None
    seed: int
    metric: str | None
    mode: Mode | None
    timing: Timing
    max_concurrent: int | None
    is_inline: bool
    caveats: Sequence[str]
    several: Objectives = ()
    constraints: Constraints = ()
    space: Mapping[str, Any] = field(default_factory=dict)

    @property
    def infeasible(self) -> frozenset[str]:
        """The trials that missed a constraint, which are never the best."""
        return frozenset(trial.trial_id for trial in self.trials if not trial.is_feasible)

    @property
    def is_whole(self) -> bool:
        """Whether it contains all trials that had a worker."""
        return self.timing.by_trial.keys() <= {trial.trial_id for trial in self.trials}


def read_recording(grid: ResultGrid) -> Recording:
    """Return the recording of an experiment.

    Raises:
        ValueError: If a trial lacks the beginning of its curve, since it continued from another
            one's checkpoint, or no trial has any results.
        StorageError: If the directory cannot be read.
    """
    directory = Path(grid.local_directory)
    declared = read_declaration(directory) if (directory / DECLARATION).is_file() else {}
    settings = (
        ExperimentSettings.from_fields(declared["settings"]) if "settings" in declared else None
    )
    _refuse_grafts(grid.trials)
    is_uniform = len({request_shape(trial.request) for trial in grid.trials}) <= 1
    timing = read_timing(
        directory,
        is_uniform=is_uniform,
        num_slots=_num_slots(grid.trials, settings) if is_uniform else None,
    )
    saves_on_demand = settings is not None and settings.checkpoints.can_save_on_demand
    pairs = [
        (trial, result) for trial, result in zip(grid.trials, grid, strict=True) if _has_run(trial)
    ]
    trials = [
        _recorded(trial, result, timing.of_trial(trial.trial_id), saves_on_demand=saves_on_demand)
        for trial, result in pairs
    ]
    if not any(trial.curve.points for trial in trials):
        raise ValueError(
            f"recording must hold results, got none in {len(grid)} trials of "
            f"{grid.experiment_path!r}; choose another one"
        )
    return Recording(
        path=grid.experiment_path,
        trials=trials,
        settings=settings,
        seed=int(declared.get("seed", 0)),
        metric=_metric_of(grid),
        mode=_mode_of(grid),
        several=grid.objectives if len(grid.objectives) > 1 else (),
        constraints=outcome_constraints(grid.constraints),
        timing=timing,
        max_concurrent=_max_concurrent(settings, declared),
        is_inline=_declared_field(declared, "run_config", "executor") == "inline",
        caveats=[*_caveats(grid.trials, len(trials), settings, declared)],
        space=_space(declared),
    )


def _space(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    absent: list[Absent] = []
    space = constructed(declared.get("param_space"), "param_space", absent)
    return space if isinstance(space, dict) and not absent else {}


def _num_slots(trials: Sequence[Trial], settings: ExperimentSettings | None) -> int | None:
    """Return how many trials could run at once; None unless trials were suggested in advance."""
    if settings is None or not settings.max_pending or not trials:
        return None
    return ResourcePool(settings.capacity).num_fitting(
        trials[0].request, settings.max_concurrent or len(trials)
    )


def _metric_of(grid: ResultGrid) -> str | None:
    with contextlib.suppress(ValueError):
        return grid.objective(mode="min")[0]
    return None


def _mode_of(grid: ResultGrid) -> Mode | None:
    with contextlib.suppress(ValueError):
        # Without a metric, the mode of the experiment applies to any.
        return grid.objective(_metric_of(grid) or "any")[1]
    return None


def _is_fork(trial: Trial) -> bool:
    """Return whether the user forked a trial from another one, so that its curve has no start."""
    return bool(trial.grafts) and trial.grafts[0].reason.rule == USER_FORK


def _refuse_grafts(trials: Sequence[Trial]) -> None:
    if grafted := [trial.trial_id for trial in trials if trial.grafts and not _is_fork(trial)]:
        listed = ", ".join(grafted[:_MAX_LISTED]) + (", ..." if len(grafted) > _MAX_LISTED else "")
        raise ValueError(
            f"what-if cannot replay population based training: trials changed their "
            f"configuration while they ran ({listed}); it needs an experiment in which each "
            "trial kept its own"
        )


def _has_run(trial: Trial) -> bool:
    """Return whether a trial can be replayed: it ran, reported or failed, and is no fork."""
    return (
        bool(trial.attempt or trial.last_result) or trial.status is Status.ERROR
    ) and not _is_fork(trial)


def _recorded(
    trial: Trial, result: Result, trial_timing: TrialTiming, *, saves_on_demand: bool
) -> RecordedTrial:
    rows = _counted(trial.trial_id, result.rows.of(trial.trial_id))
    has_failed = trial.status is Status.ERROR
    failure = (
        (trial.failures[-1] if trial.failures else Failure("failed", "")) if has_failed else None
    )
    points = [_point(row, trial_timing, saves_on_demand=saves_on_demand) for row in rows]
    return RecordedTrial(
        trial_id=trial.trial_id,
        config=trial.config,
        resources=trial.resources,
        experiment_tag=trial.experiment_tag,
        curve=Curve(points, trial_timing.start_s, trial_timing.exit_s, failure),
        is_cut=_is_cut(trial),
        is_stopped_by_criterion=trial.reason is not None
        and trial.reason.rule == "stop"
        and trial.ending is TerminationReason.COMPLETED,
        refusal=failure if has_failed and not (trial.attempt or points) else None,
        group=trial.group.decided(trial.group.num_workers) if trial.group else None,
        is_feasible=result.feasible,
    )


def _counted(trial_id: str, rows: Sequence[Row]) -> list[Row]:
    """Return rows that all have an iteration."""
    counted = [
        {**row, TRAINING_ITERATION: int(row.get(TRAINING_ITERATION, number))}
        for number, row in enumerate(rows, start=1)
    ]
    for earlier, later in pairwise(counted):
        if earlier[TRAINING_ITERATION] >= later[TRAINING_ITERATION]:
            raise ValueError(
                f"recording must hold one curve for each trial, got iteration "
                f"{later[TRAINING_ITERATION]} after {earlier[TRAINING_ITERATION]} in trial "
                f"{trial_id}, which continued from another one's checkpoint"
            )
    return counted


def _point(row: Row, trial_timing: TrialTiming, *, saves_on_demand: bool) -> CurvePoint:
    trained_s = row.get(TIME_THIS_ITER_S)
    is_time = isinstance(trained_s, int | float) and 0 <= trained_s < math.inf
    took_s = (float(trained_s or 0.0) if is_time else 0.0) + trial_timing.waits_s.get(
        row[TRAINING_ITERATION], 0.0
    )
    validation = trial_timing.validations.get(row[TRAINING_ITERATION])
    # If trials save on demand, the executor saves whenever a replay needs it; otherwise they can be
    # paused only where they saved by themselves.
    return CurvePoint(
        {**validation.reported, TRAINING_ITERATION: row[TRAINING_ITERATION]} if validation else row,
        took_s,
        has_checkpoint=isinstance(row.get(CHECKPOINT_DIR_NAME), str) and not saves_on_demand,
        validation=validation.course if validation else None,
    )


def _is_cut(trial: Trial) -> bool:
    """Return whether something other than training code or stop criterion ended a trial."""
    if trial.status is Status.ERROR:
        return False
    if not trial.is_finished or trial.ending in (
        TerminationReason.INTERRUPTED,
        TerminationReason.STOPPED_EARLY,
    ):
        return True
    return trial.reason is not None and trial.reason.rule not in ("stop", "trainable.done")


def _max_concurrent(settings: ExperimentSettings | None, declared: Mapping[str, Any]) -> int | None:
    search_alg = _declared_field(declared, "tune_config", "search_alg")
    limits = [settings.max_concurrent if settings else None]
    if isinstance(search_alg, dict) and search_alg.get("@") == _LIMITER:
        limits.append(search_alg.get("max_concurrent"))
    return min((limit for limit in limits if limit), default=None)


def _caveats(
    trials: Sequence[Trial],
    num_used: int,
    settings: ExperimentSettings | None,
    declared: Mapping[str, Any],
) -> Iterator[str]:
    if not declared:
        yield (
            "the directory records neither how trials ended nor what else took time; each curve "
            "counts as complete"
        )
    if num_forks := sum(map(_is_fork, trials)):
        yield (
            f"{num_forks} of {len(trials)} trials were forked from others by hand and are left out"
        )
    num_declared = max(len(trials) - num_forks, (settings and settings.max_trials) or 0)
    if num_left := num_declared - num_used:
        yield (
            f"{num_left} of {num_declared} trials never ran, or are not among the results "
            f"given, and are left out"
        )
    num_retries = sum(trial.num_failures - (trial.status is Status.ERROR) for trial in trials)
    if num_retries > 0:
        yield (
            f"attempts that failed and were tried again: {num_retries}; what counted in the "
            f"end is replayed, and not the time they cost"
        )
    searcher = _kind_of(_declared_field(declared, "tune_config", "search_alg"))
    if searcher and searcher not in _INDEPENDENT:
        yield (
            f"{searcher} chose configurations by earlier results; the replay keeps those that "
            f"it chose then"
        )
    if (
        _kind_of(_declared_field(declared, "tune_config", "scheduler"))
        == "ResourceChangingScheduler"
    ):
        yield (
            "resources of trials changed while they were recorded; the replay takes as long, "
            "with the last ones"
        )


def _kind_of(declared: Any) -> str:
    """Return the class of a declared object; of a limiter, that of the searcher inside."""
    if not isinstance(declared, dict):
        return ""
    inner = declared.get("searcher") if declared.get("@") == _LIMITER else None
    return _kind_of(inner) or str(declared.get("@", ""))


def _declared_field(declared: Mapping[str, Any], part: str, field: str) -> Any:
    fields = declared.get(part)
    return fields.get(field) if isinstance(fields, dict) else None
