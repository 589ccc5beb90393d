"""Lines and tables to be shown, independent of terminal, notebook or log file."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

GAP: Final = "  "
"""What stands between two things in a line."""


class Tone(enum.StrEnum):
    """How a text stands out; what that looks like is up to whoever draws it."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line.

    Attributes:
        text: Safe to print, without line breaks.
        tone: How it stands out.
    """

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text.

    Attributes:
        pieces: Its parts, with everything that stands between them.
        is_whole: Whether it is never cut, e.g. since it is a path to be copied.
    """

    pieces: Sequence[Piece]
    is_whole: bool = False

    @property
    def text(self) -> str:
        """The line without its tones."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        cells: One text per row.
        rank: Columns with higher ranks are left out first where there is no room; rank 0 always
            stays.
        is_number: Whether it is set flush right.
        can_shrink: Whether its cells may be cut where there is no room.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    is_number: bool = False
    can_shrink: bool = False

    @property
    def width(self) -> int:
        """How many columns of a terminal it needs."""
        from rich.cells import cell_len  # noqa: PLC0415  (only where something is shown)

        return max(cell_len(text) for text in (self.title, *self.cells))


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with a heading.

    Attributes:
        columns: From left to right, all of the same length.
        tones: How each row stands out.
    """

    columns: Sequence[Column]
    tones: Sequence[Tone]

    def fitting(self, width: int) -> Table:
        """Return the table with the columns for which there is room, those of the lowest ranks first."""
        chosen: set[int] = set()
        room = width + len(GAP)
        # A stable sort: among equals the leftmost column is the first to get room.
        for index in sorted(range(len(self.columns)), key=lambda index: self.columns[index].rank):
            size = self.columns[index].width + len(GAP)
            if self.columns[index].rank == 0 or size <= room:
                chosen.add(index)
                room -= size
        columns = [column for index, column in enumerate(self.columns) if index in chosen]
        return replace(
            self,
            columns=[
                _shrunk(column, room) if column.can_shrink and room < 0 else column
                for column in columns
            ],
        )

    def lines(self, width: int) -> list[Line]:
        """Return the table as lines, heading first; nothing where there are no rows."""
        if not self.tones:
            return []
        columns = self.fitting(width).columns
        sizes = [column.width for column in columns]
        rows = [
            [column.title for column in columns],
            *([column.cells[row] for column in columns] for row in range(len(self.tones))),
        ]
        texts = [
            GAP.join(
                _set(cell, size, column)
                for cell, size, column in zip(row, sizes, columns, strict=True)
            ).rstrip()
            for row in rows
        ]
        return [
            Line((Piece(text, tone),))
            for text, tone in zip(texts, (Tone.FAINT, *self.tones), strict=True)
        ]


View = Sequence[Line | Table]
"""What is shown, from top to bottom."""


def line(*parts: str | Piece | Line, is_whole: bool = False) -> Line:
    """Return the parts with gaps between them; empty ones are left out."""
    pieces: list[Piece] = []
    for part in parts:
        new = (
            part.pieces
            if isinstance(part, Line)
            else (part if isinstance(part, Piece) else Piece(part),)
        )
        if any(piece.text for piece in new):
            pieces += [Piece(GAP), *new] if pieces else new
    return Line(pieces, is_whole)


def rendered(view: View, width: int) -> list[Line]:
    """Return a view as lines, none of which is longer than the width unless it is whole; empty ones are left out."""
    lines = (
        part
        for block in view
        for part in ([block] if isinstance(block, Line) else block.lines(width))
    )
    return [part if part.is_whole else _cut(part, width) for part in lines if part.pieces]


def texts(lines: Iterable[Line]) -> list[str]:
    """Return lines without their tones."""
    return [part.text for part in lines]


def _cut(long: Line, width: int) -> Line:
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  (only where something is shown)

    if cell_len(long.text) <= width:
        return long
    room, kept = width - 1, []
    for piece in long.pieces:
        size = min(cell_len(piece.text), room)
        kept.append(replace(piece, text=set_cell_size(piece.text, size)))
        room -= size
    return Line([*kept, Piece("…")])


def _set(cell: str, size: int, column: Column) -> str:
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  (only where something is shown)

    return " " * (size - cell_len(cell)) + cell if column.is_number else set_cell_size(cell, size)


def _shrunk(column: Column, missing: int) -> Column:
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  (only where something is shown)

    size = max(column.width + missing, len(column.title), 10)
    cells = [
        cell if cell_len(cell) <= size else set_cell_size(cell, size - 1) + "…"
        for cell in column.cells
    ]
    return replace(column, cells=cells)
