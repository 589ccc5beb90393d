"""Trial tables of the progress display: which trials, in which order and columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tuner.callbacks.formatting import duration, group_text, printable, show
from tuner.callbacks.tables import GAP, Column, Table
from tuner.core.feasibility import is_feasible
from tuner.core.progress import Progress
from tuner.core.result import AUTO_FILLED, TIME_TOTAL_S, TRAINING_ITERATION, flatten
from tuner.core.trial import Status, Trial
from tuner.storage.layout import ERROR

from .sparklines import Curves

_NUM_LEADERS: Final = 5
_COMPARED: Final = 1_000
"""Characters of a value by which hyperparameters are compared."""
_MAX_ERROR_LENGTH: Final = 100
_ERROR_LENGTH: Final = 40
"""Characters of an error that must fit before its log's path is shown in full."""
_MIN_PATH_WIDTH: Final = 60
"""From this width on, paths are not cut."""
_MIN_STATUS: Final = 6
"""A status may be cut to this width on a terminal that has no room for the metric otherwise."""
_CURVE_CELLS: Final = ((180, 20), (120, 12), (0, 8))
"""Number of cells of a curve, by the least width of the view."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of the tables.

    Attributes:
        metric_columns: Titles of columns by metric; None for the first few numbers.
        parameter_columns: Titles of columns by hyperparameter; None for those that differ.
        max_progress_rows: How many trials are listed at most.
        max_error_rows: How many failed trials are listed at most.
        max_column_length: How many characters of a title or a value are shown.
        infer_limit: How many metrics are shown at most if none are named, the optimised one aside.
        sort_by_metric: Whether trials of one kind are sorted by their latest metric, best first,
            rather than by age.
        lists_all: Whether all trials are listed for which there is room, rather than the running
            ones and the five best.
        has_progress_table: Whether trials are listed at all while the experiment runs.
    """

    metric_columns: Mapping[str, str] | None = None
    parameter_columns: Mapping[str, str] | None = None
    max_progress_rows: int = 20
    max_error_rows: int = 20
    max_column_length: int = 20
    infer_limit: int = 3
    sort_by_metric: bool = False
    lists_all: bool = False
    has_progress_table: bool = True


