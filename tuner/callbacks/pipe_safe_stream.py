"""Text stream that survives a closed terminal or a broken pipe."""

from __future__ import annotations

import contextlib
import os
from typing import Any, TextIO, final


@final
class LastingStream:
    """Passes on what is written, and goes on without a reader once there is none.

    A search must not end because nobody looks at it any more. So that what the script itself prints
    later does not end it either, nor Python's last flush change its exit code, the descriptor leads
    nowhere from then on.

    Args:
        stream: Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as far as there is a reader."""
        try:
            return self._stream.write(text)
        except OSError:
            self._lead_nowhere()
            return len(text)

    def flush(self) -> None:
        """Write out what is buffered, as far as there is a reader."""
        try:
            self._stream.flush()
        except OSError:
            self._lead_nowhere()

    def __getattr__(self, name: str) -> Any:
        """Return what else there is of the stream."""
        return getattr(self._stream, name)

    def _lead_nowhere(self) -> None:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.dup2(nowhere, self._stream.fileno())
            finally:
                os.close(nowhere)
