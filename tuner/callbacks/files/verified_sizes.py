"""Verified sizes of complete log files, which a restore need not read again.

A restore checks whether the log files hold all results of the journal. Reading 30,000 of them takes
two seconds, reading their sizes a tenth of that. So the sizes of complete files are recorded, and
trusted until the machine is rebooted: until then, what was written is in the file even if the
writer was killed. A power cut may leave a file of the right size with blocks of zeros, so after a
reboot all files are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import final

from tuner.callbacks.log_records import Fingerprint
from tuner.storage import strict_json
from tuner.storage.disk import LOCAL_DISK, Disk
from tuner.storage.reading import LARGE_BYTES, open_file, read_file

from .append import append, replace_file

PORTION_BYTES = 1 << 17
"""Sizes are recorded once the files hold so many bytes; reading less again is cheaper."""


@final
class VerifiedSizes:
    """The sizes of the log files that one logger has finished, in a file of its own.

    Its first line holds the machine's boot id, each other line a fingerprint, the paths of the
    files below the experiment, and their sizes.

    Args:
        path: The file; it need not be there.
        boot_id: The machine's boot id; empty if unknown, and then no size is recorded.
        portion_bytes: Sizes are recorded once the files hold so many bytes.
        disk: Where to write.
    """

    def __init__(
        self,
        path: str,
        boot_id: str,
        portion_bytes: int = PORTION_BYTES,
        disk: Disk = LOCAL_DISK,
    ) -> None:
        self._path = path
        self._portion_bytes = portion_bytes
        self._disk = disk
        self._head = strict_json.dumps(boot_id).encode() + b"\n" if boot_id else b""
        self._found: frozenset[bytes] | None = None
        self._is_begun = False
        self._waiting: list[bytes] = []
        self._num_bytes = 0

    def add(self, fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> int:
        """Record that files are complete, once there is enough to record; ignore failures.

        Args:
            fingerprint: The fingerprint of the results that they hold.
            sizes: Path and size of each, all of them in the directory of a trial.

        Returns:
            How many bytes were written.
        """
        if not (self._head and sizes):
            return 0
        self._waiting.append(_line(fingerprint, sizes))
        self._num_bytes += sum(size for _, size in sizes)
        return self._write() if self._num_bytes >= self._portion_bytes else 0

    def holds(self, fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> bool:
        """Return whether an earlier driver recorded these files as complete, with these sizes.

        Args:
            fingerprint: The fingerprint of the results that they hold.
            sizes: Path and size of each, in the same order as for `add`.
        """
        if self._found is None:
            self._found = self._read()
        return bool(sizes and self._found) and _line(fingerprint, sizes) in self._found

    def forget(self) -> None:
        """Free what earlier drivers recorded; `holds` returns False from now on."""
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
            if self._is_begun or self._is_of_this_boot():
                append(self._path, data, self._disk)
            else:
                data = self._head + data
                replace_file(self._path, data, self._disk)
            self._is_begun = True
            return len(data)
        return 0

    def _is_of_this_boot(self) -> bool:
        try:
            with open_file(self._path) as file:
                return file.readline(len(self._head)) == self._head
        except OSError:  # there is none, or it is no file
            return False


def size_of(path: str) -> int:
    """Return the size of a file, in bytes.

    Raises:
        OSError: If it cannot be read.
    """
    return os.stat(path).st_size  # noqa: PTH116  (creating a `Path` takes longer than the call)


def _line(fingerprint: Fingerprint, sizes: Sequence[tuple[str, int]]) -> bytes:
    """Return the line that records these files; it is compared as a whole, never parsed."""
    files = [f'["{"/".join(path.rsplit(os.sep, 2)[1:])}",{size}]' for path, size in sizes]
    return f"[{fingerprint.text},{','.join(files)}]\n".encode("utf-8", "backslashreplace")
