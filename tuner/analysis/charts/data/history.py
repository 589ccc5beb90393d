"""How the search went on: the best value so far, over time or over trials."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.analysis.ranking import rank

from .source import Source


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One step of the search.

    Attributes:
        time_s: When, in seconds of experiment time: when the value was reported, or, over trials, when the trial reported last. None where
            there is no journal.
        trial_number: Which trial, counted from 1 in the order of their creation.
        trial_id: Its id.
        value: The value that it reported; over trials the best one that it ever did, NaN for none.
        best: The best value so far, NaN while there is none.
    """

    time_s: float | None
    trial_number: int
    trial_id: str
    value: float
    best: float


def history_over_time(source: Source) -> list[HistoryStep]:
    """Return the results that were better than all before them, and behind them the end of the experiment with the best one.

    Raises:
        ValueError: If the experiment has no metric and no other one is named.
    """
    source.objective  # noqa: B018  (raises)
    numbers = {trial.trial_id: number for number, trial in enumerate(source.trials, start=1)}
    steps = [
        HistoryStep(found.time_s, numbers[found.trial_id], found.trial_id, found.value, found.value)
        for found in source.chronicle.improvements
    ]
    if steps:
        last = steps[-1]
        steps.append(
            HistoryStep(
                source.chronicle.end_s, last.trial_number, last.trial_id, last.value, last.best
            )
        )
    return steps


def history_over_trials(source: Source) -> list[HistoryStep]:
    """Return a step for each trial, in the order of their creation.

    Raises:
        ValueError: If the experiment has no metric and no other one is named.
    """
    metric, mode = source.objective
    reports = source.chronicle.reports
    best = math.nan
    steps = []
    for number, trial in enumerate(source.trials, start=1):
        value = trial.summary[metric].by_scope("all", mode) if metric in trial.summary else math.nan
        best = max(best, value, key=lambda candidate: rank(candidate, mode))
        time_s = reports[trial.trial_id].times_s[-1] if trial.trial_id in reports else None
        steps.append(HistoryStep(time_s, number, trial.trial_id, value, best))
    return steps
