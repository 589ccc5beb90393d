"""Text and table sections of the report as HTML, and the JSON of its sortable table."""

from __future__ import annotations

import datetime as dt
import pprint
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from searchers.objectives.outcome_constraint import by_metric
from tuner.analysis.charts.parameters import as_text, axes
from tuner.analysis.charts.source import Source
from tuner.analysis.charts.style import STATE_COLORS, direction, seconds
from tuner.analysis.charts.summary import (
    ExperimentSummary,
    FailureGroup,
    failure_groups,
    run_times,
    slowest,
    summarize,
)
from tuner.analysis.open_experiment import budgets_in
from tuner.analysis.ranking import config_at, is_finite
from tuner.analysis.trade_offs import front_of
from tuner.core.feasibility import newest
from tuner.core.near_misses import joined, why_none_feasible
from tuner.core.pareto import values_of
from tuner.core.result import AUTO_FILLED
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.storage.declaration import RELEASE_KEY, read_declaration, read_environments

from .as_code import as_code, expression

_MAX_TEXT: Final = 160
_MAX_FRONT: Final = 50
_NONE: Final = "\u2013"
"""Shown for a parameter that a trial lacks."""
_ALL_TRIALS: Final = """<section id="all-trials" class="wide table"><h2>All trials</h2>
<p class="note">{note}</p>
<div class="tools"><input id="filter" type="search" aria-label="Filter"
 placeholder="Filter: a text, or conditions such as lr &lt; 0.01 ending = failed">
<select id="state" aria-label="Status or ending"><option value="">every status</option></select>
<span id="count" class="soft"></span>
<button id="columns" class="more" type="button" hidden></button></div>
<div class="scroll"><table id="trial-table"><thead><tr></tr></thead><tbody></tbody></table></div>
<p><button id="more" class="more" type="button" hidden>Show more</button></p>
<noscript><p class="note">The charts and this table are drawn by the page's own script, which is
switched off.</p></noscript></section>"""
_VALIDATION_STATES: Final = (
    "VALIDATED",
    "VALIDATION_FAILED",
    "VALIDATION_TIMEOUT",
    "PENDING_VALIDATION",
)
_MAX_GROUPS: Final = 20
_MAX_TRIALS: Final = 20
_MAX_ERROR: Final = 400
_MAX_TRACEBACK: Final = 10_000
_MAX_PACKAGES: Final = 40
_MAX_SHORT: Final = 40
_LONG: Final = ' class="long"'
_MAX_METRICS: Final = 8
_MAX_PARAMS: Final = 30
_MAX_CELL_TEXT: Final = 120
_FIRST: Final = ("trial", "status", "ending")
_LAST: Final = ("iterations", "run time (s)", "decision")


def head(source: Source) -> str:
    """Return the head of the page: name, directory and key figures of the experiment."""
    figures = summarize(source)
    cells = "".join([_best(source, figures), _trials(figures), _time(figures), _saved(figures)])
    place = f'<div class="soft path">{escape(figures.path)}</div>'
    return (
        f'<header><h1>{escape(figures.name)}</h1>{place}<dl class="figures">{cells}</dl></header>'
    )


def _cell(name: str, value: str, more: str = "", kind: str = "") -> str:
    """Return one of the key figures; `value` and `more` are HTML."""
    small = f"<small>{more}</small>" if more else ""
    return f'<div class="figure{kind}"><dt>{name}</dt><dd>{value}{small}</dd></div>'


def _best(source: Source, figures: ExperimentSummary) -> str:
    if source.several:
        names = ", ".join(f"{escape(metric)}{direction(mode)}" for metric, mode in source.several)
        num_best = len(front_of(source, source.several))
        return _cell(
            '<a href="#front">Pareto front</a>',
            f"{num_best:,} of {figures.num_trials:,} trials",
            f"{names}{_feasible(source)}",
            " best",
        )
    if figures.metric is None:
        return _cell("Metric", "none", "The experiment names none, so no trial is the best one.")
    name = f"Best {escape(figures.metric)}{direction(figures.mode)}"
    if figures.best_trial_id is None:
        why = why_none_feasible(source.trials, source.constraints)
        return _cell(name, "none", escape(_sentence(why) or "No trial has a finite value."))
    more = (
        f"last value of <a "
        f'href="#best">{escape(figures.best_trial_id)}</a>{escape(_best_step(figures))}'
        f"{_feasible(source)}"
    )
    return _cell(name, escape(f"{figures.best_value:.6g}"), more, " best")


def _feasible(source: Source) -> str:
    """Return how many trials keep the constraints, as HTML; empty without constraints."""
    if not source.constraints:
        return ""
    num = sum(map(source.is_feasible, source.trials))
    listed = ", ".join(map(str, source.constraints))
    return f"; {num:,} of {len(source.trials):,} trials keep {escape(listed)}"


