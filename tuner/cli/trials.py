"""``tuner show``, ``best`` and ``compare``: trials as tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tuner.analysis.frames import flat_config, flat_metrics
from tuner.analysis.ranking import Mode, is_number, rank
from tuner.analysis.result_grid import SCOPES, ResultGrid
from tuner.core.result import AUTO_FILLED, TIME_TOTAL_S, TRAINING_ITERATION
from tuner.errors import CheckpointError
from tuner.loggers.formatting import printable
from tuner.loggers.formatting import show as shown

from .app import FOUND, OK
from .arguments import ExperimentType, TrialType, find_trial, foreign_argument
from .grids import Objective, best_key, differing, objective_of, objective_options, open_grid, state_of, trial_records, usual_columns
from .output import Column, Output, Record, output_option, spent
from .selection import Selection, selection_options

_MAX_TEXT: Final = 200
_MAX_LISTED: Final = 10


@click.command()
@foreign_argument
@click.argument("trial", type=TrialType(), metavar="[TRIAL]", required=False)
@selection_options
@click.option("--rows", is_flag=True, help="With TRIAL: its results, a line each.")
@objective_options
@output_option
def show(experiment: Path, trial: str | None, chosen: Selection, output: Output, objective: Objective, *, rows: bool) -> int:
    """Show the trials of an experiment, or all about one of them.

    Columns are the metrics (a/b for nested ones), hyperparameters as config/NAME or NAME alone, state, training_iteration, time_total_s,
    and best/METRIC, the best value so far. CSV and JSON have all of them; NaN and infinities are the texts "NaN", "Infinity" and
    "-Infinity" there, and what a trial lacks is empty, or null.

    \b
    Examples:
      tuner show digits --sort loss --limit 10
      tuner show digits --filter "state == failed" --columns trial_id,error
      tuner show digits 17 --rows -f csv
    """
    grid = open_grid(experiment, objective)
    if trial is None and rows:
        raise click.UsageError("--rows needs TRIAL")
    if trial is None:
        records = trial_records(grid)
        usual = usual_columns(chosen.of(records) or records, objective_of(grid)[0])
        return OK if chosen.write(records, usual, output) else FOUND
    index = _index_of(grid, trial)
    if rows:
        return OK if chosen.write(*_rows(grid, index), output) else FOUND
    facts = _facts(grid, index)
    output.write_facts(facts, [Column(name, text=_text) for name in facts])
    return OK


def _rows(grid: ResultGrid, index: int) -> tuple[list[Record], list[Column]]:
    """Return a trial's results, and which of their columns people are shown."""
    records: list[Record] = [flat_metrics(row) for row in grid[index].rows.of(grid[index].trial_id)]
    names = dict.fromkeys(name for record in records for name in record)
    usual = [Column(TRAINING_ITERATION, "iter"), *(Column(name) for name in names if name not in AUTO_FILLED)]
    return records, [*usual, Column(TIME_TOTAL_S, "time", spent)]


def _index_of(grid: ResultGrid, text: str) -> int:
    ids = [trial.trial_id for trial in grid.trials]
    return ids.index(find_trial(text, ids, Path(grid.experiment_path)))


def _facts(grid: ResultGrid, index: int) -> Record:
    """Return all that is known about a trial, flat."""
    trial = grid.trials[index]
    metric, mode = objective_of(grid)
    summary = trial.summary.get(metric or "")
    result = flat_metrics(trial.last_result)
    facts: dict[str, Any] = {
        "trial_id": trial.trial_id,
        "state": state_of(trial),
        "reason": str(trial.reason) if trial.reason else None,
        TRAINING_ITERATION: trial.iteration,
        TIME_TOTAL_S: result.get(TIME_TOTAL_S),
        "attempts": trial.attempt,
        **{f"failure {number}": str(failure) for number, failure in enumerate(trial.failures, start=1)},
        **flat_config(trial.config),
        **({best_key(metric): summary.by_scope("all", mode)} if metric and mode and summary else {}),
        **{name: value for name, value in result.items() if name not in AUTO_FILLED},
        "resources": dict(trial.resources) or None,
        "checkpoints": [checkpoint.directory for checkpoint in trial.checkpoints] or None,
        "went on from": [f"{graft.donor_id} at iteration {graft.from_iteration}" for graft in trial.grafts] or None,
        "path": trial.local_path,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _text(value: Any) -> str:
    match value:
        case list():
            return printable(", ".join(map(str, value)))
        case dict():
            return printable(", ".join(f"{key} {item:g}" if is_number(item) else f"{key} {item}" for key, item in value.items()))
        case str():
            return printable(value)
        case _:
            return shown(value, _MAX_TEXT)


@click.command()
@foreign_argument
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="The N best trials, as a table; without it the best one alone.")
@click.option("--scope", type=click.Choice(SCOPES), default="all", help="Which of a trial's values counts: the best one (all, the "
              "default), the last, or a mean.")  # fmt: skip
