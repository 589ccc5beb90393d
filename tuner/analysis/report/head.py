"""What stands on the page as text: the experiment in figures, its best trial or Pareto front, its slowest ones."""

from __future__ import annotations

import pprint
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from tuner.analysis.best import config_at
from tuner.analysis.charts.data.parameters import as_text, axes
from tuner.analysis.charts.data.source import Source
from tuner.analysis.charts.data.summary import Headline, headline, slowest
from tuner.analysis.charts.style import STATE_COLORS, direction, seconds
from tuner.core.pareto import best_trials, values_of

_MAX_TEXT: Final = 160
_MAX_FRONT: Final = 50
_NONE: Final = "\u2013"
"""Stands for a parameter that a trial does not have."""


def head(source: Source) -> str:
    """Return the head of the page: name, place and the figures that people ask for first."""
    figures = headline(source)
    cells = "".join([_best(source, figures), _trials(figures), _time(figures), _saved(figures)])
    place = f'<div class="soft path">{escape(figures.path)}</div>'
    return (
        f'<header><h1>{escape(figures.name)}</h1>{place}<dl class="figures">{cells}</dl></header>'
    )


def _cell(name: str, value: str, more: str = "", kind: str = "") -> str:
    """Return one of the figures; value and more are HTML."""
    small = f"<small>{more}</small>" if more else ""
    return f'<div class="figure{kind}"><dt>{name}</dt><dd>{value}{small}</dd></div>'


def _best(source: Source, figures: Headline) -> str:
    if source.several:
        names = ", ".join(f"{escape(metric)}{direction(mode)}" for metric, mode in source.several)
        num_best = len(best_trials(source.trials, source.several, source.value_of))
        return _cell(
            '<a href="#front">Pareto front</a>',
            f"{num_best:,} of {figures.num_trials:,} trials",
            names,
            " best",
        )
    if figures.metric is None:
        return _cell("Metric", "none", "The experiment names none, so no trial is the best one.")
    name = f"Best {escape(figures.metric)}{direction(figures.mode)}"
    if figures.best_trial_id is None:
        return _cell(name, "none", "No trial has a finite value.")
    more = f'last value of <a href="#best">{escape(figures.best_trial_id)}</a>{escape(_best_step(figures))}'
    return _cell(name, escape(f"{figures.best_value:.6g}"), more, " best")


def _best_step(figures: Headline) -> str:
    step = figures.best_step
    return f"; its best was {step.value:.6g} at iteration {step.iteration}" if step else ""


def _trials(figures: Headline) -> str:
    states = "".join(
        f'<span class="state" style="--dot:{STATE_COLORS.get(state, "#93a1b0")}">{count:,} {escape(state)}</span>'
        for state, count in figures.num_by_state.items()
    )
    return _cell(
        "Trials",
        f"{figures.num_trials:,}",
        f'<span class="states">{states}</span>' if states else "There are none.",
    )


def _time(figures: Headline) -> str:
    more = f"{figures.num_iterations:,} iterations; trials ran {seconds(figures.run_s)} in all"
    return _cell(
        "Time", seconds(figures.wall_s) if figures.wall_s else seconds(figures.run_s), more
    )


def _saved(figures: Headline) -> str:
    saving = figures.saving
    if saving is None:
        return _cell("Saved by early stopping", "nothing", "No trial was stopped early.")
    more = (
        f"Stopping {saving.num_trials:,} trial{'s' if saving.num_trials > 1 else ''} early saved about {saving.iterations:,} iterations "
        f"({seconds(saving.time_s)}), compared with training to iteration {saving.full_iterations:,}."
    )
    return _cell("Saved by early stopping", f"{100 * saving.share:.0f} %", more)


def best_section(source: Source) -> str:
    """Return the best trial with its parameters; nothing where there is none."""
    figures = headline(source)
    if source.best is None:
        return ""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(short_text(value))}</dd></div>"
        for name, value in figures.best_config.items()
    )
    title = f"Best trial: {escape(source.best.trial_id)}"
    step = figures.best_step
    copied = _copied(config_at(source.best, source.rows, step.row if step else None))
    note = (
        f"<p class=note>The configuration with which it was best, at iteration {step.iteration}.</p>"
        if step
        else ""
    )
    return f'<section id="best" class="wide"><h2>{title}</h2>{note}{copied}<dl class="params">{items}</dl></section>'


