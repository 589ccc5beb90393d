"""The table of all trials, as the page's script sorts and filters it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.analysis.plots.headline import run_times
from tuner.analysis.plots.parameters import as_text, axes
from tuner.analysis.plots.source import Source, state_of
from tuner.analysis.ranking import is_finite
from tuner.core.result import AUTO_FILLED
from tuner.core.trial import Trial

_MAX_METRICS: Final = 8
_MAX_PARAMS: Final = 30
_MAX_TEXT: Final = 120
_LAST: Final = ("iterations", "run time (s)", "decision")


def trial_table(source: Source) -> dict[str, Any]:
    """Return the table as JSON values: ``columns``, ``rows`` in the order of creation, and the place of the ``best`` row, or None.

    A cell is a number, a text or None; numbers have six digits, and those that are not finite are texts.

    Args:
        source: The experiment.
    """
    metrics = _metrics(source)
    params = [axis.name for axis in axes(source.trials)][:_MAX_PARAMS]
    times = run_times(source)
    rows = [_row(trial, metrics, params, times) for trial in source.trials]
    best = next((place for place, trial in enumerate(source.trials) if trial is source.best), None)
    return {"columns": ["trial", "state", *metrics, *params, *_LAST], "num_metrics": len(metrics), "rows": rows, "best": best}


def _metrics(source: Source) -> list[str]:
    """Return the metrics that the table shows: the experiment's own, then the first others that trials reported."""
    reported = dict.fromkeys(name for trial in source.trials for name in trial.summary if name not in AUTO_FILLED)
    own = [source.metric] if source.metric in reported or source.metric else []
    return list(dict.fromkeys([*own, *reported]))[:_MAX_METRICS]


def _row(trial: Trial, metrics: Sequence[str], params: Sequence[str], times: Mapping[str, float]) -> list[Any]:
    config = trial.evaluated_params
    values = [trial.summary[name].last if name in trial.summary else None for name in metrics]
    tried = [config.get(name) for name in params]
    reason = str(trial.reason) if trial.reason else None
    cells = [trial.trial_id, state_of(trial), *values, *tried, trial.num_rows, times[trial.trial_id], reason]
    return [_cell(cell) for cell in cells]


def _cell(value: Any) -> float | int | str | None:
    if value is None:
        return None
    if is_finite(value):
        return value if isinstance(value, int) else float(f"{value:.6g}")
    text = str(value) if isinstance(value, float) else as_text(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
