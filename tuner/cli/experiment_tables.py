"""Experiments as tables of trials: records, columns and the objective options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.flat_results import flat_config, flat_metrics
from tuner.analysis.frames import METRIC_ITERATION
from tuner.analysis.ranking import MODES, Mode, config_at, tracked, value_of
from tuner.analysis.result import Result
from tuner.analysis.result_grid import ResultGrid
from tuner.analysis.tables import FEASIBLE, error_text
from tuner.callbacks.formatting import printable
from tuner.core.result import AUTO_FILLED, TIME_TOTAL_S, TRAINING_ITERATION
from tuner.core.trial import Trial
from tuner.errors import StorageError
from tuner.journal.rows import Rows

from .output import Column, Record, distinct, spent

_MAX_OTHERS: Final = 3
_MAX_LISTED: Final = 10
_IDENTITY: Final = frozenset({"trial_id", "date", "hostname", "node_ip", "pid"})


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric and mode that the user has given.

    Attributes:
        metric: A metric; None for the experiment's own.
        mode: ``"min"`` or ``"max"``: the direction in which it is optimised; None for the
            experiment's own.
    """

    metric: str | None = None
    mode: Mode | None = None


def open_grid(path: Path, objective: Objective | None = None) -> ResultGrid:
    """Return the results in an experiment's directory.

    Raises:
        StorageError: If it cannot be read.
        click.UsageError: If trials have reported metrics, but not the requested one.
    """
    asked = objective or Objective()
    try:
        grid = ResultGrid.from_directory(path, asked.metric, asked.mode)
    except FileNotFoundError as cause:
        raise StorageError(str(cause)) from cause
    if asked.metric:
        _require_reported(grid, asked.metric)
    return grid


def _require_reported(grid: ResultGrid, metric: str) -> None:
    known = {name for trial in grid.trials for name in trial.summary}
    if known and metric not in known:
        listed = ", ".join(sorted(known - AUTO_FILLED)[:_MAX_LISTED])
        raise click.UsageError(f"no trial has reported {metric!r}; reported were {listed}")


def objective_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--metric`` and ``--mode`` to a command, passed as the argument `objective`."""

    @functools.wraps(function)
    def with_objective(*, metric: str | None, mode: Mode | None, **rest: Any) -> Any:
        return function(objective=Objective(metric, mode), **rest)

    wrapped: Callable[..., Any] = with_objective
    wrapped = click.option(
        "--mode", type=click.Choice(MODES), help="The direction in which the metric is optimised."
    )(wrapped)
    return click.option(
        "--metric", metavar="NAME", help="The metric; that of the experiment by default."
    )(wrapped)


def objective_of(grid: ResultGrid) -> tuple[str | None, Mode | None]:
    """Return metric and mode of an experiment, None if unknown."""
    metric = mode = None
    with suppress(ValueError):
        metric = grid.objective(mode="min")[0]
        mode = grid.objective()[1]
    return metric, mode


def known_objective(grid: ResultGrid) -> tuple[str, Mode]:
    """Return metric and mode of an experiment.

    Raises:
        click.UsageError: If one of them is unknown, or trials have reported metrics, but not this
            one.
    """
    metric, mode = objective_of(grid)
    if metric:
        _require_reported(grid, metric)
    if metric is None and len(grid.objectives) > 1:
        names = ", ".join(metric for metric, _ in grid.objectives)
        raise click.UsageError(
            f"{grid.experiment_path} optimises {names}; give one of them as --metric"
        )
    if metric is None or mode is None:
        lacking = (
            "what is optimised; give --metric and --mode"
            if metric is None
            else f"whether {metric!r} is minimised; give --mode"
        )
        raise click.UsageError(f"{grid.experiment_path} does not say {lacking}")
    return metric, mode


def status_fields(trial: Trial) -> Record:
    """Return the status of a trial, and why it has ended."""
    return {"status": str(trial.status), "ending": trial.ending.word if trial.ending else None}


def node_fields(trial: Trial) -> Record:
    """Return the nodes of a trial's latest attempt, by rank; nothing where it had none."""
    names = list(dict.fromkeys(filter(None, trial.nodes)))
    return {"node": ", ".join(names)} if names else {}


def feasible_fields(grid: ResultGrid, result: Result) -> Record:
    """Return whether a trial keeps all constraints; nothing where there are none."""
    return {FEASIBLE: result.feasible} if grid.constraints else {}


def feasible_columns(grid: ResultGrid) -> list[Column]:
    """Return the column of `feasible_fields`, and those of the metrics that constraints bound."""
    if not grid.constraints:
        return []
    return [Column(FEASIBLE, text=_yes_or_no), *(Column(name, rank=1) for name in grid.constraints)]


