"""``tuner show``, ``best`` and ``compare``: trials as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from searchers.objectives.outcome_constraint import outcome_constraints
from tuner.analysis.flat_results import flat_config, flat_metrics
from tuner.analysis.frames import METRIC_ITERATION
from tuner.analysis.open_experiment import budgets_in
from tuner.analysis.ranking import SCOPES, Scope, config_at, is_number
from tuner.analysis.result import Result
from tuner.analysis.result_grid import ResultGrid
from tuner.callbacks.formatting import group_text, printable
from tuner.callbacks.formatting import show as shown
from tuner.core.result import AUTO_FILLED, NUM_EXPLOITS, TIME_TOTAL_S, TRAINING_ITERATION
from tuner.errors import CheckpointError

from .app import FOUND, OK
from .arguments import ExperimentType, TrialType, find_trial, readable_argument
from .compared_fronts import COLUMNS as FRONT_COLUMNS
from .compared_fronts import compared_fronts
from .experiment_tables import (
    STATUS_COLUMNS,
    Objective,
    best_key,
    differing,
    feasible_fields,
    known_objective,
    last_values,
    metric_fields,
    node_fields,
    objective_of,
    objective_options,
    open_grid,
    status_fields,
    trial_records,
    usual_columns,
)
from .output import Column, Output, Record, distinct, output_option, spent
from .selection import Selection, selection_options

_MAX_TEXT: Final = 200


@click.command()
@readable_argument
@click.argument("trial", type=TrialType(), metavar="[TRIAL]", required=False)
@selection_options
@click.option("--rows", is_flag=True, help="With TRIAL: its results, one per line.")
@objective_options
@output_option
def show(
    experiment: Path,
    trial: str | None,
    chosen: Selection,
    output: Output,
    objective: Objective,
    *,
    rows: bool,
) -> int:
    """Show the trials of an experiment, or everything about one of them.

    Columns are the metrics (a/b for nested ones), hyperparameters as config/NAME or NAME, status,
    ending, training_iteration and time_total_s; they may be named by their headings too. METRIC is
    the last value that was reported, in iteration metric_iteration, and best/METRIC the best one,
    in best/training_iteration. CSV and JSON have all columns; NaN and infinities are the texts
    "NaN", "Infinity" and "-Infinity" there, and missing values are empty, or null. What is spent of
    budgets is told on standard error.

    \b
    Examples:
      tuner show digits --sort loss --limit 10
      tuner show digits --filter "ending == failed" --columns trial_id,error
      tuner show digits 17 --rows -f csv
    """
    grid = open_grid(experiment, objective)
    if trial is None and rows:
        raise click.UsageError("--rows needs TRIAL")
    if trial is None:
        records = trial_records(grid)
        usual = usual_columns(chosen.of(records, usual_columns(records, grid)) or records, grid)
        _say_what_is_spent(grid)
        return OK if chosen.write(records, usual, output) else FOUND
    index = _index_of(grid, trial)
    if rows:
        return OK if chosen.write(*_rows(grid, index), output) else FOUND
    if chosen.is_given:
        raise click.UsageError(
            "--filter, --sort, --desc, --columns and --limit need --rows if TRIAL is given"
        )
    facts = _facts(grid, index)
    output.write_facts(
        facts, [Column(name, text=spent if name == TIME_TOTAL_S else _text) for name in facts]
    )
    return OK


def _say_what_is_spent(grid: ResultGrid) -> None:
    """Say what the experiment has spent of its budgets, if it has any."""
    uses = [
        f"{spent:.4g} of {limit:g} {unit}, {max(limit - spent, 0):.4g} left"
        for unit, (spent, limit) in budgets_in(Path(grid.local_directory)).items()
    ]
    if uses:
        click.echo(f"spent {printable('; '.join(uses))}", err=True)


def _rows(grid: ResultGrid, index: int) -> tuple[list[Record], list[Column]]:
    """Return a trial's results, and the columns of their table."""
    records: list[Record] = [flat_metrics(row) for row in grid[index].rows.of(grid[index].trial_id)]
    names = dict.fromkeys(name for record in records for name in record)
    has_exploits = bool(grid.trials[index].grafts)
    usual = [
        Column(TRAINING_ITERATION, "iter"),
        *([Column(NUM_EXPLOITS, "exploits")] if has_exploits else []),
        *(Column(name) for name in names if name not in AUTO_FILLED),
    ]
    return records, [*usual, Column(TIME_TOTAL_S, "time", spent)]


