"""Output of tables: drawn on a terminal, plain text elsewhere, or CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import click
from click.shell_completion import CompletionItem

from tuner.callbacks import tables
from tuner.callbacks.formatting import duration, printable, shorten, show
from tuner.storage.disk import require_parent, write_text
from tuner.storage.readable_json import plain
from tuner.storage.spreadsheets import neutralised
from tuner.storage.strict_json import float_name

_QUOTED_ENDS: Final = "\r\n"
FORMATS: Final = ("table", "csv", "json")
_MAX_CELL: Final = 32
_BRIEF_S: Final = 10
_STYLES: Final = {
    "running": "cyan",
    "finished": "green",
    "completed": "green",
    "interrupted": "yellow",
    "damaged": "bold red",
    "failed": "red",
    "error": "bold red",
    "warning": "yellow",
    "RUNNING": "cyan",
    "PAUSED": "yellow",
    "ERROR": "red",
}

Record = Mapping[str, Any]
"""One line of a table: flat, values as they are."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and how its values are shown.

    Attributes:
        key: Key of its values in the records.
        title: Its heading; the key if empty.
        text: Writes a value.
        rank: Columns with higher ranks are left out first where the terminal is narrow; rank 0
            stays.
        beside: Key of the column without which it means nothing, such as a value without its
            metric; it is left out where that is.
    """

    key: str
    title: str = ""
    text: Callable[[Any], str] = show
    rank: int = 0
    beside: str = ""

    @property
    def heading(self) -> str:
        """Its heading, cut to the width of a cell."""
        return shorten(printable(self.title or self.key), _MAX_CELL)

    def cell(self, record: Record) -> str:
        """Return its text for a record; ``-`` for no value."""
        value = record.get(self.key)
        return "-" if value is None else self.text(value)


@dataclass(frozen=True, slots=True)
class Output:
    """Format and destination of a table.

    Attributes:
        kind: One of `FORMATS`.
        path: The file to write; None for the standard output.
    """

    kind: str = "table"
    path: Path | None = None

    def write(self, records: Sequence[Record], columns: Sequence[Column]) -> None:
        """Write records, in their order.

        Args:
            records: The records, which CSV and JSON contain in full.
            columns: The columns of the table format.
        """
        match self.kind:
            case "json":
                keys = list(dict.fromkeys(key for record in records for key in record))
                self._put(as_json([{key: record.get(key) for key in keys} for record in records]))
            case "csv":
                self._put(as_csv(records))
            case _ if not records:
                pass
            case _ if self.path is None and sys.stdout.isatty():
                _draw(table_of(records, columns))
            case _:
                self._put("".join(f"{line}\n" for line in table_of(records, columns).lines()))

    def write_facts(self, facts: Record, columns: Sequence[Column]) -> None:
        """Write one record: a line per column that has a value, or a JSON object."""
        if self.kind == "json":
            self._put(as_json(facts))
            return
        if self.kind == "csv":
            self.write([facts], columns)
            return
        shown = [
            (column.heading, column.cell(facts))
            for column in columns
            if facts.get(column.key) is not None
        ]
        size = max((len(heading) for heading, _ in shown), default=0)
        self._put("".join(f"{heading:{size}}{tables.GAP}{text}\n" for heading, text in shown))

    def _put(self, text: str) -> None:
        if self.path is None:
            click.echo(text, nl=False)
        else:
            write_text(self.path, text)


@final
class FileType(click.Path):
    """A file to write, in an existing folder."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return its path."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            require_parent(path)
        except FileNotFoundError as error:
            raise click.BadParameter(str(error), ctx, param) from error
        return path


