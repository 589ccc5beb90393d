"""Summary of an experiment: counts, times, savings by early stopping, slowest and failed trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.analysis.ranking import Mode, config_at, is_number, tracked
from tuner.core.failure_causes import Cause, by_cause
from tuner.core.result import TIME_TOTAL_S, flatten
from tuner.core.trial import Status, TerminationReason, Trial
from tuner.core.trial_metrics import Evaluation
from tuner.storage.layout import ERROR, STDERR, trial_directory

from .source import Source, state_of


@dataclass(frozen=True, slots=True)
class EarlyStoppingSavings:
    """Estimate of the training that early stopping avoided.

    Attributes:
        num_trials: How many trials were stopped early.
        full_iterations: The assumed length of a full training: the largest ``training_iteration``
            that any trial reached.
        iterations: How many iterations the stopped trials would have needed to reach it.
        time_s: How long these would have taken in seconds, at the pace of each trial.
        share: The time saved as a share, 0 to 1, of the time that all trials would have run without
            early stopping.
    """

    num_trials: int
    full_iterations: int
    iterations: int
    time_s: float
    share: float


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """Key figures of an experiment.

    Attributes:
        name: Name of its directory.
        path: The directory.
        metric: The metric that it optimises, None for none.
        mode: ``"min"`` or ``"max"``: its direction; None for none.
        best_trial_id: The trial with the best last value, None for none.
        best_value: That value, NaN for none.
        best_step: The best value that this trial has reported, with its iteration; None for none.
        best_config: The flattened configuration with which it reached that value, with the
            parameters that are the same in all trials; empty for none.
        num_trials: How many trials there are.
        num_by_state: Number of trials by state, the most frequent first.
        num_iterations: How many results all trials have, without superseded ones.
        run_s: Running time of all trials together, in seconds.
        wall_s: Experiment time in seconds, from the first to the last event; None without a
            journal.
        saving: Savings by early stopping, None if no trial was stopped early.
    """

    name: str
    path: str
    metric: str | None
    mode: Mode | None
    best_trial_id: str | None
    best_value: float
    best_step: Evaluation | None
    best_config: Mapping[str, Any]
    num_trials: int
    num_by_state: Mapping[str, int]
    num_iterations: int
    run_s: float
    wall_s: float | None
    saving: EarlyStoppingSavings | None


@dataclass(frozen=True, slots=True)
class SlowTrial:
    """Running time of one of the slowest trials.

    Attributes:
        trial_id: The trial.
        state: Its state, see `state_of`.
        run_s: How long it ran, in seconds, all attempts together.
        num_iterations: How many results it has, without superseded ones.
        share: Its share of the running time of all trials, 0 to 1.
    """

    trial_id: str
    state: str
    run_s: float
    num_iterations: int
    share: float


def summarize(source: Source) -> ExperimentSummary:
    """Return the key figures of an experiment."""
    best = source.best
    wall_s = source.timeline.end_s
    step = tracked(best, source.rows, *source.objective).best if best else None
    return ExperimentSummary(
        name=Path(source.experiment_path).name,
        path=source.experiment_path,
        metric=source.metric,
        mode=source.mode,
        best_trial_id=source.best_id,
        best_value=source.value_of(best) if best else math.nan,
        best_step=step,
        best_config=flatten(config_at(best, source.rows, step.row if step else None))
        if best
        else {},
        num_trials=len(source.trials),
        num_by_state=dict(Counter(state_of(trial) for trial in source.trials).most_common()),
        num_iterations=sum(trial.num_rows for trial in source.trials),
        run_s=math.fsum(run_times(source).values()),
        wall_s=wall_s or None,
        saving=saving(source),
    )


def run_times(source: Source) -> dict[str, float]:
    """Return the running time of each trial in seconds, all attempts together.

    Without a journal it is the training time that the trial reported.
    """
    if not source.timeline.attempts:
        return {trial.trial_id: _training_s(trial) for trial in source.trials}
    times = dict.fromkeys((trial.trial_id for trial in source.trials), 0.0)
    for attempt in source.timeline.attempts:
        times[attempt.trial_id] += attempt.end_s - attempt.start_s
    return times


def _training_s(trial: Trial) -> float:
    """Return a trial's training time in seconds, including that of the trials it descends from."""
    total = trial.last_result.get(TIME_TOTAL_S)
    return float(total) if is_number(total) and math.isfinite(total) else 0.0


