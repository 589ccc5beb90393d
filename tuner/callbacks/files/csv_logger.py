"""Logger of ``progress.csv``: one row per result, one column per metric."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import orjson

from tuner.callbacks.log_records import Row, Segment, Validated
from tuner.core import result as keys
from tuner.core.result import flatten, is_same_report, merged
from tuner.core.trial import Trial
from tuner.storage.disk import LARGE_BYTES, read_file
from tuner.storage.layout import PROGRESS, VALIDATIONS
from tuner.storage.spreadsheets import is_formula, neutralised, restored

from .append import remove
from .background_writer import Pace
from .trial_file import TrialFile, TrialFileLogger
from .validations_file import metrics_by_report, read_validations, report_key

_AUTO_FILLED = (
    keys.TIMESTAMP,
    keys.CHECKPOINT_DIR_NAME,
    keys.SHOULD_CHECKPOINT,
    keys.DONE,
    keys.TRAINING_ITERATION,
    keys.TRIAL_ID,
    keys.DATE,
    keys.TIME_THIS_ITER_S,
    keys.TIME_TOTAL_S,
    keys.PID,
    keys.HOSTNAME,
    keys.NODE_IP,
    keys.TIME_SINCE_RESTORE,
    keys.ITERATIONS_SINCE_RESTORE,
    keys.TIMESTEPS_THIS_ITER,
    keys.TIMESTEPS_TOTAL,
    keys.EPISODES_THIS_ITER,
    keys.EPISODES_TOTAL,
    keys.NUM_EXPLOITS,
    keys.EXPERIMENT_TAG,
)
_LINE_END = "\r\n"
"""That of RFC 4180. Before Python 3.13 it is the only one with which the csv module quotes both
characters inside a value."""
_QUOTED_FORMULA = re.compile(rb'"\'*[=+\-@]')
"""A text in JSON that may be a formula; formulas with other first characters are escaped there."""
_WORDS = {b"null": b"", b"true": b"True", b"false": b"False"}
"""Cells that are neither numbers nor texts, in JSON and in CSV."""
_NUMBERS_AND_TEXTS = frozenset({float, int, str})
_MAX_CELL = 100_000
"""Longer texts are cut: the csv module rejects fields of more than 131,072 characters."""


class CSVLoggerCallback(TrialFileLogger):
    """Writes ``progress.csv`` into each trial's directory, without the configuration.

    Nested metrics are flattened to ``a/b``. The columns are the user's numbers and texts first, in
    the order of the first result, then the engine's, in a fixed order, then nested metrics, then
    metrics that first appear in a later result. A cell is empty if a result has no such metric.
    Metrics of a checkpoint's validation are added to its row when the trial is over.
    Texts of more than 100,000 characters are cut. A text or a name that a spreadsheet would run as
    a formula begins with an apostrophe, which `ResultGrid` removes; ``result.json`` has the text as
    reported.

    Args:
        writer: The writer, which loggers may share; None for a new one.

    Departures:
        In Ray Tune the first result fixes the columns, and later metrics are dropped silently;
        here a column is added to the file. Rows that a retry reports again replace earlier ones.
    """

    def open_file(self, directory: str) -> TrialFile:
        """Return the table of one trial."""
        return _CsvFile(directory, self)


@final
class _CsvFile(TrialFile):
    def __init__(self, directory: str, owner: TrialFileLogger) -> None:
        super().__init__(directory, owner)
        self._path = self.path_of(PROGRESS)
        self._columns: dict[str, None] | None = None
        self._validations: list[Validated] = []

    def __str__(self) -> str:
        return self._path

    def is_complete(self, trial: Trial) -> bool:
        num_rows, last = _extent(self._path)
        return num_rows == trial.num_rows and (
            num_rows == 0 or is_same_report(last, trial.last_result)
        )

    def write_segment(self, segment: Segment, pace: Pace[Any]) -> None:
        if self.is_new:
            self._columns = {}
        if (num_kept := self.num_to_keep(segment)) is not None:
            self._cut_back(num_kept)
        if segment.rows:
            self._add_rows(segment, pace)
        self._validations += segment.validations
        if segment.end:
            with suppress(OSError):  # the rows are written, and must not be a second time
                self._add_validated_metrics()

    def _add_rows(self, segment: Segment, pace: Pace[Any]) -> None:
        if self._columns is None:
            self._columns = dict.fromkeys(read_table(self._path)[0])
            if not self._columns:
                remove(self._path)  # at most a torn header
        first = segment.rows[0]
        columns = self._columns or dict.fromkeys(_column_order(first.result, first.flat))
        for row in segment.rows:
            if not columns.keys() >= row.flat.keys():
                columns = columns | dict.fromkeys(row.flat)
        self._write(tuple(columns), segment.rows, pace)
        self._columns = columns

    def _add_validated_metrics(self) -> None:
        """Add the metrics of validations to the rows of their checkpoints."""
        # Those of earlier drivers are in the file that the logger of JSON writes.
        validations = [*read_validations(self.path_of(VALIDATIONS)), *self._validations]
        metrics_of = metrics_by_report(validations)
        if not metrics_of:
            return
        header, lines = read_table(self._path)
        columns = dict.fromkeys(header)
        changed: list[dict[str, Any]] = []
        for line in lines:
            row: dict[str, Any] = dict(zip(header, line, strict=True))
            iteration = row.get(keys.TRAINING_ITERATION) or ""
            metrics = metrics_of.get(report_key(row.get(keys.CHECKPOINT_DIR_NAME), iteration), {})
            changed.append(row | flatten(merged({}, metrics)))
            columns |= dict.fromkeys(changed[-1])
        cells = [[*map(row.get, columns)] for row in changed]
        self.replace(self._path, _header_of(tuple(columns)) + _encode(cells))
        self._columns = columns

    def _write(self, columns: tuple[str, ...], rows: Sequence[Row], pace: Pace[Row]) -> None:
        lines = _lines_of(rows, columns, pace)
        if not self._columns:
            self.append(self._path, _header_of(columns) + lines)
            return
        if len(columns) == len(self._columns):
            self.append(self._path, lines)
            return
        _, old = read_table(self._path)
        padding = [""] * (len(columns) - len(self._columns))
        self.replace(
            self._path, _header_of(columns) + _encode([line + padding for line in old]) + lines
        )

    def _cut_back(self, num_rows: int) -> None:
        """Leave the first rows, at most so many."""
        header, lines = read_table(self._path) if num_rows else ([], [])
        kept = lines[:num_rows]
        if kept:
            self.replace(self._path, _encode([header, *kept]))
        else:
            # No row counts; the next one determines the columns.
            header = []
            remove(self._path)
        self._columns = dict.fromkeys(header)
        self.num_rows = len(kept)


def read_table(path: str | Path) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a ``progress.csv``, without a torn last row; nothing if missing."""
    try:
        text = read_file(path, LARGE_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return [], []
    table = list(csv.reader(io.StringIO(text, newline="")))
    if table and not text.endswith(_LINE_END):
        table.pop()
    header, *rows = [list(map(restored, line)) for line in table] or [[]]
    return header, [row for row in rows if len(row) == len(header)]


def _extent(path: str) -> tuple[int, dict[str, float | str]]:
    """Return the number of rows of a ``progress.csv`` and the last row; -1 if it is damaged."""
    try:
        data = read_file(path, LARGE_BYTES)
    except FileNotFoundError:
        return 0, {}
    if not data.endswith(_LINE_END.encode()):
        return -1, {}
    if b'"' in data:  # where cells may hold line breaks
        header, rows = read_table(path)
        return len(rows), _values(header, rows[-1]) if rows else {}
    ends = (data[: data.find(b"\n")], data[data.rfind(b"\n", 0, -1) + 1 :])
    header, last = (line.decode(errors="replace").rstrip(_LINE_END).split(",") for line in ends)
    num_lines = data.count(b"\n")
    if data.count(b",") != num_lines * (len(header) - 1):
        return -1, {}
    return num_lines - 1, _values(header, last)


def _values(header: Sequence[str], line: Sequence[str]) -> dict[str, float | str]:
    return (
        {name: _value(cell) for name, cell in zip(header, line, strict=True)}
        if len(header) == len(line)
        else {}
    )


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _column_order(result: Mapping[str, Any], flat: Mapping[str, Any]) -> list[str]:
    own = [
        key
        for key, value in result.items()
        if not isinstance(value, dict) and key not in keys.AUTO_FILLED
    ]
    return [*own, *(key for key in _AUTO_FILLED if key in flat), *flat]


@functools.lru_cache(maxsize=64)
def _header_of(columns: tuple[str, ...]) -> bytes:
    return _encode([columns])


def _lines_of(rows: Sequence[Row], columns: tuple[str, ...], pace: Pace[Row]) -> bytes:
    """Return the rows as lines of the file."""
    lines = [[*map(row.flat.get, columns)] for row in pace(rows)]
    return _joined(lines) or _encode(lines)


def _encode(lines: Iterable[Sequence[Any]]) -> bytes:
    """Return lines of these cells, quoted where necessary."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=_LINE_END)
    quoting_writer = csv.writer(text, lineterminator=_LINE_END, quoting=csv.QUOTE_NONNUMERIC)
    for line in lines:
        cells = [neutralised(_shortened(cell)) if isinstance(cell, str) else cell for cell in line]
        (quoting_writer if any(map(is_formula, cells)) else writer).writerow(cells)
    return text.getvalue().encode(errors="backslashreplace")


def _joined(lines: Sequence[list[Any]]) -> bytes | None:
    """Return lines without quotes, which are the usual case, as CSV; None for others.

    orjson writes a list like the csv module a line, except for brackets and quotes, in a tenth of
    the time: formatting floats costs most of a line. It writes 0.00001 for 1e-05, which is the same
    number. Whether anything needs quotes is decided on its output, for all lines at once.
    """
    if not all(keys.SCALARS.issuperset(map(type, line)) for line in lines):
        return None
    num_columns = len(lines[0])
    try:
        data = orjson.dumps(lines) if num_columns > 1 else b"\\"
    except TypeError:  # long integers, half a character
        return None
    # A backslash escapes a character of a text; an extra comma or bracket is part of a text; an
    # extra null is a float that is not finite, or part of a text.
    if (
        b"\\" in data
        or data.count(b",") != num_columns * len(lines) - 1
        or data.count(b"[") != len(lines) + 1
    ):
        return None
    num_nones = sum(line.count(None) for line in lines)
    if data.count(b"null") != num_nones or _QUOTED_FORMULA.search(data):
        return None
    if len(data) > _MAX_CELL and max(map(len, data.split(b"],["))) > _MAX_CELL:
        return None
    for word, cell in _WORDS.items():
        data = data.replace(b"," + word, b"," + cell)
    if not _NUMBERS_AND_TEXTS.issuperset([type(line[0]) for line in lines]):
        for word, cell in _WORDS.items():
            data = data.replace(b"[" + word, b"[" + cell)
    return data[2:-2].replace(b"],[", _LINE_END.encode()).replace(b'"', b"") + _LINE_END.encode()


def _shortened(text: str) -> str:
    return f"{text[:_MAX_CELL]}..." if len(text) > _MAX_CELL else text
