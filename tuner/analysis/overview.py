"""A row for each trial: the table in which all trials of an experiment stand side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.core.result import DONE, TRIAL_ID
from tuner.core.trial import Trial

from .frames import flat_config, flat_metrics, in_order_of_appearance, to_frame
from .result import Result

if TYPE_CHECKING:
    import pandas as pd

METRIC_ITERATION = "metric_iteration"
"""In which iteration a trial reported the value that its row has of the experiment's metric."""
STATUS = "status"
LOGDIR = "logdir"


def trials_frame(results: Sequence[Result], chosen: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the table of `ResultGrid.get_dataframe` for the row chosen of each trial, empty for a trial without one."""
    return to_frame(*trials_rows(results, chosen))


def trials_rows(results: Sequence[Result], chosen: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the same as flat rows, and the names of its columns in their order."""
    metrics = [
        {**(flat_metrics(row) or {TRIAL_ID: result.trial_id}), DONE: result.metrics[DONE]}
        for result, row in zip(results, chosen, strict=True)
    ]
    configs = [flat_config(result.config) for result in results]
    ends = [{STATUS: str(result.status), LOGDIR: result.path} for result in results]
    first = next((flat for flat, row in zip(metrics, chosen, strict=True) if row), metrics[0] if metrics else {})
    names = [name for name in in_order_of_appearance([first, *configs, *metrics]) if name not in (STATUS, LOGDIR)]
    rows = [{**flat, **config, **end} for flat, config, end in zip(metrics, configs, ends, strict=True)]
    return rows, [*names, STATUS, LOGDIR]


def whereabouts(trials: Sequence[Trial]) -> str:
    """Return in a few words where the trials stand, with the first failure."""
    if not trials:
        return "there are no trials"
    counts = Counter(str(trial.status) for trial in trials)
    stand = ", ".join(f"{count} of {len(trials)} {status}" for status, count in counts.items())
    failed = next((trial for trial in trials if trial.failures), None)
    return f"{stand}; the first failure was of trial {failed.trial_id}: {failed.failures[-1]}" if failed else stand