def _copied(config: Mapping[str, Any]) -> str:
    """Return a button that copies a configuration as a Python dictionary, and that dictionary, which is not shown."""
    text = pprint.pformat(dict(config), sort_dicts=False, width=100)
    button = '<button class="more copy" type="button" data-copy="best-config">Copy configuration</button>'
    return f'{button}<pre id="best-config" hidden>{escape(text)}</pre>'


def front_section(source: Source) -> str:
    """Return the trials on the Pareto front with their objectives and parameters; nothing where there is but one objective."""
    if not source.several:
        return ""
    objectives = [f"{metric}{direction(mode)}" for metric, mode in source.several]
    params = [axis.name for axis in axes(source)]
    front = best_trials(source.trials, source.several, source.value_of)
    rows = []
    for trial in front[:_MAX_FRONT]:
        config = source.config_of(trial)
        values = [
            short_text(value) for value in values_of(trial, source.several, source.value_of) or ()
        ]
        rows.append(
            [
                trial.trial_id,
                *values,
                *(short_text(config[name]) if name in config else _NONE for name in params),
            ]
        )
    note = "No other trial beats these in every objective, by last values."
    if len(front) > len(rows):
        note += f" The first {len(rows)} of {len(front):,}."
    return _table(
        "front",
        "Pareto front",
        ["trial", *objectives, *params],
        rows,
        note if rows else "No trial has a finite value of each.",
    )


def tables(source: Source) -> str:
    """Return the tables: all trials, which the page's script fills, and the slowest ones."""
    return "\n".join([_all_trials(source), _slowest(source)])


_ALL_TRIALS: Final = """<section id="all-trials" class="wide table"><h2>All trials</h2><p class="note">{note}</p>
<div class="tools"><input id="filter" type="search" aria-label="Filter"
 placeholder="Filter: a text, or conditions such as lr &lt; 0.01 ending = failed">
<select id="state" aria-label="Status or ending"><option value="">every status</option></select><span id="count" class="soft"></span>
<button id="columns" class="more" type="button" hidden></button></div>
<div class="scroll"><table id="trial-table"><thead><tr></tr></thead><tbody></tbody></table></div>
<p><button id="more" class="more" type="button" hidden>Show more</button></p>
<noscript><p class="note">The charts and this table are drawn by the page's own script, which is switched off.</p></noscript></section>"""


def _all_trials(source: Source) -> str:
    if source.several:
        order = "Those on the Pareto front first, the others in the order of their creation. "
    elif source.metric and source.mode:
        order = f"Best first, by the last value of {escape(source.metric)}. "
    else:
        order = "In the order of their creation. "
    return _ALL_TRIALS.format(
        note=f"{order}Metrics are last values; a click on a column's name sorts by it."
    )


def _slowest(source: Source) -> str:
    found = slowest(source)
    rows = [
        [
            one.trial_id,
            one.state,
            seconds(one.run_s),
            f"{100 * one.share:.1f} %",
            f"{one.num_iterations:,}",
        ]
        for one in found
    ]
    names = ("trial", "state", "ran", "share of all", "iterations")
    return _table(
        "slowest",
        "Slowest trials",
        names,
        rows,
        "The trials that ran longest, all attempts together.",
    )


def _table(
    name: str, title: str, names: Sequence[str], rows: Iterable[Sequence[str]], note: str
) -> str:
    lines = [
        "<tr>" + "".join(f"<td{_kind(cell)}>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    ]
    heads = "".join(f'<th scope="col">{escape(one)}</th>' for one in names)
    table = (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        if lines
        else ""
    )
    return f'<section id="{name}" class="wide"><h2>{title}</h2>{f"<p class=note>{escape(note)}</p>" if note else ""}{table}</section>'


def _kind(cell: str) -> str:
    return ' class="long"' if len(cell) > 24 else ""  # noqa: PLR2004  (may be broken into lines)


def short_text(value: Any, max_length: int = _MAX_TEXT) -> str:
    """Return a value as it stands in tables: six digits of a number, and no more of a text than fits."""
    text = f"{value:.6g}" if isinstance(value, float) else as_text(value)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
