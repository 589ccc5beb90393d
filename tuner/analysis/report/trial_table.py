"""The table of all trials, as the page's script sorts and filters it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.analysis.charts.data.parameters import as_text, axes
from tuner.analysis.charts.data.source import Source
from tuner.analysis.charts.data.summary import run_times
from tuner.analysis.ranking import is_finite
from tuner.core.pareto import best_trials
from tuner.core.result import AUTO_FILLED
from tuner.core.trial import Trial

_MAX_METRICS: Final = 8
_MAX_PARAMS: Final = 30
_MAX_TEXT: Final = 120
_FIRST: Final = ("trial", "status", "ending")
_LAST: Final = ("iterations", "run time (s)", "decision")


def trial_table(source: Source) -> dict[str, Any]:
    """Return the table as JSON values.

    ``columns`` are their names, ``priority`` their places, the most important first: where there is no room, the last ones are hidden.
    ``rows`` come in order, the best first, ``num_best`` of which stand out: the best trial, or those on the Pareto front. A cell is a
    number, a text or None; numbers have six digits, and those that are not finite are texts.

    Args:
        source: The experiment.
    """
    metrics, own = _metrics(source)
    params = [axis.name for axis in axes(source)][:_MAX_PARAMS]
    times = run_times(source)
    best = (
        best_trials(source.trials, source.several, source.value_of)
        if source.several
        else [source.best]
        if source.best
        else []
    )
    ranked = best if source.several else source.ranked()
    first = {trial.trial_id for trial in ranked}
    trials = [*ranked, *(trial for trial in source.trials if trial.trial_id not in first)]
    columns = [*_FIRST, *metrics, *params, *_LAST]
    first_metric, first_param = len(_FIRST), len(_FIRST) + len(metrics)
    end = first_param + len(params)
    return {
        "columns": columns,
        "priority": [
            *range(first_metric + own),
            *range(first_param, end),
            end,
            end + 1,
            *range(first_metric + own, first_param),
            end + 2,
        ],
        "num_metrics": len(metrics),
        "rows": [_row(source, trial, metrics, params, times) for trial in trials],
        "num_best": len(best),
    }


def _metrics(source: Source) -> tuple[list[str], int]:
    """Return the metrics that the table shows, and how many are the experiment's own, which come before others that trials reported."""
    reported = dict.fromkeys(
        name for trial in source.trials for name in trial.summary if name not in AUTO_FILLED
    )
    own = dict.fromkeys(
        [*([source.metric] if source.metric else []), *(metric for metric, _ in source.several)]
    )
    return list({**own, **reported})[: max(_MAX_METRICS, len(own))], len(own)


def _row(
    source: Source,
    trial: Trial,
    metrics: Sequence[str],
    params: Sequence[str],
    times: Mapping[str, float],
) -> list[Any]:
    config = source.config_of(trial)
    values = [source.value_of(trial, name) if name in trial.summary else None for name in metrics]
    tried = [config.get(name) for name in params]
    reason = str(trial.reason) if trial.reason else None
    ending = trial.ending.word if trial.ending else None
    cells = [
        trial.trial_id,
        str(trial.status),
        ending,
        *values,
        *tried,
        trial.num_rows,
        times[trial.trial_id],
        reason,
    ]
    return [_cell(cell) for cell in cells]


def _cell(value: Any) -> float | int | str | None:
    if value is None:
        return None
    if is_finite(value):
        return value if float(value).is_integer() else float(f"{value:.6g}")
    text = str(value) if isinstance(value, float) else as_text(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
