"""Selection of rows and columns: ``--filter``, ``--sort``, ``--columns``, ``--limit``."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import click

from tuner.callbacks.formatting import seconds_of

from .output import Column, Output, Record, distinct

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_CONDITION: Final = re.compile(
    r"\s*(?P<column>.+?)\s*(?P<operator>==|!=|<=|>=|<|>|=)\s*(?P<value>.*?)\s*"
)
_PREFIX: Final = "config/"
ALL: Final = "all"
"""Value of ``--columns`` for all columns."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the value of a column.

    Attributes:
        column: Name of a column.
        operator: One of ``== != < <= > >=``.
        value: The other operand: compared as a number if both are numbers, or a number of seconds
            and a time span such as ``1m30s``, else as text.
    """

    column: str
    operator: str
    value: str

    def holds(self, value: Any) -> bool:
        """Return whether a value meets it; None never does."""
        if value is None:
            return False
        there, wanted = _number(value), _number(self.value)
        if isinstance(value, int | float) and wanted is None:
            wanted = seconds_of(self.value)
        if there is None or wanted is None:
            text = _text(self.value)
            if isinstance(value, bool):  # as tables show it, or as JSON does
                text = {"yes": "true", "no": "false"}.get(text, text)
            return _OPERATORS[self.operator](_text(value), text)
        return _OPERATORS[self.operator](there, wanted)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool) or str(value) in ("True", "False")
        else str(value)
    )


@final
class ConditionType(click.ParamType[Condition]):
    """``"<column> <operator> <value>"``."""

    name = "condition"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Condition:
        """Return the condition."""
        found = _CONDITION.fullmatch(value)
        if found is None:
            self.fail(
                f'{value!r} is not a condition; write "<column> <operator> <value>" with one of == '
                f"!= < <= > >=",
                param,
                ctx,
            )
        if found["operator"] == "=" and found["value"][:1] in ("<", ">"):
            meant = f"{found['value'][0]}="
            self.fail(
                f"{value!r} is not a condition; write {meant} for ={found['value'][0]}", param, ctx
            )
        return Condition(found["column"], found["operator"], found["value"])


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows and columns of a table to show.

    Attributes:
        conditions: All of them have to hold.
        sort: Columns to sort by, the most important first; lines without a value, or with NaN,
            come last.
        is_descending: Largest first.
        columns: Columns to show; none for the usual ones.
        limit: How many lines at most; None for all.
    """

    conditions: Sequence[Condition] = ()
    sort: Sequence[str] = ()
    is_descending: bool = False
    columns: Sequence[str] = ()
    limit: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether any option was given."""
        return bool(
            self.conditions
            or self.sort
            or self.is_descending
            or self.columns
            or self.limit is not None
        )

    def of(self, records: Sequence[Record], usual: Sequence[Column] = ()) -> list[Record]:
        """Return the selected records, in order.

        Args:
            records: All records.
            usual: The default columns, which may be named by their headings too.

        Raises:
            click.UsageError: If there is no such column.
        """
        names = list(dict.fromkeys(name for record in records for name in record))
        tests = [
            (resolved(condition.column, names, usual), condition) for condition in self.conditions
        ]
        chosen = [
            record
            for record in records
            if all(condition.holds(record.get(name)) for name, condition in tests)
        ]
        for name in reversed([resolved(name, names, usual) for name in self.sort]):
            chosen = _sorted(chosen, name, is_descending=self.is_descending)
        return chosen[: self.limit]

    def write(self, records: Sequence[Record], usual: Sequence[Column], output: Output) -> int:
        """Write the selected part of a table, and return its number of lines.

        Args:
            records: All its lines.
            usual: Columns of tables if none are requested; CSV and JSON get all columns then.
            output: Where to write.

        Raises:
            click.UsageError: If there is no such column.
        """
        usual = distinct(usual)
        lines, columns = self.of(records, usual), self.columns_among(usual, records)
        if self.columns:
            lines = [{column.key: line.get(column.key) for column in columns} for line in lines]
        output.write(lines, columns)
        return len(lines)

    def columns_among(self, usual: Sequence[Column], records: Sequence[Record]) -> list[Column]:
        """Return the requested columns, or the default ones that have a value.

        Raises:
            click.UsageError: If there is no such column.
        """
        names = list(dict.fromkeys(name for record in records for name in record))
        known = {column.key: column for column in usual}
        if not self.columns:
            return [
                column
                for column in usual
                if any(record.get(column.key) is not None for record in records)
            ]
        wanted = (
            names
            if list(self.columns) == [ALL]
            else [resolved(name, names, usual) for name in self.columns]
        )
        return [dataclasses.replace(known.get(name, Column(name)), beside="") for name in wanted]


def _sorted(records: Iterable[Record], name: str, *, is_descending: bool) -> list[Record]:
    known: list[Record] = []
    unknown: list[Record] = []
    for record in records:
        value = record.get(name)
        is_unknown = value is None or (isinstance(value, float) and math.isnan(value))
        (unknown if is_unknown else known).append(record)
    are_numbers = all(isinstance(record[name], int | float) for record in known)
    known.sort(
        key=lambda record: record[name] if are_numbers else str(record[name]), reverse=is_descending
    )
    return known + unknown


def resolved(name: str, names: Sequence[str], usual: Sequence[Column] = ()) -> str:
    """Return a column's key, given its key, its heading or the name of a hyperparameter.

    Args:
        name: The user's text.
        names: All keys.
        usual: The columns that have headings.

    Raises:
        click.UsageError: If there is none; names similar ones.
    """
    by_heading = {_as_word(column.heading): column.key for column in reversed(usual)}
    for candidate in (name, by_heading.get(_as_word(name), name), _PREFIX + name):
        if candidate in names or not names:
            return candidate
    known = [
        *names,
        *(
            column.heading
            for column in usual
            if column.key in names and column.heading not in names
        ),
    ]
    close = difflib.get_close_matches(name, known, n=3) or [
        other for other in names if other.endswith(f"/{name}")
    ]
    listed = (
        f"did you mean {' or '.join(map(repr, close))}?"
        if close
        else f"there are {', '.join(known)}"
    )
    raise click.UsageError(f"there is no column {name!r}; {listed}")


def _as_word(heading: str) -> str:
    return heading.lower().replace(" ", "_")


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a selection to a command, passed as the argument `chosen`."""

    @functools.wraps(function)
    def with_selection(
        *,
        conditions: Sequence[Condition],
        sort: Sequence[str],
        desc: bool,
        columns: Sequence[str],
        limit: int | None,
        **rest: Any,
    ) -> Any:
        return function(
            chosen=Selection(conditions, _listed(sort), desc, _listed(columns), limit), **rest
        )

    options = [
        click.option(
            "--filter",
            "conditions",
            type=ConditionType(),
            multiple=True,
            metavar="CONDITION",
            help='Lines to keep, as "<column> <op> <value>" with == != < <= > >=; repeat it for '
            "several.",
        ),
        click.option(
            "--sort",
            multiple=True,
            metavar="COLUMNS",
            help="Columns to sort by, separated by commas.",
        ),
        click.option("--desc", is_flag=True, help="Sort largest first."),
        click.option(
            "--columns",
            multiple=True,
            metavar="COLUMNS",
            help='Columns to show, separated by commas; "all" for all.',
        ),
        click.option(
            "--limit",
            "-n",
            type=click.IntRange(min=0),
            metavar="N",
            help="The maximum number of lines.",
        ),
    ]
    wrapped: Callable[..., Any] = with_selection
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _listed(given: Sequence[str]) -> list[str]:
    return [name.strip() for text in given for name in text.split(",") if name.strip()]
