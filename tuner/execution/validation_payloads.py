"""Files with pickled validation functions and arguments, as the driver's session knows them."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import final

from tuner.core.commands import StartValidation
from tuner.core.events import Outcome, ResultReported, ValidationEnded

from .validation_assignment import LARGE_BYTES, ValidationAssignment

_log = logging.getLogger(__name__)


@final
class Payloads:
    """The payloads that workers of this session have written, see `validation`.

    No other one is ever unpickled. They are deleted when their validation has ended, and the rest
    at the end of the session, since the next one does not use them.

    Args:
        are_kept: Whether no file is deleted here, since they are on other machines.
    """

    def __init__(self, *, are_kept: bool = False) -> None:
        self._are_kept = are_kept
        self._paths: dict[tuple[str, str], str] = {}
        self._has_warned = False

    def note(self, trial_dir: str | os.PathLike[str], report: ResultReported) -> None:
        """Note the payload of a report that a worker of this session has sent, if it has one."""
        request = report.validation
        if request is None or not request.payload:
            return
        path = os.path.join(trial_dir, request.payload)  # noqa: PTH118  (a text)
        self._paths[report.trial_id, request.payload] = path
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
        return (assignment.trial_id, assignment.request.payload) in self._paths

    def delete(self, assignment: ValidationAssignment) -> None:
        """Delete the payload of a validation that has ended."""
        self._delete((assignment.trial_id, assignment.request.payload))

    def note_end(
        self, assignment: ValidationAssignment, command: StartValidation, ended: ValidationEnded
    ) -> None:
        """Delete the payload of a validation that is not tried again."""
        if is_over_for_good(command, ended):
            self.delete(assignment)

    def delete_all(self) -> None:
        """Delete all that are left."""
        for name in list(self._paths):
            self._delete(name)

    def _delete(self, name: tuple[str, str]) -> None:
        path = self._paths.pop(name, "")
        if path and not self._are_kept:
            with contextlib.suppress(OSError):
                Path(path).unlink()


def is_over_for_good(command: StartValidation, ended: ValidationEnded) -> bool:
    """Return whether the validation that a command began is not tried again."""
    has_failed = ended.outcome is Outcome.FAILED and command.is_last_try
    return has_failed or ended.outcome in (Outcome.COMPLETED, Outcome.KILLED)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