def _sentence(text: str) -> str:
    return text and f"{text[0].upper()}{text[1:]}."


def _best_step(figures: ExperimentSummary) -> str:
    step = figures.best_step
    return f"; its best was {step.value:.6g} at iteration {step.iteration}" if step else ""


def _trials(figures: ExperimentSummary) -> str:
    states = "".join(
        f'<span class="state" style="--dot:{STATE_COLORS.get(state, "#93a1b0")}">{count:,} '
        f"{escape(state)}</span>"
        for state, count in figures.num_by_state.items()
    )
    return _cell(
        "Trials",
        f"{figures.num_trials:,}",
        f'<span class="states">{states}</span>' if states else "There are none.",
    )


def _time(figures: ExperimentSummary) -> str:
    more = f"{figures.num_iterations:,} iterations; trials ran {seconds(figures.run_s)} in all"
    for unit, (spent, limit) in budgets_in(Path(figures.path)).items():
        more += f"<br>{escape(unit)}: {spent:.4g} of {limit:g} spent"
    return _cell(
        "Time", seconds(figures.wall_s) if figures.wall_s else seconds(figures.run_s), more
    )


def _saved(figures: ExperimentSummary) -> str:
    saving = figures.saving
    if saving is None:
        return _cell("Saved by early stopping", "nothing", "No trial was stopped early.")
    more = (
        f"Stopping {saving.num_trials:,} trial{'s' if saving.num_trials > 1 else ''} early saved "
        f"about {saving.iterations:,} iterations "
        f"({seconds(saving.time_s)}), compared with training to iteration "
        f"{saving.full_iterations:,}."
    )
    return _cell("Saved by early stopping", f"{100 * saving.share:.0f} %", more)


def best_section(source: Source) -> str:
    """Return the best trial with its parameters; empty without one."""
    figures = summarize(source)
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
        f"<p class=note>The configuration with which it was best, at iteration "
        f"{step.iteration}.</p>"
        if step
        else ""
    )
    return (
        f'<section id="best" class="wide"><h2>{title}</h2>{copied}{note}<dl '
        f'class="params">{items}</dl></section>'
    )


def _copied(config: Mapping[str, Any]) -> str:
    """Return a button that copies a configuration, and the hidden Python dictionary it copies."""
    text = pprint.pformat(dict(config), sort_dicts=False, width=100)
    return (
        '<button class="more copy" type="button" data-copy="best-config">Copy '
        f'configuration</button><pre id="best-config" hidden>{escape(text)}</pre>'
    )


def front_section(source: Source) -> str:
    """Return the Pareto front with objectives, limited metrics and parameters.

    It is empty for a single objective.
    """
    if not source.several:
        return ""
    objectives = [f"{metric}{direction(mode)}" for metric, mode in source.several]
    limits = {
        metric: f"{metric} {joined(bounds)}"
        for metric, bounds in by_metric(source.constraints).items()
        if metric not in dict(source.several)
    }
    params = [axis.name for axis in axes(source)]
    front = front_of(source, source.several)
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
                *(short_text(newest(trial, metric)) for metric in limits),
                *(short_text(config[name]) if name in config else _NONE for name in params),
            ]
        )
    which = "No other feasible trial" if source.constraints else "No other trial"
    note = f"{which} beats these in every objective, by last values."
    why = why_none_feasible(source.trials, source.constraints)
    if len(front) > len(rows):
        note += f" The first {len(rows)} of {len(front):,}."
    return _table(
        "front",
        "Pareto front",
        ["trial", *objectives, *limits.values(), *params],
        rows,
        note if rows else _sentence(why) or "No trial has a finite value of each.",
    )


def tables(source: Source) -> str:
    """Return the tables: all trials, which the page's script fills, and the slowest ones."""
    return "\n".join([_all_trials(source), _slowest(source)])


def _all_trials(source: Source) -> str:
    if source.several:
        order = "Those on the Pareto front first, the others in the order of their creation. "
    elif source.metric and source.mode:
        order = f"Best first, by the last value of {escape(source.metric)}. "
    else:
        order = "In the order of their creation. "
    if source.constraints and not source.several:
        order += "Those that miss a constraint come last, in grey. "
    elif source.constraints:
        order += "Those that miss a constraint are grey. "
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
    table = _html_table(names, lines) if lines else ""
    shown_note = f"<p class=note>{escape(note)}</p>" if note else ""
    return f'<section id="{name}" class="wide"><h2>{title}</h2>{shown_note}{table}</section>'


