"""Tables for people: fitted to a terminal by rich, plain text where no width has to be kept.

The live display, its summary, the command line, the text of results and what-if answers all draw
their tables here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table as RichTable

GAP: Final = "  "
"""What separates two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its heading.
        cells: One printable text per row.
        rank: Columns with higher ranks are left out first where there is no room; rank 0 always
            stays.
        is_number: Whether it is aligned to the right.
        min_width: To how many characters its cells may be cut where there is no room for the
            columns of rank 0; None for not at all.
        beside: Title of the column without which it means nothing, such as a value without its
            metric; it is left out where that is.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    is_number: bool = False
    min_width: int | None = None
    beside: str = ""

    @property
    def width(self) -> int:
        """How many columns of a terminal it needs, twice as many for a wide character."""
        from rich.cells import cell_len  # noqa: PLC0415  (only where a table is drawn)

        return max(cell_len(text) for text in (self.title, *self.cells))


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a heading, which rich's ``Console.print`` and ``Live`` accept.

    Attributes:
        columns: From left to right, all of the same length.
        row_styles: The rich style of each row, empty for none.
        cell_styles: The rich style of cells with a certain text.
        header_style: The rich style of the heading.
    """

    columns: Sequence[Column]
    row_styles: Sequence[str] = ()
    cell_styles: Mapping[str, str] = field(default_factory=dict)
    header_style: str = "dim"

    @property
    def num_rows(self) -> int:
        """How many rows there are below the heading."""
        return len(self.columns[0].cells) if self.columns else 0

    def fitting(self, width: int) -> list[Column]:
        """Return the columns that fit the width: rank 0 always, then lower ranks, left to right.

        A column that is `Column.beside` another one comes after it, and has no lower rank.
        """
        chosen: set[int] = set()
        titles: set[str] = set()
        room = width + len(GAP)
        # A stable sort: of columns with the same rank, the leftmost is the first to get room.
        for index in sorted(range(len(self.columns)), key=lambda index: self.columns[index].rank):
            column = self.columns[index]
            if column.beside and column.beside not in titles:
                continue
            size = column.width + len(GAP)
            if column.rank == 0 or size <= room:
                chosen.add(index)
                titles.add(column.title)
                room -= size
        return [column for index, column in enumerate(self.columns) if index in chosen]

    def lines(self) -> list[str]:
        """Return the table as lines of plain text, all columns in full, heading first."""
        # Not drawn by rich, which takes a minute for a hundred thousand rows.
        rows = zip(*(column.cells for column in self.columns), strict=True)
        return text_table([[column.title for column in self.columns], *rows])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        """Draw the columns that fit the terminal, as wide as it is at this moment."""
        from rich.table import Table as RichTable  # noqa: PLC0415  (only where a table is drawn)
        from rich.text import Text  # noqa: PLC0415

        columns = self.fitting(options.max_width)
        table = RichTable(
            box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style=self.header_style
        )
        for column, size in zip(columns, _sizes(columns, options.max_width), strict=True):
            table.add_column(
                Text(column.title),
                justify="right" if column.is_number else "left",
                width=size,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in range(self.num_rows):
            cells = [column.cells[row] for column in columns]
            # Text objects, since rich would read markup in a string.
            texts = [Text(cell, style=self.cell_styles.get(cell, "")) for cell in cells]
            table.add_row(*texts, style=self.row_styles[row] if self.row_styles else None)
        yield table


def text_table(rows: Sequence[Sequence[str]], *, align_right: bool = False) -> list[str]:
    """Return rows of cells as lines of a plain text table, two spaces between columns.

    Args:
        rows: The cells, as many in each row.
        align_right: Whether all columns but the first are aligned to the right, as numbers are.

    Example:
        >>> text_table([["", "time"], ["in full", "8s"]], align_right=True)
        ['         time', 'in full    8s']
    """
    from rich.cells import cell_len  # noqa: PLC0415  (only where a table is drawn)

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pads = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            pad + cell if align_right and index else cell + pad
            for index, (cell, pad) in enumerate(zip(row, pads, strict=True))
        ]
        lines.append(GAP.join(cells).rstrip())
    return lines


def _sizes(columns: Sequence[Column], width: int) -> list[int]:
    """Return how wide to draw the columns: narrowed to the width, the widest first.

    Where even the narrowest do not fit, rich cuts all of them.
    """
    sizes = [column.width for column in columns]
    narrowed = [index for index, column in enumerate(columns) if column.min_width is not None]
    while sum(sizes) + len(GAP) * (len(sizes) - 1) > width:
        narrowed = [index for index in narrowed if sizes[index] > (columns[index].min_width or 0)]
        if not narrowed:
            break
        sizes[max(narrowed, key=sizes.__getitem__)] -= 1
    return sizes