def _index_of(grid: ResultGrid, text: str) -> int:
    ids = [trial.trial_id for trial in grid.trials]
    return ids.index(find_trial(text, ids, Path(grid.experiment_path)))


def _facts(grid: ResultGrid, index: int) -> Record:
    """Return all facts about a trial, flat."""
    trial = grid.trials[index]
    metric, mode = objective_of(grid)
    result = flat_metrics(trial.last_result)
    objectives = [metric] if metric else [name for name, _ in grid.objectives]
    metrics = {name: value for name, value in result.items() if name not in AUTO_FILLED}
    metrics |= last_values(trial, grid[index].rows, [*objectives, *grid.constraints])
    facts: dict[str, Any] = {
        "trial_id": trial.trial_id,
        **status_fields(trial),
        "reason": str(trial.reason) if trial.reason else None,
        **feasible_fields(grid, grid[index]),
        "infeasible": grid.why_infeasible(trial) or None,
        TRAINING_ITERATION: trial.iteration,
        TIME_TOTAL_S: result.get(TIME_TOTAL_S),
        "attempts": trial.attempt,
        **{
            f"failure {number}": str(failure)
            for number, failure in enumerate(trial.failures, start=1)
        },
        **flat_config(config_at(trial, grid[index].rows)),
        **metrics,
        **(metric_fields(trial, grid[index].rows, metric, mode) if metric else {}),
        "resources": dict(trial.resources) or None,
        "workers": group_text(trial.group) if trial.group else None,
        **node_fields(trial),
        "checkpoints": [checkpoint.directory for checkpoint in trial.checkpoints] or None,
        "validations": {
            name: validation.status for name, validation in grid[index].validations.items()
        }
        or None,
        "went on from": [
            f"{graft.donor_id} at iteration {graft.from_iteration}" for graft in trial.grafts
        ]
        or None,
        "path": grid[index].path,
    }
    return {name: value for name, value in (facts | metrics).items() if value is not None}


def _text(value: Any) -> str:
    match value:
        case list():
            return printable(", ".join(map(str, value)))
        case dict():
            return printable(
                ", ".join(
                    f"{key} {item:g}" if is_number(item) else f"{key} {item}"
                    for key, item in value.items()
                )
            )
        case bool():
            return "yes" if value else "no"
        case str():
            return printable(value)
        case _:
            return shown(value, _MAX_TEXT)


@click.command()
@readable_argument
@click.option(
    "--top",
    "-n",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the N best trials as a table, instead of the best one.",
)
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    help="Which of a trial's values decides: the last one "
    "(the default), the best one (all), or a mean.",
)
@objective_options
@output_option
def best(
    experiment: Path, top: int | None, scope: Scope | None, objective: Objective, output: Output
) -> int:
    """Show the best trials and their configurations.

    The best trial is the one whose last value of the metric is best, as in
    ResultGrid.get_best_result. Its best value and the best checkpoint are shown too, each with its
    iteration, and the configuration of the best value. Failed and running trials are compared by
    the values that they have reported. A trial that misses a constraint is never shown. Exits with
    1 if no feasible trial has a finite value. In JSON one trial is an object, several (--top) are a
    list. If several metrics are optimised and --metric is not given, the trials on the Pareto front
    are shown: those that no other feasible trial beats in all metrics.

    \b
    Examples:
      tuner best digits
      tuner best digits -n 5
      tuner best digits -f json | jq .config
    """
    grid = open_grid(experiment, objective)
    if len(grid.objectives) > 1 and objective.metric is None:
        if scope or objective.mode:
            names = ", ".join(metric for metric, _ in grid.objectives)
            raise click.UsageError(
                f"{'--scope' if scope else '--mode'} needs --metric, as {experiment.name} "
                f"optimises {names}"
            )
        return _write_front(grid, top, output)
    metric, mode = known_objective(grid)
    scope = scope or "last"
    leaders = grid.ranked(metric, mode, scope)[: top or 1]
    if not leaders:
        return _say_none(
            grid, f"no trial of {experiment.name} has a finite value of {metric!r} yet"
        )
    if output.kind == "json":
        records = [
            _best_record(grid, result, value, scope, {"config": result.best_config})
            for result, value in leaders
        ]
        output.write_facts(records[0], ()) if top is None else output.write(records, ())
        return OK
    flat = [
        _best_record(grid, result, value, scope, flat_config(result.best_config))
        for result, value in leaders
    ]
    if top is None:
        output.write_facts(
            flat[0], [Column(key, text=spent if key == TIME_TOTAL_S else _text) for key in flat[0]]
        )
    else:
        columns = [*STATUS_COLUMNS, Column(METRIC_ITERATION, "iter"), Column(metric)]
        columns += [Column(scope)] if scope in flat[0] else []
        columns += [
            Column(best_key(metric), "best"),
            Column(best_key(TRAINING_ITERATION), "at iter", rank=1),
            *(Column(name, rank=1) for name in grid.constraints if name != metric),
        ]
        columns += [Column(key, key.removeprefix("config/"), rank=1) for key in differing(flat)]
        output.write(flat, [*columns, Column(TIME_TOTAL_S, "time", spent, rank=2)])
    return OK