@final
class OutputType(click.ParamType[Output]):
    """``table``, ``csv`` or ``json``, or a file whose name ends in one of the last two."""

    name = "table|csv|json|FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Output:
        """Return the output."""
        if isinstance(value, Output):
            return value
        suffix = Path(value).suffix.removeprefix(".")
        if value in FORMATS or suffix in FORMATS[1:]:
            return (
                Output(value)
                if value in FORMATS
                else Output(suffix, FileType().convert(value, param, ctx))
            )
        raise click.BadParameter(
            f"{value!r} is none of table, csv and json, nor a file that ends in .csv or .json",
            ctx,
            param,
        )

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the formats that begin like this."""
        return [CompletionItem(kind) for kind in FORMATS if kind.startswith(incomplete)]


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option for format and destination of a table to a command."""
    return click.option(
        "-f",
        "--format",
        "--output",
        "output",
        type=OutputType(),
        default="table",
        metavar="FORMAT",
        help="table (the default), csv, json, or a FILE.csv or FILE.json to write.",
    )(function)


def as_json(value: Any) -> str:
    """Return a value as strict JSON.

    Floats that are not finite become the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``;
    values that JSON does not support become text.

    Example:
        >>> print(as_json({"loss": float("nan"), "steps": 3}), end="")
        {
          "loss": "NaN",
          "steps": 3
        }
    """
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def as_csv(records: Sequence[Record]) -> str:
    """Return records as CSV with every key as a column, in order of first appearance.

    Missing values are empty; lists and mappings are written as JSON.

    Texts that a spreadsheet would run as formulas begin with an apostrophe, see
    `tuner.storage.spreadsheets`.
    """
    if not records:
        return ""
    keys = list(dict.fromkeys(key for record in records for key in record))
    lines = [
        map(neutralised, keys),
        *([_field(record.get(key)) for key in keys] for record in records),
    ]
    return "".join(map(_line, lines))


def _line(cells: Iterable[Any]) -> str:
    file = io.StringIO(newline="")
    # With another end of lines, the csv module of Python before 3.13 does not quote a carriage
    # return, which would begin a new cell.
    csv.writer(file, lineterminator=_QUOTED_ENDS).writerow(cells)
    return file.getvalue().removesuffix(_QUOTED_ENDS) + "\n"


def _field(value: Any) -> Any:
    match value:
        case None:
            return ""
        case float() if not math.isfinite(value):
            return float_name(value)
        case Mapping() | list() | tuple():
            return json.dumps(plain(value), allow_nan=False)
        case bool() | int() | float():
            return value
        case _:
            return neutralised(str(value))


def spent(seconds: Any) -> str:
    """Return a time span as text, short ones with a fraction, down to milliseconds.

    Example:
        >>> spent(0.00025), spent(0.01234), spent(7.31), spent(101.0)
        ('0s', '0.012s', '7.3s', '1m41s')
    """
    return f"{round(seconds, 3):.2g}s" if seconds < _BRIEF_S else duration(seconds)


def distinct(columns: Sequence[Column]) -> list[Column]:
    """Return the columns with headings that are unique, using the keys where titles collide."""
    keys = {column.key for column in columns}
    titles: set[str] = set()
    found = []
    for column in columns:
        is_taken = column.title in titles or column.title in keys - {column.key}
        found.append(replace(column, title="") if is_taken else column)
        titles.add(found[-1].title or column.key)
    return found


def table_of(records: Sequence[Record], columns: Sequence[Column]) -> tables.Table:
    """Return records as a table with these columns."""
    headings = {column.key: column.heading for column in columns}
    return tables.Table(
        [
            tables.Column(
                column.heading,
                [column.cell(record) for record in records],
                column.rank,
                all(isinstance(record.get(column.key), int | float | None) for record in records),
                # A partner that is no column at all has no heading that could be found.
                beside=headings.get(column.beside, column.beside),
            )
            for column in columns
        ],
        cell_styles=_STYLES,
        header_style="bold",
    )


def _draw(table: tables.Table) -> None:
    """Draw a table that fits the terminal, and say which columns are left out."""
    from rich.console import Console  # noqa: PLC0415  (only on a terminal)
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=shutil.get_terminal_size().columns, highlight=False)
    console.print(table)
    shown = table.fitting(console.width)
    if len(shown) < len(table.columns):
        left_out = ", ".join(column.title for column in table.columns if column not in shown)
        text = shorten(f"not enough room for: {left_out}", console.width)
        console.print(Text(text, style="dim"))
