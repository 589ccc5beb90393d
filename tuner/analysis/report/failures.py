"""The failed trials on the page, grouped by cause, with configuration and traceback."""

from __future__ import annotations

from html import escape
from typing import Final

from tuner.analysis.charts.data.failures import FailureGroup, failure_groups
from tuner.analysis.charts.data.parameters import axes
from tuner.analysis.charts.data.source import Source

from .head import short_text

_MAX_GROUPS: Final = 20
_MAX_TRIALS: Final = 20
_MAX_ERROR: Final = 400
_MAX_TRACEBACK: Final = 10_000
_NONE: Final = "\u2013"
"""Stands for a parameter that a trial does not have."""


def failures_section(source: Source) -> str:
    """Return the trials that failed for good: a block for each cause, the most frequent first."""
    groups = failure_groups(source)
    num_failed = sum(len(group.trials) for group in groups)
    if not groups:
        return '<section id="failed" class="wide"><h2>Failed trials</h2><p class="note">No trial failed.</p></section>'
    causes = "one cause" if len(groups) == 1 else f"{len(groups)} causes"
    note = f"{num_failed:,} of {len(source.trials):,} trials failed, for {causes}, counted by exception and line of code."
    if len(groups) > _MAX_GROUPS:
        note += f" The {_MAX_GROUPS} most frequent are shown."
    params = [axis.name for axis in axes(source)]
    blocks = "\n".join(_block(group, params) for group in groups[:_MAX_GROUPS])
    return f'<section id="failed" class="wide"><h2>Failed trials</h2><p class="note">{note}</p>\n{blocks}</section>'


def _block(group: FailureGroup, params: list[str]) -> str:
    num_trials = len(group.trials)
    # A message that is that of the heading is not repeated.
    has_errors = len({trial.error for trial in group.trials}) > 1
    names = ["trial", "iteration", *params, *(["error"] if has_errors else []), "log"]
    rows = []
    for trial, config in list(zip(group.trials, group.configs, strict=True))[:_MAX_TRIALS]:
        values = [short_text(config[name], 60) if name in config else _NONE for name in params]
        cells = [trial.trial_id, str(trial.training_iteration), *values]
        wide = [*([short_text(trial.error, _MAX_ERROR)] if has_errors else []), trial.log]
        rows.append(
            "<tr>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "".join(f'<td class="long">{escape(cell)}</td>' for cell in wide)
            + "</tr>"
        )
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    more = (
        f'<p class="note">and {num_trials - _MAX_TRIALS:,} more trials</p>'
        if num_trials > _MAX_TRIALS
        else ""
    )
    traceback = ""
    if group.traceback:
        shown = (
            group.traceback
            if len(group.traceback) <= _MAX_TRACEBACK
            else f"…{group.traceback[-_MAX_TRACEBACK:]}"
        )
        traceback = f"<details><summary>Traceback of {escape(group.trials[0].trial_id)}</summary><pre>{escape(shown)}</pre></details>"
    count = f"{num_trials:,} trial{'s' if num_trials > 1 else ''}"
    place = (
        f'<p class="note">at {escape(short_text(group.place, _MAX_ERROR))}</p>'
        if group.place
        else ""
    )
    return (
        f'<div class="failure"><h3><span class="count">{count}</span> {escape(short_text(group.error, _MAX_ERROR))}</h3>{place}{traceback}'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{more}</div>'
    )