def _write_front(grid: ResultGrid, top: int | None, output: Output) -> int:
    """Write the trials on the Pareto front of an experiment with several objectives."""
    names = ", ".join(f"{mode} {metric}" for metric, mode in grid.objectives)
    metrics = list(dict.fromkeys([*(metric for metric, _ in grid.objectives), *grid.constraints]))
    by_id = {trial.trial_id: trial for trial in grid.trials}
    front = grid.get_best_results()
    records: list[Record] = [
        {
            "trial_id": result.trial_id,
            **status_fields(trial),
            TRAINING_ITERATION: trial.iteration,
            **last_values(trial, result.rows, metrics),
            **({"config": config} if output.kind == "json" else flat_config(config)),
            TIME_TOTAL_S: trial.last_result.get(TIME_TOTAL_S),
            "path": result.path,
        }
        for result in front[:top]
        for trial in [by_id[result.trial_id]]
        for config in [config_at(trial, result.rows)]
    ]
    if not records:
        return _say_none(grid, f"no trial has a finite value of each of {names} yet")
    columns = [
        *STATUS_COLUMNS,
        Column(TRAINING_ITERATION, "iter"),
        *(Column(metric) for metric in metrics),
    ]
    columns += [Column(key, key.removeprefix("config/"), rank=1) for key in differing(records)]
    bounds = "".join(f", {each}" for each in outcome_constraints(grid.constraints))
    shown = f"{len(records)} of " if len(records) < len(front) else ""
    count = f"{shown}{len(front)} trial{'s' if len(front) > 1 else ''}"
    click.echo(f"{count} on the Pareto front of {printable(names + bounds)}", err=True)
    output.write(records, distinct([*columns, Column(TIME_TOTAL_S, "time", spent, rank=2)]))
    return OK


def _say_none(grid: ResultGrid, otherwise: str) -> int:
    """Say why there is no best trial: none is feasible, or else as given."""
    why = grid.why_none_feasible
    told = f"{why}; tuner show lists them all" if why else otherwise
    click.echo(f"tuner best: {printable(told)}", err=True)
    return FOUND


