"""Lines of the journal: what stands in a record, and the checksum in front of it.

Each record of each turn becomes one, before anybody is answered; so they are put together in C, beside this file, where a compiler was
there, and in Python where it was not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

HEAD: Final = b'{"q":%d,"e":%d,'
"""What a body begins with, made of sequence number and epoch."""
STAMP: Final = b"%.6f"
"""Where a form has seconds, which are whole microseconds."""
MAX_STAMP_S: Final = 1e9
"""Stamps are below."""
LINE: Final = b"%08x %b\n"
"""A line, made of the CRC-32 of a body and the body."""


def in_python(form: bytes, values: tuple[Any, ...]) -> tuple[bytes, int]:
    r"""Return the line of a record, and the CRC-32 of its body.

    Args:
        form: The body, with places for integers (``%d``), bytes (``%b``) and stamps (`STAMP`).
        values: What stands in them, in their order.

    Example:
        >>> in_python(b'{"a":%d,"t":%.6f}', (1, 0.5))
        (b'2805585e {"a":1,"t":0.500000}\n', 671438942)
    """
    body = form % values
    crc = crc32(body)
    return LINE % (crc, body), crc


filled: Callable[[bytes, tuple[Any, ...]], tuple[bytes, int]] = in_python
"""The faster of the two that is there."""
with suppress(ImportError):  # no compiler was there when this was installed
    from ._lines import filled as in_c

    filled = in_c
