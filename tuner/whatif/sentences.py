"""Words and tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.callbacks.formatting import duration

_MINUTE_S = 60.0


def span(seconds: float) -> str:
    """Return a time span, short ones to the millisecond.

    Example:
        >>> span(7.3), span(0.0123), span(-101.0)
        ('7.3s', '0.012s', '-1m41s')
    """
    if abs(seconds) < _MINUTE_S:
        return f"{round(seconds, 2 if abs(seconds) >= 1 else 3) or 0.0:g}s"
    return ("-" if seconds < 0 else "") + duration(abs(seconds))


def percent(share: float) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.614)
        '61 %'
    """
    return f"{100 * share:.0f} %"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of a table, the first column to the left and the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    return [f"  {line}" for line in lines]