@objective_options
@output_option
def best(experiment: Path, top: int | None, scope: str, objective: Objective, output: Output) -> int:
    """Show the best trials and their configurations.

    Trials that failed, or still run, are compared by what they have reported. Ends with 1 where no trial has a finite value. As JSON
    one trial is an object, several (--top) are a list.

    \b
    Examples:
      tuner best digits
      tuner best digits --top 5
      tuner best digits -f json | jq .config
    """
    grid = open_grid(experiment, objective)
    metric, mode = _objective(grid)
    leaders = _ranked(grid, metric, mode, scope)[: top or 1]
    if not leaders:
        click.echo(f"tuner best: no trial of {experiment.name} has a finite value of {metric!r} yet", err=True)
        return FOUND
    if output.kind == "json":
        records = [_best_record(grid, index, value, {"config": grid.trials[index].config}) for index, value in leaders]
        output.write_facts(records[0], ()) if top is None else output.write(records, ())
        return OK
    flat = [_best_record(grid, index, value, flat_config(grid.trials[index].config)) for index, value in leaders]
    if top is None:
        output.write_facts(flat[0], [Column(key, text=spent if key == TIME_TOTAL_S else _text) for key in flat[0]])
    else:
        columns = [Column("trial_id", "trial"), Column("state"), Column(TRAINING_ITERATION, "iter"), Column(metric)]
        columns += [Column(key, key.removeprefix("config/"), rank=1) for key in differing(flat)]
        output.write(flat, [*columns, Column(TIME_TOTAL_S, "time", spent, rank=2)])
    return OK


def _objective(grid: ResultGrid) -> tuple[str, Mode]:
    metric, mode = objective_of(grid)
    if metric is None or mode is None:
        lacking = "what is optimised; give --metric and --mode" if metric is None else f"whether {metric!r} is minimised; give --mode"
        raise click.UsageError(f"{grid.experiment_path} does not say {lacking}")
    return metric, mode


def _ranked(grid: ResultGrid, metric: str, mode: Mode, scope: str) -> list[tuple[int, float]]:
    """Return index and value of each trial that has a finite one, best first; of equal ones the one created first is first."""
    reported = {index: trial.summary[metric].by_scope(scope, mode) for index, trial in enumerate(grid.trials) if metric in trial.summary}
    known = sorted({name for trial in grid.trials for name in trial.summary if name not in AUTO_FILLED})
    if known and not reported:
        raise click.UsageError(f"no trial has reported {metric!r}; reported were {', '.join(known[:_MAX_LISTED])}")
    finite = [(index, value) for index, value in reported.items() if math.isfinite(value)]
    return sorted(finite, key=lambda found: rank(found[1], mode), reverse=True)


def _best_record(grid: ResultGrid, index: int, value: float, config: Mapping[str, Any]) -> dict[str, Any]:
    metric, mode = _objective(grid)
    trial, result = grid.trials[index], grid[index]
    try:
        checkpoint = dataclasses.replace(result, metric=metric, mode=mode).best_checkpoint
    except CheckpointError:
        checkpoint = result.checkpoint
    return {
        "trial_id": trial.trial_id,
        "state": state_of(trial),
        TRAINING_ITERATION: trial.iteration,
        metric: value,
        **config,
        TIME_TOTAL_S: trial.last_result.get(TIME_TOTAL_S),
        "checkpoint": checkpoint.path if checkpoint else None,
        "path": result.path,
    }


@click.command()
@click.argument("experiments", type=ExperimentType(allow_foreign=True), metavar="EXP EXP...", nargs=-1, required=True)
@objective_options
@output_option
def compare(experiments: tuple[Path, ...], objective: Objective, output: Output) -> int:
    """Compare experiments by their best trials, and by what was declared.

    The first column of values is the best that any trial ever reported; iterations and time are those of all trials together. Below
    the table stands what the experiments declare otherwise than the first one.

    \b
    Example:
      tuner compare asha random --metric val/loss --mode min
    """
    grids = [open_grid(path, objective) for path in experiments]
    records = [_compared(grid) for grid in grids]
    best_configs = differing([record for record in records if record["best"] is not None])
    columns = [
        Column("experiment", text=lambda text: printable(str(text))), Column("best"), Column("metric", rank=1),
        Column("best_trial", "trial", rank=1), Column("num_trials", "trials"), Column("num_failed", "failed", rank=3),
        Column("num_iterations", "iterations", rank=1), Column("time_total_s", "training", spent, rank=2),
        *(Column(name, name.removeprefix("config/"), rank=2) for name in best_configs),
    ]  # fmt: skip
    output.write(records, columns)
    if output.kind == "table" and output.path is None:
        for line in _declared_otherwise(experiments):
            click.echo(line)
    return OK if any(record["best"] is not None for record in records) else FOUND


def _compared(grid: ResultGrid) -> dict[str, Any]:
    metric, mode = _objective(grid)
    ranked = _ranked(grid, metric, mode, "all")
    index, value = ranked[0] if ranked else (None, None)
    return {
        "experiment": Path(grid.experiment_path).name,
        "best": value,
        "metric": f"{mode} {metric}",
        "best_trial": None if index is None else grid.trials[index].trial_id,
        "num_trials": len(grid),
        "num_failed": grid.num_errors,
        "num_iterations": sum(trial.iteration for trial in grid.trials),
        "time_total_s": sum(float(trial.last_result.get(TIME_TOTAL_S) or 0.0) for trial in grid.trials),
        "path": grid.experiment_path,
        **({} if index is None else flat_config(grid.trials[index].config)),
    }


def _declared_otherwise(experiments: Sequence[Path]) -> Iterable[str]:
    """Yield what each experiment declares otherwise than the first one, as far as they declare anything."""
    from tuner.declarations import differences  # noqa: PLC0415  (costs as much as all the rest of the command)
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
