"""Verified sizes of complete log files, which a restore need not read again.

A restore checks whether the log files hold all results of the journal. Reading 30,000 of them takes
two seconds, asking for their sizes a tenth of that. So the sizes of complete files are written
down, and believed until the machine is restarted: until then, what was written is in the file even
if the writer was killed. A power cut may leave a file of the right size with blocks of zeros; after
a restart all files are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import final

from tuner.callbacks.log_records import Fingerprint
from tuner.storage import strict_json
from tuner.storage.reading import LARGE_BYTES, open_file, read_file

from .append import append, replace_file

PORTION_BYTES = 1 << 17
"""Sizes are written down after so many bytes of log files; reading less than that again is
cheaper."""


@final
class VerifiedSizes:
    """The sizes of the log files that one logger has finished, in a file of its own.

    Its first line holds the machine's boot id, each other line a fingerprint, the paths of the
    files below the experiment, and their sizes.

    Args:
        path: The file; it need not be there.
        machine_start: The machine's boot id; empty if unknown, and then no size is verified.
    """

    def __init__(self, path: str, machine_start: str) -> None:
        self._path = path
        self._head = strict_json.dumps(machine_start).encode() + b"\n" if machine_start else b""
        self._found: frozenset[bytes] | None = None
        self._is_begun = False
        self._waiting: list[bytes] = []
        self._num_bytes = 0

    def add(self, fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> int:
        """Note that files are complete; it is written down when there is enough of it, or not at all where that fails.

        Args:
            fingerprint: Of the results that they hold.
            sizes: Path and size of each, all of them in the directory of a trial.

        Returns:
            How many bytes were written.
        """
        if not (self._head and sizes):
            return 0
        self._waiting.append(_line(fingerprint, sizes))
        self._num_bytes += sum(size for _, size in sizes)
        return self._write() if self._num_bytes >= PORTION_BYTES else 0

    def holds(self, fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> bool:
        """Return whether it was noted before this driver began that files are complete, when they had the sizes that they have now.

        Args:
            fingerprint: Of the results that they hold.
            sizes: As they were given to `add`.
        """
        if self._found is None:
            self._found = self._read()
        return bool(sizes and self._found) and _line(fingerprint, sizes) in self._found

    def forget(self) -> None:
        """Let go of what was noted before this driver began: nobody asks for it any more."""
        self._found = frozenset()

    def _read(self) -> frozenset[bytes]:
        try:
            head, *lines = read_file(self._path, LARGE_BYTES).splitlines(keepends=True)
        except (OSError, ValueError):
            return frozenset()
        return frozenset(lines if head == self._head else ())

    def _write(self) -> int:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._num_bytes = 0
        with suppress(OSError):
            if self._is_begun or self._is_of_this_start():
                append(self._path, data)
            else:
                data = self._head + data
                replace_file(self._path, data)
            self._is_begun = True
            return len(data)
        return 0

    def _is_of_this_start(self) -> bool:
        try:
            with open_file(self._path) as file:
                return file.readline(len(self._head)) == self._head
        except OSError:  # there is none, or something else lies in its place
            return False


def size_of(path: str) -> int:
    """Return the size of a file, in bytes.

    Raises:
        OSError: If it cannot be asked.
    """
    return os.stat(path).st_size  # noqa: PTH116  (a `Path` takes longer than the call)


def _line(fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> bytes:
    """Return what stands for these files; nobody reads it but people, it is only looked for."""
    files = [f'["{"/".join(path.rsplit(os.sep, 2)[1:])}",{size}]' for path, size in sizes]
    return f"[{fingerprint.text},{','.join(files)}]\n".encode("utf-8", "backslashreplace")
