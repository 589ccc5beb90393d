"""A row for each trial: the table in which all trials of an experiment stand side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.core.result import CONFIG, DONE, TRIAL_ID
from tuner.core.trial import Trial
from tuner.journal.rows import Rows

from .best import config_at, newest_of, tracked, with_newest
from .frames import (
    LOGDIR,
    METRIC_ITERATION,
    flat_config,
    flat_metrics,
    in_order_of_appearance,
    in_usual_order,
    to_frame,
)
from .result import Result

if TYPE_CHECKING:
    import pandas as pd

STATUS = "status"
ENDING = "ending"
ERROR = "error"


def trials_frame(results: Sequence[Result], chosen: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of `ResultGrid.get_dataframe` for the row chosen of each trial, with the ``config`` in force at it.

    The row of a trial without any is empty.
    """
    return to_frame(*trials_rows(results, chosen))


def trials_rows(
    results: Sequence[Result], chosen: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the same as flat rows, and the names of its columns in their order."""
    metrics = [flat_metrics(row) for row in chosen]
    # A metric of such a name is what was asked for; what the table tells of the trial must not overwrite it.
    told = [
        name for name in (STATUS, ENDING, ERROR, LOGDIR) if not any(name in row for row in metrics)
    ]
    configs = [row.get(CONFIG, result.config) for result, row in zip(results, chosen, strict=True)]
    rows = [_trial_row(*one, told) for one in zip(results, metrics, configs, strict=True)]
    return rows, in_usual_order(
        in_order_of_appearance(rows), [name for name in told if name != LOGDIR]
    )


def last_rows(trials: Sequence[Trial], rows: Rows, metric: str | None) -> list[dict[str, Any]]:
    """Return the last result of each trial with the newest value of the metric, and in which iteration that was reported.

    With it goes the ``config`` in force at the last result.
    """
    return [_last_row(trial, rows, metric) for trial in trials]


def _last_row(trial: Trial, rows: Rows, metric: str | None) -> dict[str, Any]:
    newest = newest_of(trial, metric)
    if metric and newest and newest.iteration is None:
        newest = tracked(trial, rows, metric, "min").last
    row = with_newest(trial.last_result, newest, metric)
    if newest and row:
        row.setdefault(METRIC_ITERATION, newest.iteration)
    return {**row, CONFIG: config_at(trial, rows)} if row else row


def _trial_row(
    result: Result, metrics: Mapping[str, Any], config: Mapping[str, Any], told: Sequence[str]
) -> dict[str, Any]:
    facts = {
        STATUS: str(result.status),
        ENDING: result.ending.word if result.ending else None,
        ERROR: error_text(result),
        LOGDIR: result.path,
    }
    return {
        **(metrics or {TRIAL_ID: result.trial_id}),
        DONE: result.metrics.get(DONE),
        **flat_config(config),
        **{name: facts[name] for name in told},
    }


def error_text(result: Result) -> str | None:
    """Return in one line why a trial failed for good; None where it did not."""
    return (
        str(result.error).removeprefix(f"trial {result.trial_id} failed: ")
        if result.error
        else None
    )


def whereabouts(trials: Sequence[Trial]) -> str:
    """Return in a few words where the trials stand, with the first failure."""
    if not trials:
        return "there are no trials"
    counts = Counter(str(trial.status) for trial in trials)
    stand = ", ".join(f"{count} of {len(trials)} {status}" for status, count in counts.items())
    failed = next((trial for trial in trials if trial.failures), None)
    return (
        f"{stand}; the first failure was of trial {failed.trial_id}: {failed.failures[-1]}"
        if failed
        else stand
    )