def _html_table(names: Iterable[str], lines: Iterable[str]) -> str:
    """Return a table that scrolls sideways; `lines` are rows as HTML."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _kind(cell: str) -> str:
    return ' class="long"' if len(cell) > 24 else ""  # noqa: PLR2004  (may be broken into lines)


def short_text(value: Any, max_length: int = _MAX_TEXT) -> str:
    """Return a value for a table cell: numbers with six digits, text cut to `max_length`."""
    text = f"{value:.6g}" if isinstance(value, float) else as_text(value)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def has_validations(source: Source) -> bool:
    """Return whether any checkpoint was to be validated."""
    return any(trial.validations for trial in source.trials)


def validations_section(source: Source) -> str:
    """Return how many checkpoints of each trial were validated; empty if none were to be."""
    found = [trial for trial in source.trials if trial.validations]
    rows = []
    for trial in found[:_MAX_GROUPS]:
        counts = Counter(one.status for one in trial.validations.values())
        failures = [str(one.failure) for one in trial.validations.values() if one.failure]
        rows.append(
            [
                trial.trial_id,
                *(f"{counts[state]:,}" for state in _VALIDATION_STATES),
                short_text(failures[-1], _MAX_ERROR) if failures else _NONE,
            ]
        )
    if not rows:
        return ""
    note = "Checkpoints by the outcome of their validation, whose metrics are among the results."
    if len(found) > len(rows):
        note += f" The first {len(rows)} of {len(found):,} trials."
    names = ("trial", "validated", "failed", "timed out", "pending", "latest error")
    return _table("validations", "Validations", names, rows, note)


def failures_section(source: Source) -> str:
    """Return the trials that failed for good: a block for each cause, the most frequent first."""
    groups = failure_groups(source)
    num_failed = sum(len(group.trials) for group in groups)
    if not groups:
        return (
            '<section id="failed" class="wide"><h2>Failed trials</h2><p class="note">No trial '
            "failed.</p></section>"
        )
    causes = "one cause" if len(groups) == 1 else f"{len(groups)} causes"
    note = (
        f"{num_failed:,} of {len(source.trials):,} trials failed, for {causes}, counted by "
        f"exception and line of code."
    )
    if len(groups) > _MAX_GROUPS:
        note += f" The {_MAX_GROUPS} most frequent are shown."
    params = [axis.name for axis in axes(source)]
    blocks = "\n".join(_block(group, params) for group in groups[:_MAX_GROUPS])
    return (
        f'<section id="failed" class="wide"><h2>Failed trials</h2><p '
        f'class="note">{note}</p>\n{blocks}</section>'
    )


def _block(group: FailureGroup, params: list[str]) -> str:
    num_trials = len(group.trials)
    # If all trials have the same error, it is in the heading and needs no column.
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
        traceback = (
            f"<details><summary>Traceback of "
            f"{escape(group.trials[0].trial_id)}</summary><pre>{escape(shown)}</pre></details>"
        )
    count = f"{num_trials:,} trial{'s' if num_trials > 1 else ''}"
    place = (
        f'<p class="note">at {escape(short_text(group.place, _MAX_ERROR))}</p>'
        if group.place
        else ""
    )
    return (
        f'<div class="failure"><h3><span class="count">{count}</span> '
        f"{escape(short_text(group.error, _MAX_ERROR))}</h3>{place}{traceback}"
        f"{_html_table(names, rows)}{more}</div>"
    )


def setup_section(source: Source) -> str:
    """Return how an experiment was declared and run, and code that declares it again.

    Empty if the directory has no declaration, e.g. if another program wrote it.
    """
    try:
        declaration = read_declaration(Path(source.experiment_path))
    except StorageError:
        return ""
    sessions = read_environments(Path(source.experiment_path))
    facts = [*_declared(source, declaration), *_recorded(sessions[-1] if sessions else {})]
    items = "".join(
        f"<div{_LONG if len(text) > _MAX_SHORT else ''}>"
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in facts
        if text
    )
    # Different resources of trials usually mean that a function chose them, which the code has to
    # mention; this scheduler chooses them itself, and is part of the code.
    is_changing = "ResourceChangingScheduler" in expression(
        (declaration.get("tune_config") or {}).get("scheduler")
    )
    code = escape(
        as_code(declaration, () if is_changing else [trial.resources for trial in source.trials])
    )
    return (
        f'<section id="setup" class="wide"><h2>How it was searched</h2><dl class="params '
        f'setup">{items}</dl>'
        '<details><summary>How to reproduce it</summary><p class="note">The same code with the '
        "same seed proposes the same configurations. Whether training itself repeats is up to the "
        "training code: seed it with the seed of the trial's context.</p>"
        f'<div class="code"><button class="more copy" type="button" data-copy="code">Copy '
        f'code</button><pre id="code">{code}</pre></div>'
        "</details></section>"
    )


def _declared(source: Source, declaration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tune, trainable = declaration.get("tune_config") or {}, declaration.get("trainable") or {}
    yield (
        "Objectives" if source.several else "Objective",
        ", ".join(f"{metric}{direction(mode)}" for metric, mode in source.objectives),
    )
    yield "Constraints", ", ".join(map(str, source.constraints))
    yield "Searcher", expression(tune.get("search_alg"))
    yield "Scheduler", expression(tune.get("scheduler"))
    yield "Seed", str(declaration.get("seed", ""))
    yield "Samples asked for", str(declaration.get("num_samples", ""))
    stop = (declaration.get("run_config") or {}).get("stop")
    yield "Stop", "" if stop is None else expression(stop)
    yield (
        "Training code",
        f"{trainable.get('qualname')} in {trainable.get('module')}" if trainable else "",
    )
    yield "Begun", _date(declaration.get("created"))
    yield "Version of tuner-hpo", str(declaration.get(RELEASE_KEY, ""))


def _recorded(session: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the recorded environment of the latest session."""
    yield "Python", str((session.get("python") or {}).get("version") or "")
    yield "Platform", str(session.get("platform") or "")
    if script := session.get("script"):
        command = ["-m", session["module"]] if session.get("module") else [script]
        yield (
            "Command",
            shlex.join(["python", *map(str, [*command, *(session.get("arguments") or ())])]),
        )
    git = session.get("git") or {}
    yield (
        "Git commit",
        f"{git.get('commit')}{', with uncommitted changes' if git.get('dirty') else ''}"
        if git.get("commit")
        else "",
    )
    packages = session.get("packages") or {}
    more = len(packages) - _MAX_PACKAGES
    listed = ", ".join(
        f"{name} {version}" for name, version in list(packages.items())[:_MAX_PACKAGES]
    )
    yield "Packages", f"{listed} and {more} more" if more > 0 else listed


