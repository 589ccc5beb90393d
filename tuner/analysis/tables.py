"""Trials as tables: as rows, as a data frame, as text, as HTML, and as Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from searchers.objectives.outcome_constraint import Constraints
from tuner.callbacks.tables import text_table
from tuner.core.feasibility import is_feasible
from tuner.core.result import CONFIG, DONE, TRAINING_ITERATION, TRIAL_ID, flatten
from tuner.core.trial import Trial
from tuner.journal.rows import Rows
from tuner.storage import strict_json
from tuner.storage.disk import require_parent, temporary_sibling

from .flat_results import flat_config, flat_metrics
from .frames import LOGDIR, METRIC_ITERATION, in_order_of_appearance, in_usual_order, to_frame
from .ranking import Mode, best_row_index, config_at, config_of, newest_of, tracked, with_newest
from .result import Result

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FEASIBLE = "feasible"
STATUS = "status"
ENDING = "ending"
ERROR = "error"
_MAX_PARAMS = 6
_MAX_WIDTH = 24
SUFFIX: Final = ".parquet"
TRIALS: Final = f"trials{SUFFIX}"
RESULTS: Final = f"results{SUFFIX}"
JSON_METADATA: Final = {b"tuner.encoding": b"json"}
"""Metadata of a column of JSON texts, for values of mixed types or types unknown to Parquet."""
_CHUNK: Final = 50_000
"""Rows that are held as dictionaries at once while results are written."""


def trials_frame(
    results: Sequence[Result],
    chosen: Sequence[Mapping[str, Any]],
    *,
    has_constraints: bool = False,
) -> pd.DataFrame:
    """Return the table of `ResultGrid.get_dataframe`.

    Args:
        results: The results of the trials.
        chosen: A row of each trial, with the ``config`` in force at it; empty if it has none.
        has_constraints: Whether a column says which trials are feasible.
    """
    return to_frame(*trials_rows(results, chosen, has_constraints=has_constraints))


def trials_rows(
    results: Sequence[Result], chosen: Sequence[Mapping[str, Any]], *, has_constraints: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the same table as flat rows, and the names of its columns in their order."""
    metrics = [flat_metrics(row) for row in chosen]
    # A metric named like a fact about the trial, e.g. "error", replaces it in the table.
    facts = (*([FEASIBLE] if has_constraints else []), STATUS, ENDING, ERROR, LOGDIR)
    fact_names = [name for name in facts if not any(name in row for row in metrics)]
    configs = [row.get(CONFIG, result.config) for result, row in zip(results, chosen, strict=True)]
    rows = [_trial_row(*one, fact_names) for one in zip(results, metrics, configs, strict=True)]
    return rows, in_usual_order(
        in_order_of_appearance(rows), [name for name in fact_names if name != LOGDIR]
    )


def last_rows(trials: Sequence[Trial], rows: Rows, metric: str | None) -> list[dict[str, Any]]:
    """Return each trial's last result, with the newest value of the metric and its iteration.

    Each row includes the ``config`` in force at it; a trial without a result has an empty row.
    """
    return [_last_row(trial, rows, metric) for trial in trials]


def best_rows(trials: Sequence[Trial], rows: Rows, metric: str, mode: Mode) -> list[dict[str, Any]]:
    """Return of each trial the result with the best finite value of a metric, else the last one."""
    return [_best_row(trial, rows, metric, mode) for trial in trials]


def _best_row(trial: Trial, rows: Rows, metric: str, mode: Mode) -> dict[str, Any]:
    results = rows.of(trial.trial_id)
    place = best_row_index(results, metric, mode)
    if place is not None:
        return {**results[place], CONFIG: config_at(trial, rows, place + 1)}
    return {**trial.last_result, CONFIG: config_at(trial, rows)} if trial.last_result else {}


def _last_row(trial: Trial, rows: Rows, metric: str | None) -> dict[str, Any]:
    newest = newest_of(trial, metric)
    if metric and newest and newest.iteration is None:
        newest = tracked(trial, rows, metric, "min").last
    row = with_newest(trial.last_result, newest, metric)
    if newest and row:
        row.setdefault(METRIC_ITERATION, newest.iteration)
    return {**row, CONFIG: config_at(trial, rows)} if row else row