def saving(source: Source) -> EarlyStoppingSavings | None:
    """Return the savings by early stopping, None if no trial was stopped early."""
    stopped = [
        trial
        for trial in source.trials
        if trial.ending is TerminationReason.STOPPED_EARLY and trial.iteration
    ]
    if not stopped:
        return None
    full = max(trial.iteration for trial in source.trials)
    # All trials are assumed to have needed the longest training, at their own average pace.
    missing = [full - trial.iteration for trial in stopped]
    time_s = math.fsum(
        count * _training_s(trial) / trial.iteration
        for count, trial in zip(missing, stopped, strict=True)
    )
    spent_s = math.fsum(run_times(source).values())
    return EarlyStoppingSavings(
        len(stopped), full, sum(missing), time_s, time_s / (time_s + spent_s) if time_s else 0.0
    )


def slowest(source: Source, count: int = 10) -> list[SlowTrial]:
    """Return the trials that ran longest, the slowest first."""
    times = run_times(source)
    # If no trial took any time, all shares are 0.
    total = math.fsum(times.values()) or math.inf
    ranked = sorted(source.trials, key=lambda trial: times[trial.trial_id], reverse=True)[:count]
    return [
        SlowTrial(
            trial.trial_id,
            state_of(trial),
            times[trial.trial_id],
            trial.num_rows,
            times[trial.trial_id] / total,
        )
        for trial in ranked
    ]


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """A trial that failed for good.

    Attributes:
        trial_id: The trial.
        error: The last line of its error.
        num_failures: How many of its attempts failed.
        training_iteration: The last iteration that it reported.
        log: Path of the file with details.
    """

    trial_id: str
    error: str
    num_failures: int
    training_iteration: int
    log: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed for the same cause: the same exception at the same line of code.

    See `cause_of`.

    Attributes:
        place: The line of the user's code, e.g. ``"train.py:12 in train"``; empty if it is unknown.
        error: The error of the first of them.
        trials: These trials.
        configs: The flattened configuration of each.
        traceback: The traceback of the first, empty for none.
    """

    place: str
    error: str
    trials: Sequence[FailedTrial]
    configs: Sequence[Mapping[str, Any]]
    traceback: str


def failed(source: Source) -> list[FailedTrial]:
    """Return the trials that failed for good, in the order of their creation."""
    return [_failed(trial, source.experiment_path) for trial in _in_error(source)]


def failure_groups(source: Source) -> list[FailureGroup]:
    """Return the trials that failed for good by cause, the most frequent cause first."""
    found = [
        _group(cause, trials, source.experiment_path)
        for cause, trials in by_cause(_in_error(source)).items()
    ]
    return sorted(found, key=lambda group: len(group.trials), reverse=True)


def _in_error(source: Source) -> list[Trial]:
    return [trial for trial in source.trials if trial.status is Status.ERROR]


def _group(cause: Cause | None, trials: Sequence[Trial], experiment_path: str) -> FailureGroup:
    failure = trials[0].failures[-1] if trials[0].failures else None
    return FailureGroup(
        place=cause.place if cause and cause.is_exception else "",
        error=str(failure) if failure else "unknown",
        trials=[_failed(trial, experiment_path) for trial in trials],
        configs=[trial.evaluated_params for trial in trials],
        traceback=failure.traceback if failure else "",
    )


def _failed(trial: Trial, experiment_path: str) -> FailedTrial:
    failure = trial.failures[-1] if trial.failures else None
    text = (
        f"{failure.traceback}\n{failure}"
        if failure and not failure.message
        else str(failure or "unknown")
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    directory = (
        Path(trial.local_path)
        if trial.local_path
        else trial_directory(experiment_path, trial.trial_id)
    )
    log = next(
        (directory / name for name in (ERROR, STDERR) if (directory / name).is_file()), directory
    )
    return FailedTrial(
        trial.trial_id,
        lines[-1] if lines else "unknown",
        trial.num_failures,
        trial.iteration,
        str(log),
    )
