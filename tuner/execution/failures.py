"""Describe exceptions of training code as text.

An exception of the user's may have a ``__str__`` that raises, be impossible to pickle, or have an
endless traceback. So it is described where it is caught, and only the description is sent.
"""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from tuner.core.worker_records import Failure, place_in

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
