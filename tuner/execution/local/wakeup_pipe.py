"""Wakes a selector from signal handlers and other threads."""

from __future__ import annotations

import contextlib
import os
from typing import final


@final
class Bell:
    """A pipe to be selected on, which can be read from as soon as somebody has rung."""

    def __init__(self) -> None:
        self._end, self._clapper = os.pipe()
        for end in (self._end, self._clapper):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Return what to select on."""
        return self._end

    def ring(self) -> None:
        """Let the selector return; may be called from signal handlers and other threads."""
        with contextlib.suppress(OSError):  # full, so it rings already; or closed
            os.write(self._clapper, b".")

    def silence(self) -> None:
        """Take note of all rings so far."""
        os.read(self._end, 4096)

    def close(self) -> None:
        """Close the pipe; whoever rings later is not heard."""
        clapper, self._clapper = self._clapper, -1
        os.close(clapper)
        os.close(self._end)