def listed(
    progress: Progress, trials: Sequence[Trial], options: TableOptions, max_rows: int
) -> list[Trial]:
    """Return the trials for the table: running ones, the best, and, if wanted, the latest others.

    Args:
        progress: The running and the best trials.
        trials: All trials.
        options: Options of the table.
        max_rows: How many fit.
    """
    max_rows = min(max_rows, options.max_progress_rows)
    leaders = list((progress.leaders or progress.front)[: min(_NUM_LEADERS, max_rows)])
    running = _in_order(progress.running, progress, options)
    # A third of the rows is for the best, no matter how many trials are running.
    num_others = len(set(leaders).difference(running[:max_rows]))
    shown = unique([*running[: max_rows - min(num_others, max_rows // 3)], *leaders])[:max_rows]
    if options.lists_all and len(shown) < max_rows:
        # Some of the latest are listed already. Going through all trials of a large experiment
        # would take too long.
        latest = [
            trial
            for trial in itertools.islice(reversed(trials), 4 * max_rows)
            if trial not in shown
        ]
        shown += _in_order(latest, progress, options)[: max_rows - len(shown)]
    return shown


def trial_table(
    trials: Sequence[Trial],
    progress: Progress,
    options: TableOptions | None = None,
    curves: Curves | None = None,
    width: int = 80,
) -> Table:
    """Return trials as a table, one row each.

    Columns that do not fit are left out: other metrics first, then parameters, curves, time and
    best value, and columns that the user has named last.

    Args:
        trials: The trials to list.
        progress: For the metric and the best trials.
        options: Options of the table.
        curves: The learning curves; None for no such column.
        width: Width of the view, on which the length of curves depends.
    """
    options = options or TableOptions()
    results = [flatten(trial.last_result) for trial in trials]
    columns = [
        Column("trial", [trial.trial_id for trial in trials]),
        Column("status", [str(trial.status) for trial in trials], min_width=_MIN_STATUS),
        *_endings(trials),
        *_workers(trials),
        *_feasible(trials, progress),
        *_metric_columns(trials, results, progress, options, curves, width),
        *_parameter_columns(trials, options),
    ]
    if TIME_TOTAL_S not in (options.metric_columns or {}):
        columns.append(
            Column("time", [training_time(trial) for trial in trials], 2, is_number=True)
        )
    return Table(columns, [_style_of(trial, progress) for trial in trials])


def failure_table(
    groups: Sequence[Sequence[Trial]], experiment_path: Path | None, width: int
) -> Table:
    """Return failed trials as a table, one row per cause, with the latest error of its first trial.

    Args:
        groups: The trials that have failed for one cause each, see `by_cause`.
        experiment_path: Paths that do not fit are shown relative to it.
        width: Width of the view; errors are cut.
    """
    failed = [group[0] for group in groups]
    errors = [
        show(str(trial.failures[-1]), _MAX_ERROR_LENGTH) if trial.failures else "no reason known"
        for trial in failed
    ]
    attempts = [
        f"{trial.attempt}, {'gave up' if trial.status is Status.ERROR else 'trying again'}"
        for trial in failed
    ]
    columns = [
        Column("failed", [trial.trial_id for trial in failed]),
        *(
            [Column("trials", [str(len(group)) for group in groups], is_number=True)]
            if any(len(group) > 1 for group in groups)
            else []
        ),
        Column("attempt", attempts, min_width=8),
        Column("error", errors, min_width=8),
    ]
    room = (
        width
        - sum(column.width + len(GAP) for column in columns[:-1])
        - min(columns[-1].width, _ERROR_LENGTH)
        - len(GAP)
    )
    paths = Column("log", [log_path(trial) for trial in failed])
    if paths.width > room:
        paths = Column("log", [log_path(trial, experiment_path) for trial in failed])
    if width < _MIN_PATH_WIDTH:
        # The line that was printed when the trial failed has the path in full.
        paths = replace(paths, min_width=8)
    return Table([*columns, paths])


def log_path(trial: Trial, below: Path | None = None) -> str:
    """Return the path of a trial's error file, relative to `below` if inside it; empty for none."""
    if not trial.local_path:
        return ""
    path = Path(trial.local_path) / ERROR
    return printable(str(path.relative_to(below) if below and path.is_relative_to(below) else path))


def differing(trials: Sequence[Trial]) -> list[str]:
    """Return the hyperparameters in which trials differ, all of them for a single trial."""
    configs = [flatten(trial.config_at(trial.num_rows)) for trial in trials]
    names = dict.fromkeys(name for config in configs for name in config)
    if len(configs) == 1:
        return list(names)
    return [name for name in names if _do_differ([config.get(name) for config in configs])]


def ending(trial: Trial) -> str:
    """Return why a trial is over, empty while it is not."""
    return trial.ending.word if trial.ending else ""


def _endings(trials: Sequence[Trial]) -> list[Column]:
    return (
        [Column("ending", [ending(trial) or "-" for trial in trials], min_width=_MIN_STATUS)]
        if any(trial.ending for trial in trials)
        else []
    )


def _feasible(trials: Sequence[Trial], progress: Progress) -> list[Column]:
    """Return a column that says which trials keep all constraints, none if all do."""
    cells = [_feasibility(trial, progress) for trial in trials]
    return [Column("feasible", cells, 1)] if set(cells) - {"yes"} else []


def _feasibility(trial: Trial, progress: Progress) -> str:
    if is_feasible(trial, progress.constraints):
        return "yes"
    # What a trial has not reported so far it may still report.
    return "no" if trial.summary or trial.is_finished else "-"


def _workers(trials: Sequence[Trial]) -> list[Column]:
    """Return a column with the workers of each trial, none if no trial has several."""
    if not any(trial.group and trial.group.max_workers > 1 for trial in trials):
        return []
    cells = [group_text(trial.group) if trial.group else "1" for trial in trials]
    return [Column("workers", cells, 3)]


def training_time(trial: Trial) -> str:
    """Return how long a trial has trained."""
    return duration(float(trial.last_result.get(TIME_TOTAL_S) or 0))


def unique(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials without duplicates."""
    return list(dict.fromkeys(trials))


def _metric_columns(  # noqa: PLR0917  (everything that a table depends on)
    trials: Sequence[Trial],
    results: Sequence[Mapping[str, Any]],
    progress: Progress,
    options: TableOptions,
    curves: Curves | None,
    width: int,
) -> list[Column]:
    named, metric, limit = options.metric_columns, progress.metric, options.max_column_length
    titles = (
        dict(named)
        if named is not None
        else {name: name for name in _first_numbers(trials, results, metric, options.infer_limit)}
    )
    columns = []
    if TRAINING_ITERATION not in titles:
        columns.append(
            Column("iter", [_iteration(trial, progress) for trial in trials], is_number=True)
        )
    own = {name: 0 for name, _ in progress.several_objectives if metric is None}
    limited = {each.metric: 1 for each in progress.constraints if each.metric not in (metric, *own)}
    for name, rank in own.items():
        columns.append(_last_column(name, trials, titles, rank, limit))
    if metric:
        columns.append(
            _column(
                titles.pop(metric, metric), [_last_of(trial, metric) for trial in trials], 0, limit
            )
        )
        columns.append(Column("best", [_best_of(trial, progress) for trial in trials], 2))
        columns += _curves(trials, curves, width)
    for name, rank in limited.items():
        columns.append(_last_column(name, trials, titles, rank, limit))
    rank = 1 if named is not None else 5
    return columns + [
        _column(title, [result.get(name) for result in results], rank, limit)
        for name, title in titles.items()
    ]


def _last_column(
    name: str, trials: Sequence[Trial], titles: dict[str, str], rank: int, limit: int
) -> Column:
    """Return the newest values of an objective or a limited metric, and take its title."""
    return _column(titles.pop(name, name), [_last_of(trial, name) for trial in trials], rank, limit)


def _parameter_columns(trials: Sequence[Trial], options: TableOptions) -> list[Column]:
    named = options.parameter_columns
    titles = dict(named) if named is not None else {name: name for name in differing(trials)}
    rank = 1 if named is not None else 4
    configs = [_latest_config(trial) for trial in trials]
    return [
        _column(title, [config.get(name) for config in configs], rank, options.max_column_length)
        for name, title in titles.items()
    ]


def _latest_config(trial: Trial) -> Mapping[str, Any]:
    """Return the configuration of the last result; after an exploit the trial's own is the next."""
    return flatten(trial.config_at(trial.num_rows))


def _column(title: str, values: Sequence[Any], rank: int, limit: int) -> Column:
    return Column(show(title, limit), [show(value, limit) for value in values], rank)


def _curves(trials: Sequence[Trial], curves: Curves | None, width: int) -> list[Column]:
    num_cells = next(cells for at_least, cells in _CURVE_CELLS if width >= at_least)
    cells = [curves.draw(trial, num_cells) for trial in trials] if curves else []
    return (
        [Column("curve", [cell.ljust(num_cells) for cell in cells], 3)]
        if any(len(cell) > 1 for cell in cells)
        else []
    )


def _first_numbers(
    trials: Sequence[Trial], results: Sequence[Mapping[str, Any]], metric: str | None, limit: int
) -> list[str]:
    """Return the first metrics that are numbers, without parameters that are reported as well."""
    configs = [_latest_config(trial) for trial in trials]
    names = (
        name
        for result, config in zip(results, configs, strict=True)
        for name, value in result.items()
        if name not in AUTO_FILLED
        and isinstance(value, int | float)
        and not (isinstance(config.get(name), int | float) and config[name] == value)
    )
    return [
        name for name in dict.fromkeys(names) if name != metric and not name.startswith("config/")
    ][:limit]


def _do_differ(values: Sequence[Any]) -> bool:
    # Constants of a search space are the same object in all trials; comparing large ones by their
    # text would be slow.
    if all(value is values[0] for value in values):
        return False
    return (
        len(
            {
                repr(value) if isinstance(value, float) else show(value, _COMPARED)
                for value in values
            }
        )
        > 1
    )


def _in_order(trials: Sequence[Trial], progress: Progress, options: TableOptions) -> list[Trial]:
    if not (options.sort_by_metric and progress.metric):
        return list(trials)
    return sorted(
        trials,
        key=lambda trial: (
            not is_feasible(trial, progress.constraints),
            cost_of(trial, progress.metric, progress.mode),
        ),
    )


def cost_of(trial: Trial, metric: str | None, mode: str | None) -> float:
    """Return a trial's newest value of a metric, negated for ``"max"``; infinite if not finite.

    Args:
        trial: The trial.
        metric: Its flattened name.
        mode: ``"min"`` or ``"max"``; None means ``"min"``.
    """
    value = _last_of(trial, metric)
    if value is None or not math.isfinite(value):
        return math.inf
    return -value if mode == "max" else value


def _last_of(trial: Trial, metric: str | None) -> float | None:
    """Return the newest value of a metric, which the last result may lack."""
    if trial.objective.metric == metric and trial.objective.last:
        return trial.objective.last.value
    summary = trial.summary.get(metric or "")
    return summary.last if summary else None


def _best_of(trial: Trial, progress: Progress) -> str:
    """Return the best value of the metric, followed by ``@`` and its iteration if known."""
    if trial.objective.metric == progress.metric and (best := trial.objective.best):
        return (
            show(best.value) if best.iteration is None else f"{show(best.value)}@{best.iteration}"
        )
    summary = trial.summary.get(progress.metric or "")
    return show(summary.by_scope("all", progress.mode or "min") if summary else None)


def _iteration(trial: Trial, progress: Progress) -> str:
    return (
        f"{trial.iteration}/{progress.full_iteration}"
        if progress.full_iteration
        else str(trial.iteration)
    )


def _style_of(trial: Trial, progress: Progress) -> str:
    if trial is progress.best or trial in progress.front:
        return "bold"
    if trial.status is Status.ERROR:
        return "red"
    return "dim" if _feasibility(trial, progress) == "no" else ""
