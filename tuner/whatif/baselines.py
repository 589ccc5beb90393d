"""What a replay is measured by: the experiment as it really ran, and all that was recorded of it on the replay's own clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate

from schedulers.fifo import FIFOScheduler
from tuner.analysis.frames import value_at
from tuner.analysis.ranking import is_number
from tuner.core.result import TRAINING_ITERATION
from tuner.execution.replay_executor import Curve

from .candidate import Objective
from .recording import RecordedTrial, Recording
from .replaying import replay
from .run_totals import Account, Moment, best_last, improvements, last_of
from .slots import Slots


def run_as_recorded(recording: Recording, objective: Objective) -> Account | None:
    """Return what an experiment really took and found; None where no journal tells."""
    timing = recording.timing
    if timing.elapsed_s is None:
        return None
    moments: list[Moment] = []
    for trial in recording.trials:
        reported_s = timing.pace_of(trial.trial_id).reported_s
        moments += _moments(
            trial,
            (reported_s.get(point.metrics[TRAINING_ITERATION]) for point in trial.curve.points),
            objective.metric,
        )
    worker_s = math.fsum(timing.pace_of(trial.trial_id).worker_s for trial in recording.trials)
    return _account(recording, timing.elapsed_s, worker_s, moments, objective)


def run_in_full(recording: Recording, slots: Slots, objective: Objective) -> Account:
    """Return what it takes where every trial runs through all that was recorded of it, at once."""
    # Nobody looks at the results, so that they need not be reported one by one.
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
    moments: list[Moment] = []
    for trial in recording.trials:
        if stint := run.stints.get(trial.trial_id):
            begin_s = recording.timing.begin_s + stint.first_s + trial.curve.start_s
            # The first of the sums is the beginning itself.
            times_s = list(
                accumulate((point.took_s for point in trial.curve.points), initial=begin_s)
            )[1:]
            moments += _moments(trial, times_s, objective.metric)
    return _account(recording, run.account.wall_clock_s, run.account.worker_s, moments, objective)


def _in_one(curve: Curve) -> Curve:
    return replace(
        curve, points=(), exit_s=math.fsum(point.took_s for point in curve.points) + curve.exit_s
    )


def _moments(
    trial: RecordedTrial, times_s: Iterable[float | None], metric: str
) -> Iterator[Moment]:
    """Yield when a trial reported which finite value; what has no time is left out."""
    for point, time_s in zip(trial.curve.points, times_s, strict=True):
        value = value_at(point.metrics, metric)
        if time_s is not None and is_number(value) and math.isfinite(value):
            yield Moment(time_s, value, trial.trial_id)


def _account(
    recording: Recording,
    wall_clock_s: float,
    worker_s: float,
    moments: list[Moment],
    objective: Objective,
) -> Account:
    lasts = [
        (trial.trial_id, last_of((point.metrics for point in trial.curve.points), objective.metric))
        for trial in recording.trials
    ]
    best_trial_id, best_value = best_last(lasts, objective.mode)
    return Account(
        wall_clock_s=wall_clock_s,
        worker_s=worker_s,
        num_iterations=sum(len(trial.curve.points) for trial in recording.trials),
        best_trial_id=best_trial_id,
        best_value=best_value,
        progress=improvements(sorted(moments, key=lambda moment: moment.time_s), objective.mode),
    )
