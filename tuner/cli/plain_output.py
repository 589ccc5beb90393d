"""What a trial has printed, made safe for a terminal: only colours pass."""

from __future__ import annotations

import codecs
import re
from typing import Final, final

_COLOUR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_PART: Final = re.compile(r"\x1b(?:\[[0-9;:]*)?\Z")
_LONGEST_PART: Final = 64
"""A longer beginning of a colour is none."""
_HARMLESS: Final = frozenset("\t\n\r")
_HIDDEN: Final = 8
_WITH_ARGUMENTS: Final = {"5": 1, "2": 3}
"""How many numbers follow the kind of an extended colour."""


@final
class PlainOutput:
    """Makes text out of the bytes of one file, which come in pieces.

    Control characters are escaped, among them those with which a text could move the cursor, set
    the clipboard or answer as if it were typed. Colours pass, except invisible ones, and so do
    tabulators and the carriage returns of progress bars.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""

    def text_of(self, data: bytes, *, is_last: bool = False) -> str:
        """Return the text of the next bytes; what may continue a colour or a letter waits.

        Args:
            data: The bytes.
            is_last: Whether nothing follows, so that nothing waits.
        """
        text = self._held + self._decoder.decode(data, is_last)
        part = None if is_last else _PART.search(text, max(0, len(text) - _LONGEST_PART))
        self._held = part.group() if part else ""
        text = text[: part.start()] if part else text
        pieces, end = [], 0
        for colour in _COLOUR.finditer(text):
            pieces.append(_escaped(text[end : colour.start()]))
            is_shown = not _hides(colour[1])
            pieces.append(colour.group() if is_shown else _escaped(colour.group()))
            end = colour.end()
        return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) else _named(char) for char in text)


def _is_harmless(char: str) -> bool:
    # Letters that Python does not know yet, and joined emoji, are no control characters.
    code = ord(char)
    is_control = code < 0x20 or 0x7F <= code < 0xA0  # noqa: PLR2004  (C0, DEL and C1)
    is_raw = 0xDC80 <= code <= 0xDCFF  # noqa: PLR2004  (a byte that is no UTF-8)
    is_turning = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # noqa: PLR2004  (direction)
    return char in _HARMLESS or not (is_control or is_raw or is_turning)


def _named(char: str) -> str:
    code = ord(char)
    if code > 0xFFF and code < 0xDC80:  # noqa: PLR2004
        return f"\\u{code:04x}"
    return f"\\x{code & 0xFF:02x}"


def _hides(numbers: str) -> bool:
    """Return whether a colour makes text invisible."""
    rest = iter(re.split("[;:]", numbers))
    for number in rest:
        if number in ("38", "48", "58"):  # an extended colour, of which any number may be an 8
            for _ in range(_WITH_ARGUMENTS.get(next(rest, ""), 0)):
                next(rest, None)
        elif number.isdecimal() and int(number) == _HIDDEN:
            return True
    return False
