"""An experiment in figures: how many trials, how long, and what early stopping has saved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.analysis.best import config_at, tracked
from tuner.analysis.ranking import Mode, is_number
from tuner.core.result import TIME_TOTAL_S, flatten
from tuner.core.tracked_metric import Evaluation
from tuner.core.trial import TerminationReason, Trial

from .source import Source, state_of


@dataclass(frozen=True, slots=True)
class Saving:
    """What was not trained since trials were stopped early: an estimate.

    Attributes:
        num_trials: How many trials were stopped early.
        full_iterations: What is taken for a full training: the largest ``training_iteration`` that any trial reached.
        iterations: How many iterations they would have needed up to there.
        time_s: How long these would have taken in seconds, at the pace of each trial.
        share: Part of the time that all trials would have run, had none been stopped early, which was saved; 0 to 1.
    """

    num_trials: int
    full_iterations: int
    iterations: int
    time_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Headline:
    """An experiment in figures.

    Attributes:
        name: Name of its directory.
        path: The directory.
        metric: The metric that it optimises, None for none.
        mode: ``"min"`` or ``"max"``: its direction; None for none.
        best_trial_id: The trial with the best last value, None for none.
        best_value: That value, NaN for none.
        best_step: The best value that this trial has reported, with its iteration; None for none.
        best_config: The configuration with which it reached that, flattened with the parameters that are the same in all trials; empty for
            none.
        num_trials: How many trials there are.
        num_by_state: How many there are of each state, the most frequent first.
        num_iterations: How many iterations count that were reported, by all trials.
        run_s: How long the trials ran, all together, in seconds.
        wall_s: Experiment time in seconds, from the first to the last thing that happened; None without a journal.
        saving: What early stopping has saved, None where no trial was stopped early.
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
    saving: Saving | None


@dataclass(frozen=True, slots=True)
class Slow:
    """A trial that took long.

    Attributes:
        trial_id: Which.
        state: Where it stands, see `state_of`.
        run_s: How long it ran, in seconds, all attempts together.
        num_iterations: How many iterations of it count.
        share: Its part of the time that all trials ran, 0 to 1.
    """

    trial_id: str
    state: str
    run_s: float
    num_iterations: int
    share: float


def headline(source: Source) -> Headline:
    """Return the experiment in figures."""
    best = source.best
    wall_s = source.chronicle.end_s
    step = tracked(best, source.rows, *source.objective).best if best else None
    return Headline(
        name=Path(source.experiment_path).name,
        path=source.experiment_path,
        metric=source.metric,
        mode=source.mode,
        best_trial_id=best.trial_id if best else None,
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
    """Return how long each trial ran, in seconds, all attempts together; without a journal the training time that it reported."""
    if not source.chronicle.attempts:
        return {trial.trial_id: _training_s(trial) for trial in source.trials}
    times = dict.fromkeys((trial.trial_id for trial in source.trials), 0.0)
    for attempt in source.chronicle.attempts:
        times[attempt.trial_id] += attempt.end_s - attempt.start_s
    return times


def _training_s(trial: Trial) -> float:
    """Return the training time up to where a trial is, in seconds, that of trials it descends from included."""
    total = trial.last_result.get(TIME_TOTAL_S)
    return float(total) if is_number(total) and math.isfinite(total) else 0.0


def saving(source: Source) -> Saving | None:
    """Return what early stopping has saved, None where no trial was stopped early."""
    stopped = [
        trial
        for trial in source.trials
        if trial.ending is TerminationReason.STOPPED_EARLY and trial.iteration
    ]
    if not stopped:
        return None
    full = max(trial.iteration for trial in source.trials)
    missing = [full - trial.iteration for trial in stopped]
    time_s = math.fsum(
        count * _training_s(trial) / trial.iteration
        for count, trial in zip(missing, stopped, strict=True)
    )
    spent_s = math.fsum(run_times(source).values())
    return Saving(
        len(stopped), full, sum(missing), time_s, time_s / (time_s + spent_s) if time_s else 0.0
    )


def slowest(source: Source, count: int = 10) -> list[Slow]:
    """Return the trials that ran longest, the slowest first."""
    times = run_times(source)
    total = math.fsum(times.values()) or math.inf
    ranked = sorted(source.trials, key=lambda trial: times[trial.trial_id], reverse=True)[:count]
    return [
        Slow(
            trial.trial_id,
            state_of(trial),
            times[trial.trial_id],
            trial.num_rows,
            times[trial.trial_id] / total,
        )
        for trial in ranked
    ]