def _trial_row(
    result: Result, metrics: Mapping[str, Any], config: Mapping[str, Any], fact_names: Sequence[str]
) -> dict[str, Any]:
    facts = {
        FEASIBLE: result.feasible,
        STATUS: str(result.status),
        ENDING: result.ending.word if result.ending else None,
        ERROR: error_text(result),
        LOGDIR: result.path,
    }
    return {
        **(metrics or {TRIAL_ID: result.trial_id}),
        DONE: result.metrics.get(DONE),
        **flat_config(config),
        **{name: facts[name] for name in fact_names},
    }


def error_text(result: Result) -> str | None:
    """Return in one line why a trial failed for good; None if it did not."""
    if result.error is None:
        return None
    return str(result.error).removeprefix(f"trial {result.trial_id} failed: ")


def format_trials(
    trials: Sequence[Trial], rows: Rows, metrics: Sequence[str], constraints: Constraints = ()
) -> list[str]:
    """Return the trials as a text table: a header, and a line for each trial.

    Columns are id, status, iterations, whether it keeps the constraints if there are any, the
    metrics' latest values and the first hyperparameters.
    """
    return text_table(list(_text_rows(trials, rows, metrics, constraints)))


def html_trials(
    head: str,
    trials: Sequence[Trial],
    rows: Rows,
    metrics: Sequence[str],
    constraints: Constraints = (),
    *,
    more: str = "",
) -> str:
    """Return the same table as HTML for notebooks, with a heading and a footnote."""
    header, *lines = _text_rows(trials, rows, metrics, constraints)
    cells = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in header)
    body_rows = (
        "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in line)
        for line in lines
    )
    body = "".join(f"<tr>{line}</tr>" for line in body_rows)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    foot = f"<p>{escape(more)}</p>" if more else ""
    return f'<div><p>{escape(head)}</p><div style="overflow-x:auto">{table}</div>{foot}</div>'


def _text_rows(
    trials: Sequence[Trial], rows: Rows, metrics: Sequence[str], constraints: Constraints
) -> Iterator[list[str]]:
    params = list(dict.fromkeys(name for trial in trials for name in trial.evaluated_params))[
        :_MAX_PARAMS
    ]
    marks = [FEASIBLE] if constraints else []
    shown = list(dict.fromkeys([*metrics, *(each.metric for each in constraints)]))
    yield ["trial_id", "status", TRAINING_ITERATION, *marks, *shown, *params]
    own = metrics[0] if len(metrics) == 1 else None
    for trial in trials:
        config = flatten(config_of(trial, rows, own))
        newest = [newest_of(trial, metric) for metric in shown]
        cells = [
            trial.trial_id,
            trial.status,
            trial.iteration,
            *(["yes" if is_feasible(trial, constraints) else "no"] if constraints else []),
            *(one.value if one else None for one in newest),
            *(config.get(name) for name in params),
        ]
        yield [_short_cell(cell) for cell in cells]


def _short_cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 3]}..."


def write_tables(
    results: Sequence[Result],
    last: Sequence[Mapping[str, Any]],
    rows: Rows,
    path: str | os.PathLike[str],
    *,
    has_constraints: bool = False,
) -> list[Path]:
    """Write the files of `ResultGrid.to_parquet`, and return their paths.

    Args:
        results: The results of the trials.
        last: The last row of each trial, empty for none.
        rows: Source of all of their results.
        path: A directory, or a file for the table of trials alone.
        has_constraints: Whether a column says which trials are feasible.

    Raises:
        ImportError: If PyArrow is not installed.
        OSError: If a file cannot be written.
    """
    arrow = require_pyarrow()
    target = Path(path).expanduser()
    is_file = target.suffix == SUFFIX and not target.is_dir()
    if is_file:
        require_parent(target)
    target = target.absolute()
    trials = _arrow_table(arrow, *trials_rows(results, last, has_constraints=has_constraints))
    if is_file:
        return [_write(trials, target)]
    target.mkdir(parents=True, exist_ok=True)
    reported = _joined(
        arrow, [_arrow_table(arrow, chunk, None) for chunk in _chunks(_reported(results, rows))]
    )
    return [_write(trials, target / TRIALS), _write(reported, target / RESULTS)]