def _best_record(
    grid: ResultGrid, result: Result, value: float, scope: Scope, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a record of one of the best trials, each value with its iteration."""
    metric, mode = known_objective(grid)
    trial = grid.trials[grid.index(result)]
    values = metric_fields(trial, result.rows, metric, mode)
    record: dict[str, Any] = {
        "trial_id": trial.trial_id,
        **status_fields(trial),
        TRAINING_ITERATION: trial.iteration,
        **values,
        **({} if scope in ("last", "all") else {scope: value}),
        **last_values(trial, result.rows, [name for name in grid.constraints if name != metric]),
        **config,
        TIME_TOTAL_S: trial.last_result.get(TIME_TOTAL_S),
        **_checkpoint_fields(result, metric),
        "path": result.path,
    }
    return record | {metric: values[metric]}


def _checkpoint_fields(result: Result, metric: str) -> dict[str, Any]:
    """Return the checkpoint of the best step that has one, with its iteration and value."""
    try:
        checkpoint = result.best_checkpoint
        metrics = flat_metrics(result.metrics_of(checkpoint)) if checkpoint else {}
    except CheckpointError:
        checkpoint, metrics = result.checkpoint, {}
    return {
        "checkpoint": checkpoint.path if checkpoint else None,
        _checkpoint_key(metric): metrics.get(metric),
        _checkpoint_key(TRAINING_ITERATION): metrics.get(TRAINING_ITERATION),
    }


def _checkpoint_key(name: str) -> str:
    return f"checkpoint/{name}"


@click.command()
@click.argument(
    "experiments",
    type=ExperimentType(allow_external=True),
    metavar="EXP EXP...",
    nargs=-1,
    required=True,
)
@objective_options
@output_option
def compare(experiments: tuple[Path, ...], objective: Objective, output: Output) -> int:
    """Compare experiments by their best trials, and by their declarations.

    The best trial of each is the one whose last value of the metric is best; best is the best value
    that it has reported. Iterations and time are sums over all trials. Below the table are the
    differences of the declarations from that of the first experiment. If all of them optimise the
    same metrics, several of them, and --metric is not given, their Pareto fronts are compared by
    their hypervolumes, which are measured from one reference.

    \b
    Example:
      tuner compare asha random --metric val/loss --mode min
    """
    grids = [open_grid(path, objective) for path in experiments]
    fronts = None if objective.metric or objective.mode else compared_fronts(grids)
    found = fronts or [_compared(grid) for grid in grids]
    records = [{**one, **_totals(grid)} for one, grid in zip(found, grids, strict=True)]
    is_found = [record.get("best_trial") or record.get("num_on_front") for record in records]
    best_configs = differing([one for one, is_one in zip(found, is_found, strict=True) if is_one])
    columns = [
        Column("experiment", text=lambda text: printable(str(text))),
        *(FRONT_COLUMNS if fronts else _BEST_COLUMNS),
        Column("num_trials", "trials", rank=1),
        Column("num_failed", "failed", rank=3),
        Column("num_iterations", "iterations", rank=1),
        Column("time_total_s", "training", spent, rank=2),
        *(Column(name, name.removeprefix("config/"), rank=2) for name in best_configs),
    ]
    output.write(records, columns)
    if output.kind == "table" and output.path is None:
        for line in _declared_otherwise(experiments):
            click.echo(line)
    return OK if any(is_found) else FOUND


_BEST_COLUMNS: Final = (
    Column("best_trial", "best trial", rank=1, beside="metric"),
    Column("metric"),
    Column("last", beside="metric"),
    Column("best", rank=1, beside="metric"),
    Column("best_iteration", "at iter", rank=2, beside="best"),
)


def _compared(grid: ResultGrid) -> dict[str, Any]:
    metric, mode = known_objective(grid)
    best = next((result for result, _ in grid.ranked(metric, mode)), None)
    values = metric_fields(grid.trials[grid.index(best)], best.rows, metric, mode) if best else {}
    return {
        "experiment": Path(grid.experiment_path).name,
        "best_trial": best.trial_id if best else None,
        "metric": f"{mode} {metric}",
        "last": values.get(metric),
        "last_iteration": values.get(METRIC_ITERATION),
        "best": values.get(best_key(metric)),
        "best_iteration": values.get(best_key(TRAINING_ITERATION)),
        **(flat_config(best.best_config) if best else {}),
    }


def _totals(grid: ResultGrid) -> dict[str, Any]:
    return {
        "num_trials": len(grid),
        "num_failed": grid.num_errors,
        "num_iterations": sum(trial.num_rows for trial in grid.trials),
        "time_total_s": sum(
            float(trial.last_result.get(TIME_TOTAL_S) or 0.0) for trial in grid.trials
        ),
        "path": grid.experiment_path,
    }


def _declared_otherwise(experiments: Sequence[Path]) -> Iterable[str]:
    """Yield how the declarations of experiments differ from that of the first one."""
    from tuner.spec.argument_codec import differences  # noqa: PLC0415
    from tuner.storage.declaration import is_experiment, read_declaration  # noqa: PLC0415

    own = [path for path in experiments if is_experiment(path)]
    declared = [read_declaration(path) for path in own]
    for path, other in zip(own[1:], declared[1:], strict=True):
        found = [
            line
            for place in ("param_space", "tune_config", "run_config")
            for line in differences(declared[0].get(place), other.get(place), place)
        ]
        if found:
            yield f"\n{printable(path.name)} is declared otherwise than {printable(own[0].name)}:"
            yield from (f"  {printable(line)}" for line in found)
