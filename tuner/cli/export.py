"""``tuner export``, ``report`` and ``what-if``: experiments as files, and replays of them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tuner.analysis.flat_results import flat_metrics
from tuner.callbacks.formatting import printable
from tuner.command.sweeps.sweep_values import checked
from tuner.core.result import TRIAL_ID

from .app import OK
from .arguments import experiment_argument, named_value, readable_argument
from .experiment_tables import Objective, known_objective, objective_options, open_grid
from .output import FileType, Output, Record, output_option
from .tracker_export import TRACKERS, check_no_tracker, export_to_tracker, tracker_options

if TYPE_CHECKING:
    from tuner.analysis.result_grid import ResultGrid

_KINDS: Final = ("csv", "json", "parquet")


@click.command()
@readable_argument
@click.option(
    "--to",
    "kind",
    type=click.Choice((*_KINDS, *TRACKERS)),
    help="The format, by default that of the file's ending, or csv; or a tracker.",
)
@click.option("-o", "--output", "path", type=FileType(), metavar="FILE", help="The file to write.")
@click.option(
    "--rows",
    is_flag=True,
    help="Write a line per result of each trial, instead of a line per trial.",
)
@tracker_options
def export(
    experiment: Path,
    kind: str | None,
    path: Path | None,
    tracker: Mapping[str, Any],
    *,
    rows: bool,
) -> int:
    """Write the table of trials, or of all their results, as CSV, JSON or Parquet.

    With --to mlflow, wandb, comet or tensorboard, fill that tracker instead, with a run per trial:
    with all that it lacks, and nothing twice.

    The columns are those of ResultGrid.get_dataframe: metrics with a/b for nested ones,
    hyperparameters as config/NAME, status, logdir. With --rows there is a line for each valid
    result, trial after trial. Without -o CSV and JSON are written to the standard output. Parquet
    needs pyarrow.

    \b
    Examples:
      tuner export digits -o trials.parquet
      tuner export digits --rows --to csv > curves.csv
      tuner export digits --to mlflow --tracking-uri http://host:5000
    """
    if kind in TRACKERS:
        if path or rows:
            raise click.UsageError(f"--to {kind} takes neither --output nor --rows; omit them")
        return export_to_tracker(experiment, kind, tracker)
    kind = kind or (path.suffix.removeprefix(".") if path else "csv")
    if kind not in _KINDS:
        raise click.UsageError(
            f"FILE must end in .csv, .json or .parquet, or --to give the format, got {str(path)!r}"
        )
    check_no_tracker(kind, tracker)
    grid = open_grid(experiment)
    if kind == "parquet":
        _write_parquet(grid, path, is_long=rows)
        return OK
    records = _all_rows(grid) if rows else _table(grid)
    Output(kind, path).write(records, ())
    return OK


def _table(grid: ResultGrid) -> list[Record]:
    frame = grid.get_dataframe()
    texts = {name for name in frame.columns if frame[name].dtype == "str"}
    return [
        {str(name): _plain(value, is_text=name in texts) for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _plain(value: Any, *, is_text: bool) -> Any:
    """Return None for NaN in a text column, where it means missing; a metric may really be NaN."""
    is_missing = (
        not isinstance(value, str) if is_text else type(value).__name__ in ("NAType", "NaTType")
    )
    return None if is_missing else value


def _all_rows(grid: ResultGrid) -> list[Record]:
    return [
        {TRIAL_ID: result.trial_id, **flat_metrics(row)}
        for result in grid
        for row in result.rows.of(result.trial_id)
    ]


def _write_parquet(grid: ResultGrid, path: Path | None, *, is_long: bool) -> None:
    if path is None:
        raise click.UsageError("--to parquet needs a file; give -o FILE.parquet")
    if not is_long:
        grid.to_parquet(path)
        return
    with tempfile.TemporaryDirectory(dir=path.parent) as beside:
        _, curves = grid.to_parquet(beside)
        curves.replace(path)


@click.command()
@readable_argument
@click.option(
    "-o",
    "--output",
    "path",
    type=FileType(),
    default="report.html",
    metavar="FILE",
    help="The file to write; report.html by default.",
)
@objective_options
def report(experiment: Path, path: Path, objective: Objective) -> int:
    """Write an HTML report in one file, which needs no network.

    It shows learning curves, the importance of hyperparameters, rungs and lineage, a timeline of
    the trials, and failures. The experiment may still be running.

    \b
    Example:
      tuner report digits -o digits.html
    """
    grid = open_grid(experiment, objective)
    if objective.metric:
        known_objective(grid)
    click.echo(grid.report(path))
    return OK


@click.command("what-if")
@experiment_argument
@click.option(
    "--scheduler", metavar="NAME", help="asha, hyperband, median_stopping_rule, fifo, ..."
)
@click.option(
    "--stop-search",
    metavar="auto|N",
    help="Instead: when the search would have ended, see tuner run.",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of the scheduler, e.g. max_t=27.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many trials run at a time; as many as in the experiment by default.",
)
@objective_options
@output_option
def what_if(  # noqa: PLR0917  (click passes all by name)
    experiment: Path,
    scheduler: str | None,
    stop_search: str | None,
    arguments: Sequence[str],
    slots: int | None,
    objective: Objective,
    output: Output,
) -> int:
    """Replay an experiment's recorded curves through another scheduler, or end its search early.

    Shows how much time that scheduler would have saved, and how much worse its best trial would
    have been. It can only judge recorded results: the curves of trials that were stopped early end
    there. With --stop-search, shows which trials would not have been started.

    \b
    Examples:
      tuner what-if digits --scheduler asha --arg max_t=27 --arg grace_period=3
      tuner what-if digits --stop-search auto
    """
    given = _parsed(arguments)
    if scheduler is None and stop_search is None:
        raise click.UsageError("--scheduler or --stop-search must be given, got neither")
    from tuner.whatif import what_if as replayed  # noqa: PLC0415

    try:
        asked: Any = replayed  # one of its forms, by what is given
        outcome = asked(
            experiment,
            scheduler,
            stop_search=None if stop_search is None else checked("stop_search", stop_search),
            slots=slots,
            metric=objective.metric,
            mode=objective.mode,
            **given,
        )
    except (TypeError, ValueError) as refusal:
        raise click.UsageError(str(refusal)) from refusal
    if output.kind == "table":
        for line in outcome.lines():
            click.echo(printable(line))
    elif output.kind == "json":
        output.write_facts(outcome.as_dict(), ())
    else:
        output.write([outcome.as_dict()], ())
    return OK


def _parsed(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments by name."""
    parsed: dict[str, Any] = {}
    for text in arguments:
        name, value = named_value(text, "--arg")
        if not name.isidentifier():
            raise click.UsageError(f"--arg must be NAME=VALUE, got {text!r}")
        parsed[name] = value
    return parsed
