"""HTML rendering of a view for notebooks, without scripts or style sheets."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from .view import Column, Line, Table, Tone, View

_BLOCK: Final = "font-size:13px;font-family:var(--jp-code-font-family,ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace)"
_LINE: Final = "white-space:pre-wrap;line-height:1.6"
_TABLE: Final = "border-collapse:collapse;margin:6px 0;font-size:13px;border:none"
_CELL: Final = "padding:2px 12px 2px 0;white-space:pre;border:none;background:none"
_TONES: Final = {
    Tone.PLAIN: "",
    Tone.STRONG: "font-weight:bold",
    Tone.FAINT: "opacity:0.65",
    Tone.GOOD: "color:#2e9e4f",
    Tone.BAD: "color:#d9453d",
}
"""Colours that have enough contrast on white as well as on black."""


def html_of(view: View, width: int) -> str:
    """Return a view as HTML, everything in it escaped.

    Args:
        view: What to show.
        width: For how many characters there are columns in tables.
    """
    return f'<div style="{_BLOCK};overflow-x:auto">{"".join(_blocks(view, width))}</div>'


def _blocks(view: View, width: int) -> Iterator[str]:
    for block in view:
        if isinstance(block, Table):
            yield _table(block.fitting(width)) if block.tones else ""
        elif block.pieces:
            yield f'<div style="{_LINE}">{_inline(block)}</div>'


def _inline(line: Line) -> str:
    return "".join(_toned(piece.text, piece.tone) for piece in line.pieces)


def _toned(text: str, tone: Tone) -> str:
    return f'<span style="{_TONES[tone]}">{escape(text)}</span>' if _TONES[tone] else escape(text)


def _table(table: Table) -> str:
    heading = "".join(_cell("th", column.title, column, Tone.FAINT) for column in table.columns)
    rows = (
        "<tr>"
        + "".join(_cell("td", column.cells[row], column, tone) for column in table.columns)
        + "</tr>"
        for row, tone in enumerate(table.tones)
    )
    return f'<table style="{_TABLE}"><thead><tr>{heading}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _cell(tag: str, text: str, column: Column, tone: Tone) -> str:
    style = f"{_CELL};text-align:{'right' if column.is_number else 'left'};{_TONES[tone]}"
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'