def _date(created: Any) -> str:
    try:
        return (
            dt.datetime.fromisoformat(str(created))
            .astimezone(dt.UTC)
            .strftime("%Y-%m-%d %H:%M UTC")
        )
    except ValueError:
        return ""


def trial_table(source: Source) -> dict[str, Any]:
    """Return the table of all trials as JSON values.

    ``columns`` are the names of columns and ``priority`` their indices, the most important first:
    on a narrow page, the last ones are hidden. ``rows`` are ordered, the best first; the first
    ``num_best`` are highlighted: the best trial, or the Pareto front. ``infeasible`` are the places
    of those that miss a constraint. A cell is a number, a text or
    None; numbers have six digits, and those that are not finite are texts.
    """
    metrics, own = _metrics(source)
    params = [axis.name for axis in axes(source)][:_MAX_PARAMS]
    times = run_times(source)
    best = _best_trials(source)
    ranked = best if source.several else source.ranked()
    first = {trial.trial_id for trial in ranked}
    trials = [*ranked, *(trial for trial in source.trials if trial.trial_id not in first)]
    first_columns = [*_FIRST, *(["feasible"] if source.constraints else [])]
    columns = [*first_columns, *metrics, *params, *_LAST]
    first_metric, first_param = len(first_columns), len(first_columns) + len(metrics)
    end = first_param + len(params)
    return {
        "columns": columns,
        # Objectives and parameters, iterations and time, other metrics, and last the decision.
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
        "infeasible": [
            place for place, trial in enumerate(trials) if not source.is_feasible(trial)
        ],
    }


def _best_trials(source: Source) -> list[Trial]:
    if source.several:
        return front_of(source, source.several)
    return [source.best] if source.best else []


def _metrics(source: Source) -> tuple[list[str], int]:
    """Return the metrics of the table, and how many are objectives or bounded by constraints.

    Those come first.
    """
    reported = dict.fromkeys(
        name for trial in source.trials for name in trial.summary if name not in AUTO_FILLED
    )
    own = dict.fromkeys(
        [
            *([source.metric] if source.metric else []),
            *(metric for metric, _ in source.several),
            *(each.metric for each in source.constraints),
        ]
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
    feasible = ["yes" if source.is_feasible(trial) else "no"] if source.constraints else []
    cells = [
        trial.trial_id,
        str(trial.status),
        trial.ending.word if trial.ending else None,
        *feasible,
        *values,
        *(config.get(name) for name in params),
        trial.num_rows,
        times[trial.trial_id],
        str(trial.reason) if trial.reason else None,
    ]
    return [_json_cell(cell) for cell in cells]


def _json_cell(value: Any) -> float | int | str | None:
    if value is None:
        return None
    if is_finite(value):
        return value if float(value).is_integer() else float(f"{value:.6g}")
    text = str(value) if isinstance(value, float) else as_text(value)
    return text if len(text) <= _MAX_CELL_TEXT else f"{text[: _MAX_CELL_TEXT - 1]}…"
