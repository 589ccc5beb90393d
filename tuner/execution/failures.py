"""Describe why training code failed: an exception, or the end of its process.

An exception of the user's may have a ``__str__`` that raises, be impossible to pickle, or have an
endless traceback. So it is described where it is caught, and only the description is sent.
"""

from __future__ import annotations

import linecache
import re
import signal
import traceback
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tuner.core.worker_records import Failure, place_in
from tuner.wire.record import record

from .secrets import redact

MAX_MESSAGE_LENGTH = 1_000
MAX_TRACEBACK_LENGTH = 16_000

# A line of `traceback.format_exception`.
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
_ENGINE = tuple(str(Path(__file__).parents[1] / name) for name in ("execution", "train"))
"""Folders of the code that calls the user's, whose frames are left out of tracebacks."""
_SOURCE = Path(__file__).parents[2]
_PACKAGES = tuple(str(_SOURCE / name / "_")[:-1] for name in ("tuner", "schedulers", "searchers"))
"""Folders of the engine; in an editable install they are not below ``site-packages``."""

_NUM_LINES: Final = 20
_UNKNOWN_SENDER: Final = "a signal that tuner did not send ended the process"


def describe(error: BaseException) -> Failure:
    """Return a description of the exception; never raises.

    Example:
        >>> str(describe(ValueError("lr must be positive")))
        'ValueError: lr must be positive'
    """
    text = (
        f"exited with code {_safe_text(error.code)}"
        if isinstance(error, SystemExit)
        else _safe_text(error)
    )
    bases = tuple(
        _encodable(kind.__name__) for kind in type(error).__mro__[1:] if kind is not object
    )
    trace = _encodable(_traceback(error))
    place = place_in(trace, _PACKAGES)  # before shortening, which may remove the user's frame
    return Failure(
        _encodable(type(error).__name__),
        _encodable(_one_line(redact(text))),
        _shortened(trace),
        bases,
        place,
    )


def as_message(failure: Failure) -> dict[str, Any]:
    """Return the failure as a message field, see `worker_protocol`."""
    fields = {**asdict(failure), "bases": list(failure.bases)}
    del fields["ranks"]  # a worker knows of itself alone
    return fields


def with_notebook_source(trace: str) -> str:
    """Return a traceback completed with the source of notebook and interpreter lines.

    A worker cannot give it: only the process in which the lines were typed knows their source.

    Args:
        trace: A formatted traceback.
    """
    lines = trace.splitlines(keepends=True)
    completed = []
    for line, after in zip(lines, [*lines, ""][1:], strict=True):
        completed.append(line)
        frame = _FRAME.match(line)
        if frame and not after.startswith("    ") and frame["file"] in linecache.cache:
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            completed.append(f"    {source}\n" if source else "")
    return "".join(completed)


def _safe_text(value: object) -> str:
    try:
        return str(value)
    except BaseException:  # noqa: BLE001  (str of a user's exception may raise anything)
        return f"<{type(value).__name__} whose text cannot be read>"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 1] + "…"


def _traceback(error: BaseException) -> str:
    # Of a failure outside Python, what it has printed tells more than where it was noticed.
    if isinstance(output := getattr(error, "program_output", None), str) and output:
        return _encodable(redact(output))
    try:
        return redact(
            "".join(
                traceback.format_exception(type(error), error, _users_part(error.__traceback__))
            )
        )
    except BaseException:  # noqa: BLE001  (formatting runs code of the exception's own)
        return "the traceback cannot be formatted"


def _shortened(text: str) -> str:
    if len(text) > MAX_TRACEBACK_LENGTH:
        # The first frames say how the failing line was reached, the last ones what failed.
        half = MAX_TRACEBACK_LENGTH // 2
        text = (
            f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
        )
    return text


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame outside the engine; all of it without one."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_ENGINE):
        inner = inner.tb_next
    return inner or trace


def _encodable(text: str) -> str:
    # Lone surrogates, e.g. from a file name that is not UTF-8, could not be written to any file.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# Processes that could not say it themselves.


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
