"""What a program tells about its training: lines of output, lines of JSON, rows of a file."""

from __future__ import annotations

import csv
import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

AUTO: Final = "auto"
_PROGRESS: Final = ("epoch", "step")
"""Metrics that become ``training_iteration`` by themselves, the first one that is there."""
TRAINING_ITERATION: Final = "training_iteration"
_NUMBER: Final = r"[-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf"
_NAMED_NUMBER: Final = re.compile(
    r"(?P<name>[A-Za-z][\w./@-]*(?: [A-Za-z][\w./@-]*)?)"
    rf"\s*(?:[:=]|\s|is)\s*(?P<number>{_NUMBER})(?![\w.])",
    re.IGNORECASE,
)
_WITH_THOUSANDS: Final = re.compile(r"[-+]?\d{1,3}(,\d{3})+\.\d*|[-+]?\d{1,3}(,\d{3}){2,}")
"""Numbers in which commas separate thousands; in 1,000 it may be a decimal comma."""
_MAX_SHOWN: Final = 120
_MAX_ROW: Final = 1 << 16
"""Letters after which a row of CSV ends even in quotes."""


def compiled(patterns: str | Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of the metrics in a program's output.

    Raises:
        TypeError: If they are neither a string nor several.
        ValueError: If one is no regular expression, or has no named group.
    """
    given = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise TypeError(f"report must be regular expressions, got {patterns!r:.80}")
    return tuple(map(_compiled, given))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except re.error as cause:
        raise ValueError(
            f"report must be a regular expression, got {pattern!r}: {cause}; escape characters "
            "such as ( and [ that are meant literally by a backslash"
        ) from cause
    if not found.groupindex:
        raise ValueError(
            f"report must have a named group for each metric, got {pattern!r}; write for example "
            r"'val_loss: (?P<val_loss>\S+)'"
        )
    return found


def number_or_text(text: str) -> Any:
    """Return a number that was printed, or the text if it is none.

    Example:
        >>> number_or_text("1,000.5"), number_or_text("98.5%"), number_or_text("yes")
        (1000.5, 98.5, 'yes')
    """
    stripped = text.strip().rstrip(",;").removesuffix("%")
    if _WITH_THOUSANDS.fullmatch(stripped):
        stripped = stripped.replace(",", "")
    for kind in (int, float):
        try:
            return kind(stripped)
        except ValueError:
            continue
    return text.strip()


@final
class OutputReports:
    """Results in lines of output.

    What several patterns find is collected; a line that matches the last one of them completes a
    result. If the others are found only after the first result, and before another one, the program
    prints them in another order, and the one that is found last completes all further results.

    Args:
        patterns: From `compiled`.

    Attributes:
        never_found: The patterns that no line has matched.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self._patterns = patterns
        self.never_found = list(patterns)
        self._completing = patterns[-1] if patterns else None
        self._missing: list[re.Pattern[str]] = []
        self._num_results = 0
        self._collected: dict[str, Any] = {}

    def read(self, line: str) -> dict[str, Any] | None:
        """Return the result that a line completes, None for none."""
        matched = []
        for pattern in self._patterns:
            if found := pattern.search(line):
                matched.append(pattern)
                self._collected |= {
                    name: number_or_text(text)
                    for name, text in found.groupdict().items()
                    if text is not None
                }
        if matched and (self.never_found or self._missing):
            self._note(matched)
        if not (self._completing in matched and self._collected):
            return None
        result, self._collected = self._collected, {}
        self._num_results += 1
        self._missing = list(self.never_found) if self._num_results == 1 else []
        return result

    def _note(self, matched: Sequence[re.Pattern[str]]) -> None:
        """Note what was found, and the order that it shows."""
        self.never_found = [one for one in self.never_found if one not in matched]
        if self._missing and not set(self._missing) & set(self.never_found):
            self._completing = matched[-1]
            self._missing, self._collected = [], {}


@final
class JsonReports:
    """Results as lines of JSON.

    Attributes:
        num_refused: How many lines were no JSON objects.
        first_refused: The first of them.
    """

    def __init__(self) -> None:
        self.num_refused = 0
        self.first_refused = ""

    def read(self, line: str) -> dict[str, Any] | None:
        """Return the result in a line, None if it is empty or no JSON object."""
        if not line.strip():
            return None
        try:
            result = json.loads(line)
        except (ValueError, RecursionError):
            result = None
        if isinstance(result, dict) and result:
            return result
        self.num_refused += 1
        self.first_refused = self.first_refused or line.strip()[:_MAX_SHOWN]
        return None


@final
class FileReports:
    """Results in a file that the program appends to: CSV with a header, or lines of JSON.

    A file that the program writes anew, as some loggers do when a column is added, is read again
    without the rows that have been read. One that begins with another row is read whole.

    Args:
        is_csv: Whether it is CSV; None to find out by its first line.
        num_old: How many bytes of it are of an earlier run.
    """

    def __init__(self, *, is_csv: bool | None = None, num_old: int = 0) -> None:
        self.json = JsonReports()
        self._is_csv = is_csv
        self._num_old = num_old
        self._num_read = 0
        self._first: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        self._rest = b""
        self._open_cell = ""
        self._offset = self._num_rows = 0
        self._header: list[str] | None = None
        self._delimiter = ","

    @property
    def offset(self) -> int:
        """From which byte on the file is to be read next."""
        return self._offset

    def restart(self) -> None:
        """Note that the file is another one, or has become shorter."""
        self._begin()
        self._num_old = 0

    def read(self, data: bytes, *, is_end: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the results in the next part of the file.

        Args:
            data: The part, from `offset` on.
            is_end: Whether nothing will follow, so that a last line needs no end.
        """
        begin = self._offset - len(self._rest)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (is_end or _is_object(self._rest)):
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            begin += len(line) + 1
            row = self._row(line.decode("utf-8", "replace").rstrip("\r").lstrip("\ufeff"))
            if row is not None and begin > self._num_old and self._is_new(row):
                yield row

    def _is_new(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has not been read, in this file or one that it replaces."""
        self._num_rows += 1
        if self._num_rows == 1:
            first = {name: repr(value) for name, value in row.items()}
            if not self._first.items() <= first.items():
                self._num_read = 0
            self._first = first
        if self._num_rows <= self._num_read:
            return False
        self._num_read = self._num_rows
        return True

    def _row(self, line: str) -> dict[str, Any] | None:
        if not (line.strip() or self._open_cell):
            return None
        if self._is_csv is None:
            self._is_csv = not line.lstrip().startswith("{")
        return self._csv_row(line) if self._is_csv else self.json.read(line)

    def _csv_row(self, line: str) -> dict[str, Any] | None:
        if self._header is None:
            self._delimiter = next((one for one in "\t;" if one in line), ",")
        text = f"{self._open_cell}\n{line}" if self._open_cell else line
        # A cell in quotes may have several lines.
        is_open = text.count('"') % 2 and re.search(rf'(^|{self._delimiter})"', text)
        self._open_cell = text if is_open and len(text) < _MAX_ROW else ""
        if self._open_cell:
            return None
        try:
            cells = next(csv.reader([text], delimiter=self._delimiter))
        except csv.Error:
            return None
        if self._header is None:
            self._header = [cell.strip() for cell in cells]
            return None
        if [cell.strip() for cell in cells] == self._header:
            return None  # written again by a part of the program
        row = {
            name: number_or_text(cell)
            for name, cell in zip(self._header, cells, strict=False)
            if name and cell.strip()
        }
        return row or None


def _is_object(line: bytes) -> bool:
    """Return whether a line is a whole JSON object, which needs no end of the line."""
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


@final
class Progress:
    """Counts a program's own epochs or steps as iterations.

    Args:
        name: The metric that becomes ``training_iteration``; `AUTO` for ``epoch``, or else
            ``step``; None for none.
        iteration: The iteration at which the attempt begins.
    """

    def __init__(self, name: str | None, iteration: int) -> None:
        self._names = _PROGRESS if name == AUTO else tuple(filter(None, [name]))
        self._iteration = iteration

    def counted(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return metrics with the iteration that they were reported at.

        It grows with each result even where the program's own count does not, as it does not from
        0 to the first epoch.
        """
        name = next((name for name in self._names if name in metrics), None)
        value = metrics.get(TRAINING_ITERATION, metrics[name] if name else None)
        self._iteration += 1
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value != int(value)
            or value <= self._iteration
        ):
            return dict(metrics)
        self._iteration = int(value)
        return {**metrics, TRAINING_ITERATION: self._iteration}


class PrintedNumber(NamedTuple):
    """A number in a program's output.

    Attributes:
        text: The number with the words before it.
        pattern: A regular expression that finds it.
    """

    text: str
    pattern: str


def nearest_number(lines: Iterable[str], names: Sequence[str]) -> PrintedNumber | None:
    """Return what looks most like a metric in a program's output, None for nothing.

    Args:
        lines: The last lines of the output.
        names: Metrics that were expected; any that ends in a number is taken where there are none.
    """
    wanted = [re.split(r"[./]", name)[-1].lower() for name in names]
    best: tuple[float, re.Match[str] | None] = (0.0, None)
    for line in lines:
        for found in _NAMED_NUMBER.finditer(line):
            written = re.sub(r"\W", "_", found["name"]).lower()
            likeness = max(
                (difflib.SequenceMatcher(None, written, name).ratio() for name in wanted),
                default=0.5,
            )
            if likeness >= max(best[0], 0.4):
                best = likeness, found
    if best[1] is None:
        return None
    found = best[1]
    metric = names[0] if names else (re.sub(r"\W", "_", found["name"]))
    before = re.escape(found.string[found.start("name") : found.start("number")])
    return PrintedNumber(found[0], rf"{before.replace(chr(92) + ' ', ' ')}(?P<{metric}>\S+)")
