"""A pipe that wakes a selector from a signal handler or another thread."""

from __future__ import annotations

import contextlib
import os
from typing import final

_READ_BYTES = 4096


@final
class WakeupPipe:
    """Readable from the first `wake` until `clear`.

    Attributes:
        write_end: For `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        for end in (self._read_end, self.write_end):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._read_end

    def wake(self) -> None:
        """Make the selector return; may be called from signal handlers and other threads."""
        with contextlib.suppress(OSError):  # full, so it is readable already; or closed
            os.write(self.write_end, b".")

    def clear(self) -> None:
        """Discard the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, _READ_BYTES)

    def close(self) -> None:
        """Close the pipe; later calls of `wake` have no effect."""
        # -1 first: a signal handler that runs between the two lines must not write to a descriptor
        # that another file may have got by then.
        write_end, self.write_end = self.write_end, -1
        os.close(write_end)
        os.close(self._read_end)
