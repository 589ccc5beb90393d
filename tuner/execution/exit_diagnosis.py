"""Why a process ended when it could not report it: exit code, signal, out of memory."""

from __future__ import annotations

import signal
from typing import Final

from tuner.core.worker_records import Failure
from tuner.wire.record import record

_NUM_LINES: Final = 20
_UNKNOWN_SENDER: Final = "a signal that tuner did not send ended the process"


@record
class ExitInfo:
    """How a process whose group is gone ended, as seen by the one that started it.

    Attributes:
        code: Exit code, or minus the number of the signal that killed it.
        peak_bytes: Peak resident memory of it or one of its children; 0 if unknown.
        is_oom: Whether the kernel killed it because memory ran out; None if unknown.
    """

    code: int
    peak_bytes: int = 0
    is_oom: bool | None = None


def diagnose_exit(exit_info: ExitInfo, stderr: str) -> Failure:
    """Return the failure of a process that ended without reporting how.

    Args:
        exit_info: What was observed.
        stderr: The last lines of its standard error.
    """
    lines = "".join(stderr.splitlines(keepends=True)[-_NUM_LINES:])
    code = exit_info.code
    if code >= 0:
        message = "the process ended before the training code did"
        return Failure(f"exited with code {code}", message, lines)
    message = _sigkill_message(exit_info.is_oom) if -code == signal.SIGKILL else _UNKNOWN_SENDER
    if exit_info.peak_bytes:
        message += f"; its peak memory was {exit_info.peak_bytes / 2**20:,.0f} MiB"
    return Failure(f"killed by {_signal_name(-code)}", message, lines)


def _sigkill_message(is_oom: bool | None) -> str:
    match is_oom:
        case True:
            return (
                "the kernel ended the process because memory ran out; "
                "run fewer trials at once, or smaller ones"
            )
        case False:
            return (
                f"{_UNKNOWN_SENDER}, and the kernel reports no lack of memory; "
                "another guard of the machine's memory may have sent it"
            )
        case None:
            return f"{_UNKNOWN_SENDER}; the kernel sends it when memory runs out"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
