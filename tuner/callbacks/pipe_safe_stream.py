"""Text stream that survives a closed terminal or a broken pipe."""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any, TextIO, final


@final
class PipeSafeStream:
    """Text stream that discards what is written once its reader is gone.

    A closed terminal or pipe must not end the search.

    Args:
        stream: Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or discard it if there is no reader any more."""
        try:
            return self._stream.write(text)
        except OSError:
            self._redirect_to_null()
            return len(text)

    def flush(self) -> None:
        """Write out what is buffered, or discard it if there is no reader any more."""
        try:
            self._stream.flush()
        except OSError:
            self._redirect_to_null()

    def is_writable_now(self) -> bool:
        """Return whether a small write would not block; True where that is unknown."""
        # A terminal that is stopped with Ctrl-S, or a pipe that is full, blocks the writer.
        poll = select.poll()
        try:
            poll.register(self._stream.fileno(), select.POLLOUT)
            # Without a reader this is True as well, and the write that follows finds out.
            return bool(poll.poll(0))
        except (OSError, ValueError, AttributeError):
            return True

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def _redirect_to_null(self) -> None:
        # The descriptor itself, so that what the script prints later does not fail either, nor
        # Python's flush at exit, which would change the exit code.
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.dup2(null, self._stream.fileno())
            finally:
                os.close(null)
