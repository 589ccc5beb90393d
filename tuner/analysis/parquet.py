"""Tables as Parquet files: typed columns, in which a number stays a number, a list a list, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuner.core.result import TRIAL_ID
from tuner.journal.rows import Rows
from tuner.storage import strict_json
from tuner.storage.atomic import require_parent, temporary_sibling

from .frames import flat_metrics, in_order_of_appearance
from .result import Result
from .trial_table import trials_rows

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX: Final = ".parquet"
TRIALS: Final = f"trials{SUFFIX}"
RESULTS: Final = f"results{SUFFIX}"
JSON: Final = {b"tuner.encoding": b"json"}
"""Metadata of a column whose values are of several types, or of one that Parquet does not know: each is a JSON text."""

_CHUNK: Final = 50_000


def write_tables(
    results: Sequence[Result],
    last: Sequence[Mapping[str, Any]],
    rows: Rows,
    path: str | os.PathLike[str],
) -> list[Path]:
    """Write what `ResultGrid.to_parquet` promises, and return the files.

    Args:
        results: The results of the trials.
        last: The last row of each of them, empty for none.
        rows: All of their rows.
        path: A directory, or a file for the first table alone.

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
    trials = _table(arrow, *trials_rows(results, last))
    if is_file:
        return [_write(trials, target)]
    target.mkdir(parents=True, exist_ok=True)
    reported = _joined(
        arrow, [_table(arrow, chunk, None) for chunk in _chunks(_reported(results, rows))]
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
    """Yield every result of every trial, flat, and each with the trial's id."""
    for result in results:
        for row in rows.of(result.trial_id):
            yield {TRIAL_ID: result.trial_id, **flat_metrics(row)}


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows by as many as are held in memory as Python objects at once; one empty list for none."""
    chunk: list[dict[str, Any]] = []
    has_any = False
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk, has_any = [], True
    if chunk or not has_any:
        yield chunk


def _table(arrow: Any, rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> pa.Table:
    columns = {
        name: _column(arrow, [row.get(name) for row in rows])
        for name in (in_order_of_appearance(rows) if names is None else names)
    }
    fields = [
        arrow.field(name, column.type, metadata=JSON if is_json else None)
        for name, (column, is_json) in columns.items()
    ]
    return arrow.Table.from_arrays(
        [column for column, _ in columns.values()], schema=arrow.schema(fields)
    )


def _column(arrow: Any, values: Sequence[Any]) -> tuple[pa.Array, bool]:
    """Return values as a column, and whether as JSON texts: where they are not of one type that Parquet can hold."""
    with suppress(
        arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError, OverflowError
    ):
        column = arrow.array(values, from_pandas=False)
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
    """Return tables one below the other; a column that has not the same type in all of them becomes one of JSON texts."""
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
    kinds = {field.type for field in fields if not arrow.types.is_null(field.type)}
    is_json = {field.metadata == JSON for field in fields if not arrow.types.is_null(field.type)}
    return len(is_json) < 2 and (len(kinds) < 2 or kinds == {arrow.int64(), arrow.float64()})  # noqa: PLR2004  (of one kind)


def _with_json(arrow: Any, table: pa.Table, odd: Iterable[str]) -> pa.Table:
    for name in odd:
        place = table.schema.get_field_index(name)
        if place >= 0:
            field = table.schema.field(place)
            column = (
                table.column(place)
                if field.metadata == JSON
                else _as_json(arrow, table.column(place).to_pylist())
            )
            table = table.set_column(
                place, arrow.field(name, arrow.string(), metadata=JSON), column
            )
    return table


def _write(table: pa.Table, path: Path) -> Path:
    """Write a table so that whoever looks sees the old file or the new one."""
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
