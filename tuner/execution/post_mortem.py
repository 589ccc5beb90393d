"""How a worker died that could not say it itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from tuner.core.trial import Failure

_TAIL_BYTES: Final = 1 << 13
_TAIL_LINES: Final = 20


def cause_of_death(code: int, stderr: Path, start: int) -> Failure:
    """Return what is known about a process that ended without saying how.

    Args:
        code: Its exit code, or minus the signal that killed it.
        stderr: File with its standard error.
        start: Where in that file its own part begins.
    """
    if code >= 0:
        return Failure(f"exited with code {code}", "the process ended before the training code did", last_lines(stderr, start))
    name = _signal_name(-code)
    hint = "; the kernel does that when memory runs out" if -code == signal.SIGKILL else ""
    return Failure(f"killed by {name}", f"a signal ended the process that nobody here had sent{hint}", last_lines(stderr, start))


def last_lines(path: Path, start: int) -> str:
    """Return the end of a text file from `start` on, at most 20 lines and 8 KiB; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-_TAIL_LINES:])


def size(path: Path) -> int:
    """Return a file's size in bytes, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
