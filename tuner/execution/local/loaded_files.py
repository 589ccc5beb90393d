"""The files of the modules that a zygote has loaded, and whether they are still the same.

A zygote that is kept for the next experiment must not run code that has been edited since.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, final

_MARGIN_S: Final = 2.0
"""Clocks of file systems differ from the machine's, and tick more slowly."""


@final
class LoadedFiles:
    """Remembers the state of each loaded module's file.

    Args:
        since_s: When the process began to load modules.
    """

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s
        self._states: dict[str, tuple[int, ...] | None] = {}
        self._is_in_doubt = False

    def note_new(self) -> None:
        """Remember the files of modules that have been loaded since the last call."""
        for path in _paths() - self._states.keys():
            state = self._states[path] = _state(path)
            # It may have been written after it was read.
            if state and max(state[:2]) > (self._since_s - _MARGIN_S) * 1e9:
                self._is_in_doubt = True

    def are_unchanged(self) -> bool:
        """Return whether all files are as they were when they were loaded."""
        # Of modules loaded in between as well: an old file has not changed since.
        self.note_new()
        return not self._is_in_doubt and all(
            _state(path) == state for path, state in self._states.items()
        )


def _paths() -> set[str]:
    found: set[str] = set()
    for module in list(sys.modules.values()):
        # Not getattr: modules that load lazily would do so.
        names: dict[str, Any] = getattr(module, "__dict__", {})
        # In an archive the module has no file of its own.
        path = getattr(names.get("__loader__"), "archive", None) or names.get("__file__")
        if isinstance(path, str):
            found.add(path)
    return found


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes with a file; None where there is none, as of modules made in memory."""
    try:
        status = os.stat(path)  # noqa: PTH116  (thousands of them)
    except OSError:
        return None
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_dev,
    )
