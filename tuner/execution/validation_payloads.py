"""Files with pickled validation functions and arguments, as the driver's session knows them."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import final

from tuner.core.events import ResultReported

from .validation_assignment import LARGE_BYTES, ValidationAssignment

_log = logging.getLogger(__name__)


@final
class Payloads:
    """The payloads that workers of this session have written, see `validation`.

    No other one is ever unpickled. They are deleted when their validation has ended, and the rest
    at the end of the session, since the next one does not use them.

    Args:
        are_kept: Whether none is deleted, since processes on other machines may need it.
    """

    def __init__(self, *, are_kept: bool = False) -> None:
        self._are_kept = are_kept
        self._paths: set[str] = set()
        self._has_warned = False

    def note(self, trial_dir: str | os.PathLike[str], report: ResultReported) -> None:
        """Note the payload of a report that a worker of this session has sent, if it has one."""
        request = report.validation
        if request is None or not request.payload:
            return
        path = os.path.join(trial_dir, request.payload)  # noqa: PTH118  (a text)
        self._paths.add(path)
        if not self._has_warned and (num_bytes := _size(path)) > LARGE_BYTES:
            self._has_warned = True
            _log.warning(
                "the validation function %s and its arguments take %.0f MiB when pickled, which "
                "each report writes and each validation reads; put large objects into the "
                "checkpoint, into shared storage, or into the datasets of the trainer",
                request.function or "that was declared",
                num_bytes / 2**20,
            )

    def has(self, assignment: ValidationAssignment) -> bool:
        """Return whether the payload of a validation was written in this session."""
        return _path(assignment) in self._paths

    def delete(self, assignment: ValidationAssignment) -> None:
        """Delete the payload of a validation that has ended."""
        self._delete(_path(assignment))

    def delete_all(self) -> None:
        """Delete all that are left."""
        for path in list(self._paths):
            self._delete(path)

    def _delete(self, path: str) -> None:
        if path in self._paths and not self._are_kept:
            self._paths.discard(path)
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _path(assignment: ValidationAssignment) -> str:
    return os.path.join(assignment.trial_dir, assignment.request.payload)  # noqa: PTH118  (a text)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
