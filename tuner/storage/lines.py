"""Lines of the journal: what stands in a record, and the checksum in front of it.

Each record of each turn becomes one, before anybody is answered; so they are put together in C, beside this file, where a compiler was
there, and in Python where it was not.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

HEAD: Final = b'{"q":%d,"e":%d,'
"""What a body begins with, made of sequence number and epoch."""
LINE: Final = b"%08x %b\n"
"""A line, made of the CRC-32 of a body and the body."""


def in_python(form: bytes, values: tuple[Any, ...]) -> tuple[bytes, int]:
    r"""Return the line of a record, and the CRC-32 of its body.

    Args:
        form: The body, with places for integers (``%d``), bytes (``%b``) and finite floats (``%a``).
        values: What stands in them, in their order.

    Example:
        >>> in_python(b'{"a":%d,"t":%a}', (1, 0.5))
        (b'61d3c720 {"a":1,"t":0.5}\n', 1641269024)
    """
    body = form % values
    crc = crc32(body)
    return LINE % (crc, body), crc


filled: Callable[[bytes, tuple[Any, ...]], tuple[bytes, int]] = in_python
"""The faster of the two that is there."""
with suppress(ImportError):  # no compiler was there when this was installed
    filled = importlib.import_module("._lines", __package__).filled
