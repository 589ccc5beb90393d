"""Values as short text that is safe to print."""

from __future__ import annotations

import re
from typing import Any, Final

from tuner.core.worker_records import WorkerGroup

_ELLIPSIS = "…"
_MAX_ITEMS = 20
_PER_UNIT_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN: Final = re.compile(r"(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>[smhd]))")


def printable(text: str) -> str:
    r"""Return the text with control characters escaped, line breaks included.

    Example:
        >>> print(printable("a\x1b[31mb\nc"))
        a\x1b[31mb\nc
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def show(value: Any, limit: int = 20) -> str:
    """Return a metric or a hyperparameter as text of at most `limit` characters.

    Example:
        >>> show(0.00123456), show("a_very_long_name_of_an_optimizer"), show(None)
        ('0.001235', 'a_very_lon…optimizer', '-')
    """
    match value:
        case None:
            return "-"
        case bool() | int():
            return shorten(str(value), limit)
        case float():
            return f"{value:.4g}"
        case list() | tuple() | dict() if len(value) > _MAX_ITEMS:
            return f"{type(value).__name__} of {len(value)}"
        case _:
            return shorten(printable(str(value)), limit)


def group_text(group: WorkerGroup) -> str:
    """Return the number of workers, and what each of them occupies.

    Example:
        >>> group_text(WorkerGroup(2, {"cpu": 4.0, "gpu": 0.5}, 2, 2))
        '2 x CPU 4, GPU 0.5'
    """
    shares = ", ".join(
        f"{resource_name(name)} {amount:g}"
        for name, amount in group.resources_per_worker.items()
        if amount
    )
    return f"{group.num_workers} x {shares}" if shares else str(group.num_workers)


def resource_name(name: str) -> str:
    """Return a resource's name as it is shown."""
    return name.upper() if name in ("cpu", "gpu") else printable(name)


def shorten(text: str, limit: int) -> str:
    """Return the text cut in the middle to at most `limit` characters."""
    if len(text) <= limit:
        return text
    # Names differ most at their beginnings and ends.
    head = limit // 2
    tail = limit - head - 1
    return text[:head] + _ELLIPSIS + (text[-tail:] if tail else "")


def duration(seconds: float) -> str:
    """Return a time span in its two biggest units.

    Example:
        >>> duration(7.3), duration(101), duration(7_500)
        ('7s', '1m41s', '2h05m')
    """
    whole = int(seconds)
    if whole < 60:  # noqa: PLR2004  (seconds of a minute)
        return f"{whole}s"
    if whole < 3600:  # noqa: PLR2004  (seconds of an hour)
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time span as tables show it, None for other texts.

    Example:
        >>> seconds_of("1m41s"), seconds_of("2d ago"), seconds_of("0.5")
        (101.0, 172800.0, None)
    """
    span = text.strip().removesuffix(" ago")
    if not span or _SPAN.sub("", span):
        return None
    return sum(float(part["number"]) * _PER_UNIT_S[part["unit"]] for part in _SPAN.finditer(span))