def _yes_or_no(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else printable(str(value))


STATUS_COLUMNS: Final = (Column("trial_id", "trial"), Column("status"), Column("ending", rank=1))
"""The first columns of tables of trials."""


def trial_records(grid: ResultGrid) -> list[Record]:
    """Return a record for each trial: status, last results, hyperparameters and paths."""
    metric, mode = objective_of(grid)
    objectives = [metric] if metric else [name for name, _ in grid.objectives]
    reported = frozenset(_reported(grid))
    records: list[Record] = []
    for index, trial in enumerate(grid.trials):
        row = flat_metrics(trial.last_result)
        values = row | last_values(trial, grid[index].rows, [*objectives, *grid.constraints])
        own: Record = (
            metric_fields(trial, grid[index].rows, metric, mode)
            if metric
            else dict.fromkeys(objectives)
        )
        own = {**own, **dict.fromkeys(grid.constraints), **feasible_fields(grid, grid[index])}
        record = _record(trial, grid[index], row, own)
        # A metric of such a name takes precedence: the table's facts about the trial must not
        # overwrite it.
        records.append(
            {
                name: values.get(name) if name in reported else value
                for name, value in record.items()
            }
        )
    return records


def _record(trial: Trial, result: Result, row: Mapping[str, Any], own: Mapping[str, Any]) -> Record:
    automatic = {
        name: value
        for name, value in row.items()
        if name in AUTO_FILLED - _IDENTITY and name != TRAINING_ITERATION
    }
    return {
        "trial_id": trial.trial_id,
        **status_fields(trial),
        TRAINING_ITERATION: trial.iteration,
        **own,
        **{name: value for name, value in row.items() if name not in AUTO_FILLED},
        **flat_config(config_at(trial, result.rows)),
        TIME_TOTAL_S: None,
        **automatic,
        "attempt": trial.attempt,
        **node_fields(trial),
        "num_failures": len(trial.failures),
        "error": error_text(result),
        "last_failure": str(trial.failures[-1]) if trial.failures else None,
        "path": result.path,
    }


def metric_fields(trial: Trial, rows: Rows, metric: str, mode: Mode | None) -> Record:
    """Return a trial's last and best value of a metric with their iterations, None if unknown."""
    values = tracked(trial, rows, metric, mode or "min")
    last, best = values.last, values.best if mode else None
    return {
        metric: last.value if last else None,
        METRIC_ITERATION: last.iteration if last else None,
        best_key(metric): best.value if best else None,
        best_key(TRAINING_ITERATION): best.iteration if best else None,
    }


def last_values(trial: Trial, rows: Rows, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the newest values of several metrics; None without one."""
    return {
        metric: value_of(trial, rows, metric, None) if metric in trial.summary else None
        for metric in metrics
    }


def best_key(metric: str) -> str:
    """Return the record's key for the best value of a metric, or for its iteration."""
    return f"best/{metric}"


def usual_columns(records: Sequence[Record], grid: ResultGrid) -> list[Column]:
    """Return the default columns: status, metrics, and the hyperparameters that differ."""
    metric, _ = objective_of(grid)
    columns = [*STATUS_COLUMNS, Column(TRAINING_ITERATION, "iter")]
    if metric:
        best = best_key(metric)
        columns += [
            Column(metric),
            Column(best, "best", rank=1),
            Column(best_key(TRAINING_ITERATION), "at iter", rank=2, beside=best),
        ]
    else:
        columns += [Column(name) for name, _ in grid.objectives]
    optimised = {column.key for column in columns}
    limited = [column for column in feasible_columns(grid) if column.key not in optimised]
    columns = distinct([*columns, *limited])
    shown = {column.key for column in columns}
    reported = _reported(grid)
    others = [
        name
        for name in reported
        if name not in shown
        and any(isinstance(record.get(name), int | float) for record in records)
    ]
    columns += [Column(name, rank=3) for name in others[:_MAX_OTHERS]]
    columns += [Column(name, name.removeprefix("config/"), rank=2) for name in differing(records)]
    columns += [Column(TIME_TOTAL_S, "time", spent, rank=1)]
    if "node" not in reported and any("node" in record for record in records):
        columns.append(Column("node", rank=3))
    columns += (
        []
        if "error" in reported
        else [Column("error", text=lambda text: printable(str(text))[:60], rank=4)]
    )
    return distinct(columns)


def _reported(grid: ResultGrid) -> list[str]:
    """Return the metrics of the experiment: its objectives, those it bounds, and others."""
    metric, _ = objective_of(grid)
    objectives = [metric] if metric else [name for name, _ in grid.objectives]
    names = (
        name
        for trial in grid.trials
        for name in flat_metrics(trial.last_result)
        if name not in AUTO_FILLED
    )
    return list(dict.fromkeys([*objectives, *grid.constraints, *names]))


def differing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hyperparameters that differ between records; all of them for a single record."""
    names = dict.fromkeys(
        name for record in records for name in record if name.startswith("config/")
    )
    if len(records) == 1:
        return list(names)
    return [name for name in names if len({repr(record.get(name)) for record in records}) > 1]
