"""Standard input, output and error of processes that were started without them, as daemons and cron jobs are.

A closed descriptor 0, 1 or 2 is the next one that the system gives away. A socket or a journal that gets it would receive what training
code prints, and be cut off where the output of a worker is sent to its file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_HIGHEST: Final = 2


def open_standard_descriptors() -> None:
    """Open the null device for each standard descriptor that is closed."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)  # always the lowest that is free
        if descriptor > _HIGHEST:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def open_standard_streams() -> None:
    """Open the null device for each standard descriptor that is closed, and for each standard stream that Python has not got."""
    open_standard_descriptors()
    # A new stream, and not one on the descriptor: where it was closed when Python started, a file of the user's may have got it since.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  (open for life)


def inherited_output() -> tuple[int | None, int | None]:
    """Return which standard output and error a child process is to get, in the terms of `subprocess.Popen`: ours, if they were open."""
    out, err = (
        None if stream is not None else subprocess.DEVNULL
        for stream in (sys.__stdout__, sys.__stderr__)
    )
    return out, err
