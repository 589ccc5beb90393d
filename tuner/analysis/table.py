"""A plain text table of trials, for people at a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import Trial

from .best import newest_of

_MAX_PARAMS = 6
_MAX_WIDTH = 24


def format_trials(trials: Sequence[Trial], metric: str | None) -> list[str]:
    """Return a header and a line for each trial: id, status, iterations, the metric's latest value and the first hyperparameters."""
    header, rows = _table(trials, metric)
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)]


def html_trials(head: str, trials: Sequence[Trial], metric: str | None, more: str = "") -> str:
    """Return the same as an HTML table for notebooks, below a line that says what it is, and above one that says what it leaves out."""
    header, rows = _table(trials, metric)
    cells = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in header)
    lines = ("".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    foot = f"<p>{escape(more)}</p>" if more else ""
    return f'<div><p>{escape(head)}</p><div style="overflow-x:auto">{table}</div>{foot}</div>'


def _table(trials: Sequence[Trial], metric: str | None) -> tuple[list[str], list[list[str]]]:
    params = list(dict.fromkeys(name for trial in trials for name in trial.evaluated_params))[:_MAX_PARAMS]
    metrics = [metric] if metric else []
    header = ["trial_id", "status", TRAINING_ITERATION, *metrics, *params]
    return header, [[_cell(value) for value in _values(trial, metrics, params)] for trial in trials]


def _values(trial: Trial, metrics: Sequence[str], params: Sequence[str]) -> list[Any]:
    latest = [newest.value if (newest := newest_of(trial, name)) else None for name in metrics]
    config = flatten(trial.config)
    return [trial.trial_id, trial.status, trial.iteration, *latest, *(config.get(name) for name in params)]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 3]}..."
