"""How a worker died that could not say it itself."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuner.core.trial import Failure
from tuner.storage.reading import open_file

_TAIL_BYTES: Final = 1 << 13
_ANONYMOUS: Final = "a signal ended the process that nobody here had sent"


@dataclass(frozen=True, slots=True)
class Remains:
    """What is known of a worker whose process group is gone.

    Attributes:
        code: Its exit code, or minus the signal that killed it.
        peak_bytes: How much memory it, or one of its children, has used at most; 0 if that is not known.
        is_oom: Whether the kernel killed it because memory ran out; None if the kernel does not tell.
    """

    code: int
    peak_bytes: int = 0
    is_oom: bool | None = None


def cause_of_death(remains: Remains, stderr: Path, start: int) -> Failure:
    """Return what is known about a process that ended without saying how.

    Args:
        remains: What the zygote has found.
        stderr: File with its standard error.
        start: Where in that file its own part begins.
    """
    if remains.code >= 0:
        return Failure(
            f"exited with code {remains.code}",
            "the process ended before the training code did",
            last_lines(stderr, start),
        )
    message = _killing(remains.is_oom) if -remains.code == signal.SIGKILL else _ANONYMOUS
    if remains.peak_bytes:
        message += f"; it had used {remains.peak_bytes / 2**20:,.0f} MiB of memory at most"
    return Failure(f"killed by {_signal_name(-remains.code)}", message, last_lines(stderr, start))


def _killing(is_oom: bool | None) -> str:
    match is_oom:
        case True:
            return "the kernel ended the process because memory ran out; run fewer trials at once, or smaller ones"
        case False:
            return f"{_ANONYMOUS}, nor the kernel for lack of memory; some other guard of the machine's memory may have"
        case None:
            return f"{_ANONYMOUS}; the kernel does that when memory runs out"


def last_lines(path: Path, start: int, num_lines: int = 20) -> str:
    """Return the end of a text file from `start` on, at most so many lines and 8 KiB; empty if it cannot be read."""
    try:
        with open_file(path) as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-num_lines:])


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
