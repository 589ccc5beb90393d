"""Escaping of CSV cells that a spreadsheet would run as formulas.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return
for a formula, quoted or not, and a formula may read other cells, open addresses and start programs.
As OWASP recommends, such a text gets an apostrophe in front. Who reads the file back takes it away
again.

Reference:
    OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = "'"
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r]")
"""With any number of marks in front, so that a text that begins with marks is restored exactly."""
_NUMBER: Final = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-](inf|infinity)", re.IGNORECASE | re.ASCII
)


def is_formula(cell: object) -> bool:
    """Return whether a spreadsheet might run a cell, or its text looks like an escaped formula.

    Example:
        >>> [is_formula(cell) for cell in ("=1+2", "'=1+2", "-0.5", "plain", -0.5)]
        [True, True, False, False, False]
    """
    return (
        isinstance(cell, str)
        and _FORMULA.match(cell) is not None
        and _NUMBER.fullmatch(cell) is None
    )


def neutralised(text: str) -> str:
    """Return the text as a cell that no spreadsheet runs.

    Example:
        >>> neutralised("=1+2"), neutralised("-0.5"), neutralised("it's")
        ("'=1+2", '-0.5', "it's")
    """
    return _MARK + text if is_formula(text) else text


def restored(cell: str) -> str:
    """Return the text of which `neutralised` has made the cell.

    Example:
        >>> restored("'=1+2"), restored("it's")
        ('=1+2', "it's")
    """
    return cell[1:] if cell[:1] == _MARK and is_formula(cell[1:]) else cell
