"""The end of what a process has written to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tuner.storage.disk import open_file

_TAIL_BYTES: Final = 1 << 13


def last_lines(path: Path, start: int, num_lines: int) -> str:
    """Return the last lines of a text file, from `start` on and at most 8 KiB.

    Empty if the file cannot be read.
    """
    if size(path) <= start:
        return ""
    try:
        with open_file(path) as file:
            # From near the end: a trial may have written gigabytes.
            file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-num_lines:])


def size(path: Path) -> int:
    """Return a file's size in bytes, 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