def require_pyarrow() -> Any:
    """Return ``pyarrow``.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ImportError(
            'to_parquet needs PyArrow, which is not installed; pip install "tuner-hpo[parquet]"'
        ) from error
    return pa


def _reported(results: Sequence[Result], rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield every result of every trial, flat, with the trial's id."""
    for result in results:
        for row in rows.of(result.trial_id):
            yield {TRIAL_ID: result.trial_id, **flat_metrics(row)}


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in chunks that fit into memory; one empty chunk if there are no rows."""
    remaining = iter(rows)
    yield list(islice(remaining, _CHUNK))
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def _arrow_table(
    arrow: Any, rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None
) -> pa.Table:
    columns = {
        name: _column(arrow, [row.get(name) for row in rows])
        for name in (in_order_of_appearance(rows) if names is None else names)
    }
    fields = [
        arrow.field(name, column.type, metadata=JSON_METADATA if is_json else None)
        for name, (column, is_json) in columns.items()
    ]
    return arrow.Table.from_arrays(
        [column for column, _ in columns.values()], schema=arrow.schema(fields)
    )


def _column(arrow: Any, values: Sequence[Any]) -> tuple[pa.Array, bool]:
    """Return values as a column, and whether they are JSON texts.

    JSON is used where the values have no single type that Parquet can hold.
    """
    with suppress(
        arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError, OverflowError
    ):
        # Not from pandas, which would turn NaN into a missing value.
        column = arrow.array(values, from_pandas=False)
        # A struct would give every row the keys of all rows, with nulls.
        if not arrow.types.is_struct(column.type) and not arrow.types.is_binary(column.type):
            return column, False
    return _as_json(arrow, values), True


def _as_json(arrow: Any, values: Iterable[Any]) -> pa.Array:
    texts = [
        None if value is None else strict_json.dumps(value, default=strict_json.opaque)
        for value in values
    ]
    return arrow.array(texts, type=arrow.string())


def _joined(arrow: Any, tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables concatenated; columns whose types differ become JSON texts."""
    if len(tables) == 1:
        return tables[0]
    odd = {
        name
        for table in tables
        for name in table.column_names
        if not _agree(arrow, [one.schema for one in tables], name)
    }
    return arrow.concat_tables(
        [_with_json(arrow, table, odd) for table in tables], promote_options="permissive"
    )


def _agree(arrow: Any, schemas: Sequence[pa.Schema], name: str) -> bool:
    fields = [schema.field(name) for schema in schemas if name in schema.names]
    fields = [field for field in fields if not arrow.types.is_null(field.type)]
    kinds = {field.type for field in fields}
    has_one_type = len(kinds) <= 1 or kinds == {arrow.int64(), arrow.float64()}
    # Text that was reported and text that is JSON have one type and yet must not be mixed.
    return has_one_type and len({field.metadata == JSON_METADATA for field in fields}) <= 1


def _with_json(arrow: Any, table: pa.Table, odd: Iterable[str]) -> pa.Table:
    for name in odd:
        place = table.schema.get_field_index(name)
        if place >= 0:
            field = table.schema.field(place)
            column = (
                table.column(place)
                if field.metadata == JSON_METADATA
                else _as_json(arrow, table.column(place).to_pylist())
            )
            table = table.set_column(
                place, arrow.field(name, arrow.string(), metadata=JSON_METADATA), column
            )
    return table


def _write(table: pa.Table, path: Path) -> Path:
    """Write a table atomically: a reader sees the old file or the new one."""
    from pyarrow import parquet  # noqa: PLC0415  (an extra)

    temporary = temporary_sibling(path)
    try:
        parquet.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return path
