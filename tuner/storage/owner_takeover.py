"""Taking an experiment away from a driver that hangs, or was stopped and forgotten: its process is killed first.

A process number alone is not trusted, since numbers are given again: machine, its start and the start of the process have to be those that
the owner wrote down. Where one of them cannot be told, nobody is killed.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Final

from tuner.errors import ExperimentLocked

_PROCESSES: Final = Path("/proc")
_START_FIELD: Final = 19
"""Of ``/proc/<pid>/stat``, counted behind the name of the program: when the process started, in ticks since the machine did."""


def start_ticks(pid: int) -> int | None:
    """Return when a process started, as the kernel counts; None where that cannot be told."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def kill(pid: int, started_ticks: int, timeout_s: float) -> None:
    """Kill a process of this machine and wait until it is gone; one that is gone already is no error.

    Args:
        pid: The process.
        started_ticks: When it started, see `start_ticks`.
        timeout_s: How long to wait for its end.

    Raises:
        ExperimentLocked: If it is another process by now, may not be killed, or does not end.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError) as cause:
        raise ExperimentLocked(
            f"process {pid} cannot be held on to: {cause}; kill it yourself"
        ) from cause
    try:
        # The handle pins the process, so that what is killed is what has been looked at.
        if start_ticks(pid) != started_ticks:
            raise ExperimentLocked(
                f"process {pid} is another one than that which took the lock; find out who holds it"
            )
        _kill(handle, pid, timeout_s)
    finally:
        os.close(handle)


def _kill(handle: int, pid: int, timeout_s: float) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as cause:
        raise ExperimentLocked(
            f"process {pid} belongs to somebody else and cannot be killed"
        ) from cause
    if not select.select([handle], [], [], timeout_s)[0]:
        raise ExperimentLocked(f"process {pid} was killed, but has not ended after {timeout_s:g} s")
