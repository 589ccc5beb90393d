"""A plain text table of trials, for people at a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from tuner.core.result import TRAINING_ITERATION, flatten
from tuner.core.trial import Trial
from tuner.journal.rows import Rows

from .best import config_of, newest_of

_MAX_PARAMS = 6
_MAX_WIDTH = 24


def format_trials(trials: Sequence[Trial], rows: Rows, metric: str | None) -> list[str]:
    """Return a header and a line for each trial: id, status, iterations, the metric's latest value and the first hyperparameters."""
    lines = [*_table(trials, rows, metric)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def html_trials(
    head: str, trials: Sequence[Trial], rows: Rows, metric: str | None, more: str = ""
) -> str:
    """Return the same as an HTML table for notebooks, below a line that says what it is, and above one that says what it leaves out."""
    header, *lines = _table(trials, rows, metric)
    cells = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in header)
    told = (
        "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in line)
        for line in lines
    )
    body = "".join(f"<tr>{line}</tr>" for line in told)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    foot = f"<p>{escape(more)}</p>" if more else ""
    return f'<div><p>{escape(head)}</p><div style="overflow-x:auto">{table}</div>{foot}</div>'


def _table(trials: Sequence[Trial], rows: Rows, metric: str | None) -> Iterator[list[str]]:
    params = list(dict.fromkeys(name for trial in trials for name in trial.evaluated_params))[
        :_MAX_PARAMS
    ]
    yield ["trial_id", "status", TRAINING_ITERATION, *([metric] if metric else []), *params]
    for trial in trials:
        newest, config = newest_of(trial, metric), flatten(config_of(trial, rows, metric))
        latest = [newest.value if newest else None] if metric else []
        cells = [
            trial.trial_id,
            trial.status,
            trial.iteration,
            *latest,
            *(config.get(name) for name in params),
        ]
        yield [_cell(cell) for cell in cells]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 3]}..."
