"""Learning curves: what each trial reported, one result after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.analysis.frames import value_at
from tuner.analysis.ranking import is_number
from tuner.core.result import TRAINING_ITERATION
from tuner.core.trial import Trial

from .downsample import MAX_POINTS, MAX_TRIALS, shown_places, shown_trials
from .source import Source, state_of


@dataclass(frozen=True, slots=True)
class Curve:
    """The learning curve of one trial, thinned.

    Attributes:
        trial_id: Whose.
        state: Where the trial stands, see `state_of`.
        is_best: Whether it is the best one of the experiment.
        xs: What the curve is drawn over, in the order of the results. Where the trial went on from another one's checkpoint it may go back.
        values: The metric there; NaN and infinities as they were reported.
        num_results: How many results there are with both, before thinning.
    """

    trial_id: str
    state: str
    is_best: bool
    xs: Sequence[float]
    values: Sequence[float]
    num_results: int


def learning_curves(
    source: Source,
    x: str = TRAINING_ITERATION,
    *,
    max_trials: int = MAX_TRIALS,
    max_points: int = MAX_POINTS,
) -> list[Curve]:
    """Return the curves of the trials that reported the metric, in the order of the trials.

    Args:
        source: The experiment.
        x: What they are drawn over: a number of each result, e.g. ``"time_total_s"``.
        max_trials: How many curves at most: of more trials, half are the best and half are spread over the ranks of the others.
        max_points: How many points of each at most: of more, the first, the last, the extremes and others evenly between them.

    Raises:
        ValueError: If the experiment has no metric and no other one is named.
    """
    metric = source.objective[0]
    curves = [
        _curve(source, trial, metric, x, max_points) for trial in shown_trials(source, max_trials)
    ]
    return [curve for curve in curves if curve.values]


def _curve(source: Source, trial: Trial, metric: str, x: str, max_points: int) -> Curve:
    pairs = (
        [(value_at(row, x), value_at(row, metric)) for row in source.rows.of(trial.trial_id)]
        if metric in trial.summary
        else []
    )
    known = [
        (float(place), float(value))
        for place, value in pairs
        if is_number(place) and is_number(value)
    ]
    kept = [known[place] for place in shown_places([value for _, value in known], max_points)]
    xs, values = [place for place, _ in kept], [value for _, value in kept]
    return Curve(trial.trial_id, state_of(trial), trial is source.best, xs, values, len(known))
